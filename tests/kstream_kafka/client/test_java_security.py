"""TLS and SASL parameters of the Java client, and JAAS strings: what becomes of each, and what is said of those that cannot be had."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.client import java_security
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError

BROKERS = {"bootstrap.servers": "h:1"}
COMMON = "org.apache.kafka.common.security."
OAUTH = COMMON + "oauthbearer.OAuthBearerLoginModule required "
URL = {"sasl.oauthbearer.token.endpoint.url": "https://idp/token"}
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required "
Row = dict[str, Any]


def settings(given: Row) -> Row:
    parsed = dict(KafkaParams.parse({**BROKERS, **given}).settings)
    return {k: v for k, v in parsed.items() if k not in ("bootstrap.servers", "isolation.level", "auto.offset.reset")}


TRANSLATED: list[tuple[Row, Row]] = [
    ({"security.protocol": "sasl_ssl", "sasl.mechanism": "plain", "sasl.username": "u", "sasl.password": "p"},
     {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}),
    ({"sasl.mechanisms": "scram-sha-512"}, {"sasl.mechanism": "SCRAM-SHA-512"}),
    ({"ssl.truststore.type": "pem", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
    ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
    ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p", "ssl.key.password": "p"},
     {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"}),
    ({"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"}, {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"}),
    ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.key.password": "p"},
     {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem", "ssl.key.password": "p"}),
    ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C", "ssl.keystore.key": "K"},
     {"ssl.certificate.pem": "C", "ssl.key.pem": "K"}),
    ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {"ssl.endpoint.identification.algorithm": "https"}),
    ({"ssl.protocol": "TLSv1.3", "ssl.truststore.password": "p", "sasl.login.refresh.window.factor": 0.8}, {}),
    ({"sasl.login.callback.handler.class": COMMON + "oauthbearer.OAuthBearerLoginCallbackHandler"}, {}),
    ({"sasl.jaas.config": OAUTH + 'clientId="c" clientSecret="s" scope="a b";', **URL},
     {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "s",
      "sasl.oauthbearer.scope": "a b", **URL}),
    ({"sasl.jaas.config": OAUTH + 'clientId="c" clientSecret="s" extension_cluster="x" extension_pool="y";', **URL},
     {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": "s",
      "sasl.oauthbearer.extensions": "cluster=x,pool=y", **URL}),
    ({"sasl.jaas.config": OAUTH + ";", "sasl.oauthbearer.client.credentials.client.id": "c",
      "sasl.oauthbearer.client.credentials.client.secret": "s", **URL},
     {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.credentials.client.id": "c",
      "sasl.oauthbearer.client.credentials.client.secret": "s", **URL}),
    ({"sasl.jaas.config": OAUTH + 'unsecuredLoginStringClaim_sub="me" unsecuredLoginLifetimeSeconds="60";'},
     {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=me lifeSeconds=60"}),
    ({"sasl.jaas.config": KERBEROS + 'useKeyTab=true keyTab="/k.keytab" principal="u@R" serviceName="kafka" storeKey=true;'},
     {"sasl.kerberos.keytab": "/k.keytab", "sasl.kerberos.principal": "u@R", "sasl.kerberos.service.name": "kafka"}),
    ({"sasl.jaas.config": KERBEROS + "useTicketCache=true;", "sasl.kerberos.service.name": "kafka"},
     {"sasl.kerberos.kinit.cmd": "", "sasl.kerberos.service.name": "kafka"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), TRANSLATED, ids=range(len(TRANSLATED)))
def test_the_java_clients_parameters_become_librdkafkas(given: Row, expected: Row):
    assert settings(given) == expected


REFUSED: list[tuple[Row, str]] = [
    ({"ssl.truststore.location": "/t.jks"}, r"ssl\.truststore\.location.*JKS.*keytool .*-srckeystore /t\.jks.*openssl pkcs12"),
    ({"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"}, r"openssl pkcs12 -in /t\.p12 -nokeys -out ca\.pem"),
    ({"ssl.keystore.location": "/k.jks"}, r"ssl\.keystore\.location.*keytool .*-srckeystore /k\.jks .*-deststoretype PKCS12"),
    ({"ssl.keystore.location": "/k", "ssl.keystore.type": "JKS"}, r"-srckeystore /k "),
    ({"ssl.engine.factory.class": "com.example.F"}, r"ssl\.engine\.factory\.class.*ssl\.ca\.location"),
    ({"security.providers": "x"}, r"OpenSSL is used"),
    ({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, r"Java's names.*ECDHE-RSA"),
    ({"sasl.login.callback.handler.class": "com.example.Handler"}, r"sasl\.login\.callback\.handler.*com\.example\.Handler.*oauth_cb"),
    ({"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"}, r"aws-msk-iam-sasl-signer"),
    ({"sasl.mechanism": "AWS_MSK_IAM"}, r"sasl\.mechanism=OAUTHBEARER and an oauth_cb.*aws-msk-iam-sasl-signer"),
    ({"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}, r"aws-msk-iam-sasl-signer"),
    ({"sasl.mechanism": "NTLM"}, r"One of: PLAIN, SCRAM-SHA-256"),
    ({"security.protocol": "TLS"}, r"One of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, r"no source of tokens is set.*oauth_cb"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, r"'sasl\.password' is missing"),
    ({"sasl.jaas.config": OAUTH + 'clientId="c" clientSecret="s";'}, r"token\.endpoint\.url is missing"),
    ({"sasl.jaas.config": COMMON + 'scram.ScramLoginModule required tokenauth="true" username="u" password="p";'}, r"delegation token"),
    ({"sasl.jaas.config": COMMON + 'plain.PlainLoginModule required username="u";'}, r"lacks a username or a password"),
    ({"bootstrap.servers": "user:word@h:1"}, r"has a user in it"),
    ({"oauth_cb": "no path"}, r'"package\.module:function"'),
    ({"oauth_cb": 7}, r"is of type int"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_had_is_refused_by_name_with_what_to_set_instead(given: Row, said: str):
    with pytest.raises(KafkaConfigError, match=said):
        settings(given)


PLAIN = COMMON + "plain.PlainLoginModule"
WRITTEN = [
    (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
    (f"{PLAIN} required\n  username='u'\n  password='p'\n;", {"username": "u", "password": "p"}),
    (f'{PLAIN}   optional username = "u"  password = p1-2_3 ;', {"username": "u", "password": "p1-2_3"}),
    (rf'{PLAIN} required username="a\"b" password="back\\slash;and=more";', {"username": 'a"b', "password": "back\\slash;and=more"}),
    (rf'{PLAIN} required password="tab\tline\nA\101";', {"password": "tab\tline\nAA"}),
    (f'{PLAIN} required // said "here"\n /* and\n here */ password="//no comment";', {"password": "//no comment"}),
    (f'{PLAIN} REQUIRED oauth.client-id="x"', {"oauth.client-id": "x"}),
    (f"{PLAIN} required;", {}),
]


@pytest.mark.parametrize(("text", "options"), WRITTEN, ids=range(len(WRITTEN)))
def test_a_jaas_entry_is_read_as_java_reads_it(text: str, options: dict[str, str]):
    assert java_security.parse(text) == (PLAIN, options)


@pytest.mark.parametrize(
    "text",
    ["", "   ", PLAIN, f'{PLAIN} password="hunter2";', f'{PLAIN} required password="hunter2;', f"{PLAIN} required hunter2;",
     f'{PLAIN} required password="hunter2"; {PLAIN} required;', f"{PLAIN} required password=;", f"{PLAIN} required =hunter2;",
     f"{PLAIN} required password=hunter2==;"],
)  # fmt: skip
def test_a_jaas_entry_that_java_would_refuse_is_refused_without_showing_it(text: str):
    with pytest.raises(KafkaConfigError, match=r"sasl\.jaas\.config") as caught:
        KafkaParams.parse({**BROKERS, "sasl.jaas.config": text})
    assert "hunter2" not in f"{caught.value} {caught.value.facts} {caught.value.__cause__} {caught.value.__context__}"

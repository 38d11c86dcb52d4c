"""The Java client's parameters about TLS and SASL → librdkafka's, read together: a key store is a type, a file and a password.

What has no counterpart is refused by name, with what to set instead. Nothing here shows a value that may be secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstream_kafka.client import jaas, oauth
from kstream_kafka.client.properties import words
from kstream_kafka.errors import KafkaConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

DROPPED = words(
    """
    ssl.protocol ssl.enabled.protocols ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.secure.random.implementation
    ssl.truststore.type ssl.truststore.password ssl.keystore.type sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.scope.claim.name sasl.oauthbearer.header.urlencode
    """
)
"""Java's, and without meaning for librdkafka, which decides such things by itself; or the broker's."""

_UNSUPPORTED = {
    "security.providers": "OpenSSL is used, not Java's security providers.",
    "ssl.provider": "OpenSSL is used, not Java's security providers.",
    "ssl.engine.factory.class": "OpenSSL is used: set ssl.ca.location, ssl.certificate.location and ssl.key.location.",
}
_HANDLERS = words(
    """
    sasl.login.callback.handler.class sasl.client.callback.handler.class sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class
    """
)
_KAFKAS_OWN = "org.apache.kafka.common.security."
_TRUST_JKS = (
    "Make PEM of it: keytool -importkeystore -srckeystore {0} -destkeystore trust.p12 -deststoretype PKCS12, then "
    "openssl pkcs12 -in trust.p12 -nokeys -out ca.pem; set ssl.ca.location=ca.pem."
)
_TRUST_PKCS12 = "Make PEM of it: openssl pkcs12 -in {0} -nokeys -out ca.pem; set ssl.ca.location=ca.pem."
_KEY_JKS = (
    "Convert it: keytool -importkeystore -srckeystore {0} -destkeystore keys.p12 -deststoretype PKCS12; set "
    "ssl.keystore.type=PKCS12 and ssl.keystore.location=keys.p12."
)


def translate(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(librdkafka's properties, the parameters that are left to read). KafkaConfigError for what cannot be had."""
    found: dict[str, Any] = {}
    rest = {key: value for key, value in given.items() if key not in DROPPED}
    for key in [key for key in rest if key in _UNSUPPORTED]:
        raise KafkaConfigError(key, "has no counterpart in librdkafka", _UNSUPPORTED[key])
    for key in [key for key in rest if key in _HANDLERS]:
        _handler(key, str(rest.pop(key)))
    _stores(given, rest, found)
    if jaas.KEY in rest:
        found.update(jaas.credentials(str(rest.pop(jaas.KEY)), given))
    if oauth.KEY in rest:
        callback = rest.pop(oauth.KEY)
        found[oauth.KEY] = callback if isinstance(callback, oauth.TokenCallback) else oauth.TokenCallback(callback)
    algorithm = "ssl.endpoint.identification.algorithm"
    if algorithm in rest:
        found[algorithm] = str(rest.pop(algorithm) or "none").lower()  # Java's way to switch it off is an empty string
    return found, rest


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The same, protocol and mechanism in capitals; KafkaConfigError for a combination that cannot work, before any client is made."""
    servers = str(settings.get("bootstrap.servers", ""))
    if "@" in servers:
        raise KafkaConfigError("bootstrap.servers", "has a user in it", "Give host:port; credentials are sasl.username and sasl.password.")
    if "security.protocol" in settings:
        settings["security.protocol"] = _one_of("security.protocol", settings["security.protocol"], PROTOCOLS)
    if "sasl.mechanism" in settings:
        if str(settings["sasl.mechanism"]).upper() == "AWS_MSK_IAM":
            raise jaas.msk("sasl.mechanism")
        settings["sasl.mechanism"] = _one_of("sasl.mechanism", settings["sasl.mechanism"], MECHANISMS)
    if str(settings.get("security.protocol", "")).startswith("SASL_"):
        _check_sasl(settings)
    ciphers = str(settings.get("ssl.cipher.suites", ""))
    if "_WITH_" in ciphers:
        raise KafkaConfigError("ssl.cipher.suites", "has Java's names", "Give OpenSSL's: ECDHE-RSA-AES256-GCM-SHA384:…, or leave it out.")
    return settings


def _check_sasl(settings: Mapping[str, Any]) -> None:
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    if mechanism == "OAUTHBEARER":
        oidc = str(settings.get("sasl.oauthbearer.method", "")).lower() == "oidc"
        unsecured = str(settings.get("enable.sasl.oauthbearer.unsecure.jwt", "false")).lower() == "true"
        if not (oidc or unsecured or oauth.KEY in settings):
            raise KafkaConfigError(
                "sasl.mechanism", "is OAUTHBEARER and nothing says where tokens come from",
                "Set sasl.oauthbearer.method=oidc with client.id, client.secret and token.endpoint.url, or give an oauth_cb.",
            )  # fmt: skip
    elif mechanism != "GSSAPI":
        for key in ("sasl.username", "sasl.password"):
            if not settings.get(key):
                raise KafkaConfigError(key, f"is missing, and sasl.mechanism is {mechanism}", f"Set it, or {jaas.KEY}.")


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    text = str(value).upper()
    if text not in allowed:
        raise KafkaConfigError(key, f"is {value!r}", f"One of: {', '.join(allowed)}.")
    return text


def _handler(key: str, name: str) -> None:
    """Kafka's own do what librdkafka does by itself; anybody else's is code."""
    if name.startswith("software.amazon.msk"):
        raise jaas.msk(key)
    if not name.startswith(_KAFKAS_OWN):
        raise KafkaConfigError(key, f"names {name}, a Java class", "Give an oauth_cb, a Python function that returns a token.")


def _stores(given: Mapping[str, Any], rest: dict[str, Any], found: dict[str, Any]) -> None:
    trust, keys = rest.pop("ssl.truststore.location", None), rest.get("ssl.keystore.location")
    if trust:
        kind = str(given.get("ssl.truststore.type") or "JKS").upper()
        if kind != "PEM":
            how = _TRUST_PKCS12 if kind == "PKCS12" else _TRUST_JKS
            raise KafkaConfigError("ssl.truststore.location", f"is a {kind} file, which OpenSSL does not take", how.format(trust))
        found["ssl.ca.location"] = str(trust)
    if not keys:
        return
    kind = str(given.get("ssl.keystore.type") or ("JKS" if str(keys).lower().endswith(".jks") else "PKCS12")).upper()
    if kind == "PEM":
        del rest["ssl.keystore.location"]
        rest.pop("ssl.keystore.password", None)
        found.update({"ssl.certificate.location": str(keys), "ssl.key.location": str(keys)})
    elif kind == "PKCS12":
        rest.pop("ssl.key.password", None)  # of PKCS#12 it is the store's
    else:
        raise KafkaConfigError("ssl.keystore.location", f"is a {kind} file, which OpenSSL does not take", _KEY_JKS.format(keys))

r"""The Java client's parameters for TLS and SASL, in librdkafka's terms.

They are read together, because a key store is a type, a file and a password.

A parameter without a counterpart in librdkafka is refused by name, with a hint. No message shows a value that may be a secret.

`sasl.jaas.config` may name the login modules for PLAIN, SCRAM, OAUTHBEARER and Kerberos. It has one entry, `package.Module flag key="value"
… ;`, on one line or several, with `//` and `/* */` comments. A value is bare, or in single or double quotes with Java's escapes
(\" \\ \n \101).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kstream_kafka.client import oauth
from kstream_kafka.client.redaction import property_names
from kstream_kafka.errors import KafkaConfigError

JAAS_KEY = "sasl.jaas.config"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/
      | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
      | (?P<mark>[=;])
      | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_MSK = (
    "MSK's IAM is OAUTHBEARER for clients other than Java's: set sasl.mechanism=OAUTHBEARER and an oauth_cb that returns what "
    "MSKAuthTokenProvider.generate_auth_token(region) of the package aws-msk-iam-sasl-signer-python gives, its expiry divided by 1000."
)


def credentials(config: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return librdkafka's properties for a login module. Pure.

    Args:
        config: the value of `sasl.jaas.config`.
        given: all parameters of the user.

    Returns:
        property → value.

    Raises:
        KafkaConfigError: the text is malformed, or librdkafka has no counterpart. The error shows the name of an unknown login module, and
            nothing else of the text.
    """
    module, options = parse(config)
    name = module.rsplit(".", 1)[-1]
    if name in ("PlainLoginModule", "ScramLoginModule"):
        return _password(options)
    if name == "OAuthBearerLoginModule":
        return _token(options, given)
    if name == "Krb5LoginModule":
        return _kerberos(options)
    if name == "IAMLoginModule":
        raise msk(JAAS_KEY)
    hint = "Set sasl.username and sasl.password for PLAIN and SCRAM, or give an oauth_cb for OAUTHBEARER."
    raise KafkaConfigError(JAAS_KEY, f"names the login module {name!r}, which only a Java client has", hint)


def msk(key: str) -> KafkaConfigError:
    """Return the error for a parameter that names Amazon's Java classes. Its hint names the alternative.

    Args:
        key: the name of the parameter.
    """
    return KafkaConfigError(key, "is for Amazon MSK's IAM, whose classes only a Java client has", _MSK)


def parse(config: str) -> tuple[str, dict[str, str]]:
    """Parse a value of `sasl.jaas.config`.

    Args:
        config: the value.

    Returns:
        The class name of the login module, and its options without quotes and escapes.

    Raises:
        KafkaConfigError: the text has no login module with a flag, an option that is not key=value, an open quote, or a second entry.
    """
    tokens = list(_tokens(config))
    if len(tokens) < 2 or tokens[0][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise _malformed("does not begin with a login module and a flag")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("mark", ";"):
        if at + 2 >= len(tokens) or tokens[at][0] != "word" or tokens[at + 1] != ("mark", "=") or tokens[at + 2][0] == "mark":
            raise _malformed("has an option that is not key=value")
        options[tokens[at][1]] = tokens[at + 2][1]
        at += 3
    if at + 1 < len(tokens):
        raise _malformed("has more than one login module")
    return tokens[0][1], options


def _tokens(config: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of each token: "quoted" without its quotes and escapes, "mark" or "word". KafkaConfigError for an open quote."""
    at = 0
    while at < len(config):
        match = _TOKEN.match(config, at)
        if match is None:
            raise _malformed("has a quote that is not closed")
        at = match.end()
        if match.lastgroup == "quoted":
            yield "quoted", _ESCAPE.sub(_unescaped, match[0][1:-1])
        elif match.lastgroup:
            yield match.lastgroup, match[0]


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of one escape sequence."""
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _LETTERS.get(text, text)


def _malformed(what: str) -> KafkaConfigError:
    """Return the error for a malformed text. `what` is the fault, as the end of a sentence that begins with the parameter's name."""
    return KafkaConfigError(JAAS_KEY, what, 'Write: package.Module required key="value" key="value";')


def _password(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for user name and password. KafkaConfigError if one is missing, or for a delegation token."""
    if options.get("tokenauth", "false").lower() == "true":
        raise KafkaConfigError(
            JAAS_KEY, "asks for a delegation token (tokenauth)", "librdkafka has none: set sasl.username and sasl.password."
        )
    if "username" not in options or "password" not in options:
        raise KafkaConfigError(JAAS_KEY, "lacks a username or a password", 'Write: …Module required username="…" password="…";')
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _token(options: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of OAUTHBEARER: an unsecured token's, or those of client credentials (OIDC).

    If the user gives an `oauth_cb`, only the extensions are returned. KafkaConfigError for client credentials without a token endpoint.
    """
    extensions = ",".join(f"{k.removeprefix('extension_')}={v}" for k, v in options.items() if k.startswith("extension_"))
    found = {"sasl.oauthbearer.extensions": extensions} if extensions else {}
    if subject := options.get("unsecuredLoginStringClaim_sub"):
        life = options.get("unsecuredLoginLifetimeSeconds")
        config = f"principal={subject}" + (f" lifeSeconds={life}" if life else "")
        return {**found, "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": config}
    if "oauth_cb" in given:
        return found
    names = {"clientId": "sasl.oauthbearer.client.id", "clientSecret": "sasl.oauthbearer.client.secret", "scope": "sasl.oauthbearer.scope"}
    found.update({name: options[option] for option, name in names.items() if option in options})
    if not given.get(_TOKEN_URL):
        raise KafkaConfigError(JAAS_KEY, f"is of OAuthBearerLoginModule and {_TOKEN_URL} is missing", "Set it, or give an oauth_cb.")
    return {**found, "sasl.oauthbearer.method": "oidc"}


def _kerberos(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of Kerberos: key table, principal and service name."""
    names = {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal", "serviceName": "sasl.kerberos.service.name"}
    found = {name: options[option] for option, name in names.items() if option in options}
    if options.get("useTicketCache", "false").lower() == "true" and "keyTab" not in options:
        found["sasl.kerberos.kinit.cmd"] = ""  # librdkafka then uses a ticket that exists and is renewed elsewhere
    return found


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

DROPPED = property_names(
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
"""Java's parameters that mean nothing to librdkafka, and parameters of brokers. They are accepted and ignored."""

_UNSUPPORTED = {
    "security.providers": "OpenSSL is used, not Java's security providers.",
    "ssl.provider": "OpenSSL is used, not Java's security providers.",
    "ssl.engine.factory.class": "OpenSSL is used: set ssl.ca.location, ssl.certificate.location and ssl.key.location.",
}
_HANDLERS = property_names(
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
    """Translate Java's parameters of TLS and SASL, and drop those without a meaning. Pure.

    Args:
        given: all parameters of the user.

    Returns:
        librdkafka's properties for the translated parameters, and the parameters that are left.

    Raises:
        KafkaConfigError: a parameter has no counterpart.
    """
    found: dict[str, Any] = {}
    rest = {key: value for key, value in given.items() if key not in DROPPED}
    for key in [key for key in rest if key in _UNSUPPORTED]:
        raise KafkaConfigError(key, "has no counterpart in librdkafka", _UNSUPPORTED[key])
    for key in [key for key in rest if key in _HANDLERS]:
        _handler(key, str(rest.pop(key)))
    _translate_trust_and_key_store(given, rest, found)
    if JAAS_KEY in rest:
        found.update(credentials(str(rest.pop(JAAS_KEY)), given))
    if oauth.KEY in rest:
        callback = rest.pop(oauth.KEY)
        found[oauth.KEY] = callback if isinstance(callback, oauth.TokenCallback) else oauth.TokenCallback(callback)
    algorithm = "ssl.endpoint.identification.algorithm"
    if algorithm in rest:
        found[algorithm] = str(rest.pop(algorithm) or "none").lower()  # in Java an empty string switches the check off
    return found, rest


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Check librdkafka's security properties, and write protocol and mechanism in capitals.

    Args:
        settings: librdkafka's properties. They are changed in place.

    Returns:
        `settings`.

    Raises:
        KafkaConfigError: a value, or a combination of values, cannot work.
    """
    servers = str(settings.get("bootstrap.servers", ""))
    if "@" in servers:
        raise KafkaConfigError("bootstrap.servers", "has a user in it", "Give host:port; credentials are sasl.username and sasl.password.")
    if "security.protocol" in settings:
        settings["security.protocol"] = _one_of("security.protocol", settings["security.protocol"], PROTOCOLS)
    if "sasl.mechanism" in settings:
        if str(settings["sasl.mechanism"]).upper() == "AWS_MSK_IAM":
            raise msk("sasl.mechanism")
        settings["sasl.mechanism"] = _one_of("sasl.mechanism", settings["sasl.mechanism"], MECHANISMS)
    if str(settings.get("security.protocol", "")).startswith("SASL_"):
        _check_sasl(settings)
    ciphers = str(settings.get("ssl.cipher.suites", ""))
    if "_WITH_" in ciphers:
        raise KafkaConfigError("ssl.cipher.suites", "has Java's names", "Give OpenSSL's: ECDHE-RSA-AES256-GCM-SHA384:…, or leave it out.")
    return settings


def _check_sasl(settings: Mapping[str, Any]) -> None:
    """Check that the mechanism has its credentials, or a source of tokens. KafkaConfigError if not."""
    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    if mechanism == "OAUTHBEARER":
        oidc = str(settings.get("sasl.oauthbearer.method", "")).lower() == "oidc"
        unsecured = str(settings.get("enable.sasl.oauthbearer.unsecure.jwt", "false")).lower() == "true"
        if not (oidc or unsecured or oauth.KEY in settings):
            hint = "Set sasl.oauthbearer.method=oidc with client.id, client.secret and token.endpoint.url, or give an oauth_cb."
            raise KafkaConfigError("sasl.mechanism", "is OAUTHBEARER, and no source of tokens is set", hint)
    elif mechanism != "GSSAPI":
        for key in ("sasl.username", "sasl.password"):
            if not settings.get(key):
                raise KafkaConfigError(key, f"is missing, and sasl.mechanism is {mechanism}", f"Set it, or {JAAS_KEY}.")


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return the value in capitals. KafkaConfigError if it is not an allowed one."""
    text = str(value).upper()
    if text not in allowed:
        raise KafkaConfigError(key, f"is {value!r}", f"One of: {', '.join(allowed)}.")
    return text


def _handler(key: str, name: str) -> None:
    """Check a callback handler. KafkaConfigError unless it is one of Kafka's own: librdkafka does the work of those."""
    if name.startswith("software.amazon.msk"):
        raise msk(key)
    if not name.startswith(_KAFKAS_OWN):
        raise KafkaConfigError(key, f"names {name}, a Java class", "Give an oauth_cb, a Python function that returns a token.")


def _translate_trust_and_key_store(given: Mapping[str, Any], rest: dict[str, Any], found: dict[str, Any]) -> None:
    """Translate Java's trust store and key store: move them from `rest` to `found`, as librdkafka's properties.

    Only a PEM trust store can be used; without a type it counts as JKS. A key store without a type is JKS if its name ends in `.jks`, else
    PKCS12. A PKCS12 key store stays in `rest`, without `ssl.key.password`: the file has only the password of the store.

    Raises:
        KafkaConfigError: librdkafka cannot use a store of this type. The hint shows how to convert the file.
    """
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
        rest.pop("ssl.key.password", None)  # a PKCS#12 file has only one password: that of the store
    else:
        raise KafkaConfigError("ssl.keystore.location", f"is a {kind} file, which OpenSSL does not take", _KEY_JKS.format(keys))

r"""`sasl.jaas.config` of the Java client → librdkafka's properties: PLAIN, SCRAM, OAUTHBEARER and Kerberos login modules.

One entry: `package.Module flag key="value" … ;`, on one line or several, with `//` and `/* */` comments, values in either quotes with
Java's escapes (\" \\ \n \101), or bare. No message shows a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kstream_kafka.errors import KafkaConfigError

KEY = "sasl.jaas.config"
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
    """librdkafka's properties for the login module; `given` are all parameters. KafkaConfigError, without the text, if there are none."""
    module, options = parse(config)
    name = module.rsplit(".", 1)[-1]
    if name in ("PlainLoginModule", "ScramLoginModule"):
        return _password(options)
    if name == "OAuthBearerLoginModule":
        return _token(options, given)
    if name == "Krb5LoginModule":
        return _kerberos(options)
    if name == "IAMLoginModule":
        raise msk(KEY)
    hint = "Set sasl.username and sasl.password for PLAIN and SCRAM, or give an oauth_cb for OAUTHBEARER."
    raise KafkaConfigError(KEY, f"names the login module {name!r}, which only a Java client has", hint)


def msk(key: str) -> KafkaConfigError:
    """What to do instead of Amazon's Java classes."""
    return KafkaConfigError(key, "is for Amazon MSK's IAM, whose classes only a Java client has", _MSK)


def parse(config: str) -> tuple[str, dict[str, str]]:
    """(class name, options) of the one entry. KafkaConfigError where Java would refuse it."""
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
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _LETTERS.get(text, text)


def _malformed(what: str) -> KafkaConfigError:
    return KafkaConfigError(KEY, what, 'Write: package.Module required key="value" key="value";')


def _password(options: Mapping[str, str]) -> dict[str, str]:
    if options.get("tokenauth", "false").lower() == "true":
        raise KafkaConfigError(KEY, "asks for a delegation token (tokenauth)", "librdkafka has none: set sasl.username and sasl.password.")
    if "username" not in options or "password" not in options:
        raise KafkaConfigError(KEY, "lacks a username or a password", 'Write: …Module required username="…" password="…";')
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _token(options: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    """Client credentials (OIDC), an unsecured token for tests, or nothing where an oauth_cb makes the tokens."""
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
        raise KafkaConfigError(KEY, f"is of OAuthBearerLoginModule and {_TOKEN_URL} is missing", "Set it, or give an oauth_cb.")
    return {**found, "sasl.oauthbearer.method": "oidc"}


def _kerberos(options: Mapping[str, str]) -> dict[str, str]:
    names = {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal", "serviceName": "sasl.kerberos.service.name"}
    found = {name: options[option] for option, name in names.items() if option in options}
    if options.get("useTicketCache", "false").lower() == "true" and "keyTab" not in options:
        found["sasl.kerberos.kinit.cmd"] = ""  # librdkafka's word for: the ticket is there, somebody else renews it
    return found

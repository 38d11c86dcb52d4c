"""`sasl.jaas.config` of the Java client → user name and password for librdkafka. PLAIN and SCRAM only."""

from __future__ import annotations

import re

from kstream_kafka.errors import KafkaConfigError

KEY = "sasl.jaas.config"
_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
_HINTS = {
    "Krb5LoginModule": "Set sasl.kerberos.service.name, sasl.kerberos.principal and sasl.kerberos.keytab instead.",
    "OAuthBearerLoginModule": "Set sasl.oauthbearer.method=oidc with its client id, secret and token URL, or give an oauth_cb.",
}


def credentials(config: str) -> dict[str, str]:
    """`sasl.username` and `sasl.password` of one login module line. KafkaConfigError, without the line, when it has none."""
    module = config.split(None, 1)[0].rsplit(".", 1)[-1] if config.strip() else ""
    if module not in ("PlainLoginModule", "ScramLoginModule"):
        hint = _HINTS.get(module, "Set sasl.username and sasl.password instead.")
        raise KafkaConfigError(KEY, f"names the login module {module!r}, which only a Java client has", hint)
    options = {m[1]: _unescape(next(g for g in m.groups()[1:] if g is not None)) for m in _OPTION.finditer(config)}
    if "username" not in options or "password" not in options:
        raise KafkaConfigError(KEY, "lacks a username or a password", 'Write: …Module required username="…" password="…";')
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)

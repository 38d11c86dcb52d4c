"""A Kafka node with every kind of secure listener, and a token server: what integration/test_security.py talks to.

One node, since a start costs seconds. `bootstrap` stays its inner listener, plain text on loopback, where everybody is the super user
ANONYMOUS: it makes topics, users and ACLs. Everybody else needs an ACL for all he does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from integration.certificates import Authority
from integration.kafka_broker import KafkaBroker
from integration.kafka_node import free_ports
from integration.token_server import AUDIENCE, TokenServer

_MODULES = "org.apache.kafka.common.security"
_UNSECURED = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
_LISTENERS = {"SASL": "SASL_SSL", "MTLS": "SSL", "OIDC": "SASL_SSL", "ELSEWHERE": "SASL_SSL", "BARE": "SASL_PLAINTEXT"}
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
OPERATIONS = {"READ": AclOperation.READ, "DESCRIBE": AclOperation.DESCRIBE, "WRITE": AclOperation.WRITE}

REAUTHENTICATION_MS = 3000
"""With SCRAM-SHA-256 a connection must prove its password again after this time, in milliseconds."""


class SecureBroker(KafkaBroker):
    """`at(listener)` is the address of: SASL (all mechanisms over TLS), MTLS (client certificates), OIDC (signed tokens), ELSEWHERE
    (SASL with the certificate of another host), BARE (PLAIN without TLS). `plain_users` are name → password for PLAIN."""

    def __init__(self, directory: Path, plain_users: dict[str, str], tokens: TokenServer) -> None:
        super().__init__(directory)
        self.authority = Authority(directory / "ca", "kstream test CA")
        self.tokens = tokens
        self._plain_users = plain_users
        self._ports = dict(zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True))

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def properties(self, bind: str, data: object) -> dict[str, object]:
        own = super().properties(bind, data)
        here = ",".join(f"{name}://{self.at(name)}" for name in _LISTENERS)
        names = ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items())
        own.update(
            {
                "listeners": f"{own['listeners']},{here}",
                "advertised.listeners": f"{own['advertised.listeners']},{here}",
                "listener.security.protocol.map": f"{own['listener.security.protocol.map']},{names}",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.authority.identity("broker", "127.0.0.1").both,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.authority.ca,
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.elsewhere.ssl.keystore.type": "PEM",
                "listener.name.elsewhere.ssl.keystore.location": self.authority.identity("elsewhere", "kafka.example.org").both,
            }
        )
        return {**own, **self._sasl()}

    def _sasl(self) -> dict[str, object]:
        users = " ".join(f'user_{name}="{password}"' for name, password in self._plain_users.items())
        modules = {
            "plain": f"{_MODULES}.plain.PlainLoginModule required {users};",
            "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": _UNSECURED,
        }
        enabled = {"sasl": list(modules), "elsewhere": ["plain"], "bare": ["plain"], "oidc": ["oauthbearer"]}
        found: dict[str, object] = {}
        for listener, mechanisms in enabled.items():
            prefix = f"listener.name.{listener}"
            found[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(m.upper() for m in mechanisms)
            found.update({f"{prefix}.{m}.sasl.jaas.config": modules[m] for m in mechanisms})
        signed = "listener.name.oidc.oauthbearer.sasl"
        found[f"{signed}.server.callback.handler.class"] = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        found[f"{signed}.oauthbearer.jwks.endpoint.url"] = self.tokens.jwks_url
        found[f"{signed}.oauthbearer.expected.audience"] = AUDIENCE
        found["listener.name.sasl.scram-sha-256.connections.max.reauth.ms"] = REAUTHENTICATION_MS
        return found

    def java_options(self) -> list[str]:
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.jwks_url}"]

    def add_scram_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Returns when the node has the user."""
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(MECHANISMS[mechanism], 4096), password.encode())
        self.admin.alter_user_scram_credentials([change])[name].result(30)

    def allow(self, principal: str, operation: str, topic: str = "", group: str = "") -> None:
        """An ACL; topics and groups by the beginnings of their names."""
        kind, name = (ResourceType.TOPIC, topic) if topic else (ResourceType.GROUP, group)
        acl = AclBinding(kind, name, ResourcePatternType.PREFIXED, f"User:{principal}", "*", OPERATIONS[operation], AclPermissionType.ALLOW)
        for future in self.admin.create_acls([acl]).values():
            future.result(30)


@contextmanager
def running_secure_broker(directory: Path, plain_users: dict[str, str]) -> Iterator[SecureBroker]:
    """The node, with its token server, for the length of a with block."""
    with TokenServer() as tokens:
        broker = SecureBroker(directory, plain_users, tokens)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()

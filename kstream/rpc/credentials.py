"""RpcCredentials: by what the processes of one start of a context know each other, and what they encrypt with."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kstream.errors import ConfigurationError

CERTIFICATE_NAME = "kstream"
"""To which the certificate belongs: who has its key is meant, not a machine."""
_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class RpcCredentials:
    """The token that each call carries; and, where calls are encrypted, a certificate and its key (PEM), the same for every server.

    Whoever has them may ask, and may serve: the driver makes them anew with each start and hands them over in the tasks.
    """

    token: str = field(repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)

    @property
    def encrypted(self) -> bool:
        return bool(self.certificate)

    @staticmethod
    def new() -> RpcCredentials:
        """256 bits that nobody guesses; nothing is encrypted."""
        return RpcCredentials(secrets.token_hex(32))

    @staticmethod
    def new_encrypting(now: datetime) -> RpcCredentials:
        """With a certificate. ConfigurationError if the package `cryptography` is not installed."""
        return RpcCredentials(secrets.token_hex(32), *_new_certificate(now))

    @staticmethod
    def of_json(said: Mapping[str, str]) -> RpcCredentials:
        """Of their `dataclasses.asdict`."""
        return RpcCredentials(**said)


def _new_certificate(now: datetime) -> tuple[str, str]:
    """Signed by itself, and trusted by those alone who were given it. Good for as long as any context runs, whatever clocks say."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as e:
        raise ConfigurationError(
            "received blocks are to be encrypted on the network, as spark.streaming.kstream.rpc.encrypt or Spark's own settings say, "
            "which needs the package cryptography on the driver: pip install 'kstream-spark[tls]', or set it to false",
            key="spark.streaming.kstream.rpc.encrypt", value=True,
        ) from e  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, CERTIFICATE_NAME)])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFICATE_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem).decode(), private.decode()

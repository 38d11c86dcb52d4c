"""RpcCredentials: how the processes of one start of a context authenticate each other, and how they encrypt (TLS)."""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kstream.errors import ConfigurationError
from kstream.rpc.settings import RPC_ENCRYPT

CERTIFICATE_NAME = "kstream"
"""The name in the certificate. It names every process that has the key, not a machine."""
_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class RpcCredentials:
    """The token that both ends of a connection prove. Where calls are encrypted, also a certificate and its key (PEM).

    All servers of a context share them. A process that has them may be a client and a server. The driver makes new ones at each start
    and sends them in the tasks.
    """

    token: str = field(repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)

    @property
    def encrypted(self) -> bool:
        """Whether connections are encrypted, that is whether there is a certificate."""
        return bool(self.certificate)

    @staticmethod
    def new() -> RpcCredentials:
        """Make credentials with a token of 256 bits and without encryption."""
        return RpcCredentials(secrets.token_hex(32))

    @staticmethod
    def new_encrypting(now: datetime) -> RpcCredentials:
        """Make credentials with a token and a certificate.

        Args:
            now: the present time, from which the certificate's validity counts.

        Raises:
            ConfigurationError: the package `cryptography` is not installed.
        """
        return RpcCredentials(secrets.token_hex(32), *_new_certificate(now))

    @staticmethod
    def of_json(fields: Mapping[str, str]) -> RpcCredentials:
        """Return the credentials from the fields that `dataclasses.asdict` gave."""
        return RpcCredentials(**fields)


def _new_certificate(now: datetime) -> tuple[str, str]:
    """Make a self-signed certificate and its key, both as PEM. ConfigurationError without the package `cryptography`.

    The certificate is valid from two days before `now` for about 100 years: longer than any context runs, even where clocks differ.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as e:
        raise ConfigurationError(
            f"received blocks are to be encrypted on the network, as {RPC_ENCRYPT} or Spark's own settings say, "
            "which needs the package cryptography on the driver: pip install 'kstream-spark[tls]', or set it to false",
            key=RPC_ENCRYPT.key,
            value=True,
        ) from e
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


# -- TLS: a process that has the certificate's key is trusted, on any machine


def server_context(credentials: RpcCredentials) -> ssl.SSLContext | None:
    """Return the TLS context of a server; None if calls are not encrypted."""
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # without tickets an idle connection can be read only if its server has closed it
    with _as_file(credentials.certificate + credentials.key) as path:
        context.load_cert_chain(path)
    return context


def client_context(credentials: RpcCredentials) -> ssl.SSLContext | None:
    """Return the TLS context of a client, which trusts only this certificate; None if calls are not encrypted."""
    if not credentials.encrypted:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=credentials.certificate)
    return context


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """Yield the path of a file with this text, because `ssl` reads a key only from a file.

    The file is in memory where the system can do that. Otherwise it is a temporary file that only its owner may read.
    """
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("kstream-rpc"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name

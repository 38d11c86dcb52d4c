"""Certificates for tests: an authority of one's own, and PEM files of what it signs, made in a moment (elliptic curves)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its key. `both` is one file of the two, as a PEM key store of Kafka is."""

    certificate: Path
    key: Path
    both: Path
    pkcs12: Path


class Authority:
    """A certificate authority; its files lie in `directory`. `ca` is what clients trust."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(timezone.utc)
        builder = self._builder(self._name, self._key.public_key(), now - DAY, now + 365 * DAY)
        certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(self._key, hashes.SHA256())
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(certificate.public_bytes(Encoding.PEM))

    def identity(self, name: str, host: str = "", expired: bool = False, password: str = "") -> Identity:
        """A certificate for the common name, and as a server for the host (a name or an address). `password` encrypts its key files."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(timezone.utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), now - 10 * DAY, now + (-1 if expired else 365) * DAY)
        if host:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        how: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        files = Identity(*(self._directory / f"{name}{suffix}" for suffix in (".crt", ".key", ".pem", ".p12")))
        pem, key_pem = certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
        files.certificate.write_bytes(pem)
        files.key.write_bytes(key_pem)
        files.both.write_bytes(key_pem + pem)
        files.pkcs12.write_bytes(pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, how))
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, since: datetime, until: datetime) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        return builder.serial_number(x509.random_serial_number()).not_valid_before(since).not_valid_after(until)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

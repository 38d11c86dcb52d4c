"""What a listener is that gives this client no answer: asked once, by a connection of its own, after the client has failed.

librdkafka's words leave out what the user must know: "certificate verify failed" is a wrong CA as well as a wrong host name, and a
plain client at a TLS port is told nothing at all. `look` connects to the address as the client would, no secret is sent. Pure standard
library; blocks for a few seconds at most.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

TIMEOUT_S = 3.0
Kind = Literal["authentication", "tls"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Why it cannot work: what is so, and what to do."""

    kind: Kind
    reason: str
    hint: str


def look(address: str, settings: Mapping[str, Any]) -> Finding | None:
    """What stands between a client of these settings and the listener at `address` (host:port); None: nothing that was found."""
    host, port = split(address)
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    try:
        if "SSL" in protocol:
            return _tls(host, port, settings, "SASL" in protocol)
        if _speaks_tls(host, port):
            wanted = "SASL_SSL" if "SASL" in protocol else "SSL or SASL_SSL"
            return Finding("tls", f"the listener speaks TLS and security.protocol is {protocol}", f"Set security.protocol={wanted}.")
        if "SASL" not in protocol:
            with socket.create_connection((host, port), TIMEOUT_S) as connection:
                return _wants_sasl(connection, protocol, "SASL_PLAINTEXT")
    except (OSError, ValueError, struct.error):
        pass  # nobody there, or no Kafka: not for this to say
    return None


def split(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`, with or without `PROTOCOL://`; 9092 where there is no port."""
    bare = address.strip().rpartition("://")[2].partition("/")[0]
    if bare.startswith("["):
        host, _, port = bare[1:].partition("]")
        return host, int(port.lstrip(":") or 9092)
    host, _, port = bare.partition(":")
    return host, int(port or 9092)


def _tls(host: str, port: int, settings: Mapping[str, Any], sasl: bool) -> Finding | None:
    """The handshake with the client's own trust and host name check. A certificate of the client is not offered."""
    context = _context(settings)
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host) as secured:
            return None if sasl else _wants_sasl(secured, "SSL", "SASL_SSL")
    except ssl.SSLCertVerificationError as e:
        return _unverified(e, host)
    except ssl.SSLError as e:
        if "ALERT" in (e.reason or ""):
            return None  # the broker's word on our certificate: the client's own error tells it
    except ConnectionResetError:
        pass
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        if _mechanisms(connection) is None:
            return None
    fitting = "SASL_PLAINTEXT" if sasl else "PLAINTEXT"
    return Finding(
        "tls", f"the listener speaks plain text and security.protocol is {'SASL_SSL' if sasl else 'SSL'}",
        f"Use the port of a TLS listener, or set security.protocol={fitting}.",
    )  # fmt: skip


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    named = None if location in (None, "", "probe") else Path(str(location))  # librdkafka's "probe" is the system's own
    folder = named is not None and named.is_dir()
    context = ssl.create_default_context(cafile=None if folder else named, capath=named if folder else None, cadata=pem)
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _unverified(e: ssl.SSLCertVerificationError, host: str) -> Finding:
    said = e.verify_message.rstrip(".")
    if "mismatch" in said.lower():
        hint = (
            f"The certificate is of another host than {host}: put the name that it has in bootstrap.servers (and in the broker's "
            "advertised.listeners), or switch the check off by ssl.endpoint.identification.algorithm=none."
        )
    elif "expired" in said or "not yet valid" in said:
        hint = "The broker needs a new certificate; is the clock of this machine right?"
    else:
        hint = "Set ssl.ca.location (or ssl.ca.pem) to the certificate of the authority that signed the broker's, as PEM."
    return Finding("tls", f"the broker's certificate was refused: {said}", hint)


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host):
            return True
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except ConnectionResetError:
        return False


def _wants_sasl(connection: socket.socket, protocol: str, fitting: str) -> Finding | None:
    mechanisms = _mechanisms(connection)
    if not mechanisms:
        return None
    return Finding(
        "authentication", f"the listener asks for SASL ({', '.join(mechanisms)}) and security.protocol is {protocol}",
        f"Set security.protocol={fitting}, sasl.mechanism, and the credentials.",
    )  # fmt: skip


def _mechanisms(connection: socket.socket) -> list[str] | None:
    """The SASL mechanisms of a Kafka listener, none where it does no SASL; None if it does not answer as Kafka does.

    SaslHandshakeRequest v1 for a mechanism that nobody has: the broker answers with those it has, or that SASL is out of place here.
    """
    connection.settimeout(TIMEOUT_S)
    request = struct.pack(">hhih", 17, 1, 1, 0) + struct.pack(">h", 1) + b"?"
    connection.sendall(struct.pack(">i", len(request)) + request)
    size, correlation, _error, count = struct.unpack(">iihi", _exactly(connection, 14))
    if correlation != 1 or not 10 <= size <= 4096:
        return None
    rest = _exactly(connection, size - 10)
    names: list[str] = []
    for _ in range(max(0, count)):
        (length,) = struct.unpack_from(">h", rest)
        names.append(rest[2 : 2 + length].decode())
        rest = rest[2 + length :]
    return names


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data

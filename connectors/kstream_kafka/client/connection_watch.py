"""ConnectionWatch: what a client says of its connections, and whether a question will stay without an answer.

librdkafka goes on trying whatever a broker says, and tells the reason only by its error callback: a wrong password would be a time-out
of 15 s on the driver and of 120 s in a worker. The watch ends the wait early where trying again cannot help:

- a broker refused the credentials, the certificate or the token, or its certificate was refused, in so many words;
- or all brokers hang up without a word, and a look at the listener (`probe`) shows that it is of another kind.

It waits GRACE_S first, and until every broker is down: another broker, or the next try, may take what this one did not. Connections that
are refused or broken, as while a broker restarts, end no wait. Pure but for the look; no Kafka import.

What a listener is that gives this client no answer: asked once, by a connection of its own, after the client has failed.

librdkafka's words leave out what the user must know: "certificate verify failed" is a wrong CA as well as a wrong host name, and a
plain client at a TLS port is told nothing at all. `look` connects to the address as the client would, no secret is sent. Pure standard
library; blocks for a few seconds at most.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kstream_kafka.client.redaction import hidden
from kstream_kafka.errors import AuthenticationFailedError, BrokerUnreachableError, KafkaError, TlsFailedError

GRACE_S = 1.0
LOOK_AGAIN_S = 5.0
MOST_LOOKS = 3
"""Addresses looked at, one after the other."""

_TLS = re.compile(r"SSL handshake failed|SSL routines|SSL alert|SSL connection closed|certificate verify failed")
_HUNG_UP = re.compile(r"SSL connection closed by peer|SSL handshake failed: Disconnected|Disconnected")
_DOWN = re.compile(r"Connect to .* failed|Failed to resolve")
_PASSING = re.compile(r"token: (Failed to connect|Could not|Connection|Operation timed out|Timeout)", re.IGNORECASE)
_NAME = re.compile(r"^(?:\w+://)?(\S+?:\d+)/\S+: ")
_TIMING = re.compile(r" \(after \d+ms in state [^)]*\)")
_ALERT = re.compile(r"SSL alert number (\d+)")
_CLIENT_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")

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


@dataclass
class _Refusal:
    kind: Kind
    words: str
    since: float
    times: int = 1


class ConnectionWatch:
    """One client's. `asked` and `answered` bracket a question; `heard` takes what the error callback is given. One thread at a time."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        look: Callable[[str, Mapping[str, Any]], Finding | None] = look,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._look = look
        self._monotonic = monotonic
        self._refusals: dict[str, _Refusal] = {}
        self._all_down = False
        self._since = monotonic()
        self._next_look = 0.0
        self.last_words = ""

    @property
    def uneasy(self) -> bool:
        """Something was heard since the last answer. Cheap: asked for every chunk."""
        return self._all_down or bool(self._refusals)

    def asked(self) -> None:
        """A question begins."""
        self._since = self._monotonic()
        self._next_look = 0.0

    def answered(self) -> None:
        """A broker has answered: what was heard before is over."""
        self._refusals.clear()
        self._all_down = False

    def heard(self, code: str, text: str) -> None:
        """The client's error callback."""
        if code == "_ALL_BROKERS_DOWN":
            self._all_down = True
            self.last_words = self.last_words or text
            return
        name = _NAME.match(text)
        broker = name[1] if name else ""
        words = self.last_words = hidden(text)
        kind = _kind_of(code, text)
        if kind is None:
            self._refusals.pop(broker, None)
            return
        words = _TIMING.sub("", words[name.end() :] if name else words)
        known = self._refusals.get(broker)
        if known is not None and known.kind == kind:
            known.words, known.times = words, known.times + 1
        else:
            self._refusals[broker] = _Refusal(kind, words, self._monotonic())

    def verdict(self) -> KafkaError | None:
        """The error that ends the wait for the question asked, if waiting on cannot help. May look at a listener, for a few seconds."""
        now = self._monotonic()
        if not self.uneasy or now - self._since < GRACE_S:
            return None
        for broker, refusal in self._refusals.items():
            lasting = now - refusal.since >= GRACE_S and (self._all_down or refusal.times >= 3 or not broker)
            if lasting and not _HUNG_UP.search(refusal.words) and not _PASSING.search(refusal.words):
                return self._refused(broker, refusal)
        if self._all_down and now >= self._next_look and not _DOWN.search(self.last_words):
            self._next_look = now + LOOK_AGAIN_S
            return self._found()
        return None

    def unanswered(self, waited_ms: int) -> KafkaError:
        """The error of a question whose time is over."""
        for broker, refusal in self._refusals.items():
            if not _HUNG_UP.search(refusal.words):
                return self._refused(broker, refusal)
        found = None if _DOWN.search(self.last_words) else self._found()
        return found or BrokerUnreachableError(self._bootstrap, waited_ms, self.last_words)

    @property
    def _bootstrap(self) -> str:
        return str(self._settings.get("bootstrap.servers", ""))

    def _found(self) -> KafkaError | None:
        addresses = dict.fromkeys([*filter(None, self._refusals), *self._bootstrap.split(",")])
        for address in list(addresses)[:MOST_LOOKS]:
            finding = self._looked(address)
            if finding is not None:
                return self._error(address, finding)
        return None

    def _looked(self, address: str) -> Finding | None:
        try:
            return self._look(address, self._settings)
        except (OSError, ValueError):  # a CA file that cannot be read, an address that is none
            return None

    def _refused(self, broker: str, refusal: _Refusal) -> KafkaError:
        if "certificate verify failed" in refusal.words:
            finding = self._looked(broker)
            if finding is not None:
                return self._error(broker, finding)
        hint = _tls_hint(refusal.words, self._settings) if refusal.kind == "tls" else _sasl_hint(refusal.words, self._settings)
        return self._error(broker, Finding(refusal.kind, refusal.words, hint))

    def _error(self, broker: str, finding: Finding) -> KafkaError:
        kind = TlsFailedError if finding.kind == "tls" else AuthenticationFailedError
        protocol = str(self._settings.get("security.protocol", "PLAINTEXT"))
        mechanism = str(self._settings.get("sasl.mechanism", "")) if "SASL" in protocol.upper() else ""
        return kind(broker or self._bootstrap, protocol, mechanism, finding.reason, finding.hint)


def _kind_of(code: str, text: str) -> Kind | None:
    """librdkafka gives a TLS failure one of two codes, and `_TRANSPORT` to a certificate that the broker refuses."""
    if code == "_AUTHENTICATION":
        return "authentication"
    return "tls" if code == "_SSL" or _TLS.search(text) else None


def _sasl_hint(words: str, settings: Mapping[str, Any]) -> str:
    if "supported mechanisms: " in words and "not valid in current SASL state" not in words:
        return f"Set sasl.mechanism to one that the listener has: {words.rpartition('supported mechanisms: ')[2].rstrip('.')}."
    if "not valid in current SASL state" in words:
        return "The listener takes no SASL: use the port of one that does, or set security.protocol to PLAINTEXT or SSL."
    if "Failed to acquire SASL OAUTHBEARER token" in words:
        return "Check sasl.oauthbearer.client.id, client.secret, scope and token.endpoint.url, or what oauth_cb does."
    if str(settings.get("sasl.mechanism", "")) == "OAUTHBEARER":
        return "The broker refuses the token: has it expired, do audience, issuer and signing key fit the listener's settings?"
    return "Check sasl.username and sasl.password, and that the user has a password for this mechanism."


_ALERTS = {
    "40": "Client and broker share no cipher: see ssl.cipher.suites.", "70": "Client and broker share no version of TLS.",
}  # fmt: skip


def _tls_hint(words: str, settings: Mapping[str, Any]) -> str:
    alert = _ALERT.search(words)
    if alert is None:
        return "Check ssl.ca.location, and that the broker's certificate is of the host in bootstrap.servers."
    if alert[1] in _ALERTS:
        return _ALERTS[alert[1]]
    if not any(settings.get(key) for key in _CLIENT_CERTIFICATE):
        return "The listener asks for a client certificate: set ssl.certificate.location and ssl.key.location."
    return (
        "The broker refuses this client's certificate: is it still valid, and of an authority in the broker's trust store? "
        "`openssl x509 -noout -dates -issuer -in FILE` shows both."
    )

"""ConnectionWatch: the connection errors of one client, and the decision that a request will get no answer.

librdkafka retries whatever a broker answers, and names the reason only in its error callback. Without a watch a wrong password would be a
timeout of 15 s on the driver and of 120 s in a worker. The watch ends the wait early where a retry cannot help:

- a broker refused the credentials, the certificate or the token, or the client refused the broker's certificate;
- or all brokers close the connection without an answer, and `diagnose` finds that the listener is of another kind.

The watch waits GRACE_S first, because another broker or the next try may succeed. Then an error is final if every broker is down, or if
one broker has refused the client three times. Connections that are refused or broken, as while a broker restarts, end no wait. Only
`diagnose` does I/O. This module does not import confluent_kafka.

`diagnose` asks a listener over a new connection, after the client has failed. librdkafka's texts leave out facts that the user needs:
"certificate verify failed" is a wrong CA as well as a wrong host name, and a plain client at a TLS port gets no text at all.
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

from kstream.secret import redact
from kstream_kafka.errors import AuthenticationFailedError, BrokerUnreachableError, KafkaError, TlsFailedError

GRACE_S = 1.0
"""Seconds after a request, and after an error, before the error can be final."""
LOOK_AGAIN_S = 5.0
"""Seconds between two diagnoses of the same client."""
MOST_LOOKS = 3
"""The most addresses that are diagnosed, one after the other."""
TIMEOUT_S = 3.0
"""Seconds to connect to a listener, and to read its answer."""

Kind = Literal["authentication", "tls"]

_TLS = re.compile(r"SSL handshake failed|SSL routines|SSL alert|SSL connection closed|certificate verify failed")
_HUNG_UP = re.compile(r"SSL connection closed by peer|SSL handshake failed: Disconnected|Disconnected")
_DOWN = re.compile(r"Connect to .* failed|Failed to resolve")
_RETRIABLE = re.compile(r"token: (Failed to connect|Could not|Connection|Operation timed out|Timeout)", re.IGNORECASE)
_NAME = re.compile(r"^(?:\w+://)?(\S+?:\d+)/\S+: ")
_TIMING = re.compile(r" \(after \d+ms in state [^)]*\)")
_ALERT = re.compile(r"SSL alert number (\d+)")
_CLIENT_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


@dataclass(frozen=True, slots=True)
class ConnectionDiagnosis:
    """The reason why a client cannot connect to a listener.

    Attributes:
        kind: whether TLS or the authentication failed.
        reason: the reason, for the error message.
        hint: the advice to the user.
    """

    kind: Kind
    reason: str
    hint: str


@dataclass
class _Refusal:
    """The last error of one broker.

    Attributes:
        kind: the kind of the error.
        text: librdkafka's text, redacted, without the broker's name.
        since: the time of the first error of this kind, by the monotonic clock, in seconds.
        times: how often an error of this kind came.
    """

    kind: Kind
    text: str
    since: float
    times: int = 1


class ConnectionWatch:
    """The watch of one client's connection errors. Not thread-safe: one thread at a time.

    `on_request` and `on_response` mark the begin and the end of a request. The client's error callback calls `on_error`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        probe: Callable[[str, Mapping[str, Any]], ConnectionDiagnosis | None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch a client.

        Args:
            settings: the client's librdkafka properties.
            probe: finds out why an address fails, given the address and the settings; None for `diagnose`.
            monotonic: a clock in seconds.
        """
        self._settings = settings
        self._probe = probe or diagnose
        self._monotonic = monotonic
        self._refusals: dict[str, _Refusal] = {}
        self._all_down = False
        self._since = monotonic()
        self._next_diagnosis = 0.0
        self.last_error = ""
        """The client's last error text, redacted. Empty if there was none."""

    @property
    def has_errors(self) -> bool:
        """Whether there was an error since the last response. The check is cheap, because a read makes it for every chunk."""
        return self._all_down or bool(self._refusals)

    def on_request(self) -> None:
        self._since = self._monotonic()
        self._next_diagnosis = 0.0

    def on_response(self) -> None:
        """Note that a broker has answered. Earlier errors no longer count."""
        self._refusals.clear()
        self._all_down = False

    def on_error(self, code: str, text: str) -> None:
        """Note an error of the client, for `fatal_error`, which ends a wait that no retry can help.

        An error that is neither of TLS nor of authentication clears the broker's earlier ones.

        Args:
            code: the name of the librdkafka error, for example `_ALL_BROKERS_DOWN`.
            text: librdkafka's text as it is, which normally begins with the broker's name and address, to which `diagnose` connects.
        """
        if code == "_ALL_BROKERS_DOWN":
            self._all_down = True
            self.last_error = self.last_error or redact(text)
            return
        name = _NAME.match(text)
        broker = name[1] if name else ""
        self.last_error = redact(text)
        kind = _kind_of(code, text)
        if kind is None:
            self._refusals.pop(broker, None)
            return
        error = _TIMING.sub("", redact(text[name.end() :] if name else text))
        known = self._refusals.get(broker)
        if known is not None and known.kind == kind:
            known.text, known.times = error, known.times + 1
        else:
            self._refusals[broker] = _Refusal(kind, error, self._monotonic())

    def fatal_error(self) -> KafkaError | None:
        """Return the error that ends the wait for a response. May block for seconds in `diagnose`.

        Returns:
            AuthenticationFailedError or TlsFailedError; None while a retry may help.
        """
        now = self._monotonic()
        if not self.has_errors or now - self._since < GRACE_S:
            return None
        for broker, refusal in self._refusals.items():
            lasting = now - refusal.since >= GRACE_S and (self._all_down or refusal.times >= 3 or not broker)
            if lasting and not _HUNG_UP.search(refusal.text) and not _RETRIABLE.search(refusal.text):
                return self._refused(broker, refusal)
        if self._all_down and now >= self._next_diagnosis and not _DOWN.search(self.last_error):
            self._next_diagnosis = now + LOOK_AGAIN_S
            return self._diagnosed()
        return None

    def timeout_error(self, waited_ms: int) -> KafkaError:
        """Return the error of a request that got no response in time. May block for seconds in `diagnose`.

        Args:
            waited_ms: how long the request waited, for the message.

        Returns:
            AuthenticationFailedError or TlsFailedError if the reason is known; otherwise BrokerUnreachableError.
        """
        for broker, refusal in self._refusals.items():
            if not _HUNG_UP.search(refusal.text):
                return self._refused(broker, refusal)
        found = None if _DOWN.search(self.last_error) else self._diagnosed()
        return found or BrokerUnreachableError(self._bootstrap, waited_ms, self.last_error)

    @property
    def _bootstrap(self) -> str:
        return str(self._settings.get("bootstrap.servers", ""))

    def _diagnosed(self) -> KafkaError | None:
        """Diagnose up to MOST_LOOKS addresses, and return the first error found; None if there is none. Blocks for seconds."""
        addresses = dict.fromkeys([*filter(None, self._refusals), *self._bootstrap.split(",")])
        for address in list(addresses)[:MOST_LOOKS]:
            diagnosis = self._diagnosis_of(address)
            if diagnosis is not None:
                return self._error(address, diagnosis)
        return None

    def _diagnosis_of(self, address: str) -> ConnectionDiagnosis | None:
        """Diagnose one address. None if nothing was found, or if it cannot be asked."""
        try:
            return self._probe(address, self._settings)
        except (OSError, ValueError):  # an invalid address, or an error of a given probe
            return None

    def _refused(self, broker: str, refusal: _Refusal) -> KafkaError:
        """Return the error for a broker's refusal. A refused certificate is diagnosed first, which may block for seconds."""
        if "certificate verify failed" in refusal.text:
            diagnosis = self._diagnosis_of(broker)
            if diagnosis is not None:
                return self._error(broker, diagnosis)
        hint = _tls_hint(refusal.text, self._settings) if refusal.kind == "tls" else _sasl_hint(refusal.text, self._settings)
        return self._error(broker, ConnectionDiagnosis(refusal.kind, refusal.text, hint))

    def _error(self, broker: str, diagnosis: ConnectionDiagnosis) -> KafkaError:
        """Return the diagnosis as an error about this broker, or about all brokers if it is not known."""
        kind = TlsFailedError if diagnosis.kind == "tls" else AuthenticationFailedError
        protocol = str(self._settings.get("security.protocol", "PLAINTEXT"))
        mechanism = str(self._settings.get("sasl.mechanism", "")) if "SASL" in protocol.upper() else ""
        return kind(broker or self._bootstrap, protocol, mechanism, diagnosis.reason, diagnosis.hint)


def _kind_of(code: str, text: str) -> Kind | None:
    """Return the kind of an error; None if it is neither of TLS nor of authentication.

    librdkafka has two codes for a TLS failure: `_SSL`, and `_TRANSPORT` for a refused certificate. Only the text of the latter shows TLS.
    """
    if code == "_AUTHENTICATION":
        return "authentication"
    return "tls" if code == "_SSL" or _TLS.search(text) else None


def _sasl_hint(text: str, settings: Mapping[str, Any]) -> str:
    """Return the advice for a failed authentication, by librdkafka's text and the client's settings."""
    if "supported mechanisms: " in text and "not valid in current SASL state" not in text:
        return f"Set sasl.mechanism to one that the listener has: {text.rpartition('supported mechanisms: ')[2].rstrip('.')}."
    if "not valid in current SASL state" in text:
        return "The listener takes no SASL: use the port of one that does, or set security.protocol to PLAINTEXT or SSL."
    if "Failed to acquire SASL OAUTHBEARER token" in text:
        return "Check sasl.oauthbearer.client.id, client.secret, scope and token.endpoint.url, or your function oauth_cb."
    if str(settings.get("sasl.mechanism", "")) == "OAUTHBEARER":
        return "The broker refuses the token: has it expired, do audience, issuer and signing key fit the listener's settings?"
    return "Check sasl.username and sasl.password, and that the user has a password for this mechanism."


_ALERTS = {
    "40": "Client and broker share no cipher: see ssl.cipher.suites.",
    "70": "Client and broker share no version of TLS.",
}


def _tls_hint(text: str, settings: Mapping[str, Any]) -> str:
    """Return the advice for a failed TLS connection, by the alert in librdkafka's text and the client's settings."""
    alert = _ALERT.search(text)
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


def diagnose(address: str, settings: Mapping[str, Any]) -> ConnectionDiagnosis | None:
    """Find out why a client cannot connect to a listener. Connects as the client would, and sends no secret. Blocks for up to some seconds.

    Args:
        address: `host:port` of the listener.
        settings: the client's librdkafka properties.

    Returns:
        The diagnosis; None if nothing was found, also if the listener does not answer.

    Raises:
        ValueError: the address has no valid port.
    """
    host, port = host_and_port(address)
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    try:
        if "SSL" in protocol:
            return _diagnose_tls(host, port, settings, "SASL" in protocol)
        if _speaks_tls(host, port):
            wanted = "SASL_SSL" if "SASL" in protocol else "SSL or SASL_SSL"
            reason = f"the listener speaks TLS and security.protocol is {protocol}"
            return ConnectionDiagnosis("tls", reason, f"Set security.protocol={wanted}.")
        if "SASL" not in protocol:
            with socket.create_connection((host, port), TIMEOUT_S) as connection:
                return _diagnose_sasl(connection, protocol, "SASL_PLAINTEXT")
    except (OSError, ValueError, struct.error):
        pass  # no listener, or no Kafka: the client's own error says so
    return None


def host_and_port(address: str) -> tuple[str, int]:
    """Parse `host:port` or `[::1]:port`, with or without `PROTOCOL://`.

    Returns:
        Host and port. The port is 9092 if it is missing.

    Raises:
        ValueError: the port is no number.
    """
    bare = address.strip().rpartition("://")[2].partition("/")[0]
    if bare.startswith("["):
        host, _, port = bare[1:].partition("]")
        return host, int(port.lstrip(":") or 9092)
    host, _, port = bare.partition(":")
    return host, int(port or 9092)


def _diagnose_tls(host: str, port: int, settings: Mapping[str, Any], sasl: bool) -> ConnectionDiagnosis | None:
    """Diagnose a listener for a client that uses TLS, with that client's trust store and host name check. Offers no client certificate."""
    context = _context(settings)
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host) as secured:
            return None if sasl else _diagnose_sasl(secured, "SSL", "SASL_SSL")
    except ssl.SSLCertVerificationError as e:
        return _diagnose_certificate(e, host)
    except ssl.SSLError as e:
        if "ALERT" in (e.reason or ""):
            return None  # the broker refuses the client's certificate: the client's own error says so
    except ConnectionResetError:
        pass
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        if _mechanisms(connection) is None:
            return None
    fitting = "SASL_PLAINTEXT" if sasl else "PLAINTEXT"
    reason = f"the listener speaks plain text and security.protocol is {'SASL_SSL' if sasl else 'SSL'}"
    return ConnectionDiagnosis("tls", reason, f"Use the port of a TLS listener, or set security.protocol={fitting}.")


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a TLS context with the client's trust store, host name check and verification. OSError if the trust store is unreadable."""
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    named = None if location in (None, "", "probe") else Path(str(location))  # librdkafka's "probe" is the system's own
    folder = named is not None and named.is_dir()
    context = ssl.create_default_context(cafile=None if folder else named, capath=named if folder else None, cadata=pem)
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _diagnose_certificate(e: ssl.SSLCertVerificationError, host: str) -> ConnectionDiagnosis:
    """Return the diagnosis for a broker's certificate that was refused: wrong host name, wrong dates, or unknown authority."""
    reason = e.verify_message.rstrip(".")
    if "mismatch" in reason.lower():
        hint = (
            f"The certificate is of another host than {host}: put the name that it has in bootstrap.servers (and in the broker's "
            "advertised.listeners), or switch the check off by ssl.endpoint.identification.algorithm=none."
        )
    elif "expired" in reason or "not yet valid" in reason:
        hint = "The broker needs a new certificate; is the clock of this machine right?"
    else:
        hint = "Set ssl.ca.location (or ssl.ca.pem) to the certificate of the authority that signed the broker's, as PEM."
    return ConnectionDiagnosis("tls", f"the broker's certificate was refused: {reason}", hint)


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether the listener does a TLS handshake, or ends it with a TLS alert. Verifies no certificate. Blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host):
            return True
    except ssl.SSLError as e:
        return "ALERT" in (e.reason or "")
    except ConnectionResetError:
        return False


def _diagnose_sasl(connection: socket.socket, protocol: str, fitting: str) -> ConnectionDiagnosis | None:
    """Return the diagnosis for a listener that asks for SASL while the client uses `protocol`; None if it asks for none."""
    mechanisms = _mechanisms(connection)
    if not mechanisms:
        return None
    reason = f"the listener asks for SASL ({', '.join(mechanisms)}) and security.protocol is {protocol}"
    return ConnectionDiagnosis("authentication", reason, f"Set security.protocol={fitting}, sasl.mechanism, and the credentials.")


def _mechanisms(connection: socket.socket) -> list[str] | None:
    """Return the SASL mechanisms of a Kafka listener; none if it has no SASL. None if the listener does not answer as Kafka does.

    Sends a SaslHandshakeRequest v1 for an unknown mechanism. The broker answers with its mechanisms, or that SASL is not expected here.
    Blocks up to TIMEOUT_S for each read. ConnectionResetError if the listener closes the connection, TimeoutError if no answer comes.
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
    """Read `count` bytes. ConnectionResetError if the connection ends earlier."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data

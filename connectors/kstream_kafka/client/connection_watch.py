"""ConnectionWatch: what a client says of its connections, and whether a question will stay without an answer.

librdkafka goes on trying whatever a broker says, and tells the reason only by its error callback: a wrong password would be a time-out
of 15 s on the driver and of 120 s in a worker. The watch ends the wait early where trying again cannot help:

- a broker refused the credentials, the certificate or the token, or its certificate was refused, in so many words;
- or all brokers hang up without a word, and a look at the listener (`probe`) shows that it is of another kind.

It waits GRACE_S first, and until every broker is down: another broker, or the next try, may take what this one did not. Connections that
are refused or broken, as while a broker restarts, end no wait. Pure but for the look; no Kafka import.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client import diagnosis as probe
from kstream_kafka.client.diagnosis import Finding, Kind
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
        look: Callable[[str, Mapping[str, Any]], Finding | None] = probe.look,
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

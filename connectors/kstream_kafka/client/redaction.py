"""Secrets of this process's Kafka parameters, kept out of all text: error messages, and log lines of librdkafka and of ours.

Every client object makes its settings known here before it is made (`remember`); whatever text comes from librdkafka or from a user's
callback goes through `hidden`. What may be shown or stored is decided by the allow-list `NOT_SECRET`, not by how a name looks.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit


def property_names(text: str) -> frozenset[str]:
    """Return the names of a text, which are separated by blanks."""
    return frozenset(text.split())


NOT_SECRET = property_names(
    """
    bootstrap.servers auto.offset.reset group.id client.id client.rack isolation.level security.protocol sasl.mechanism
    max.partition.fetch.bytes fetch.max.bytes fetch.min.bytes fetch.wait.max.ms fetch.error.backoff.ms fetch.queue.backoff.ms
    queued.min.messages queued.max.messages.kbytes receive.message.max.bytes message.max.bytes check.crcs
    socket.timeout.ms socket.receive.buffer.bytes socket.send.buffer.bytes socket.keepalive.enable socket.nagle.disable
    socket.connection.setup.timeout.ms metadata.max.age.ms topic.metadata.refresh.interval.ms connections.max.idle.ms
    reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms broker.address.family
    client.dns.lookup allow.auto.create.topics api.version.request broker.version.fallback session.timeout.ms
    heartbeat.interval.ms max.poll.interval.ms statistics.interval.ms debug log_level
    refresh.leader.backoff.ms default.api.timeout.ms
    enable.ssl.certificate.verification ssl.endpoint.identification.algorithm ssl.ca.location ssl.certificate.location
    ssl.key.location ssl.keystore.location ssl.crl.location ssl.ca.certificate.stores ssl.cipher.suites ssl.curves.list
    ssl.sigalgs.list sasl.kerberos.keytab sasl.kerberos.service.name sasl.oauthbearer.method sasl.oauthbearer.grant.type
    enable.sasl.oauthbearer.unsecure.jwt
    """
)
"""What may be stored beside a checkpoint and shown: nothing here can hold a secret. The rest is hidden, and not stored."""

HIDDEN = "[hidden]"
SHORTEST = 4
"""Shorter values are not looked for in texts: they would hide half of each, and no secret is so short."""

_SUSPECT = re.compile(r"-----|\n|://[^/\s]*@")
LONG = 8
_WORDS = frozenset({"true", "false", "none", "hidden"})
"""Values that give nothing away, and that texts need; the last is what stands for a secret itself."""

_USERINFO = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_VALUE = re.compile(r"=([^\s,;\"']+|\"[^\"]*\")")


class _Known:
    """The secrets so far, and one pattern of all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self.pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        new = {v for v in values if len(v) >= SHORTEST} - self._values - _WORDS
        if new:
            with self._lock:
                self._values |= new
                longest_first = sorted(self._values, key=len, reverse=True)
                self.pattern = re.compile("|".join(map(_found_by, longest_first)))


def _found_by(value: str) -> str:
    """A short one only where it stands alone: user `kafka` must not hide half of `kafka-1.example.org`."""
    return re.escape(value) if len(value) >= LONG else rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)"


_known = _Known()


def is_open(key: str, value: Any) -> bool:
    """Whether the setting may be shown and stored: its name is in NOT_SECRET, and its value is no key and no URL with a password."""
    return key in NOT_SECRET and isinstance(value, str | int | float) and not _SUSPECT.search(str(value))


def remember(settings: Mapping[str, Any]) -> None:
    """From now on the values of all settings that are not open are hidden. Cheap for settings already known."""
    for key, value in settings.items():
        if isinstance(value, str) and not is_open(key, value):
            _known.add(_pieces(value))


def remember_value(secret: str) -> None:
    """From now on this value is hidden: a token, say."""
    _known.add([secret])


def hidden(text: str) -> str:
    """The text without any secret known, and without user names and passwords in URLs."""
    if _known.pattern is not None:
        text = _known.pattern.sub(HIDDEN, text)
    return _USERINFO.sub(HIDDEN, text)


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """For people: sorted, what is not open hidden."""
    return {key: value if is_open(key, value) else HIDDEN for key, value in sorted(settings.items())}


class Properties(dict[str, Any]):
    """Settings of a client that may travel and be printed by accident: its text shows no secret."""

    def __repr__(self) -> str:
        return f"Properties({shown(self)})"

    __str__ = __repr__


class HidingFilter(logging.Filter):
    """Rewrites each record of the logger it is added to."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        safe = hidden(text)
        if safe != text:
            record.msg, record.args = safe, None
        return True


def _pieces(value: str) -> list[str]:
    """The value, and what a text may show of it alone: its lines, the values of its `key=value` parts, a URL's password."""
    found = [value, *(line for line in value.splitlines() if not line.startswith("-----"))]
    found += [part.strip('"') for part in _VALUE.findall(value)]
    if "://" in value:
        try:
            password = urlsplit(value).password
        except ValueError:
            password = None
        found += [password, unquote(password)] if password else []
    return found

"""Redaction: keeps the secrets of this process's Kafka parameters out of error messages and log lines.

Each client calls `add_secrets` with its settings before it is created. All text that comes from librdkafka or from a user's callback goes
through `redact`. Only parameters on the allow-list `NOT_SECRET` may be shown or stored, whatever their names look like.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit


def property_names(text: str) -> frozenset[str]:
    """Return the names in a text, which are separated by blanks."""
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
"""Properties that can hold no secret. They may be shown, and stored with a checkpoint. All others are redacted, and never stored."""

REDACTED = "[hidden]"
SHORTEST = 4
"""The shortest value that is redacted, in characters. Shorter ones would redact half of each text, and no secret is so short."""

_SUSPECT = re.compile(r"-----|\n|://[^/\s]*@")
LONG = 8
"""Values of this length (in characters) or more are redacted inside of words too."""
_WORDS = frozenset({"true", "false", "none", "hidden"})
"""Values that are never redacted: they reveal nothing, and texts need them. The last one is part of `REDACTED` itself."""

_USERINFO = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_VALUE = re.compile(r"=([^\s,;\"']+|\"[^\"]*\")")


class _Secrets:
    """The secrets of this process, and one pattern that finds them all; None while there are none. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self.pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Add secrets, except short values and those in _WORDS. Values that are already known cost little."""
        new = {v for v in values if len(v) >= SHORTEST} - self._values - _WORDS
        if new:
            with self._lock:
                self._values |= new
                longest_first = sorted(self._values, key=len, reverse=True)
                self.pattern = re.compile("|".join(map(_pattern_of, longest_first)))


def _pattern_of(value: str) -> str:
    """Return a pattern for the value. A short value matches only as a whole word: user `kafka` must not redact `kafka-1.example.org`."""
    return re.escape(value) if len(value) >= LONG else rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)"


_secrets = _Secrets()


def is_public(key: str, value: Any) -> bool:
    """Return whether a setting may be shown and stored: its name is in NOT_SECRET, and its value holds no secret. Pure.

    Args:
        key: the name of the setting.
        value: its value. A key in PEM form, a URL with a user, and anything but a string or a number are taken for secrets.
    """
    return key in NOT_SECRET and isinstance(value, str | int | float) and not _SUSPECT.search(str(value))


def add_secrets(settings: Mapping[str, Any]) -> None:
    """Redact the values of these settings from now on, except public ones. Cheap for settings that are already known. Any thread."""
    for key, value in settings.items():
        if isinstance(value, str) and not is_public(key, value):
            _secrets.add(_parts(value))


def add_secret(secret: str) -> None:
    """Redact this value from now on, for example a token. Any thread."""
    _secrets.add([secret])


def redact(text: str) -> str:
    """Return the text without known secrets, and without user names and passwords in URLs. Any thread."""
    if _secrets.pattern is not None:
        text = _secrets.pattern.sub(REDACTED, text)
    return _USERINFO.sub(REDACTED, text)


def redacted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for people: sorted, with every value redacted that is not public."""
    return {key: value if is_public(key, value) else REDACTED for key, value in sorted(settings.items())}


class Properties(dict[str, Any]):
    """The settings of a client. `repr` and `str` show no secret, in case the settings are printed by accident. It can be pickled."""

    def __repr__(self) -> str:
        return f"Properties({redacted(self)})"

    __str__ = __repr__


class RedactionFilter(logging.Filter):
    """A log filter that redacts each record of its logger."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record's message in place. Returns True, so every record is logged."""
        text = record.getMessage()
        safe = redact(text)
        if safe != text:
            record.msg, record.args = safe, None
        return True


def _parts(value: str) -> list[str]:
    """Return the value, and its parts that a text may show alone: lines, the values of `key=value` parts, the password of a URL."""
    found = [value, *(line for line in value.splitlines() if not line.startswith("-----"))]
    found += [part.strip('"') for part in _VALUE.findall(value)]
    if "://" in value:
        try:
            password = urlsplit(value).password
        except ValueError:
            password = None
        found += [password, unquote(password)] if password else []
    return found

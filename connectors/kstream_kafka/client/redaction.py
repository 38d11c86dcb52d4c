"""Redaction: which Kafka parameters are no secrets, and what keeps the others out of messages and log lines (`kstream.secret`).

The settings of each client are given to `add_secrets` before it is created. Errors of librdkafka are told by `librdkafka.text_of`, the log
by loggers with a RedactionFilter, and the text of a user's callback by `redact`. Only parameters on the allow-list `NOT_SECRET` may be
shown or stored, whatever their names look like.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kstream.secret import REDACTED, looks_secret, redact


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


def is_public(key: str, value: Any) -> bool:
    """Return whether a setting may be shown and stored: its name is in NOT_SECRET, and its value holds no secret. Pure.

    Args:
        key: the name of the setting.
        value: its value. A key in PEM form, a URL with a user, and anything but a string or a number are taken for secrets.
    """
    return isinstance(value, str | int | float) and not looks_secret(key, str(value), public=NOT_SECRET)


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

"""PositionReader: reads partitions from their positions on, without an end.

It reads by assignment: no group is joined, and nothing is committed. Unlike the read of a planned range it judges no loss. Offsets that the
log does not have are told, and the caller says where the read goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.offsets.offset_range import Partition
from kstream_kafka.client.ports import FetchErrorKind, RangeConsumer
from kstream_kafka.errors import KafkaError

_UNREACHED = sys.maxsize
"""The position of a partition that is not read."""


@dataclass(slots=True)
class PolledRecords:
    """The result of one poll."""

    messages: list[Any] = field(default_factory=list[Any])
    """The records, in the order in which the brokers sent them. Those of one partition have rising offsets, and each comes once."""
    next_offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """The offset after the last record of each partition that has records here."""
    out_of_range: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose position lies outside of the log. They are not read until they are assigned again."""


class PositionReader:
    """The records of some partitions as they come. Used by one thread."""

    def __init__(self, consumer: RangeConsumer, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Create a reader of no partition. Sends no request.

        Args:
            consumer: a consumer without an assignment. Its owner closes it.
            monotonic: a clock in seconds.
        """
        self._consumer = consumer
        self._monotonic = monotonic
        self._positions: dict[Partition, int] = {}
        self._answered_s = monotonic()
        self._trouble = ""

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The next offset of each partition that is read."""
        return self._positions

    @property
    def silent_s(self) -> float:
        """Seconds since the last record, or since a broker last said that a log ends at the position."""
        return self._monotonic() - self._answered_s

    @property
    def trouble(self) -> str:
        """What hinders the read: the last error that a retry may resolve, else that of the connections; empty if there is none."""
        return self._trouble or self._consumer.last_error()

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read only these partitions from now on, each from its offset. May block for the leaders of a topic. Without any, reading ends.

        Raises:
            NotAuthorizedError: this client may not read a topic.
        """
        self._positions = dict(positions)
        if positions:
            self._consumer.assign([(*partition, at, None) for partition, at in sorted(positions.items())])
        else:
            self._consumer.unassign()

    def log_range(self, partition: Partition) -> tuple[int | None, int | None]:
        """Return the earliest and the latest offset of a partition; None for an unknown one. Blocks."""
        return self._consumer.log_range(*partition)

    def poll(self, most: int, wait_s: float) -> PolledRecords:
        """Return the next records, and move the positions past them. Blocks.

        Args:
            most: the most records.
            wait_s: the longest wait for so many, in seconds.

        Raises:
            KafkaError: a partition cannot be read any more, or the brokers refuse this client. A retry cannot help.
        """
        messages, polled = self._consumer.consume(most, wait_s), PolledRecords()
        events: list[Any] = []
        if messages and any(map(type(messages[0]).error, messages)):  # calling the class's function is 5 times as fast as a loop
            events = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        if messages:
            self._take(messages, polled)
        for event in events:
            self._on_event(event, polled)
        return polled

    def _take(self, messages: list[Any], polled: PolledRecords) -> None:
        """Put the records that no poll has given yet into a result, and move the positions past them. There is at least one message.

        Records before a position, or of a partition that is not read, are of a fetch before the last assignment: they are dropped.
        """
        begins, ends = _bounds(messages)
        if any(at < self._positions.get(where, _UNREACHED) for where, at in begins.items()):
            messages = [m for m in messages if m.offset() >= self._positions.get((m.topic(), m.partition()), _UNREACHED)]
            if not messages:
                return
            _, ends = _bounds(messages)
        polled.messages = messages
        polled.next_offsets = {where: at + 1 for where, at in ends.items()}
        self._positions.update(polled.next_offsets)
        self._on_answer()

    def _on_event(self, event: Any, polled: PolledRecords) -> None:
        """Handle one error event: a retriable one is the trouble, an end of a log is an answer, a position outside of its log is noted.

        Ends and positions of partitions that are not read are ignored. KafkaError if the client gave up.
        """
        from kstream_kafka.client.librdkafka import text_of  # imported late: to build a graph needs no librdkafka

        kind, where = self._consumer.classify_error(event.error()), (str(event.topic()), int(event.partition()))
        if kind is FetchErrorKind.RETRIABLE:
            self._trouble = text_of(event.error())
        elif kind is FetchErrorKind.FATAL:
            at, reason = self._positions.get(where), text_of(event.error())
            text = f"{where[0]}-{where[1]} cannot be read any more: the client gave up at offset {at}: {reason}"
            raise KafkaError(text, topic=where[0], partition=where[1], at=at, reason=reason)
        elif where not in self._positions:
            return
        elif kind is FetchErrorKind.END_OF_PARTITION:
            self._positions[where] = max(self._positions[where], event.offset())
            self._on_answer()
        elif where not in polled.out_of_range:
            polled.out_of_range.append(where)

    def _on_answer(self) -> None:
        """Begin the silence anew, without trouble, because a broker has answered."""
        self._answered_s, self._trouble = self._monotonic(), ""


def _bounds(messages: list[Any]) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Return the first and the last offset of each partition in the messages; there is at least one. No Python code runs for a message."""
    kind = type(messages[0])
    places = list(zip(map(kind.topic, messages), map(kind.partition, messages), strict=True))
    offsets = list(map(kind.offset, messages))
    last = dict(zip(places, offsets, strict=True))
    first = dict(zip(reversed(places), reversed(offsets), strict=True))
    return first, last

"""LogTail: the records of a topic as they come, from given offsets on, for `kstream tail`.

It reads by assignment: no group is joined, nothing is committed. Unlike the read of a planned range it may end nowhere, and offsets that
the log does not have are a notice, not an error: a person looks on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kstream.connectors import LogRecord
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.ports import FetchErrorKind, RangeConsumer
from kstream_kafka.errors import KafkaError
from kstream_kafka.tools.record_reading import WAIT_S, as_log_record

CHUNK = 1_000
"""The most records of one answer."""
SLICE_S = 0.1
"""Seconds after which an answer comes, with the records that are there."""


class LogTail:
    """The records of some partitions, in the order in which the brokers send them. One thread."""

    def __init__(
        self,
        consumer: RangeConsumer,
        begins: Mapping[Partition, int],
        ends: Mapping[Partition, int] | None = None,
        on_notice: Callable[[str], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Assign the partitions. May block for some seconds, for their leaders.

        Args:
            consumer: a consumer without an assignment.
            begins: the first offset to read of each partition.
            ends: the offset of each partition at which the read ends; None to wait for more records.
            on_notice: called with a sentence about offsets that the log does not have.
            monotonic: a clock in seconds.

        Raises:
            NotAuthorizedError: this client may not read a topic.
        """
        self._consumer = consumer
        self._positions = dict(begins)
        self._ends = ends
        self._on_notice = on_notice
        self._monotonic = monotonic
        self._last_answer = monotonic()
        self._trouble = ""
        self._assign()

    @property
    def partitions(self) -> set[Partition]:
        """The partitions that are read."""
        return set(self._positions)

    @property
    def trouble(self) -> str:
        """What the client last said about its connections; empty if it said nothing."""
        return self._consumer.last_error()

    def add(self, begins: Mapping[Partition, int]) -> None:
        """Read more partitions, from these offsets on. May block for their leaders."""
        self._positions.update(begins)
        self._assign()

    def answers(self) -> Iterator[list[LogRecord]]:
        """Yield the records that have come, about every SLICE_S: an empty list if there are none. Blocks.

        Ends when every partition has reached its end; never without ends.

        Raises:
            KafkaError: the brokers refuse this client; or there is an end, and no answer has come for WAIT_S seconds.
        """
        while not self._is_over():
            yield self._take(self._consumer.consume(CHUNK, SLICE_S))

    def _is_over(self) -> bool:
        """Return whether every partition has reached its end. KafkaError if that is no longer to be expected."""
        if self._ends is None:
            return False
        left = sorted(p for p, end in self._ends.items() if self._positions[p] < end)
        if left and self._monotonic() - self._last_answer > WAIT_S:
            (topic, partition), said = left[0], self._trouble or self._consumer.last_error()
            at = self._positions[topic, partition]
            text = f"{topic}-{partition}: the leader gave no record at or after offset {at} within {WAIT_S} s{f': {said}' if said else ''}"
            raise KafkaError(text, topic=topic, partition=partition, at=at)
        return not left

    def _take(self, messages: list[Any]) -> list[LogRecord]:
        """Return the records among messages, and handle the events among them."""
        taken: list[LogRecord] = []
        must_assign = False
        for message in messages:
            where = message.topic(), message.partition()
            if (error := message.error()) is not None:
                must_assign = self._on_event(error, where, message.offset()) or must_assign
                continue
            at = message.offset()
            if where not in self._positions or at < self._positions[where]:  # of a fetch before the last assignment
                continue
            self._last_answer = self._monotonic()
            self._positions[where] = at + 1
            if self._ends is None or at < self._ends[where]:
                taken.append(as_log_record(message))
        if must_assign:
            self._assign()
        return taken

    def _on_event(self, error: Any, where: Partition, at: int) -> bool:
        """Handle an error event. May block on the broker. Return whether the partitions must be assigned again."""
        kind = self._consumer.classify_error(error)
        if kind is FetchErrorKind.END_OF_PARTITION:
            self._last_answer = self._monotonic()
            self._positions[where] = max(self._positions[where], at)
        elif kind is FetchErrorKind.OUT_OF_RANGE:
            self._move_into_log(where)
            return True
        elif kind is FetchErrorKind.RETRIABLE:
            self._trouble = str(error)
        else:
            raise KafkaError(
                f"{where[0]}-{where[1]}: the client gave up at offset {self._positions.get(where)}: {error}", reason=str(error)
            )
        return False

    def _move_into_log(self, where: Partition) -> None:
        """Go on at an offset that the log has, with a notice. Blocks on the broker; without its answer the position stays."""
        topic, partition = where
        earliest, latest = self._consumer.log_range(topic, partition)
        at = self._positions[where]
        if earliest is None or latest is None:
            return
        if at < earliest:
            self._on_notice(f"{topic}-{partition}: offsets {at} to {earliest - 1} are gone, the log begins at {earliest}")
            self._positions[where] = earliest
        elif at > latest:
            self._on_notice(f"{topic}-{partition}: offset {at} is past the end of the log, which is {latest} now: going on there")
            self._positions[where] = latest

    def _assign(self) -> None:
        """Fetch each partition from its position. Those that have reached their end are left out."""
        ends = self._ends or {}
        self._consumer.assign([(*p, at, None) for p, at in sorted(self._positions.items()) if p not in ends or at < ends[p]])

"""LogTail: the records of a topic as they come, from given offsets on, for `kstream tail`.

It may end somewhere, or nowhere. Offsets that the log does not have are a notice, not an error: a person looks on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from kstream.connectors import LogRecord
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.errors import KafkaError
from kstream_kafka.reader.position_reader import PolledRecords, PositionReader
from kstream_kafka.tools.record_reading import WAIT_S, as_log_record

CHUNK = 1_000
"""The most records of one answer."""
SLICE_S = 0.1
"""Seconds after which an answer comes, with the records that are there."""


class LogTail:
    """The records of some partitions, in the order in which the brokers send them. One thread.

    Attributes:
        partitions: the partitions that are read, or were read to their ends.
    """

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
        self.partitions = set(begins)
        self._reader = PositionReader(consumer, monotonic)
        self._ends = ends
        self._on_notice = on_notice
        self._assign(begins)

    @property
    def trouble(self) -> str:
        """What hinders the read, in the words of the client; empty if nothing does."""
        return self._reader.trouble

    def add(self, begins: Mapping[Partition, int]) -> None:
        """Read more partitions, from these offsets on, unless the tail has ends and they have none. May block for their leaders."""
        self.partitions.update(begins)
        self._assign({**self._reader.positions, **begins})

    def answers(self) -> Iterator[list[LogRecord]]:
        """Yield the records that have come, about every SLICE_S: an empty list if there are none. Blocks.

        Ends when every partition has reached its end; never without ends.

        Raises:
            KafkaError: the brokers refuse this client; or there is an end, and no answer has come for WAIT_S seconds.
        """
        while not self._is_over():
            yield self._take(self._reader.poll(CHUNK, SLICE_S))

    def _is_over(self) -> bool:
        """Return whether every partition has reached its end; never without ends. KafkaError if no answer has come for WAIT_S seconds."""
        if self._ends is None:
            return False
        left = self._unfinished(self._reader.positions)
        if left and self._reader.silent_s > WAIT_S:
            ((topic, partition), at), said = min(left.items()), self.trouble
            text = f"{topic}-{partition}: the leader gave no record at or after offset {at} within {WAIT_S} s{f': {said}' if said else ''}"
            raise KafkaError(text, topic=topic, partition=partition, at=at)
        return not left

    def _take(self, polled: PolledRecords) -> list[LogRecord]:
        """Return the records of a poll up to the ends. Partitions that are out of range go on inside of their logs. May block for these."""
        if polled.out_of_range:
            self._assign({**self._reader.positions, **dict(map(self._moved_into_log, polled.out_of_range))})
        records = map(as_log_record, polled.messages)
        ends = self._ends
        return list(records) if ends is None else [r for r in records if r.offset < ends[r.topic, r.partition]]

    def _moved_into_log(self, where: Partition) -> tuple[Partition, int]:
        """Return a partition and an offset that its log has, with a notice. Blocks on the broker; without an answer the position stays."""
        topic, partition = where
        earliest, latest = self._reader.log_range(where)
        at = self._reader.positions[where]
        if earliest is None or latest is None:
            return where, at
        if at < earliest:
            self._on_notice(f"{topic}-{partition}: offsets {at} to {earliest - 1} are gone, the log begins at {earliest}")
            return where, earliest
        if at > latest:
            self._on_notice(f"{topic}-{partition}: offset {at} is past the end of the log, which is {latest} now: going on there")
            return where, latest
        return where, at

    def _assign(self, positions: Mapping[Partition, int]) -> None:
        """Fetch each partition from its position. Those that have reached their end are left out."""
        self._reader.assign(self._unfinished(positions))

    def _unfinished(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the positions of the partitions that have not reached their end. Without ends, that is all."""
        ends = self._ends
        return dict(positions) if ends is None else {p: at for p, at in positions.items() if at < ends.get(p, 0)}

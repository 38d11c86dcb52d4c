"""`read_range`: the records of one planned range, all of them and no other, in chunks. `read_pieces`: of many small ones at once.

A range ends at the first record at or past its end, or when the position reaches the end, or when the broker says that the
partition ends at or past it. It never ends by counting: compaction and transactions leave gaps, and the last offsets of a range may
hold no record at all. The partition ending *before* the range is a loss, and so is an offset the broker does not have; a loss is raised,
or noted in the findings while the read goes on with what is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.errors import TopicRecreatedError
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import Piece
from kstream_kafka.reader.read_report import Findings
from kstream_kafka.reader.reading import Reading

CHUNK = 10_000
SLICE_S = 0.05
"""Longest wait of one `consume` call: it waits for all it was asked for, and where offsets have gaps they never come."""


def read_range(
    consumer: RangeConsumer,
    wanted: OffsetRange,
    poll_timeout_ms: int,
    leader_epoch: int | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[list[Any]]:
    """`read_pieces` of one piece: lists of messages, offsets rising, none empty."""
    for _, messages in read_pieces(consumer, (Piece(wanted, leader_epoch),), poll_timeout_ms, monotonic):
        yield messages


def read_pieces(
    consumer: RangeConsumer,
    pieces: Sequence[Piece],
    poll_timeout_ms: int,
    monotonic: Callable[[], float] = time.monotonic,
    findings: Findings | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> Iterator[tuple[OffsetRange, list[Any]]]:
    """Yields (range, messages), messages never empty, in the order of `pieces` and offsets rising within each.

    Runs in a Spark task; blocks on the broker. All pieces are assigned at once, so that one fetch serves every partition of a broker;
    no two may be of one partition (ValueError). What comes before its turn waits in memory: records come in the same order each
    time, whatever the order of the answers. Several pieces should be small (`packing.groups`).

    A piece's `from_epoch` and `leader_epoch` are those under which its ends were planned (None: unknown): a broker whose log was cut
    below the piece's start refuses it, and a record of a later epoch inside the piece is not what was planned. `topic_ids` are those
    of the plan: after records were fetched, and before they are given out, the topic must still be the same one (the question is
    put once a second at most). What is wrong is a DataLossError; findings that are tolerant take it down and go on. PollTimeoutError
    when nothing came for any piece for `poll_timeout_ms`. The consumer is left assigned; whoever lent it unassigns.
    """
    group = _Group(consumer, pieces, poll_timeout_ms, findings or Findings(), topic_ids or {})
    if not group.unfinished:
        return
    group.assign()
    heard = monotonic()
    while group.unfinished:
        messages = group.consume()
        now = monotonic()
        if group.take(messages):
            heard = now
            group.check_topics()
            yield from group.in_turn()
        elif (now - heard) * 1000 >= poll_timeout_ms:
            raise group.unfinished[0].timed_out()


class _Group:
    """Pieces that are read at once. `unfinished` are those not yet given out to their end, in the order of the pieces; `_open` of them
    have not come to it."""

    def __init__(
        self, consumer: RangeConsumer, pieces: Iterable[Piece], poll_timeout_ms: int, findings: Findings, topic_ids: Mapping[str, str]
    ) -> None:
        self.consumer = consumer
        self.findings = findings
        full = [p for p in pieces if p.range.fromOffset < p.range.untilOffset]
        self.unfinished = [Reading(consumer, p, poll_timeout_ms, findings, lambda: self.check_topics(fresh=True)) for p in full]
        self._topic_ids = {r.wanted.topic: topic_ids[r.wanted.topic] for r in self.unfinished if r.wanted.topic in topic_ids}
        self._of = {(r.wanted.topic, r.wanted.partition): r for r in self.unfinished}
        self._open = len(self.unfinished)
        self._alone = self._open == 1
        if len(self._of) < len(self.unfinished):
            raise ValueError("two pieces of one partition cannot be read at once")

    def assign(self) -> None:
        """At the beginning, and again when a reading was moved; `start_epoch` is that of a range's first offset only."""
        self.consumer.assign(
            [
                (r.wanted.topic, r.wanted.partition, r.position, r.start_epoch if r.position == r.wanted.fromOffset else None)
                for r in self.unfinished
                if r.left
            ]
        )

    def consume(self) -> list[Any]:
        """What comes next, after up to SLICE_S. No more than is left is waited for: `consume` waits for all it is asked for."""
        left = sum(r.left for r in self.unfinished)
        messages = self.consumer.consume(min(CHUNK, left), SLICE_S)
        if messages and not self._alone:
            # Ends of partitions, and records past the end of a piece, count among what was waited for: the rest is often there too.
            messages += self.consumer.consume(CHUNK, 0)
        return messages

    def take(self, messages: list[Any]) -> bool:
        """Gives each reading its own; whether any of them moved on."""
        if not messages:
            return False
        moved = self.unfinished[0].keep(messages) if self._alone else self._share_out(messages)
        if any(r.must_begin_again for r in self.unfinished):
            for reading in self.unfinished:
                reading.must_begin_again = False
            if any(r.left for r in self.unfinished):
                self.assign()
        return moved

    def _share_out(self, messages: list[Any]) -> bool:
        moved = False
        for where, run in groupby(messages, _where):
            # An event of a broker is no partition's. What a finished reading still gets is past its end and nobody's business.
            reading = self._of[where] if where in self._of else next(r for r in self.unfinished if r.left)
            if reading.left and not reading.must_begin_again and reading.keep(list(run)):
                moved = True
                self._open -= not reading.left
                if not self._open:
                    break
        return moved

    def in_turn(self) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """The records whose turn it is: those of the first unfinished reading and, as far as readings are finished, of the next ones."""
        done = 0
        for reading in self.unfinished:
            if records := reading.records:
                reading.records = []
                reading.given += len(records)
                yield reading.wanted, records
            if reading.left:
                break
            self.findings.read(reading.wanted, reading.given)
            done += 1
        del self.unfinished[:done]

    def check_topics(self, fresh: bool = False) -> None:
        """TopicRecreatedError if a topic is not the planned one any more; tolerant, its pieces are given up with what they hold."""
        if not self._topic_ids:
            return
        found = self.consumer.topic_ids(self._topic_ids.keys(), fresh)
        for topic, planned in list(self._topic_ids.items()):
            if (now := found.get(topic)) is None or now == planned:
                continue
            readings = [r for r in self.unfinished if r.wanted.topic == topic]
            ranges = [(r.wanted.partition, r.wanted.fromOffset, r.wanted.untilOffset) for r in readings]
            error = TopicRecreatedError(topic, planned, now, ranges)
            if not self.findings.tolerant:
                raise error
            for reading in readings:
                reading.give_up(error)
            del self._topic_ids[topic]


def _where(message: Any) -> tuple[str, int]:
    return (message.topic(), message.partition())

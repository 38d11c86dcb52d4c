"""`read_range`: the records of one planned range, all of them and no other, in chunks. `read_pieces`: of many small ones at once.

A range ends at the first record at or past its end, or when the position reaches the end, or when the broker says that the
partition ends at or past it. It never ends by counting: compaction and transactions leave gaps, and the last offsets of a range may
hold no record at all. The partition ending *before* the range is a loss, and so is an offset the broker does not have; a loss is raised,
or noted in the findings while the read goes on with what is there.

Reading: where the read of one planned range stands, and what an event among its messages means for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kstream_kafka.client.ports import RangeConsumer, Trouble
from kstream_kafka.errors import (
    KafkaError,
    LogTruncatedError,
    PollTimeoutError,
    RangeLostError,
    RecordsRemovedError,
    TopicRecreatedError,
)
from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import Piece
from kstream_kafka.reader.read_report import Findings

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


_CUT_AT = re.compile(r"broker end offset is (\d+)")


class Reading:
    """One piece being read. `position` is the next offset not yet seen, `records` those that wait to be given out, `given` counts those
    that were.

    `start_epoch` is the leader epoch under which the first offset was reached: the broker refuses it where it knows that epoch to end
    before. `must_begin_again`: the position was moved, whoever assigns must do so again. `check_topic()` is called before anything is
    taken for a loss: in a topic made anew offsets mean nothing. It raises, or ends this reading by `give_up`.
    """

    def __init__(
        self, consumer: RangeConsumer, piece: Piece, poll_timeout_ms: int, findings: Findings, check_topic: Callable[[], None]
    ) -> None:
        self.consumer = consumer
        self.check_topic = check_topic
        self.wanted = piece.range
        self.start_epoch = piece.leader_epoch if piece.from_epoch is None else piece.from_epoch
        self.findings = findings
        self.poll_timeout_ms = poll_timeout_ms
        self.position = self.wanted.fromOffset
        self.records: list[Any] = []
        self.given = 0
        self.must_begin_again = False
        self.last_trouble = ""
        self._planned_epoch = piece.leader_epoch
        self._over = False

    @property
    def where(self) -> tuple[str, int, int, int]:
        w = self.wanted
        return (w.topic, w.partition, w.fromOffset, w.untilOffset)

    @property
    def left(self) -> int:
        """How many offsets are still to be seen; 0 at the end."""
        return max(0, self.wanted.untilOffset - self.position)

    def keep(self, messages: list[Any]) -> bool:
        """Adds what is of the range among these messages to `records`; whether the position moved."""
        before = self.position
        taken = self._take(messages)
        if not self._over:
            self.records = self.records + taken if self.records else taken
        return self.position > before

    def give_up(self, error: TopicRecreatedError) -> None:
        """Ends the reading with what has been given out so far: the rest, and what waits, is of another topic."""
        w = self.wanted
        begin = w.fromOffset if not self.given else self.records[0].offset() if self.records else self.position
        self.records = []
        self.position = w.untilOffset
        self._over = True
        self.findings.lose(LostRange(w.topic, w.partition, begin, w.untilOffset, error.cause, str(error)))

    def timed_out(self) -> PollTimeoutError:
        """What to raise when nothing came in time."""
        reason = self.last_trouble or self.consumer.last_error()
        return PollTimeoutError(self.where, self.position, self.poll_timeout_ms, reason)

    # -- messages

    def _take(self, messages: list[Any]) -> list[Any]:
        """The records of the range among what the client gave; moves the position past all of it."""
        if any(map(type(messages[0]).error, messages)):  # the plain function: 5 times the speed of methodcaller
            messages = self._without_events(messages)
            if not messages:
                return messages
        until = self.wanted.untilOffset
        last = messages[-1]
        self.position = max(self.position, last.offset() + 1)
        if last.offset() >= until:
            messages = [m for m in messages if m.offset() < until]
        self._check_epoch(messages)
        return messages

    def _without_events(self, messages: list[Any]) -> list[Any]:
        """Sets aside the error events, acting on each in its place; records after an end of partition are kept.

        What comes after an event that moved the position back or on belongs to the fetch that is over.
        """
        records: list[Any] = []
        for message in messages:
            error = message.error()
            if not error:
                records.append(message)
                self.position = max(self.position, message.offset() + 1)
            else:
                self._meet(error, message)
                if self.must_begin_again:
                    break
        return records

    def _meet(self, error: Any, message: Any) -> None:
        trouble = self.consumer.trouble(error)
        if trouble is Trouble.END_OF_PARTITION:
            self._end_of_partition(message.offset())
        elif trouble is Trouble.OUT_OF_RANGE:
            self._out_of_range(error)
        elif trouble is Trouble.PASSING:
            self.last_trouble = str(error)
        else:
            raise KafkaError(
                f"{self.wanted}: the client gave up at offset {self.position}: {error}",
                topic=self.wanted.topic, partition=self.wanted.partition, at=self.position, reason=str(error),
            )  # fmt: skip

    # -- losses

    def _end_of_partition(self, end: int) -> None:
        """At or past the range's end it is the end; before it, only if the broker says so when asked.

        A new leader may for a moment show less than it has, and the client tells an end once only. Such a leader does not tell its
        log's end either: no answer is no loss, the range is begun again from here.
        """
        until = self.wanted.untilOffset
        if end < until:
            _, latest = self.consumer.log_range(self.wanted.topic, self.wanted.partition)
            if latest is None:
                self.last_trouble = f"the partition seems to end at {end}, and no leader says where it does"
                self.must_begin_again = True
                return
            if latest < until:
                reason = f"the partition ends at {end}, before the end of the range"
                self._lost(LogTruncatedError(self.where, (end, until), until, reason))
                return
        self.position = max(self.position, end)

    def _out_of_range(self, error: Any) -> None:
        """The broker has not got `position`, or not under `start_epoch`. Tells retention from a log that was cut."""
        at, until = self.position, self.wanted.untilOffset
        earliest, latest = self.consumer.log_range(self.wanted.topic, self.wanted.partition)
        if earliest is not None and at < earliest:
            self._lost(RecordsRemovedError(self.where, at, earliest, latest))
        elif latest is not None and at >= latest:
            reason = f"offset {at} lies behind the log's end {latest}"
            self._lost(LogTruncatedError(self.where, (at, until), until, reason))
        else:
            cut = _CUT_AT.search(str(error))
            begin = min(int(cut.group(1)), at) if cut else at
            reason = f"the log was cut below offset {at} and written anew (it is [{earliest}, {latest}) now)"
            loss = LogTruncatedError(self.where, (begin, at), at, reason)
            if earliest is None:  # the broker did not answer: whether there is a log to go on with is not known
                raise loss
            self._lost(loss)

    def _check_epoch(self, records: list[Any]) -> None:
        """Epochs rise with offsets, so the last record of a chunk tells of all."""
        planned = self._planned_epoch
        if planned is None or not records:
            return
        found = records[-1].leader_epoch()
        if found is None or found <= planned:
            return
        begin = next(m.offset() for m in records if (m.leader_epoch() or 0) > planned)
        reason = f"planned under leader epoch {planned}, but it holds records of epoch {found}, which other records took"
        error = LogTruncatedError(self.where, (begin, self.wanted.untilOffset), begin, reason)
        self._planned_epoch = None  # noted once; what took the place of the lost records is read
        self._note_or_raise(error)

    def _lost(self, error: RangeLostError) -> None:
        """Raises it, or notes it and goes on where there is something to read."""
        if self._note_or_raise(error):
            self.position = min(error.resume_at, self.wanted.untilOffset)
            self.start_epoch = None
            self.must_begin_again = True

    def _note_or_raise(self, error: RangeLostError) -> bool:
        """Whether it is noted; False if it is no loss of this topic, and the reading is over."""
        self.check_topic()
        if self._over:
            return False
        if not self.findings.tolerant:
            raise error
        topic, partition, _, _ = self.where
        self.findings.lose(LostRange(topic, partition, error.lost_from, error.lost_until, error.cause, str(error)))
        return True

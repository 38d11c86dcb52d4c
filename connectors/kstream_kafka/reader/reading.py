"""Reading: where the read of one planned range stands, and what an event among its messages means for it."""

from __future__ import annotations

import re
from collections.abc import Callable
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
from kstream_kafka.planning.packing import Piece
from kstream_kafka.reader.read_report import Findings

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

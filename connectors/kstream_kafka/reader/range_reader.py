"""`read_splits`: reads the records of one or several planned ranges in chunks, all of them and no others.

The read of a range ends at the first record at or after the range's end, when the position reaches that end, or when the broker says that
the partition ends there. The read never ends by a count: compaction and transactions leave gaps, and the last offsets of a range may hold
no record. A partition that ends *before* the range is a loss, and so is an offset that the broker does not have. A loss is raised, or it is
recorded in the report and the read continues with the remaining records.

A client that begins to fetch just when its broker returns may stay silent although the broker is healthy. So the client begins anew after a
third of the poll timeout without a record, and a new client takes its place after two thirds.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kstream.offsets.offset_range import LostRange, OffsetRange
from kstream.offsets.read_report import ReadReport
from kstream_kafka.client.ports import FetchErrorKind, RangeConsumer
from kstream_kafka.errors import (
    BrokerUnreachableError,
    KafkaError,
    LogTruncatedError,
    PollTimeoutError,
    RangeLostError,
    RecordsRemovedError,
    TopicRecreatedError,
)
from kstream_kafka.planning.packing import RangeSplit

logger = logging.getLogger("kstream.kafka")

CHUNK = 10_000
"""The most messages of one `consume` call."""
SAMPLE = 50
"""The number of records of a split whose length is looked at. All others count as their mean."""
SLICE_S = 0.05
"""The longest wait of one `consume` call, in seconds. The call waits for all the messages it was asked for, but gaps hold no messages."""
SHORTEST_SILENCE_S = 5.0
"""The shortest silence, in seconds, after which a client begins anew. That drops the fetch under way, which is perhaps a slow one."""

_CUT_AT = re.compile(r"broker end offset is (\d+)")


def read_range(
    consumer: RangeConsumer,
    wanted: OffsetRange,
    poll_timeout_ms: int,
    leader_epoch: int | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[list[Any]]:
    """Read one range with `read_splits`. Blocks on the broker; raises the errors of `read_splits`.

    Args:
        consumer: the worker's consumer.
        wanted: the range.
        poll_timeout_ms: how long to wait without a message.
        leader_epoch: the leader epoch of the plan; None if it is unknown.
        monotonic: a clock in seconds.

    Yields:
        Lists of messages with rising offsets, none empty.
    """
    for _, messages in read_splits(consumer, (RangeSplit(wanted, leader_epoch),), poll_timeout_ms, monotonic):
        yield messages


def read_splits(
    consumer: RangeConsumer,
    splits: Sequence[RangeSplit],
    poll_timeout_ms: int,
    monotonic: Callable[[], float] = time.monotonic,
    report: ReadReport | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> Iterator[tuple[OffsetRange, list[Any]]]:
    """Read splits. Runs in a Spark task; blocks on the broker.

    All splits are assigned at once, so that one fetch serves every partition of a broker. Records are yielded in the same order each time,
    whatever the order of the fetches. So messages that come before their turn wait in memory, and several splits should be small
    (`packing.groups`). Afterwards the consumer is still assigned, and its lender must unassign it.

    Args:
        consumer: the worker's consumer.
        splits: the splits, each of another partition. Their epochs show a log that was cut: a broker refuses `from_epoch` if the log was
            cut below the start of the split, and a record of an epoch later than `leader_epoch` is not the planned record.
        poll_timeout_ms: how long to wait without a message for any split. After a third of it the splits are assigned again at their
            positions, after two thirds by a new client, which then has the whole time: a long gap may need all of it.
        monotonic: a clock in seconds.
        report: records the counts, and the losses if it tolerates them. By default losses are raised.
        topic_ids: topic → topic id of the plan. The ids are compared after records are fetched and before they are yielded, by a request
            about once a second at most.

    Yields:
        (range, messages), in the order of `splits`, with rising offsets within each. `messages` is never empty.

    Raises:
        DataLossError: records of a split are lost, and the report does not tolerate losses.
        PollTimeoutError: no message came in `poll_timeout_ms`.
        BrokerUnreachableError: no broker has told the topic ids in `poll_timeout_ms`.
        KafkaError: the client gave up, or the brokers refuse it.
        ValueError: two splits are of one partition.
    """
    group = _Group(consumer, splits, poll_timeout_ms, report or ReadReport(), topic_ids or {}, monotonic)
    if not group.unfinished:
        return
    group.assign()
    last_message_s, begun_anew = monotonic(), 0
    step_s, patience_ms = max(poll_timeout_ms / 3000, SHORTEST_SILENCE_S), poll_timeout_ms
    while group.unfinished:
        messages = group.consume()
        silent_s = monotonic() - last_message_s
        if group.take(messages):
            group.check_topics()
            yield from group.in_turn()
            last_message_s, begun_anew = monotonic(), 0  # after the records were handed out: the task's own work is no silence
            patience_ms = poll_timeout_ms
        elif silent_s * 1000 >= patience_ms:
            raise group.unfinished[0].timed_out()
        elif begun_anew < 2 and silent_s >= (begun_anew + 1) * step_s:
            begun_anew += 1
            group.begin_anew(silent_s, with_new_client=begun_anew == 2)
            if begun_anew == 2:
                patience_ms = round(silent_s * 1000) + poll_timeout_ms


class _Group:
    """Splits that are read at once.

    Attributes:
        unfinished: the states of the splits whose records are not yet all yielded, in the order of the splits. `_open` is the number of
            states that have not reached their end.
    """

    def __init__(
        self,
        consumer: RangeConsumer,
        splits: Iterable[RangeSplit],
        poll_timeout_ms: int,
        report: ReadReport,
        topic_ids: Mapping[str, str],
        monotonic: Callable[[], float],
    ) -> None:
        self.consumer = consumer
        self.report = report
        self._patience_s = poll_timeout_ms / 1000
        self._monotonic = monotonic
        full = [split for split in splits if split.range.fromOffset < split.range.untilOffset]
        self.unfinished = [RangeReadState(consumer, s, poll_timeout_ms, report, lambda: self.check_topics(fresh=True)) for s in full]
        self._topic_ids = {r.wanted.topic: topic_ids[r.wanted.topic] for r in self.unfinished if r.wanted.topic in topic_ids}
        self._of = {(r.wanted.topic, r.wanted.partition): r for r in self.unfinished}
        self._open = len(self.unfinished)
        self._alone = self._open == 1
        if len(self._of) < len(self.unfinished):
            raise ValueError("two splits of one partition cannot be read at once")

    def assign(self) -> None:
        """Assign all splits that have offsets left. Called at first, after a position was moved, and to begin anew.

        Only a range that is at its first offset is assigned with its `start_epoch`, because that epoch belongs to that offset.
        """
        self.consumer.assign(
            [
                (r.wanted.topic, r.wanted.partition, r.position, r.start_epoch if r.position == r.wanted.fromOffset else None)
                for r in self.unfinished
                if r.left
            ]
        )

    def begin_anew(self, silent_s: float, with_new_client: bool) -> None:
        """Assign all splits that have offsets left once more, because no message has come for long, and log it. May block.

        What has been fetched and not been seen is dropped, and fetched again. Messages that wait for their turn stay.

        Args:
            silent_s: seconds without a message, for the log.
            with_new_client: whether to replace the client first.

        Raises:
            KafkaError: no new client can be made.
        """
        state = self.unfinished[0]
        step = "the worker's Kafka client is replaced, and the new one reads on there" if with_new_client else "it is assigned again there"
        said = f" (the client says: {state.last_error})" if state.last_error else ""
        text = "%s-%d [%d, %d): no record at or after offset %d came for %.0f s: %s%s"
        logger.warning(text, *state.where, state.position, silent_s, step, said)
        if with_new_client:
            self.consumer.reconnect()
        self.assign()

    def consume(self) -> list[Any]:
        """Return the next messages. Blocks up to SLICE_S. Requests no more than is left, because `consume` waits for the whole number."""
        left = sum(r.left for r in self.unfinished)
        messages = self.consumer.consume(min(CHUNK, left), SLICE_S)
        if messages and not self._alone:
            # Events and records after the end of a split used up some of the requested number: fetch the rest that is there.
            messages += self.consumer.consume(CHUNK, 0)
        return messages

    def take(self, messages: list[Any]) -> bool:
        """Give each state its messages, and assign again if a position was moved. Return whether any position has moved.

        Raises the errors of `RangeReadState.keep`.
        """
        if not messages:
            return False
        moved = self.unfinished[0].keep(messages) if self._alone else self._share_out(messages)
        if any(r.must_reassign for r in self.unfinished):
            for state in self.unfinished:
                state.must_reassign = False
            if any(r.left for r in self.unfinished):
                self.assign()
        return moved

    def _share_out(self, messages: list[Any]) -> bool:
        """Give each of several states its messages. Return whether any position has moved."""
        moved = False
        for where, run in groupby(messages, _where):
            # An event of a broker belongs to no partition: any open state handles it. Messages for a finished split are after its end.
            state = self._of[where] if where in self._of else next(r for r in self.unfinished if r.left)
            if state.left and not state.must_reassign and state.keep(list(run)):
                moved = True
                self._open -= not state.left
                if not self._open:
                    break
        return moved

    def in_turn(self) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Yield the records whose turn has come, and record finished splits in the report.

        These are the records of the first unfinished split. If it has reached its end, those of the next one follow, and so on.
        """
        done = 0
        for state in self.unfinished:
            if records := state.records:
                state.records = []
                if not state.yielded:
                    state.mean_length = mean_length(records[:SAMPLE])
                    kind, timestamp_ms = records[0].timestamp()
                    if kind:  # 0: the record has none
                        self.report.record_time(state.wanted, timestamp_ms)
                state.yielded += len(records)
                self.report.record_length(state.wanted, len(records), round(len(records) * state.mean_length))
                yield state.wanted, records
            if state.left:
                break
            self.report.record_read(state.wanted, state.yielded)
            done += 1
        del self.unfinished[:done]

    def check_topics(self, fresh: bool = False) -> None:
        """Compare the topic ids with those of the plan. May block. A topic without an id now is missing or in an election, and passes.

        If losses are tolerated, a recreated topic ends the read of its splits. Their waiting records are dropped, and the loss is recorded.

        Args:
            fresh: whether to ask the broker now, instead of using an answer of the last second.

        Raises:
            TopicRecreatedError: a topic was recreated, and losses are not tolerated.
            BrokerUnreachableError: no broker has answered for the poll timeout.
            KafkaError: the broker refuses the request.
        """
        if not self._topic_ids:
            return
        found = self._ask_for_topic_ids(fresh)
        if not fresh and any(found.get(topic, planned_id) != planned_id for topic, planned_id in self._topic_ids.items()):
            found = self._ask_for_topic_ids(fresh=True)  # the answer may be older than the new topic of the plan
        for topic, planned_id in list(self._topic_ids.items()):
            if (topic_id := found.get(topic)) is None or topic_id == planned_id:
                continue
            states = [r for r in self.unfinished if r.wanted.topic == topic]
            ranges = [(r.wanted.partition, r.wanted.fromOffset, r.wanted.untilOffset) for r in states]
            error = TopicRecreatedError(topic, planned_id, topic_id, ranges)
            if not self.report.tolerate_loss:
                raise error
            for state in states:
                state.give_up(error)
            del self._topic_ids[topic]

    def _ask_for_topic_ids(self, fresh: bool) -> Mapping[str, str]:
        """Ask for the topic ids of now. While no broker answers, ask again, as long as a read waits for messages: an outage is no failure.

        A request waits some seconds for a broker by itself.
        """
        end = self._monotonic() + self._patience_s
        while True:
            try:
                return self.consumer.topic_ids(self._topic_ids.keys(), fresh)
            except BrokerUnreachableError as e:
                if self._monotonic() >= end:
                    raise
                logger.info("topics %s: no broker has told their ids, they are asked for again: %s", sorted(self._topic_ids), e)


def mean_length(messages: Sequence[Any]) -> float:
    """Return the mean bytes of key and value of messages; there is at least one."""
    return sum(len(message.value() or b"") + len(message.key() or b"") for message in messages) / len(messages)


def _where(message: Any) -> tuple[str, int]:
    return (message.topic(), message.partition())


class RangeReadState:
    """The state of the read of one split. It handles the messages and the error events of its partition.

    Attributes:
        wanted: the range of the split.
        position: the first offset that was not seen yet.
        start_epoch: the leader epoch under which the first offset was reached; None if it is unknown. The broker refuses a read under an
            epoch that ended before the offset.
        records: messages that wait for their turn.
        yielded: how many records were yielded.
        mean_length: the mean bytes of the first of them.
        must_reassign: whether the consumer must be assigned again, at `position`.
        last_retriable_error: the text of the last error that a retry may resolve; empty if there was none.
    """

    def __init__(
        self,
        consumer: RangeConsumer,
        split: RangeSplit,
        poll_timeout_ms: int,
        report: ReadReport,
        check_topic: Callable[[], None],
    ) -> None:
        """Begin a read at the start of the split. Sends no request.

        Args:
            consumer: the worker's consumer.
            split: the split.
            poll_timeout_ms: the poll timeout, for the text of a PollTimeoutError.
            report: records losses if it tolerates them.
            check_topic: called before anything counts as a loss, because offsets mean nothing in a recreated topic. For a recreated topic
                it raises TopicRecreatedError, or ends this read by `give_up`.
        """
        self.consumer = consumer
        self.check_topic = check_topic
        self.wanted = split.range
        self.start_epoch = split.leader_epoch if split.from_epoch is None else split.from_epoch
        self.report = report
        self.poll_timeout_ms = poll_timeout_ms
        self.position = self.wanted.fromOffset
        self.records: list[Any] = []
        self.yielded = 0
        self.mean_length = 0.0
        self.must_reassign = False
        self.last_retriable_error = ""
        self._planned_epoch = split.leader_epoch
        self._over = False

    @property
    def where(self) -> tuple[str, int, int, int]:
        """The range as (topic, partition, from, until), for errors."""
        w = self.wanted
        return (w.topic, w.partition, w.fromOffset, w.untilOffset)

    @property
    def left(self) -> int:
        """The number of offsets that were not seen yet; 0 at the end."""
        return max(0, self.wanted.untilOffset - self.position)

    @property
    def last_error(self) -> str:
        """The last error that a retry may resolve, or else that of the client's connections; empty if there was none."""
        return self.last_retriable_error or self.consumer.last_error()

    def keep(self, messages: list[Any]) -> bool:
        """Add the records of the range among these messages to `records`. For error events it may ask the broker, and block.

        Args:
            messages: messages and error events of this partition; at least one.

        Returns:
            Whether the position has moved.

        Raises:
            DataLossError: records are lost, and losses are not tolerated.
            KafkaError: the client gave up.
        """
        before = self.position
        taken = self._take(messages)
        if not self._over:
            self.records = self.records + taken if self.records else taken
        return self.position > before

    def give_up(self, error: TopicRecreatedError) -> None:
        """End the read because the topic was recreated, and record the loss of all records that were not yielded.

        Waiting records are dropped, because they may be of the new topic.

        Args:
            error: the error, for the cause and the text of the loss.
        """
        w = self.wanted
        begin = w.fromOffset if not self.yielded else self.records[0].offset() if self.records else self.position
        self.records = []
        self.position = w.untilOffset
        self._over = True
        self.report.record_loss(LostRange(w.topic, w.partition, begin, w.untilOffset, error.cause, str(error)))

    def timed_out(self) -> PollTimeoutError:
        """Return the error for a read that got no message in time. It names the last connection error, if there was one."""
        return PollTimeoutError(self.where, self.position, self.poll_timeout_ms, self.last_error)

    # -- messages

    def _take(self, messages: list[Any]) -> list[Any]:
        """Return the records of the range among the messages, and move the position past them. Handles error events, and checks epochs."""
        if any(map(type(messages[0]).error, messages)):  # calling the class's function is 5 times as fast as methodcaller
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
        """Handle the error events in their order among the messages, and return the records.

        Records after an end of partition are kept. Messages after an event that set `must_reassign` are dropped, because they belong to a
        fetch that is over.
        """
        records: list[Any] = []
        for message in messages:
            error = message.error()
            if not error:
                records.append(message)
                self.position = max(self.position, message.offset() + 1)
            else:
                self._on_event(error, message)
                if self.must_reassign:
                    break
        return records

    def _on_event(self, error: Any, message: Any) -> None:
        """Handle one error event, by its kind. May block on the broker. KafkaError if the client gave up."""
        from kstream_kafka.client.librdkafka import text_of  # imported late: to plan needs no librdkafka

        kind = self.consumer.classify_error(error)
        if kind is FetchErrorKind.END_OF_PARTITION:
            self._on_end_of_partition(message.offset())
        elif kind is FetchErrorKind.OUT_OF_RANGE:
            self._on_out_of_range(error)
        elif kind is FetchErrorKind.RETRIABLE:
            self.last_retriable_error = text_of(error)
        else:
            w, reason = self.wanted, text_of(error)
            text = f"{w}: the client gave up at offset {self.position}: {reason}"
            raise KafkaError(text, topic=w.topic, partition=w.partition, at=self.position, reason=reason)

    # -- losses

    def _on_end_of_partition(self, end: int) -> None:
        """Finish the range if the partition ends at or after the range's end. If it ends earlier, ask the leader for the log's end. Blocks.

        If the leader confirms the early end, the rest of the range is a loss. A new leader may show less than it has for a moment, and it
        does not answer the request then. Without an answer there is no loss: the range is assigned again at the current position, because
        the client reports an end only once.
        """
        until = self.wanted.untilOffset
        if end < until:
            _, latest = self.consumer.log_range(self.wanted.topic, self.wanted.partition)
            if latest is None:
                self.last_retriable_error = f"the partition seems to end at {end}, and no leader confirms it"
                self.must_reassign = True
                return
            if latest < until:
                reason = f"the partition ends at {end}, before the end of the range"
                self._lost(LogTruncatedError(self.where, (end, until), until, reason))
                return
        self.position = max(self.position, end)

    def _on_out_of_range(self, error: Any) -> None:
        """Handle the loss when the broker does not have `position`, or not under `start_epoch`. Blocks for the ends of the log.

        The ends of the log show whether retention has removed records or the log was cut.

        Raises:
            RecordsRemovedError: retention has removed records, and losses are not tolerated.
            LogTruncatedError: the log was cut, and losses are not tolerated, or the broker did not answer.
        """
        at, until = self.position, self.wanted.untilOffset
        earliest, latest = self.consumer.log_range(self.wanted.topic, self.wanted.partition)
        if earliest is not None and at < earliest:
            self._lost(RecordsRemovedError(self.where, at, earliest, latest))
        elif latest is not None and at >= latest:
            reason = f"offset {at} is past the log's end {latest}"
            self._lost(LogTruncatedError(self.where, (at, until), until, reason))
        else:
            cut = _CUT_AT.search(str(error))
            begin = min(int(cut.group(1)), at) if cut else at
            reason = f"the log was cut below offset {at} and written again (it is [{earliest}, {latest}) now)"
            loss = LogTruncatedError(self.where, (begin, at), at, reason)
            if earliest is None:  # the broker did not answer, so there may be no log to continue with
                raise loss
            self._lost(loss)

    def _check_epoch(self, records: list[Any]) -> None:
        """Record or raise a loss if there are records of a later epoch than the planned one.

        Such records have replaced the planned ones. Epochs rise with offsets, so the last record of a chunk shows whether there are any.
        """
        planned = self._planned_epoch
        if planned is None or not records:
            return
        found = records[-1].leader_epoch()
        if found is None or found <= planned:
            return
        begin = next(m.offset() for m in records if (m.leader_epoch() or 0) > planned)
        reason = f"planned under leader epoch {planned}, but it holds records of epoch {found}, which other records took"
        error = LogTruncatedError(self.where, (begin, self.wanted.untilOffset), begin, reason)
        self._planned_epoch = None  # recorded once; the records that replaced the lost ones are read
        self._record_or_raise(error)

    def _lost(self, error: RangeLostError) -> None:
        """Raise the loss, or record it and let the read continue at `error.resume_at`, by a new assignment.

        If the topic turns out to be recreated, the read is over, and its loss is recorded already.
        """
        if self._record_or_raise(error):
            self.position = min(error.resume_at, self.wanted.untilOffset)
            self.start_epoch = None
            self.must_reassign = True

    def _record_or_raise(self, error: RangeLostError) -> bool:
        """Record a loss.

        Returns:
            True if the loss is recorded and the read continues after it. False if the topic was recreated, so that this read is over.

        Raises:
            RangeLostError: `error`, unless losses are tolerated.
            TopicRecreatedError: the topic was recreated, and losses are not tolerated.
        """
        self.check_topic()
        if self._over:
            return False
        if not self.report.tolerate_loss:
            raise error
        topic, partition, _, _ = self.where
        self.report.record_loss(LostRange(topic, partition, error.lost_from, error.lost_until, error.cause, str(error)))
        return True

"""RangeReads and RangeTask: the work of a Spark task. It borrows a consumer, reads splits and decodes. Tasks pickle the classes by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kstream.batch import SkippedRecord
from kstream.errors import KStreamError, in_a_line
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport, ReportData
from kstream.worker.current_record import between_chunks, hand_out, note_decoding, reading
from kstream.worker.record_errors import ErrorsPolicy, TaskErrors, in_this_task
from kstream.worker.stored_letters import StoredLetters, letters_of_text
from kstream_kafka.client import params
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.planning.packing import NOT_PACKED, Packing, RangeSplit, TaskSplits, groups, is_small, leave_out, pack
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reader import read_splits
from kstream_kafka.reader.tolerant_decoding import TolerantDecoding, record_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator


@dataclass(frozen=True)
class BatchReadContext:
    """The batch for which ranges are read. Immutable; pickled into the tasks.

    Attributes:
        time_ms: the batch time, in ms.
        topic_ids: topic → topic id of the plan.
        tolerate_loss: whether a loss is reported and the read continues; otherwise the loss is raised.
        accumulator: collects the reports of tasks, by batch time; None if there are no reports to send.
        errors: the errors policy of the stream; None if a record that fails ends the task.
    """

    time_ms: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerate_loss: bool = False
    accumulator: Accumulator[dict[int, ReportData]] | None = None
    errors: ErrorsPolicy | None = None


NO_BATCH = BatchReadContext()
"""For an RDD outside of a stream: losses are raised, and nothing is reported."""


@dataclass(frozen=True)
class RangeReads:
    """The splits that each task reads, and the settings of the read. Immutable; pickled into the tasks.

    Attributes:
        tasks: the splits of each task, by the task's index.
        executor: complete consumer properties, except for fetch sizes.
        poll_timeout_ms: how long a task waits for the next record, in ms.
        read_context: the batch.
    """

    tasks: tuple[TaskSplits, ...]
    executor: Mapping[str, Any]
    poll_timeout_ms: int
    read_context: BatchReadContext = NO_BATCH

    @staticmethod
    def of(
        splits: Sequence[RangeSplit],
        executor: Mapping[str, Any],
        poll_timeout_ms: int,
        packing: Packing = NOT_PACKED,
        read_context: BatchReadContext = NO_BATCH,
        skipped: Collection[SkippedRecord] = (),
    ) -> RangeReads:
        """Pack whole ranges into tasks. Without packing, task i reads range i.

        Args:
            splits: the whole ranges.
            executor: complete consumer properties, except for fetch sizes.
            poll_timeout_ms: how long a task waits for the next record, in ms.
            packing: the limits for the distribution of ranges over tasks.
            read_context: the batch.
            skipped: the records that are left out.
        """
        tasks = pack(splits, packing)
        if skipped:
            tasks = tuple(leave_out(task, skipped) for task in tasks)
        return RangeReads(tasks, executor, poll_timeout_ms, read_context)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __reduce__(self) -> Any:
        """Pickle the splits as rows of plain values. A thousand ranges then take a tenth of the time to reach a task."""
        rows = [[(*p.range.to_json(), p.leader_epoch, p.from_epoch) for p in task] for task in self.tasks]
        return (_unpickled, (rows, self.executor, self.poll_timeout_ms, self.read_context))

    def chunks(self, index: int, errors: TaskErrors | None = None) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Read the messages of a task.

        Lazy. Runs in a Spark task and blocks on the broker. An empty range sends no request. At the end the dead letters of the task are
        made durable, and the read report goes to the accumulator, also if the task stops reading early, but not if the read fails.

        Args:
            index: the index of the task.
            errors: the record errors of the task; None without an errors policy.

        Yields:
            (range, messages), in the order of the splits, with rising offsets. No chunk is empty; those of small ranges are small.

        Raises:
            DataLossError: records are lost, and the batch does not tolerate losses.
            PollTimeoutError: no message came in `poll_timeout_ms`.
            DeadLetterNotStoredError: a dead letter could not be stored.
            KafkaError: another error of the client.
        """
        report = ReadReport(self.read_context.tolerate_loss)
        try:
            yield from self._read(index, report)
        except GeneratorExit:
            if errors is not None:
                self._end(index, errors, report, is_cut_short=True)
            self._send(report)
            raise
        if errors is not None:
            self._end(index, errors, report)
        self._send(report)

    def _end(self, index: int, errors: TaskErrors, report: ReadReport, is_cut_short: bool = False) -> None:
        """Make the dead letters of a task durable, and put its record errors into the report.

        Python drops what a generator raises that is closed early. So the report tells the driver that a dead letter was not stored.
        """
        first = self.tasks[index][0].range if self.tasks[index] else OffsetRange("", index, 0, 0)
        start = first.topic, first.partition, first.fromOffset
        try:
            errors.flush()
        except Exception as e:  # also a disk for temporary files that is full
            if not is_cut_short:
                raise
            report.undelivered[start] = str(e) if isinstance(e, KStreamError) else in_a_line(e)
        else:
            report.letters = errors.letters
        if errors.kinds:
            report.errors[start] = errors.kinds

    def _send(self, report: ReadReport) -> None:
        """Add the report to the accumulator, unless the report is empty or there is no accumulator."""
        found = report.to_plain()
        if found and self.read_context.accumulator is not None:
            self.read_context.accumulator.add({self.read_context.time_ms: found})

    def _read(self, index: int, report: ReadReport) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Yield the chunks of a task. Borrows one consumer for small ranges and one for large ranges, each when it is needed first."""
        with ExitStack() as loans:
            lent: dict[bool, RangeConsumer] = {}
            last: RangeConsumer | None = None
            for group in groups(self.tasks[index]):
                small = is_small(group[0])
                if small not in lent:
                    lent[small] = loans.enter_context(self._borrowed(small))
                consumer = lent[small]
                if last is not None and last is not consumer:
                    last.unassign()  # otherwise that consumer would continue to fetch
                last = consumer
                yield from read_splits(consumer, group, self.poll_timeout_ms, report=report, topic_ids=self.read_context.topic_ids)

    def _borrowed(self, small: bool) -> AbstractContextManager[RangeConsumer]:
        """Borrow a consumer for the length of this task, with fetch sizes for small or for large ranges."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Python cannot see the attempt number of a stage. In a repeated stage a task keeps its consumer and only assigns it again.
        retry = bool(context and context.attemptNumber() > 0)
        sized = params.small if small else params.bulk
        return consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry)


def _unpickled(rows: list[list[Any]], executor: Mapping[str, Any], poll_timeout_ms: int, read_context: BatchReadContext) -> RangeReads:
    """Return the RangeReads of pickled rows. Called by pickle in the workers."""
    tasks = tuple(tuple(RangeSplit(OffsetRange(*where), epoch, begun) for *where, epoch, begun in task) for task in rows)
    return RangeReads(tasks, executor, poll_timeout_ms, read_context)


@dataclass(frozen=True)
class RangeTask:
    """The function of a KafkaRDD: partition index → elements. Immutable; pickled into the tasks.

    Attributes:
        reads: the splits to read.
        decoding: makes the elements from the messages.
    """

    reads: RangeReads
    decoding: Decoding

    def __call__(self, index: int) -> Iterable[Any]:
        """Return the elements of a partition of the RDD. Lazy: the read, and its errors, come with the iteration."""
        return itertools.chain.from_iterable(self._decoded(index))

    def _decoded(self, index: int) -> Iterator[Iterator[Any]]:
        """Yield the elements of each chunk of a task. While they are handed out, `current_record` knows which record each one is of."""
        with reading():
            for messages, elements in self._chunks(index):
                handed_out = hand_out(elements, partial(record_of, messages))
                del elements  # else the elements of two chunks would be alive while the next one is decoded
                yield handed_out
                del handed_out
                between_chunks()

    def _chunks(self, index: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield the messages and the elements of each chunk of a task; under an errors policy without those that cannot be decoded."""
        policy = self.reads.read_context.errors
        if policy is None:
            for where, messages in self.reads.chunks(index):
                yield messages, decode_chunk(self.decoding.of_chunk(where), messages)
            return
        errors = TaskErrors(policy, index, partial(stored_letters, policy.stored_property))
        tolerant = TolerantDecoding(self.decoding, errors)
        with in_this_task(errors):
            for where, messages in self.reads.chunks(index, errors):
                yield tolerant.decoded(where, messages)


def stored_letters(name: str) -> StoredLetters:
    """Return the dead letters that the driver had told of when the Spark job of this task began, by the local property of a name."""
    context = TaskContext.get()
    text = context.getLocalProperty(name) if context is not None else None
    return letters_of_text(text) if text else {}


def decode_chunk(decode: Callable[[list[Any]], list[Any]], messages: list[Any]) -> list[Any]:
    """Return the elements of a chunk. If that fails, decode record by record, to find the record that fails: it is the current record then.

    Args:
        decode: decodes a chunk; see `Decoding.of_chunk`.
        messages: the messages.

    Raises:
        Exception: the error of the user's decoder or handler for the first record that fails; that of the whole chunk if none fails alone.
    """
    try:
        return decode(messages)
    except Exception:
        for position, message in enumerate(messages):
            note_decoding(position, partial(record_of, messages))
            decode([message])
        between_chunks()
        raise

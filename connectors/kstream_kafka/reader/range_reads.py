"""RangeReads: the splits that the tasks of a batch read, with the settings of the read. Needs no Spark.

Who runs a task says where its consumers come from (`Lend`) and where its report goes (`BatchReadContext.report_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream.batch import SkippedRecord
from kstream.errors import KStreamError, in_a_line
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport, ReportData
from kstream.worker.record_errors import ErrorsPolicy, TaskErrors
from kstream_kafka.client import params
from kstream_kafka.client.ports import RangeConsumer, Settings
from kstream_kafka.planning.packing import NOT_PACKED, Packing, RangeSplit, TaskSplits, groups, is_small, leave_out, pack
from kstream_kafka.reader.range_reader import read_splits

Lend: TypeAlias = Callable[[Settings], AbstractContextManager[RangeConsumer]]
"""A function that lends a consumer of these properties for a `with` block."""


@dataclass(frozen=True)
class BatchReadContext:
    """The batch for which ranges are read. Immutable; pickled into the tasks.

    Attributes:
        topic_ids: topic → topic id of the plan.
        tolerate_loss: whether a loss is reported and the read continues; otherwise the loss is raised.
        report_to: gets the report of each task, in the task; None if nobody wants it. It is pickled into the tasks.
        errors: the errors policy of the stream; None if a record that fails ends the task.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerate_loss: bool = False
    report_to: Callable[[ReportData], None] | None = None
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
        return len(self.tasks)

    def __reduce__(self) -> Any:
        """Pickle the splits as rows of plain values. A thousand ranges then take a tenth of the time to reach a task."""
        rows = [[(*p.range.to_json(), p.leader_epoch, p.from_epoch) for p in task] for task in self.tasks]
        return (_unpickled, (rows, self.executor, self.poll_timeout_ms, self.read_context))

    def chunks(self, index: int, lend: Lend, errors: TaskErrors | None = None) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Read the messages of a task.

        Lazy. Runs in the thread of the task and blocks on the broker. An empty range sends no request. At the end the dead letters of the
        task are made durable, and the report goes to `report_to`, also if the task stops reading early, but not if the read fails.

        Args:
            index: the index of the task.
            lend: lends the consumers of this task.
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
            yield from self._read(index, lend, report)
        except GeneratorExit:
            if errors is not None:
                self._end(index, errors, report, is_cut_short=True)
            self._send(report)
            raise
        if errors is not None:
            self._end(index, errors, report)
        self._send(report)

    def _end(self, index: int, errors: TaskErrors, report: ReadReport, is_cut_short: bool = False) -> None:
        """Make the dead letters of a task durable, and put its record errors and stored letters into the report.

        Python drops what a generator raises that is closed early, as by `take`. So the report tells the driver then that a dead letter was
        not stored, and nothing is raised.
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
        """Hand the report on, unless it is empty or nobody wants it."""
        found = report.to_plain()
        if found and self.read_context.report_to is not None:
            self.read_context.report_to(found)

    def _read(self, index: int, lend: Lend, report: ReadReport) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Yield the chunks of a task. Borrows one consumer for small ranges and one for large ranges, each when it is needed first."""
        with ExitStack() as loans:
            lent: dict[bool, RangeConsumer] = {}
            last: RangeConsumer | None = None
            for group in groups(self.tasks[index]):
                small = is_small(group[0])
                if small not in lent:
                    sized = params.small if small else params.bulk
                    lent[small] = loans.enter_context(lend(sized(self.executor)))
                consumer = lent[small]
                if last is not None and last is not consumer:
                    last.unassign()  # otherwise that consumer would continue to fetch
                last = consumer
                yield from read_splits(consumer, group, self.poll_timeout_ms, report=report, topic_ids=self.read_context.topic_ids)


def _unpickled(rows: list[list[Any]], executor: Mapping[str, Any], poll_timeout_ms: int, read_context: BatchReadContext) -> RangeReads:
    """Return the RangeReads of pickled rows. Called by pickle in the workers."""
    tasks = tuple(tuple(RangeSplit(OffsetRange(*where), epoch, begun) for *where, epoch, begun in task) for task in rows)
    return RangeReads(tasks, executor, poll_timeout_ms, read_context)

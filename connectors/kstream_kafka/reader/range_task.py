"""RangeReads and RangeTask: the work of a Spark task: borrow a consumer, read splits, decode. Pickled by reference into the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kstream_kafka.client import params
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import NOT_PACKED, Packing, RangeSplit, TaskSplits, groups, is_small, pack
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reader import read_splits
from kstream_kafka.reader.read_report import ReadReport, ReportData

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator


@dataclass(frozen=True)
class BatchReadContext:
    """The batch for which ranges are read.

    Attributes:
        time_ms: the batch time.
        topic_ids: the topic ids of the plan.
        tolerate_loss: whether a loss is reported and the read continues; otherwise the loss is raised.
        accumulator: gets the reports of tasks, by batch time; None if nobody wants them.
    """

    time_ms: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerate_loss: bool = False
    accumulator: Accumulator[dict[int, ReportData]] | None = None


NO_BATCH = BatchReadContext()
"""For an RDD outside of a stream: losses are raised, and nothing is reported."""


@dataclass(frozen=True)
class RangeReads:
    """The splits that each task reads.

    Attributes:
        tasks: the splits of each task.
        executor: complete consumer properties, except for fetch sizes.
        poll_timeout_ms: how long a task waits for the next record.
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
    ) -> RangeReads:
        """Pack whole ranges into tasks. Without packing, task i reads range i."""
        return RangeReads(pack(splits, packing), executor, poll_timeout_ms, read_context)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.tasks)

    def __reduce__(self) -> Any:
        """Pickle rows of plain values: a thousand ranges reach each task in a tenth of the time that their objects would take."""
        rows = [[(*p.range.to_json(), p.leader_epoch, p.from_epoch) for p in task] for task in self.tasks]
        return (_unpickled, (rows, self.executor, self.poll_timeout_ms, self.read_context))

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """Read the messages of a task.

        Lazy. Runs in a Spark task and blocks on the broker. An empty range sends no request. The report is sent at the end, or when the
        task wants no more, but not when it failed.

        Args:
            index: the number of the task.

        Yields:
            Chunks of messages with their range, in the order of the splits, offsets rising. No chunk is empty; those of small ranges are
            small.
        """
        report = ReadReport(self.read_context.tolerate_loss)
        try:
            yield from self._read(index, report)
        except GeneratorExit:
            self._send(report)
            raise
        self._send(report)

    def _send(self, report: ReadReport) -> None:
        found = report.to_plain()
        if found and self.read_context.accumulator is not None:
            self.read_context.accumulator.add({self.read_context.time_ms: found})

    def _read(self, index: int, report: ReadReport) -> Iterator[tuple[OffsetRange, list[Any]]]:
        with ExitStack() as loans:
            lent: dict[bool, RangeConsumer] = {}
            last: RangeConsumer | None = None
            for group in groups(self.tasks[index]):
                small = is_small(group[0])
                if small not in lent:
                    lent[small] = loans.enter_context(self._borrowed(small))
                consumer = lent[small]
                if last is not None and last is not consumer:
                    last.unassign()  # otherwise it continues to fetch
                last = consumer
                yield from read_splits(consumer, group, self.poll_timeout_ms, report=report, topic_ids=self.read_context.topic_ids)

    def _borrowed(self, small: bool) -> AbstractContextManager[RangeConsumer]:
        """Borrow a consumer for the length of this task, with fetch sizes for small or for large ranges."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Spark does not tell Python the attempt number of a stage; a task of a repeated stage starts again by a new assignment.
        retry = bool(context and context.attemptNumber() > 0)
        sized = params.small if small else params.bulk
        return consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry)


def _unpickled(rows: list[list[Any]], executor: Mapping[str, Any], poll_timeout_ms: int, read_context: BatchReadContext) -> RangeReads:
    tasks = tuple(tuple(RangeSplit(OffsetRange(*where), epoch, begun) for *where, epoch, begun in task) for task in rows)
    return RangeReads(tasks, executor, poll_timeout_ms, read_context)


@dataclass(frozen=True)
class RangeTask:
    """The elements of an RDD: the messages of `reads`, decoded."""

    reads: RangeReads
    decoding: Decoding

    def __call__(self, index: int) -> Iterable[Any]:
        """Return the elements of a partition, lazily."""
        return itertools.chain.from_iterable(self._decoded(index))

    def _decoded(self, index: int) -> Iterator[list[Any]]:
        for where, messages in self.reads.chunks(index):
            yield self.decoding.of_chunk(where)(messages)

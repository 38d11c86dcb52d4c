"""LogRDD: the records of planned ranges of a Log, which Spark's Python workers read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.batch import SkippedRecord
from kstream.direct.log_plan import LogPlan
from kstream.direct.read_report_accumulator import ReadReportAccumulator
from kstream.errors import DataLossError, KStreamError
from kstream.offsets.log import Log, pause_or_raise
from kstream.offsets.offset_range import LostRange, OffsetRange
from kstream.offsets.read_report import ReadReport, ReportData
from kstream.spark.worker_rdd import WorkerRDD
from kstream.worker.current_record import CurrentRecord, note, reading

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator


class LogRDD(WorkerRDD):
    """The RDD of a batch of a Log. Each computation of a partition reads the Log again.

    Without `max_records_per_task`, partition i has the records of `offsetRanges()[i]`.
    """

    def __init__(
        self,
        sc: Any,
        log: Log,
        plan: LogPlan,
        max_records_per_task: int,
        reports: ReadReportAccumulator,
        time_ms: int,
        tolerate_loss: bool,
    ) -> None:
        """Create the RDD. Asks nobody.

        Args:
            sc: the SparkContext.
            log: the Log.
            plan: the plan of the batch.
            max_records_per_task: the length above which several tasks read a range; 0 is no limit.
            reports: the read reports of the stream.
            time_ms: the batch time.
            tolerate_loss: whether a loss is reported and the read continues; otherwise the loss is raised.
        """
        self._ranges = tuple(plan.ranges)
        splits = tuple(tuple(leave_out(split, plan.skipped)) for split in split_ranges(plan.ranges, max_records_per_task))
        super().__init__(sc, len(splits), LogTask(log, splits, time_ms, tolerate_loss, reports.accumulator))

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the planned ranges."""
        return list(self._ranges)


def split_ranges(ranges: Iterable[OffsetRange], most: int) -> Iterator[OffsetRange]:
    """Yield the ranges in their order, cut into equal parts of at most `most` offsets. 0 cuts none. Pure."""
    for r in ranges:
        parts = max(1, -(-r.count() // most)) if most > 0 else 1
        cuts = [r.fromOffset + r.count() * i // parts for i in range(parts + 1)]
        for begin, until in itertools.pairwise(cuts):
            yield OffsetRange(r.topic, r.partition, begin, until)


def leave_out(split: OffsetRange, skipped: Collection[SkippedRecord]) -> list[OffsetRange]:
    """Return the parts of a range around the records that are left out; the range itself if it has none of them. Pure."""
    return split.without({record.offset for record in skipped if (record.topic, record.partition) == (split.topic, split.partition)})


@dataclass(frozen=True)
class LogTask:
    """The function of a LogRDD: index → records. Immutable; pickled into the tasks.

    Attributes:
        log: the Log.
        splits: the ranges of each task, by the task's index: one, or the parts around records that are left out.
        time_ms: the batch time.
        tolerate_loss: whether a loss is reported and the read continues; otherwise the loss is raised.
        accumulator: collects the read reports, by batch time.
        pause: waits for seconds.
    """

    log: Log
    splits: tuple[tuple[OffsetRange, ...], ...]
    time_ms: int
    tolerate_loss: bool
    accumulator: Accumulator[dict[int, ReportData]]
    pause: Callable[[float], None] = time.sleep

    def __call__(self, index: int) -> Iterator[Any]:
        """Yield the records of a task, and send its read report. Lazy; blocks on the Log.

        Raises:
            DataLossError: records are lost, and the batch does not tolerate losses.
            Exception: another error of the Log.
        """
        report = ReadReport(self.tolerate_loss)
        for split in self.splits[index]:
            if split.count():
                yield from self._records(split, report)
        found = report.to_plain()
        if found:
            self.accumulator.add({self.time_ms: found})

    def _records(self, split: OffsetRange, report: ReadReport) -> Iterator[Any]:
        """Yield the records of a range, and report how many there were. A loss is reported, too, or raised.

        Meanwhile `kstream.worker.current_record` knows the place of the record, for errors of the functions behind this read.
        """
        read = 0
        note(lambda: read - 1, partial(_record_at, split, self.log.offsets_have_gaps))
        try:
            with reading():
                for record in self._repeated(split):
                    read += 1
                    yield record
                self._check_count(split, read)
        except DataLossError as e:
            if not self.tolerate_loss:
                raise
            report.record_loss(LostRange(split.topic, split.partition, split.fromOffset, split.untilOffset, "removed", str(e)))
        report.record_read(split, read)

    def _repeated(self, split: OffsetRange) -> Iterator[Any]:
        """Yield the records of a range. After a retriable error, read the range again and skip the records that were yielded before."""
        yielded = attempt = 0
        while True:
            attempt += 1
            try:
                for position, record in enumerate(self.log.read(split)):
                    if position >= yielded:
                        yielded += 1
                        yield record
                return
            except KStreamError as e:
                pause_or_raise(e, attempt, f"{self.log.name}: the read of {split}", self.pause)

    def _check_count(self, split: OffsetRange, read: int) -> None:
        """Raise DataLossError if a range without gaps had fewer records than offsets. ValueError if it had more."""
        if read > split.count():
            raise ValueError(f"{self.log.name}: read yielded {read} records for the {split.count()} offsets of {split}")
        if read < split.count() and not self.log.offsets_have_gaps:
            raise DataLossError(f"{self.log.name}: {split.count() - read} of the {split.count()} records of {split} are gone")


def _record_at(split: OffsetRange, gaps: bool, position: int) -> CurrentRecord:
    """Return the record at a position of a range. In a Log with gaps only its position in the range is known."""
    if not gaps:
        return CurrentRecord(split.topic, split.partition, split.fromOffset + position)
    return CurrentRecord(split.topic, split.partition, place=f"{split}, position {position}")

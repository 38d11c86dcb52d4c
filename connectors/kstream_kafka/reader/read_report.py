"""The read report of a batch: how many records each range held, and the ranges that were lost.

A task records what it met while it reads (`ReadReport`), and sends it to the driver when it succeeds. There `ReadReportAccumulator` merges
the reports of all tasks, attempts and jobs of a batch into one map. The keys are positions in Kafka, so the same report twice changes
nothing. The driver decides.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.offset_range import OffsetRange

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

RangeStart: TypeAlias = tuple[str, int, int]
"""(topic, partition, first offset)."""
ReportData: TypeAlias = dict[str, Any]
"""A report as it travels: {"counts": {start: (until, records)}, "lost": {start: (until, cause, detail)}}."""


@dataclass(slots=True)
class ReadReport:
    """The report of one task.

    Attributes:
        tolerate_loss: whether a loss is recorded and the read continues; otherwise the loss is raised.
        counts: (end, records) of each split that was read to its end, by its start.
        lost: (end, cause, detail) of each lost range, by its start.
    """

    tolerate_loss: bool = False
    counts: dict[RangeStart, tuple[int, int]] = field(default_factory=dict[RangeStart, tuple[int, int]])
    lost: dict[RangeStart, tuple[int | None, str, str]] = field(default_factory=dict[RangeStart, tuple[int | None, str, str]])

    def record_read(self, split: OffsetRange, records: int) -> None:
        """Record that a split was read to its end, and how many records it held."""
        self.counts[split.topic, split.partition, split.fromOffset] = (split.untilOffset, records)

    def record_loss(self, lost: LostRange) -> None:
        """Record a lost range."""
        self.lost[lost.topic, lost.partition, lost.lost_from] = (lost.lost_until, lost.cause, lost.detail)

    def to_plain(self) -> ReportData:
        """Return the report for the driver; empty if nothing was recorded."""
        return {name: found for name, found in (("counts", self.counts), ("lost", self.lost)) if found}


def merge(into: dict[int, ReportData], more: Mapping[int, ReportData]) -> dict[int, ReportData]:
    """Add reports of tasks, by batch time in ms. Of two counts of a split the larger wins, because the other read was cut short."""
    for time, report in more.items():
        known = into.setdefault(time, {"counts": {}, "lost": {}})
        for start, (until, records) in report.get("counts", {}).items():
            known["counts"][start] = max(known["counts"].get(start, (until, 0)), (until, records))
        known["lost"].update(report.get("lost", {}))
    return into


def counts_of(ranges: Sequence[OffsetRange], counts: Mapping[RangeStart, tuple[int, int]]) -> list[int | None]:
    """Return how many records each range held: 0 for an empty range, None if no job has read it to its end.

    The count of a range that was split is the sum of its splits.
    """
    return [_count(r, counts) for r in ranges]


def _count(r: OffsetRange, counts: Mapping[RangeStart, tuple[int, int]]) -> int | None:
    at, total = r.fromOffset, 0
    while at < r.untilOffset:
        found = counts.get((r.topic, r.partition, at))
        if found is None:
            return None
        at, total = found[0], total + found[1]
    return total


def lost_ranges(found: Mapping[RangeStart, tuple[int | None, str, str]]) -> list[LostRange]:
    """Return the lost ranges of a report, sorted by topic, partition and offset."""
    return [LostRange(*start, *rest) for start, rest in sorted(found.items())]


class ReadReportParam:
    """Merges reports for Spark's accumulator: workers begin with an empty dict, the driver merges what they send.

    `lock` guards the driver's dict. Three threads change it: Spark's accumulator thread adds, the thread that ends a batch takes, and the
    generator's thread forgets. Nothing that blocks is called under the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return ReadReportParam, ()  # tasks get a copy with its own lock

    def zero(self, value: dict[int, ReportData]) -> dict[int, ReportData]:
        return {}

    def addInPlace(self, value1: dict[int, ReportData], value2: dict[int, ReportData]) -> dict[int, ReportData]:
        with self.lock:
            return merge(value1, value2)


class ReadReportAccumulator:
    """The driver's end of the reports of one stream in one SparkContext. Any thread.

    The report of a task comes with its end, before the job's end is known to its caller.
    """

    def __init__(self, sc: SparkContext) -> None:
        self.param = ReadReportParam()
        self.accumulator: Accumulator[dict[int, ReportData]] = sc.accumulator({}, self.param)  # pyright: ignore[reportArgumentType]
        """Spark's accumulator, to which tasks add. Pickled into them by its number."""

    def take(self, time_ms: int) -> ReportData:
        """Remove and return the report of a batch: {"counts": …, "lost": …}.

        `lost` also has the losses of older batches since their end, because a window reads their ranges again.
        """
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            found = known.pop(time_ms, {})
            lost = dict(found.get("lost", {}))
            for older in [t for t in known if t < time_ms]:
                lost.update(known[older].get("lost", {}))
                known[older]["lost"] = {}
        return {"counts": found.get("counts", {}), "lost": lost}

    def forget(self, up_to_ms: int) -> None:
        """Drop what came after their end for batches up to this time."""
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            for old in [t for t in known if t <= up_to_ms]:
                del known[old]

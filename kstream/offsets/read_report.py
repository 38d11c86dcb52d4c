"""The read report of a batch: how many records each range held, the ranges that were lost, and the record errors.

A task fills a `ReadReport` while it reads, and sends it to the driver when it succeeds. There `ReadReportAccumulator` merges the reports of
all tasks, attempts and jobs of a batch into one map. The keys are positions in the log, so merging is idempotent. The driver decides what
follows from a loss.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream.offsets.offset_range import LostRange, OffsetRange, SkippedRecord
from kstream.worker.record_errors import StoredLetters, add_letters

if TYPE_CHECKING:
    from kstream.worker.record_errors import KindCounts

RangeStart: TypeAlias = tuple[str, int, int]
"""(topic, partition, first offset)."""
ReportData: TypeAlias = dict[str, Any]
"""A report as tasks send it: {"counts": {start: (until, records)}, "bytes": {start: (records, bytes)}, "oldest": {start: ms},
"lost": {start: (until, cause, detail)}, "errors": {start: {kind: (records, first)}}, "letters": StoredLetters,
"undelivered": {start: reason}}. Bytes, oldest, errors and undelivered are by a range of the task."""


@dataclass(slots=True)
class ReadReport:
    """The report of one task.

    Attributes:
        tolerate_loss: whether a loss is recorded and the read continues; otherwise the loss is raised.
        counts: start → (end, number of records), for each split that was read to its end.
        lengths: start of the task's first range → (records, their bytes), of the records whose length is known or estimated. These
            count also if the reader did not read a split to its end.
        oldest: start of the task's first range → the oldest timestamp of the records with which its splits begin, in ms.
        lost: start → (end, cause, detail), for each lost range.
        errors: start of the task's first range → kind → (records, the first of them), if records failed.
        letters: the dead letters that the task has stored.
        undelivered: the same start → why a dead letter was not stored, if the task could not raise that.
    """

    tolerate_loss: bool = False
    counts: dict[RangeStart, tuple[int, int]] = field(default_factory=dict[RangeStart, tuple[int, int]])
    lengths: dict[RangeStart, tuple[int, int]] = field(default_factory=dict[RangeStart, tuple[int, int]])
    oldest: dict[RangeStart, int] = field(default_factory=dict[RangeStart, int])
    lost: dict[RangeStart, tuple[int | None, str, str]] = field(default_factory=dict[RangeStart, tuple[int | None, str, str]])
    errors: dict[RangeStart, KindCounts] = field(default_factory=dict)
    letters: StoredLetters = field(default_factory=dict)
    undelivered: dict[RangeStart, str] = field(default_factory=dict[RangeStart, str])

    def record_read(self, split: OffsetRange, records: int) -> None:
        """Record that a split was read to its end.

        Args:
            split: the range of the split.
            records: how many records it held.
        """
        self.counts[split.topic, split.partition, split.fromOffset] = (split.untilOffset, records)

    def record_length(self, split: OffsetRange, records: int, num_bytes: int) -> None:
        """Record the bytes of some records of a split. Called before they are handed out, for their reader may stop after them.

        Args:
            split: the range of the split.
            records: how many records.
            num_bytes: their bytes, estimated.
        """
        first = next(iter(self.lengths), (split.topic, split.partition, split.fromOffset))
        known = self.lengths.get(first, (0, 0))
        self.lengths[first] = known[0] + records, known[1] + num_bytes

    def record_time(self, split: OffsetRange, timestamp_ms: int) -> None:
        """Record the timestamp of the record with which a split begins, in ms since the Unix epoch. The oldest of the task is kept."""
        first = next(iter(self.oldest), (split.topic, split.partition, split.fromOffset))
        self.oldest[first] = min(self.oldest.get(first, timestamp_ms), timestamp_ms)

    def record_loss(self, lost: LostRange) -> None:
        self.lost[lost.topic, lost.partition, lost.lost_from] = (lost.lost_until, lost.cause, lost.detail)

    def to_plain(self) -> ReportData:
        """Return the report for the driver; empty if nothing was recorded."""
        parts: dict[str, Mapping[Any, Any]] = {
            "counts": self.counts,
            "bytes": self.lengths,
            "oldest": self.oldest,
            "lost": self.lost,
            "errors": self.errors,
            "letters": self.letters,
            "undelivered": self.undelivered,
        }
        return {name: found for name, found in parts.items() if found}


def merge(into: dict[int, ReportData], more: Mapping[int, ReportData]) -> dict[int, ReportData]:
    """Merge reports of tasks. Of two counts of a split the larger wins, because the other read was cut short. So do counts of errors.

    Args:
        into: batch time in ms → report. It is changed.
        more: batch time in ms → report, to be added.

    Returns:
        `into`.
    """
    for time, report in more.items():
        known = into.setdefault(time, {"counts": {}, "lost": {}})
        for start, (until, records) in report.get("counts", {}).items():
            known["counts"][start] = max(known["counts"].get(start, (until, 0)), (until, records))
        for start, length in report.get("bytes", {}).items():
            lengths = known.setdefault("bytes", {})
            lengths[start] = max(lengths.get(start, (0, 0)), length)
        for start, moment in report.get("oldest", {}).items():
            oldest = known.setdefault("oldest", {})
            oldest[start] = min(oldest.get(start, moment), moment)
        known["lost"].update(report.get("lost", {}))
        for start, kinds in report.get("errors", {}).items():
            counted = known.setdefault("errors", {}).setdefault(start, {})
            for kind, found in kinds.items():
                counted[kind] = max(counted.get(kind, found), found, key=lambda entry: entry[0])
        if "letters" in report:
            add_letters(known.setdefault("letters", {}), report["letters"])
        if "undelivered" in report:
            known.setdefault("undelivered", {}).update(report["undelivered"])
    return into


def bytes_of(report: ReportData, records: int) -> int | None:
    """Return the bytes of the records of a batch, by the mean length of those that the report knows; None if it knows none. Pure.

    Args:
        report: the report.
        records: how many records the batch has.
    """
    lengths = report.get("bytes", {}).values()
    known = sum(number for number, _ in lengths)
    return round(sum(num_bytes for _, num_bytes in lengths) * records / known) if known else None


def oldest_of(report: ReportData) -> int | None:
    """Return the oldest timestamp that the report knows, in ms; None if it knows none. Pure."""
    return min(report.get("oldest", {}).values(), default=None)


def errors_of(report: ReportData) -> KindCounts:
    """Return the record errors of all tasks of a report, by their kind. Pure."""
    total: KindCounts = {}
    for _, kinds in sorted(report.get("errors", {}).items()):
        for kind, (records, first) in kinds.items():
            known = total.get(kind, (0, first))
            total[kind] = (known[0] + records, known[1])
    return total


def counts_of(
    ranges: Sequence[OffsetRange], counts: Mapping[RangeStart, tuple[int, int]], skipped: Collection[SkippedRecord] = ()
) -> list[int | None]:
    """Return how many records each range held. The count of a range that was split is the sum of its splits. Pure.

    Args:
        ranges: the planned ranges.
        counts: start → (end, number of records), from a read report.
        skipped: the records that were left out. They are not counted.

    Returns:
        For each range its number of records: 0 for an empty range, None if no job has read the whole range.
    """
    left_out = {(record.topic, record.partition, record.offset) for record in skipped}
    return [_count(r, counts, left_out) for r in ranges]


def _count(r: OffsetRange, counts: Mapping[RangeStart, tuple[int, int]], left_out: Collection[RangeStart]) -> int | None:
    """Return the number of records of one range, by following its splits; None if one of them was not read to its end."""
    at, total = r.fromOffset, 0
    while at < r.untilOffset:
        if (r.topic, r.partition, at) in left_out:
            at += 1
            continue
        found = counts.get((r.topic, r.partition, at))
        if found is None:
            return None
        at, total = found[0], total + found[1]
    return total


def lost_ranges(found: Mapping[RangeStart, tuple[int | None, str, str]]) -> list[LostRange]:
    """Return the lost ranges of a report, sorted by topic, partition and offset.

    Args:
        found: start → (end, cause, detail), from a read report.
    """
    return [LostRange(*start, *rest) for start, rest in sorted(found.items())]

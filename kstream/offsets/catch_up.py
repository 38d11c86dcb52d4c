"""CatchUp: how many records a direct stream takes while it reads a backlog, after a start or a long pause. Asks nobody.

A first start from `earliest`, or a start after a downtime, finds more records than one batch can process. The first batch then takes a
fixed number of each partition. Later ones take nothing until it has ended, because nothing is measured yet. From then on a batch takes
as many records as fit its interval, by the cost of the last batches. This ends when a batch reaches the ends of all logs.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kstream.batch import BatchInfo
from kstream.batch_time import Duration, Time
from kstream.offsets.offset_range import OffsetRange, Partition

logger = logging.getLogger("kstream.offsets")

PAUSE_INTERVALS = 10
"""After a pause of so many batch intervals between two plans a stream catches up again: brokers were away, or the process was stopped."""
SHARE = 0.85
"""The share of its interval that a batch may need, by the speed of the last one. The rest is for batches that are slower."""
MOST_OVERHEAD = 0.75
"""The share of an interval above which the overhead of a batch leaves no time for records."""
RECENT = 10
"""The number of batches of which the fastest bounds the overhead: no batch is faster than its overhead."""
MOST_LATE = 2
"""A batch takes no records if an earlier one has not ended so many intervals after its time."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most records of one batch.

    Attributes:
        each: the most records of each partition; None is no limit.
        total: the most records of all partitions together; None is no limit.
        reason: why, as in a ReadLimit.
    """

    each: int | None = None
    total: int | None = None
    reason: str = ""

    def lowered(self, current: Mapping[Partition, int], until: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the ends of the ranges, lowered to the limits. Partitions share `total` by the lengths of their ranges.

        Args:
            current: the next offset of each partition.
            until: the end of its range, by the other limits.
        """
        lengths = {p: end - current[p] if self.each is None else min(end - current[p], self.each) for p, end in until.items()}
        wanted = sum(lengths.values())
        if self.total is not None and wanted > self.total:
            lengths = _shares(lengths, self.total, wanted)
        return {p: current[p] + length for p, length in lengths.items()}


NO_CEILING = Ceiling()


def _shares(lengths: Mapping[Partition, int], total: int, wanted: int) -> dict[Partition, int]:
    """Share a number of records by the lengths of the ranges. The shares are whole numbers, and their sum is `total`."""
    shares: dict[Partition, int] = {}
    before = behind = 0
    for p, length in sorted(lengths.items()):
        behind += length
        at = behind * total // wanted
        shares[p], before = at - before, at
    return shares


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The records of a stream in a batch, and the time for which the batch ran."""

    records: int
    processing_ms: int

    @property
    def a_second(self) -> float:
        """The records a second of processing."""
        return self.records * 1000 / self.processing_ms

    def differs_much(self, other: BatchCost) -> bool:
        """Return whether one batch has at least twice the records of the other."""
        return self.records >= 2 * other.records or other.records >= 2 * self.records

    def overhead_ms(self, other: BatchCost) -> float:
        """Return the time of a batch without records, by the straight line through two batches; not below 0."""
        slope = (self.processing_ms - other.processing_ms) / (self.records - other.records)
        return max(0.0, self.processing_ms - slope * self.records)


class CatchUp:
    """How far one stream has caught up. The generator's thread plans, the listeners' thread measures; `_lock` guards the state.

    Args:
        first_records: the most records of a partition in a batch without a measurement; 0 switches catching up off.
        interval: the batch interval.
    """

    def __init__(self, first_records: int, interval: Duration) -> None:
        self._first_records = first_records
        self._interval = interval
        self._lock = threading.Lock()
        self._behind = first_records > 0
        self._measured: BatchCost | None = None
        """The last batch with records of the stream."""
        self._reference: BatchCost | None = None
        """An earlier one, for the overhead."""
        self._overhead_ms = 0.0
        """What each batch costs, however few its records, in milliseconds; by a line through two batches."""
        self._recent_ms: deque[int] = deque(maxlen=RECENT)
        """How long the last batches with records have run."""
        self._last: Time | None = None
        self._left = 0
        """The records that the last plan left in the logs."""
        self._unfinished: list[Time] = []
        """The batches that took records while the stream was behind, and that had not ended at the last plan."""

    @property
    def is_behind(self) -> bool:
        """Whether the stream has not reached the ends of its logs since the start or the last pause. Any thread."""
        return self._behind

    def ceiling(self, time: Time, open_batches: Collection[Time]) -> Ceiling:
        """Return the most records of a batch. After a pause of `PAUSE_INTERVALS` a stream that was on time catches up again.

        Args:
            time: the batch.
            open_batches: the batches that run, or wait for an earlier one. One that has failed is not among them, also between two tries.
        """
        with self._lock:
            if not self._behind and (self._first_records <= 0 or not self._has_paused(time)):
                return NO_CEILING
            self._unfinished = [batch for batch in self._unfinished if batch in open_batches]
            if self._measured is None:
                first = Ceiling(each=self._first_records, reason="firstBatchRecords")
                return Ceiling(total=0, reason="firstBatchRuns") if self._unfinished else first
            if self._unfinished and time.since(self._unfinished[0]).milliseconds >= MOST_LATE * self._interval.milliseconds:
                return Ceiling(total=0, reason="lateBatches")
            return Ceiling(total=self._fitting(), reason="catchUp")

    def planned(self, time: Time, ranges: Iterable[OffsetRange], ends: Mapping[Partition, int]) -> None:
        """Note the durable plan of a batch.

        Args:
            time: the batch.
            ranges: its ranges.
            ends: the ends of the logs at its planning.
        """
        taken = left = 0
        for r in ranges:
            taken += r.count()
            left += max(0, ends.get((r.topic, r.partition), 0) - r.untilOffset)
        with self._lock:
            self._behind = self._first_records > 0 and left > 0 and (self._behind or self._has_paused(time))
            self._last, self._left = time, left
            if self._behind and taken:
                self._unfinished.append(time)

    def completed(self, info: BatchInfo, stream_id: int, name: str) -> None:
        """Note the speed of a batch whose outputs have succeeded. Logs the first speed of a stream that is behind.

        Args:
            info: the batch.
            stream_id: the id of the stream.
            name: the name of the stream, for the log.
        """
        source, processing_ms = info.inputs.get(stream_id), info.processing_delay_ms
        if source is None or source.num_records <= 0 or processing_ms is None:
            return
        cost = BatchCost(source.num_records, max(1, processing_ms))
        with self._lock:
            first, left = self._measured is None and self._behind, self._left
            self._measured = cost
            self._recent_ms.append(cost.processing_ms)
            if self._reference is None:
                self._reference = cost
            elif cost.differs_much(self._reference):
                self._overhead_ms, self._reference = cost.overhead_ms(self._reference), cost
            most = self._fitting()
        if first:
            text = "%s catches up: %d records wait, and the job has processed %.0f a second. A batch takes up to %d, for about %.0f s"
            logger.info(text, name, left, cost.a_second, most, left / cost.a_second)

    def _fitting(self) -> int:
        """Return how many records fit an interval by the last measurement. Call this under the lock.

        If the overhead alone takes nearly the whole interval, no number fits. Then a batch may run as long again as its overhead: with
        fewer records the job would do little else than begin batches.
        """
        assert self._measured is not None
        cost, budget_ms = self._measured, SHARE * self._interval.milliseconds
        # A pause of the machine makes one batch slow, and the line through it steep or flat. The fastest batch had no such pause.
        overhead_ms = min(self._overhead_ms, SHARE * min(self._recent_ms))
        if overhead_ms < MOST_OVERHEAD * self._interval.milliseconds:
            return max(1, int(cost.records / cost.processing_ms * budget_ms))
        return max(1, int(cost.records / (cost.processing_ms - overhead_ms) * overhead_ms))

    def _has_paused(self, time: Time) -> bool:
        """Return whether many intervals lie between the last plan and this one. Call this under the lock."""
        return self._last is not None and time.since(self._last).milliseconds > PAUSE_INTERVALS * self._interval.milliseconds

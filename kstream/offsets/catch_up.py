"""CatchUp: how many records a direct stream takes while it reads a backlog, after a start or a long pause. Asks nobody.

A first start from `earliest`, or a start after a downtime, finds more records than one batch can process. The first batch then takes at
most a fixed number of each partition, and after a downtime no more than some seconds' worth, by the batches of earlier drivers. Later ones
take nothing until it has ended, because nothing is measured yet: a new driver may run on another machine, or with other code. From then on
a batch takes as many records as fit its interval, by the speed of the last batches. This ends when a batch reaches the ends of all logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kstream.batch_time import Duration, Time
from kstream.offsets.batch_speed import BatchCost, BatchSpeed, EndedBatch
from kstream.offsets.offset_range import OffsetRange, Partition

logger = logging.getLogger("kstream.offsets")

PAUSE_INTERVALS = 10
"""After a pause of so many batch intervals between two plans a stream catches up again: brokers were away, or the process was stopped."""
SHARE = 0.85
"""The share of its interval that a batch may need. The rest is for batches that are slower."""
_WHOLE = 10
"""A speed below has a decimal place in the log: a slow job does not process 0 a second."""
START_MS = 10_000
"""How long the first batch of a restart may run beyond its share. Workers start in it, and few records would measure nothing else."""


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


def _shares(lengths: Mapping[Partition, int], total: int, wanted: int) -> dict[Partition, int]:
    """Share a number of records by the lengths of the ranges. The shares are whole numbers, and their sum is `total`."""
    shares: dict[Partition, int] = {}
    before = behind = 0
    for p, length in sorted(lengths.items()):
        behind += length
        at = behind * total // wanted
        shares[p], before = at - before, at
    return shares


class CatchUp:
    """How far one stream has caught up. The generator's thread plans, the thread that ends a batch measures; `_lock` guards the state.

    Args:
        first_records: the most records of a partition in a batch without a measurement; 0 switches catching up off.
        interval: the batch interval.
        concurrent_jobs: how many jobs run side by side.
    """

    def __init__(self, first_records: int, interval: Duration, concurrent_jobs: int = 1) -> None:
        self._first_records = first_records
        self._interval = interval
        self._concurrent_jobs = concurrent_jobs
        self._lock = threading.Lock()
        self._behind = first_records > 0
        self._speed = BatchSpeed(SHARE * interval.milliseconds, interval.milliseconds)
        self._speed_before = BatchSpeed(SHARE * interval.milliseconds, interval.milliseconds)
        """The speed of the last batches of earlier drivers."""
        self._is_measured = False
        """Whether a batch was measured that this driver has planned. A pending one may have had a record, while workers were started."""
        self._first: Time | None = None
        """The first batch that this driver has planned."""
        self._is_told = False
        """Whether the log has the time until the stream has caught up."""
        self._last: Time | None = None
        self._left = 0
        """The records that the last plan left in the logs."""
        self._unfinished: list[Time] = []
        """The batches that took records while the stream was behind, and that had not ended at the last plan."""

    @property
    def is_behind(self) -> bool:
        """Whether the stream has not reached the ends of its logs since the start or the last pause. Any thread."""
        return self._behind

    def ceilings(self, time: Time, open_batches: Collection[Time]) -> Sequence[Ceiling]:
        """Return the limits of a batch. After a pause of `PAUSE_INTERVALS` a stream that was on time catches up again.

        Args:
            time: the batch.
            open_batches: the batches that run, or wait for an earlier one. One that has failed is not among them, also between two tries.
        """
        with self._lock:
            if not self._behind and (self._first_records <= 0 or not self._has_paused(time)):
                return ()
            self._unfinished = [batch for batch in self._unfinished if batch in open_batches]
            if not self._is_measured:
                return [Ceiling(total=0, reason="firstBatchRuns")] if self._unfinished else self._first_ceilings()
            if is_late(self._unfinished[:1], open_batches, self._concurrent_jobs):
                return [Ceiling(total=0, reason="lateBatches")]
            return [Ceiling(total=self._speed.fitting(), reason="catchUp")]

    def _first_ceilings(self) -> Sequence[Ceiling]:
        """Return the limits until a batch of this driver is measured: a fixed one, and one by the speed before. Under the lock."""
        fixed, before = Ceiling(each=self._first_records, reason="firstBatchRecords"), self._speed_before
        if not before.is_known:
            return [fixed]
        return [fixed, Ceiling(total=before.most_within(SHARE * self._interval.milliseconds + START_MS), reason="firstBatchTime")]

    def is_measuring(self, open_batches: Collection[Time]) -> bool:
        """Return whether the first batch with records runs, so that the next one would get none.

        Args:
            open_batches: as of `ceilings`.
        """
        with self._lock:
            return self._behind and not self._is_measured and any(batch in open_batches for batch in self._unfinished)

    def planned(self, time: Time, ranges: Iterable[OffsetRange], ends: Mapping[Partition, int]) -> None:
        """Note the durable plan of a batch. If it leaves nothing in the logs, the stream has caught up.

        If it leaves records after a pause of PAUSE_INTERVALS, the stream is behind again.
        """
        taken = left = 0
        for r in ranges:
            taken += r.count()
            left += max(0, ends.get((r.topic, r.partition), 0) - r.untilOffset)
        with self._lock:
            was_behind = self._behind
            self._behind = self._first_records > 0 and left > 0 and (was_behind or self._has_paused(time))
            self._is_told = self._is_told and (was_behind or not self._behind)
            self._first, self._last, self._left = self._first or time, time, left
            if self._behind and taken:
                self._unfinished.append(time)

    def completed(self, info: EndedBatch, stream_id: int, name: str) -> None:
        """Note the end of a batch, and its speed if all its outputs have succeeded in the first try.

        Logs once how long the stream will be behind.

        Args:
            info: the batch.
            stream_id: the id of the stream.
            name: the name of the stream, for the log.
        """
        cost = _cost_of(info, stream_id)
        with self._lock:
            is_own = self._first is not None and info.batch_time >= self._first
            self._unfinished = [batch for batch in self._unfinished if batch != info.batch_time]
            if cost is None:
                return
            self._speed.add(cost)
            self._is_measured = self._is_measured or is_own
            if not self._behind or self._last is None or self._is_told or not self._is_measured:
                return
            self._is_told = True
            left, a_second, most, seconds = self._left, cost.records * 1000 / cost.processing_ms, *self._rate()
        text = "%s catches up: %d records wait, and the job has processed %s a second. A batch takes up to %d, for about %.0f s"
        speed = f"{a_second:.0f}" if a_second >= _WHOLE else f"{a_second:.2g}"
        logger.info(text, name, left, speed, most, left / most * seconds)

    def restored(self, info: EndedBatch, stream_id: int) -> None:
        """Note the speed of a batch of an earlier driver, before the first plan."""
        cost = _cost_of(info, stream_id)
        if cost is not None:
            with self._lock:
                self._speed_before.add(cost)

    def _rate(self) -> tuple[int, float]:
        """Return how many records a batch may take now, and the seconds from one such batch to the next. Call this under the lock."""
        return self._speed.fitting(), max(self._interval.milliseconds, self._speed.target_ms) / 1000

    def _has_paused(self, time: Time) -> bool:
        """Return whether more than PAUSE_INTERVALS lie between the last plan and the batch. Call this under the lock."""
        return self._last is not None and time.since(self._last).milliseconds > PAUSE_INTERVALS * self._interval.milliseconds


def _cost_of(info: EndedBatch, stream_id: int) -> BatchCost | None:
    """Return what the records of a stream have cost in a batch; None if the batch does not show it. Pure."""
    source, processing_ms = info.inputs.get(stream_id), info.processing_delay_ms
    if not info.measures_speed or source is None or source.num_records <= 0 or processing_ms is None or processing_ms < 0:
        return None  # below 0 ms: the clock was set back while the batch ran
    return BatchCost(source.num_records, max(1, processing_ms))


def is_late(oldest: Sequence[Time], open_batches: Collection[Time], concurrent_jobs: int) -> bool:
    """Return whether a batch would only make a queue longer. Pure.

    Args:
        oldest: the oldest open batch with records of the stream; empty without one.
        open_batches: the batches that run, or wait for an earlier one.
        concurrent_jobs: how many jobs run side by side. While no more batches are open, the next one runs when one of them has ended.
    """
    return bool(oldest) and sum(time >= oldest[0] for time in open_batches) > concurrent_jobs

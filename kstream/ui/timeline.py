"""Timeline: the last hour of batches in at most 600 buckets. A batch adds numbers to a bucket, and is not kept."""

from __future__ import annotations

from dataclasses import dataclass

from kstream.ui.batch_forms import BatchRow
from kstream.ui.forms import BucketForm, TimelineForm

HOUR_MS = 3_600_000
MOST_BUCKETS = 600


def bucket_ms(interval_ms: int) -> int:
    """Return the width of a bucket: whole batch intervals, six seconds at least. Pure.

    With whole intervals each bucket has the same number of batches, so a steady stream is a straight line.
    """
    least = HOUR_MS // MOST_BUCKETS
    return -(-least // interval_ms) * interval_ms


@dataclass(slots=True)
class _Bucket:
    """Sums of the batches of a bucket. A delay is summed over the batches that know it."""

    batches: int = 0
    failed: int = 0
    records: int = 0
    scheduling: int = 0
    processing: int = 0
    total: int = 0
    timed: int = 0
    longest: int | None = None
    lag: int | None = None

    def add(self, row: BatchRow, sign: int) -> None:
        """Add a batch (1), or take it away (-1)."""
        self.batches += sign
        self.failed += sign * row.has_failed
        self.records += sign * row.records
        if row.scheduling is not None and row.processing is not None and row.total is not None:
            self.scheduling += sign * row.scheduling
            self.processing += sign * row.processing
            self.total += sign * row.total
            self.timed += sign
            self.longest = row.total if self.longest is None else max(self.longest, row.total)
        if row.lag is not None:
            self.lag = row.lag

    def form(self, time_ms: int, interval_ms: int) -> BucketForm:
        """Return the form of the bucket that begins at `time_ms`."""
        return {
            "timeMs": time_ms,
            "numBatches": self.batches,
            "numFailed": self.failed,
            "numRecords": self.records,
            "inputRate": self.records * 1000 / (max(1, self.batches) * interval_ms),
            "schedulingDelay": self.scheduling / self.timed if self.timed else None,
            "processingTime": self.processing / self.timed if self.timed else None,
            "totalDelay": self.total / self.timed if self.timed else None,
            "maxTotalDelay": self.longest,
            "lagRecords": self.lag,
        }


class Timeline:
    """The buckets of the last hour before the newest batch. Not thread-safe.

    A batch is in the bucket of its batch time, also if it ends much later: so each moment of the input is shown once.

    Args:
        interval_ms: the batch interval.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._width = bucket_ms(interval_ms)
        self._buckets: dict[int, _Bucket] = {}
        self._newest = 0

    def add(self, row: BatchRow, before: BatchRow | None = None) -> None:
        """Add a batch that has ended. Costs the same whatever there is.

        Args:
            row: the batch.
            before: what was added of the same batch before, if it failed then.
        """
        index = row.time_ms // self._width
        if index <= self._newest - self._most:
            return
        bucket = self._buckets.setdefault(index, _Bucket())
        if before is not None:
            bucket.add(before, -1)
        bucket.add(row, 1)
        if index > self._newest:
            self._newest = index
            while len(self._buckets) > self._most:
                del self._buckets[min(self._buckets)]

    @property
    def _most(self) -> int:
        """The number of buckets of an hour."""
        return max(1, HOUR_MS // self._width)

    def form(self) -> TimelineForm:
        """Return the buckets, oldest first. Those without a batch are left out."""
        known = sorted(index for index in self._buckets if index > self._newest - self._most)
        return {
            "bucketMs": self._width,
            "buckets": [self._buckets[index].form(index * self._width, self._interval_ms) for index in known],
        }

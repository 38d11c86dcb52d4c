"""Timeline: the last hour of batches in at most 600 buckets. A batch adds numbers to a bucket, and is not kept."""

from __future__ import annotations

from dataclasses import dataclass

from kstream.monitoring.batch_row import BatchRow

HOUR_MS = 3_600_000
MOST_BUCKETS = 600


def bucket_ms(interval_ms: int) -> int:
    """Return the width of a bucket: whole batch intervals, six seconds at least. Pure.

    With whole intervals each bucket has the same number of batches, so a steady stream is a straight line.
    """
    least = HOUR_MS // MOST_BUCKETS
    return -(-least // interval_ms) * interval_ms


@dataclass(frozen=True, slots=True)
class TimelineBucket:
    """Sums of the batches of a bucket. A delay is summed over the batches that know it.

    Attributes:
        batches, failed, records: how many batches there are, how many of them have failed, and the records of all.
        scheduling, processing, total: the sums of their delays in milliseconds.
        timed: how many of them know their delays.
        longest: the longest total delay; None if no batch knows it.
        lag: the lag of the batch that ended last and knows it.
    """

    batches: int = 0
    failed: int = 0
    records: int = 0
    scheduling: int = 0
    processing: int = 0
    total: int = 0
    timed: int = 0
    longest: int | None = None
    lag: int | None = None

    def with_batch(self, row: BatchRow, sign: int = 1) -> TimelineBucket:
        """Return the bucket with a batch added (1), or taken away (-1)."""
        is_timed = None not in (row.scheduling, row.processing, row.total)
        longest = [total for total in (self.longest, row.total if is_timed else None) if total is not None]
        return TimelineBucket(
            batches=self.batches + sign,
            failed=self.failed + sign * row.has_failed,
            records=self.records + sign * row.records,
            scheduling=self.scheduling + sign * (row.scheduling or 0) * is_timed,
            processing=self.processing + sign * (row.processing or 0) * is_timed,
            total=self.total + sign * (row.total or 0) * is_timed,
            timed=self.timed + sign * is_timed,
            longest=max(longest, default=None),
            lag=self.lag if row.lag is None else row.lag,
        )


class Timeline:
    """The buckets of the last hour before the newest batch. Not thread-safe.

    A batch is in the bucket of its batch time, also if it ends much later: so each moment of the input is shown once.
    """

    def __init__(self, interval_ms: int) -> None:
        self._width = bucket_ms(interval_ms)
        self._buckets: dict[int, TimelineBucket] = {}
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
        bucket = self._buckets.get(index, TimelineBucket())
        if before is not None:
            bucket = bucket.with_batch(before, -1)
        self._buckets[index] = bucket.with_batch(row)
        if index > self._newest:
            self._newest = index
            while len(self._buckets) > self._most:
                del self._buckets[min(self._buckets)]

    @property
    def _most(self) -> int:
        """The number of buckets of an hour."""
        return max(1, HOUR_MS // self._width)

    def buckets(self) -> dict[int, TimelineBucket]:
        """Return the buckets of the last hour that have a batch, by the moment at which they begin."""
        return {index * self._width: bucket for index, bucket in self._buckets.items() if index > self._newest - self._most}

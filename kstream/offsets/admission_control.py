"""AdmissionControl: how many of the records that wait in its logs a batch of a direct stream may have, and why no more.

The name is that of Structured Streaming's interface for sources with a limit (`SupportsAdmissionControl`, `ReadLimit`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.batch_time import Duration, Time
from kstream.offsets.batch_speed import EndedBatch
from kstream.offsets.catch_up import CatchUp, Ceiling, is_late
from kstream.offsets.offset_range import OffsetRange, Partition

Offsets: TypeAlias = Mapping[Partition, int]

LARGEST_RECORD = 1024 * 1024
"""The bytes that a record may have by Kafka's default. Until a batch has shown how long the records are, each counts as so long."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The limits that the user of a stream sets. 0 is no limit.

    Attributes:
        max_rate: partition → the most records a second.
        min_rate: partition → the fewest records of a batch that a rate limits.
        caps_rates: whether `max_rate` may limit a partition.
        backpressure: whether the stream takes only as many records as its last batches have shown to be possible.
        initial_rate: the rate of the stream before the first measurement, under back-pressure, in records a second.
        first_records: the most records of a partition in a batch without a measurement; see CatchUp.
        max_bytes: the most bytes of a batch.
        min_records: a batch with fewer records waits, and takes none.
        max_wait_ms: how long its oldest record waits at most.
        concurrent_jobs: how many jobs run side by side.
    """

    max_rate: Callable[[Partition], int] = lambda _: 0
    min_rate: Callable[[Partition], int] = lambda _: 1
    caps_rates: bool = False
    backpressure: bool = False
    initial_rate: float = 0
    first_records: int = 0
    max_bytes: int = 0
    min_records: int = 0
    max_wait_ms: int = 0
    concurrent_jobs: int = 1


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Why a batch has fewer records than were in the logs.

    Attributes:
        reason: `maxRatePerPartition`, `initialRate`, `backpressure`, `firstBatchRecords`, `firstBatchTime`, `firstBatchRuns`, `catchUp`,
            `lateBatches`, `maxBytesPerBatch` or `minRecordsPerBatch`. docs/back-pressure.md explains them.
        records: the number of records that the batch has therefore.
    """

    reason: str
    records: int


class AdmissionControl:
    """Decides how many records a batch of one stream may have. The generator's thread plans, the thread that ends a batch measures.

    Args:
        settings: the limits of the user.
        interval: the batch interval.
    """

    def __init__(self, settings: AdmissionSettings, interval: Duration) -> None:
        self.interval = interval
        """The batch interval."""
        self._settings = settings
        self._catch_up = CatchUp(settings.first_records, interval, settings.concurrent_jobs)
        self._lock = threading.Lock()
        self._measured_rate: int | None = None
        self._bytes_a_record = float(LARGEST_RECORD)
        self._has_taken = False
        """Whether a batch since the start has had records."""
        self._empty: set[Time] = set()
        """The open batches without records of the stream."""
        self._waiting_since: Time | None = None
        self._limit: tuple[Time, ReadLimit | None] | None = None

    # -- what is measured; by the thread that ends a batch

    def update_rate(self, records_a_second: int) -> None:
        """Let the next batches have no more than this rate, under back-pressure."""
        with self._lock:
            self._measured_rate = records_a_second

    def batch_completed(self, info: EndedBatch, stream_id: int, name: str) -> None:
        """Note the end of a batch. Of one whose outputs have succeeded in the first try, note its speed, and how long its records were.

        Args:
            info: the batch.
            stream_id: the id of the stream.
            name: the name of the stream, for the log.
        """
        self._note_bytes(info, stream_id)
        self._catch_up.completed(info, stream_id, name)

    def restore(self, last_batches: Callable[[int], Iterable[EndedBatch]], stream_id: int) -> None:
        """Note the last batches of earlier drivers, for the limits of the first batch. Called by the thread that starts.

        Args:
            last_batches: returns those of a stream, oldest first. Called only if a setting needs them; may block.
            stream_id: the id of the stream.
        """
        for info in last_batches(stream_id) if self._settings.first_records or self._settings.max_bytes else ():
            self._note_bytes(info, stream_id)
            self._catch_up.restored(info, stream_id)

    def _note_bytes(self, info: EndedBatch, stream_id: int) -> None:
        """Note how long the records of a batch were, if all its outputs have succeeded in the first try."""
        source = info.inputs.get(stream_id)
        if info.measures_speed and source is not None and source.num_bytes and source.num_records:
            with self._lock:
                self._bytes_a_record = source.num_bytes / source.num_records

    # -- planning; on the generator's thread

    def is_measuring(self, open_batches: Collection[Time]) -> bool:
        """Return whether a batch that is planned now would get no records, because the first batch with records still runs.

        Args:
            open_batches: as of `admit`.
        """
        return self._catch_up.is_measuring(open_batches)

    @property
    def caps_rates(self) -> bool:
        """Whether the user's maximum rates may limit a batch."""
        return self._settings.caps_rates

    def admit(self, time: Time, current: Offsets, ends: Offsets, open_batches: Collection[Time]) -> dict[Partition, int]:
        """Return where the range of each partition ends: at the end of its log, or earlier. `limits_of(time)` then tells why.

        Args:
            time: the batch.
            current: the next offset of each partition.
            ends: the end of its log, not before that offset.
            open_batches: the batches that run, or wait for an earlier one.
        """
        with self._lock:
            rate, bytes_a_record = self._measured_rate, self._bytes_a_record
        estimate = estimated_rate(self._settings.backpressure, rate, self._settings.initial_rate)
        until = clamp(current, ends, self._rate_limits(estimate))
        limit: ReadLimit | None = None
        if until != ends:
            is_capped = estimate is None or until == clamp(current, ends, self._rate_limits(None))
            reason = "maxRatePerPartition" if is_capped else "backpressure" if rate else "initialRate"
            limit = ReadLimit(reason, _length(current, until))
        for ceiling in self._ceilings(time, open_batches, bytes_a_record):
            lowered = ceiling.lowered(current, until)
            if lowered != until:
                until, limit = lowered, ReadLimit(ceiling.reason, _length(current, lowered))
        if self._must_wait(time, _length(current, ends)):
            until, limit = dict(current), ReadLimit("minRecordsPerBatch", 0)
        self._set_limit(time, limit)
        return until

    def admit_missed(self, time: Time, current: Offsets, ends: Offsets) -> dict[Partition, int]:
        """Return where the ranges of a missed batch end that gets the records of its time. Only the user's maximum rates limit it.

        Args:
            time: the batch.
            current: the next offset of each partition.
            ends: the end of its log at the time of the batch, not before that offset.
        """
        until = clamp(current, ends, self._rate_limits(None))
        self._set_limit(time, None if until == ends else ReadLimit("maxRatePerPartition", _length(current, until)))
        return until

    def _set_limit(self, time: Time, limit: ReadLimit | None) -> None:
        """Keep why a batch has no more records."""
        with self._lock:
            self._limit = time, limit

    def planned(self, time: Time, ranges: Iterable[OffsetRange], ends: Offsets) -> None:
        """Note that the plan of a batch is durable whose range ends `admit` has returned. Not called for `admit_missed`.

        Args:
            time: the batch.
            ranges: its planned ranges; all empty for a batch without records.
            ends: the ends of the logs when it was planned.
        """
        ranges = list(ranges)
        if any(r.count() for r in ranges):
            self._has_taken, self._waiting_since = True, None
        else:
            self._empty.add(time)
        self._catch_up.planned(time, ranges, ends)

    def _ceilings(self, time: Time, open_batches: Collection[Time], bytes_a_record: float) -> Iterable[Ceiling]:
        """Yield the limits of a batch besides its rates. `admit` applies them in this order; the last that lowers a range is the reason."""
        yield from self._catch_up.ceilings(time, open_batches)
        if self._settings.backpressure and self._is_late(open_batches):
            yield Ceiling(total=0, reason="lateBatches")
        if self._settings.max_bytes:
            yield Ceiling(total=max(1, int(self._settings.max_bytes / bytes_a_record)), reason="maxBytesPerBatch")

    def _is_late(self, open_batches: Collection[Time]) -> bool:
        """Return whether an earlier batch should have ended long ago, and its records are the reason.

        Spark's controller hears of an overload when a batch has ended. The batches that were planned meanwhile, at the old rate, have
        filled the queue, and then it takes the rate far too low to empty the queue. With empty batches there is no such queue. If the
        oldest batch is empty, empty batches themselves are too slow, and more of them would help nobody: then the rate holds.
        """
        self._empty.intersection_update(open_batches)
        oldest = min(open_batches, default=None)
        with_records = [] if oldest is None or oldest in self._empty else [oldest]
        return is_late(with_records, open_batches, self._settings.concurrent_jobs)

    def _rate_limits(self, estimate: float | None) -> RateLimits:
        return RateLimits(self.interval.milliseconds, self._settings.max_rate, self._settings.min_rate, estimate)

    def _must_wait(self, time: Time, available: int) -> bool:
        """Return whether a batch has too few records and takes none; note since when the stream waits. The first records never wait.

        Else a driver that dies and starts again before `max_wait_ms` has passed, again and again, would never read. A record may have come
        just after the plan before the one that saw it first, and a batch that waits leaves it until the next plan.
        """
        settings, interval_ms = self._settings, self.interval.milliseconds
        if not 0 < available < settings.min_records or not self._has_taken:
            return False
        if self._waiting_since is None:
            self._waiting_since = time
        return time.since(self._waiting_since).milliseconds + 2 * interval_ms <= settings.max_wait_ms

    # -- what is told; any thread

    def limits_of(self, time: Time) -> Mapping[str, Any]:
        """Return what limits a batch, for its progress, as JSON values.

        `readLimit` is why the batch has fewer records than were in the logs; missing if it has them all, and for any but the newest batch.
        `backpressureRate` is the rate of the stream in records a second; missing before the first measurement and without back-pressure.
        """
        with self._lock:
            limit = self._limit[1] if self._limit is not None and self._limit[0] == time else None
            rate = {} if self._measured_rate is None else {"backpressureRate": self._measured_rate}
        return rate if limit is None else {"readLimit": {"reason": limit.reason, "records": limit.records}, **rate}


def _length(current: Offsets, until: Offsets) -> int:
    """Return the number of offsets in ranges."""
    return sum(end - current[p] for p, end in until.items())


# -- rate limits (pure)
#
# As `DirectKafkaInputDStream.maxMessagesPerPartition` and `clamp` of Spark's kafka-0-10 (v3.0.1). The 0-8 form has the same shares with
# whole-number rates. A rate is in records a second; the batch interval makes it a number of records.


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The rate limits of one batch.

    Attributes:
        batch_ms: the batch interval in ms.
        max_rate: partition → the most records a second; 0 is no limit.
        min_rate: partition → the fewest records a *batch*, because Spark compares it after the multiplication by seconds.
        estimate: the whole stream's rate under back-pressure, in records a second; None if there is none.
    """

    batch_ms: int
    max_rate: Callable[[Partition], int] = lambda _: 0
    min_rate: Callable[[Partition], int] = lambda _: 1
    estimate: float | None = None


def estimated_rate(backpressure: bool, measured: float | None, initial: float) -> float | None:
    """Return the stream's rate under back-pressure: the measured one, or the initial one before a measurement.

    Args:
        backpressure: whether back-pressure is on.
        measured: the measured rate, in records a second; None before a measurement.
        initial: the initial rate, in records a second; 0 is none.

    Returns:
        Records a second; None without back-pressure, or without any rate.
    """
    if not backpressure:
        return None
    rate = measured if measured is not None and measured > 0 else initial
    return rate if rate > 0 else None


def share_by_lag(rate: float, lags: Mapping[Partition, int], max_rate: Callable[[Partition], int]) -> dict[Partition, float]:
    """Share a stream's rate among its partitions, in proportion to their lags.

    Args:
        rate: the rate of the stream, in records a second.
        lags: partition → number of unread records.
        max_rate: partition → its limit in records a second; 0 is no limit. A share above the limit is cut, not given to others.

    Returns:
        partition → records a second. Without any lag all rates are 0, and `max_messages` then sets no limit.
    """
    total = sum(lags.values())
    if total == 0:
        return dict.fromkeys(lags, 0.0)
    shares: dict[Partition, float] = {}
    for partition, lag in lags.items():
        share, cap = lag / total * rate, max_rate(partition)
        shares[partition] = min(share, cap) if cap > 0 else share
    return shares


def max_messages(current: Mapping[Partition, int], latest: Mapping[Partition, int], limits: RateLimits) -> dict[Partition, int] | None:
    """Return the most records of each partition in one batch.

    Under back-pressure, partitions share the estimated rate by their lags. Otherwise each has its own limit, and one without a limit gets
    all its unread records. A partition with a rate gets at least its `min_rate`.

    Args:
        current: the next offset of each partition.
        latest: the end of each partition's log.
        limits: the limits of the batch.

    Returns:
        partition → number of records; None if nothing limits the batch.
    """
    if limits.estimate is not None and limits.estimate > 0:
        lags = {p: max(end - current[p], 0) for p, end in latest.items()}
        rates = share_by_lag(limits.estimate, lags, limits.max_rate)
    else:
        rates = {p: float(limits.max_rate(p)) for p in latest}
    if sum(rates.values()) <= 0:
        return None
    seconds = limits.batch_ms / 1000
    unlimited = limits.estimate is None or limits.estimate <= 0  # then a rate of 0 is no limit; otherwise it is the share of a lag of 0
    return {
        p: max(latest[p] - current[p], 0) if rate <= 0 and unlimited else max(int(seconds * rate), limits.min_rate(p))
        for p, rate in rates.items()
    }


def clamp(current: Mapping[Partition, int], latest: Mapping[Partition, int], limits: RateLimits) -> dict[Partition, int]:
    """Return the `untilOffset` of each partition's range: as far as the limits allow, and never after the log's end.

    Args:
        current: the next offset of each partition.
        latest: the end of each partition's log.
        limits: the limits of the batch.
    """
    most = max_messages(current, latest, limits)
    return dict(latest) if most is None else {p: min(current[p] + most[p], end) for p, end in latest.items()}

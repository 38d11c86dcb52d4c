"""Rate limits: how many records of each partition a batch may have. Pure: the functions read and return maps.

They implement `DirectKafkaInputDStream.maxMessagesPerPartition` and `clamp` of Spark's kafka-0-10 (v3.0.1). The 0-8 form has the same
shares with whole-number rates. A rate is in records a second; the batch interval makes it a number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kstream.offsets.offset_range import Partition


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

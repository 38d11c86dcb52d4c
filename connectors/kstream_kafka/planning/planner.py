"""PerPartitionConfig: rates that differ from partition to partition, decided by the user's code.

The offset planner: from where to where each partition is read in one batch. Pure: maps in, ranges out.

Re-implements `DirectKafkaInputDStream.maxMessagesPerPartition` and `clamp` of Spark's kafka-0-10 (v3.0.1), whose 0-8 form has the
same shares with whole-number rates. A rate is in records a second; it becomes a number of records by the length of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kstream_kafka.client.ports import Partition
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.offset_range import OffsetRange, TopicAndPartition


class PerPartitionConfig:
    """Subclass it and give it to `createDirectStream`. Called on the driver for every partition of every batch: be quick.

    Stored with the graph, so it must be picklable.
    """

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Most records of the partition in a second; 0 is no limit."""
        raise NotImplementedError

    def minRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Fewest records of the partition in a *batch*, not in a second, where a rate limits the batch. As Spark counts it."""
        return 1


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How much one batch may take.

    `max_rate` and `min_rate` are per partition: records a second, and records a *batch* (as in Spark, whose minRatePerPartition is
    compared after the seconds are multiplied in). A maximum of 0 is none. `estimate` is the whole stream's rate under
    back-pressure; None when there is no back-pressure or nothing to go by.
    """

    batch_ms: int
    max_rate: Callable[[Partition], int] = lambda _: 0
    min_rate: Callable[[Partition], int] = lambda _: 1
    estimate: float | None = None
    limited: bool = True
    """False only where it is sure that nothing ever limits a batch."""


def estimated_rate(backpressure: bool, measured: float | None, initial: float) -> float | None:
    """The rate to share out: the measured one; before anything is measured, the initial one if it is above 0; else None."""
    if not backpressure:
        return None
    rate = measured if measured is not None and measured > 0 else initial
    return rate if rate > 0 else None


def share_by_lag(rate: float, lags: Mapping[Partition, int], max_rate: Callable[[Partition], int]) -> dict[Partition, float]:
    """`rate` dealt out in proportion to the lags, each share capped by its partition's maximum (0: no cap).

    No lag at all gives nothing to anyone: the caller reads that as "no limit".
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
    """Most records of each partition in this batch; None when nothing limits it."""
    if limits.estimate is not None and limits.estimate > 0:
        lags = {p: max(end - current[p], 0) for p, end in latest.items()}
        rates = share_by_lag(limits.estimate, lags, limits.max_rate)
    else:
        rates = {p: float(limits.max_rate(p)) for p in latest}
    if sum(rates.values()) <= 0:
        return None
    seconds = limits.batch_ms / 1000
    unlimited = limits.estimate is None or limits.estimate <= 0  # then a rate of 0 is no limit; else it is the share of a lag of 0
    return {
        p: max(latest[p] - current[p], 0) if rate <= 0 and unlimited else max(int(seconds * rate), limits.min_rate(p))
        for p, rate in rates.items()
    }


def clamp(current: Mapping[Partition, int], latest: Mapping[Partition, int], limits: RateLimits) -> dict[Partition, int]:
    """Where each partition's range ends: as far as the limits let it go, never past the log's end."""
    most = max_messages(current, latest, limits)
    if most is None:
        return dict(latest)
    return {p: min(current[p] + most[p], end) for p, end in latest.items()}


def plan_ranges(
    current: Mapping[Partition, int],
    latest: Mapping[Partition, int],
    limits: RateLimits,
    ahead: Collection[Partition] = (),
) -> list[OffsetRange]:
    """One range for each partition of `current`, empty ones included, by topic and number.

    `current` holds the next offset to read, a new partition's beginning included. `ahead` are partitions whose start was given by
    the user past the log's end and not reached yet: they wait with an empty range. Any other partition that ends before its next
    offset is a LogShrankError, one without a latest offset a PartitionRevokedError: never a negative range, never silence.
    """
    gone = current.keys() - latest.keys()
    if gone:
        raise PartitionRevokedError(gone)
    ends = {p: max(latest[p], at) if p in ahead else latest[p] for p, at in current.items()}
    shrunk = sorted((*p, at, ends[p]) for p, at in current.items() if ends[p] < at)
    if shrunk:
        raise LogShrankError(shrunk)
    until = clamp(current, ends, limits)
    return [OffsetRange(*p, current[p], until[p]) for p in sorted(current)]

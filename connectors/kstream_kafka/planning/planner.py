"""The offset planner: the range of each partition in one batch. Pure: maps in, ranges out.

It implements `DirectKafkaInputDStream.maxMessagesPerPartition` and `clamp` of Spark's kafka-0-10 (v3.0.1). The 0-8 form has the same shares
with whole-number rates. A rate is in records a second; the batch interval makes it a number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kstream_kafka.client.ports import Partition
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.offset_range import OffsetRange, TopicAndPartition


class PerPartitionConfig:
    """Rate limits for each partition. Subclass it and give it to `createDirectStream`.

    The driver calls it for every partition of every batch, so it must be fast. It is stored with the graph, so it must be picklable.

    Example:
        class SlowOrders(PerPartitionConfig):
            def maxRatePerPartition(self, topicPartition):
                return 100 if topicPartition.topic == "orders" else 0

        KafkaUtils.createDirectStream(ssc, ["orders", "users"], kafkaParams, perPartitionConfig=SlowOrders())
    """

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the most records of a partition in a second; 0 is no limit.

        Args:
            topicPartition: the partition.

        Raises:
            NotImplementedError: unless a subclass overrides it.
        """
        raise NotImplementedError

    def minRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the fewest records of a partition in a *batch* (not in a second, as in Spark) if a rate limits the batch.

        Args:
            topicPartition: the partition.
        """
        return 1


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The limits of one batch.

    Attributes:
        batch_ms: the batch interval.
        max_rate: the most records of a partition in a second; 0 is no limit.
        min_rate: the fewest records of a partition in a *batch*, because Spark compares it after the multiplication by seconds.
        estimate: the whole stream's rate under back-pressure; None without back-pressure or without a measurement.
        limited: False only if nothing ever limits a batch.
    """

    batch_ms: int
    max_rate: Callable[[Partition], int] = lambda _: 0
    min_rate: Callable[[Partition], int] = lambda _: 1
    estimate: float | None = None
    limited: bool = True


def estimated_rate(backpressure: bool, measured: float | None, initial: float) -> float | None:
    """Return the stream's rate under back-pressure: the measured one, or the initial one before a measurement. None if there is none.

    Args:
        backpressure: whether back-pressure is on.
        measured: the measured rate, in records a second.
        initial: the initial rate; 0 is none.
    """
    if not backpressure:
        return None
    rate = measured if measured is not None and measured > 0 else initial
    return rate if rate > 0 else None


def share_by_lag(rate: float, lags: Mapping[Partition, int], max_rate: Callable[[Partition], int]) -> dict[Partition, float]:
    """Share a rate in proportion to the lags.

    Args:
        rate: records a second.
        lags: unread records of each partition.
        max_rate: the limit of a partition; 0 is no limit.

    Returns:
        The rate of each partition. All are 0 without any lag, which the caller takes for no limit.
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
    """Return the most records of each partition in this batch; None if nothing limits it."""
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
    """Return the `untilOffset` of each partition's range: as far as the limits allow, never after the log's end."""
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
    """Plan one range for each partition, empty ones included, by topic and number. Never plans a negative range.

    Args:
        current: the next offset of each partition, new partitions included.
        latest: the end of each partition's log.
        limits: the limits of the batch.
        ahead: partitions whose start, given by the user, is after the end of their log. They wait with an empty range.

    Raises:
        LogShrankError: another partition ends before its next offset.
        PartitionRevokedError: a partition has no end.
    """
    gone = current.keys() - latest.keys()
    if gone:
        raise PartitionRevokedError(gone)
    log_ends = {p: max(latest[p], at) if p in ahead else latest[p] for p, at in current.items()}
    shrunk = sorted((*p, at, log_ends[p]) for p, at in current.items() if log_ends[p] < at)
    if shrunk:
        raise LogShrankError(shrunk)
    until_offsets = clamp(current, log_ends, limits)
    return [OffsetRange(*p, current[p], until_offsets[p]) for p in sorted(current)]

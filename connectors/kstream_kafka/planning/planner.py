"""The checks of the log ends before a batch is planned, and the rate limits of a user for each partition. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kstream.offsets.offset_range import Partition, TopicAndPartition
from kstream_kafka.errors import LogShrankError, PartitionRevokedError


class PerPartitionConfig:
    """Rate limits for each partition. Subclass it and give an instance to `createDirectStream`.

    The driver calls its methods for every partition of every batch, so they must be fast. The object is stored with the graph, so it must
    be picklable.

    Example:
        class SlowOrders(PerPartitionConfig):
            def maxRatePerPartition(self, topicPartition):
                return 100 if topicPartition.topic == "orders" else 0

        KafkaUtils.createDirectStream(ssc, ["orders", "users"], kafkaParams, perPartitionConfig=SlowOrders())
    """

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the most records a second of a partition; 0 is no limit.

        Args:
            topicPartition: the partition.

        Returns:
            Records a second.

        Raises:
            NotImplementedError: unless a subclass overrides it.
        """
        raise NotImplementedError

    def minRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the fewest records of a partition in a *batch* that a rate limits. As in Spark, it is not a rate a second.

        Args:
            topicPartition: the partition.

        Returns:
            Records a batch; 1 unless a subclass overrides it.
        """
        return 1


def checked_ends(
    current: Mapping[Partition, int], latest: Mapping[Partition, int], ahead: Collection[Partition] = ()
) -> dict[Partition, int]:
    """Return the log end of each partition that a batch reads; none is before the next offset.

    Args:
        current: the next offset of each partition, new partitions included.
        latest: the end of each partition's log.
        ahead: partitions whose start, given by the user, is after the end of their log. Their start counts as the end.

    Raises:
        LogShrankError: the log of a partition that is not in `ahead` ends before the next offset.
        PartitionRevokedError: `latest` has no end for a partition.
    """
    gone = current.keys() - latest.keys()
    if gone:
        raise PartitionRevokedError(gone)
    log_ends = {p: max(latest[p], at) if p in ahead else latest[p] for p, at in current.items()}
    shrunk = sorted((*p, at, log_ends[p]) for p, at in current.items() if log_ends[p] < at)
    if shrunk:
        raise LogShrankError(shrunk)
    return log_ends

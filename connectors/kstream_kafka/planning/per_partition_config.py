"""PerPartitionConfig: rates that differ from partition to partition, decided by the user's code."""

from __future__ import annotations

from kstream_kafka.planning.offset_range import TopicAndPartition


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

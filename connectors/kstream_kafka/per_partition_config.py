"""PerPartitionConfig: rates that differ from partition to partition, decided by the user's code."""

from __future__ import annotations

from kstream_kafka.offset_range import TopicAndPartition


class PerPartitionConfig:
    """Subclass it and give it to `createDirectStream`. Called on the driver for every partition of every batch: be quick.

    Stored with the graph, so it must be picklable.
    """

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Most records a second of the partition; 0 is no limit."""
        raise NotImplementedError

    def minRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Fewest records a *batch* of the partition when a rate is limited."""
        return 1

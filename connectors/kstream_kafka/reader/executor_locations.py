"""On which executors the tasks of a KafkaRDD should run, by the strategy and the executors there are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kstream.spark.executors import executors, free_executors
from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import Packing, Piece, pack
from kstream_kafka.reader.location_strategy import LocationStrategy, preferred, sorted_executors

if TYPE_CHECKING:
    from pyspark import SparkContext


def executor_locations(
    sc: SparkContext, strategy: LocationStrategy, ranges: Sequence[OffsetRange], packing: Packing, leaders: Mapping[Partition, str]
) -> list[list[str]] | None:
    """Find for each task the executor on which its longest piece is best read, in Spark's notation.

    An executor whose cores are all held by receivers is never preferred: its tasks would wait for a core in vain.

    Args:
        leaders: The hosts of the partitions' leaders, for PreferBrokers.

    Returns:
        None if the strategy has no preference, or if there is no executor to prefer (local mode).
    """
    if strategy.kind == "none":
        return None
    there = sorted_executors([(executor.host, executor.executor_id) for executor in free_executors(sc, executors(sc))])
    if not there:
        return None
    hosts = leaders if strategy.kind == "brokers" else strategy.hosts
    tasks = pack([Piece(r) for r in ranges], packing)
    longest = [max((piece.range for piece in task), key=OffsetRange.count) for task in tasks]
    return [preferred((r.topic, r.partition), there, hosts.get((r.topic, r.partition))) for r in longest]

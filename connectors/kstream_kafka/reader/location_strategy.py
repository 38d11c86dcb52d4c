"""LocationStrategies: the executor on which a Kafka partition should be read. Spark's names and Spark's choice (KafkaRDD.scala, 3.x).

A location is a hint to Spark, which waits `spark.locality.wait` for that executor before it takes another one. If a partition is read on
the same executor each time, the worker keeps its connections. The hint changes nothing about the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from kstream.spark.executors import executors, free_executors
from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import Packing, RangeSplit, pack
from kstream_kafka.planning.positions import as_partition

if TYPE_CHECKING:
    from pyspark import SparkContext

Executor: TypeAlias = tuple[str, str]
"""(host, executor id)"""


@dataclass(frozen=True)
class LocationStrategy:
    """The executors that should read a Kafka partition. `LocationStrategies` has the strategies:

    - PreferConsistent spreads partitions evenly over all executors, each partition always on the same executor. Right for most jobs.
    - PreferBrokers prefers executors on the host of the partition's leader. For brokers and executors that share hosts.
    - PreferFixed prefers a given host for some partitions, and places the others as PreferConsistent does.

    A strategy is callable and returns itself, so `PreferConsistent` (Scala's form) and `PreferConsistent()` (Java's form) are the same.

    Attributes:
        kind: the strategy. "none" prefers no executor.
        hosts: the preferred host of each partition, for PreferFixed.

    Example:
        KafkaUtils.createDirectStream(
            ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], kafkaParams)
        )
    """

    kind: Literal["none", "consistent", "brokers", "fixed"]
    hosts: Mapping[Partition, str] = field(default_factory=dict[Partition, str])

    def __call__(self) -> LocationStrategy:
        """Return this strategy."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"kind": self.kind, "hosts": [[*p, host] for p, host in sorted(self.hosts.items())]}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> LocationStrategy:
        """Read the stored form."""
        return LocationStrategy(values["kind"], {(str(t), int(n)): str(host) for t, n, host in values["hosts"]})


NO_PREFERENCE = LocationStrategy("none")


class LocationStrategies:
    """The strategies, by Spark's names.

    Example:
        KafkaUtils.createDirectStream(
            ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], kafkaParams)
        )
    """

    PreferBrokers: ClassVar[LocationStrategy] = LocationStrategy("brokers")
    """Prefers executors on the host of the partition's leader. Use it only if brokers and executors share hosts."""

    PreferConsistent: ClassVar[LocationStrategy] = LocationStrategy("consistent")
    """Spreads partitions evenly over all executors, each partition always on the same executor. Right for most jobs."""

    @staticmethod
    def PreferFixed(hostMap: Mapping[Any, str]) -> LocationStrategy:
        """Prefer a given host for some partitions; other partitions are placed as by PreferConsistent.

        Args:
            hostMap: partition → host name. A key is a TopicPartition or a (topic, partition) pair.

        Returns:
            The strategy.

        Raises:
            KafkaConfigError: a key is no partition.

        Example:
            LocationStrategies.PreferFixed({TopicPartition("orders", 0): "worker-1"})
        """
        return LocationStrategy("fixed", {as_partition(p, "hostMap"): host for p, host in hostMap.items()})


def sorted_executors(executors: Sequence[Executor]) -> list[Executor]:
    """Sort by host, then id, both descending, as Spark does. Ids compare as text."""
    return sorted(executors, reverse=True)


def preferred(partition: Partition, executors: Sequence[Executor], host: str | None = None) -> list[str]:
    """Return the preferred executor of a partition, in Spark's notation.

    Args:
        partition: the Kafka partition.
        executors: the executors, from `sorted_executors`.
        host: the preferred host. If it has executors, only these are candidates.

    Returns:
        One location; none without executors.
    """
    on_host = [e for e in executors if e[0] == host] if host is not None else []
    candidates = on_host or executors
    if not candidates:
        return []
    name, executor_id = candidates[java_hash(partition) % len(candidates)]
    return [f"executor_{name}_{executor_id}"]


def java_hash(partition: Partition) -> int:
    """Return `hashCode` of Java's TopicPartition, for the same choice as the JVM's connector. Python's hash differs in each process."""
    topic, number = partition
    value = (31 * (31 + number) + _java_string_hash(topic)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=1024)
def _java_string_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    return value


def executor_locations(
    sc: SparkContext, strategy: LocationStrategy, ranges: Sequence[OffsetRange], packing: Packing, leaders: Mapping[Partition, str]
) -> list[list[str]] | None:
    """Find the preferred executor of each task, by its longest split.

    An executor whose cores are all held by receivers is never preferred: its tasks would wait for a core in vain.

    Args:
        sc: the SparkContext. Asks its JVM for the executors.
        strategy: the user's strategy.
        ranges: the planned ranges.
        packing: the distribution of ranges over tasks.
        leaders: the hosts of the partitions' leaders, for PreferBrokers.

    Returns:
        The locations of each task, in Spark's notation. None if the strategy has no preference, or if there is no executor to prefer
        (local mode).
    """
    if strategy.kind == "none":
        return None
    there = sorted_executors([(executor.host, executor.executor_id) for executor in free_executors(sc, executors(sc))])
    if not there:
        return None
    hosts = leaders if strategy.kind == "brokers" else strategy.hosts
    tasks = pack([RangeSplit(r) for r in ranges], packing)
    longest = [max((split.range for split in task), key=OffsetRange.count) for task in tasks]
    return [preferred((r.topic, r.partition), there, hosts.get((r.topic, r.partition))) for r in longest]

"""LocationStrategies: the executor on which a Kafka partition should be read. Names and choice are Spark's (KafkaRDD.scala, 3.x).

A location is a hint to Spark, which waits `spark.locality.wait` for that executor before it chooses another one. If the same executor reads
a partition each time, its workers keep their connections. The hint does not change the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.offsets.positions import as_partition
from kstream.spark.executors import executors, free_executors
from kstream_kafka.planning.packing import Packing, RangeSplit, pack

if TYPE_CHECKING:
    from pyspark import SparkContext

Executor: TypeAlias = tuple[str, str]
"""(host, executor id)"""


@dataclass(frozen=True)
class LocationStrategy:
    """A rule for the executors that should read Kafka partitions. Immutable. `LocationStrategies` has the strategies:

    - PreferConsistent spreads partitions evenly over all executors, each partition always on the same executor. It is right for most jobs.
    - PreferBrokers prefers executors on the host of the partition's leader. It is for brokers and executors that share hosts.
    - PreferFixed prefers a given host for some partitions, and places the others as PreferConsistent does.

    A strategy is callable and returns itself, so `PreferConsistent` (Scala's form) and `PreferConsistent()` (Java's form) are the same.

    Attributes:
        kind: the strategy. "none" prefers no executor.
        hosts: partition → preferred host, for PreferFixed.

    Example:
        KafkaUtils.createDirectStream(
            ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], kafkaParams)
        )
    """

    kind: Literal["none", "consistent", "brokers", "fixed"]
    hosts: Mapping[Partition, str] = field(default_factory=dict[Partition, str])

    def __call__(self) -> LocationStrategy:
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"kind": self.kind, "hosts": [[*p, host] for p, host in sorted(self.hosts.items())]}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> LocationStrategy:
        """Return the strategy of a stored form."""
        return LocationStrategy(values["kind"], {(str(t), int(n)): str(host) for t, n, host in values["hosts"]})


NO_PREFERENCE = LocationStrategy("none")
"""The strategy that prefers no executor."""


class LocationStrategies:
    """The strategies, with Spark's names.

    Example:
        KafkaUtils.createDirectStream(
            ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], kafkaParams)
        )
    """

    PreferBrokers: ClassVar[LocationStrategy] = LocationStrategy("brokers")
    """The strategy that prefers executors on the host of the partition's leader. Use it only if brokers and executors share hosts."""

    PreferConsistent: ClassVar[LocationStrategy] = LocationStrategy("consistent")
    """The strategy that spreads partitions evenly over all executors, each partition always on the same one. It is right for most jobs."""

    @staticmethod
    def PreferFixed(hostMap: Mapping[Any, str]) -> LocationStrategy:
        """Return a strategy that prefers a given host for some partitions. It places other partitions as PreferConsistent does.

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
    """Return the executors sorted by host, then by id, both descending, as Spark does. Ids are compared as text."""
    return sorted(executors, reverse=True)


def preferred(partition: Partition, executors: Sequence[Executor], host: str | None = None) -> list[str]:
    """Return the preferred executor of a partition, in Spark's notation. Pure.

    Args:
        partition: the Kafka partition.
        executors: the executors, from `sorted_executors`.
        host: the preferred host, or None. If the host has executors, only these are candidates.

    Returns:
        A list of one location, `executor_<host>_<id>`. It is empty if there are no executors.
    """
    on_host = [e for e in executors if e[0] == host] if host is not None else []
    candidates = on_host or executors
    if not candidates:
        return []
    name, executor_id = candidates[java_hash(partition) % len(candidates)]
    return [f"executor_{name}_{executor_id}"]


def java_hash(partition: Partition) -> int:
    """Return the `hashCode` of Java's TopicPartition, so that the choice is that of the JVM's connector.

    Python's own hash would differ from process to process.
    """
    topic, number = partition
    value = (31 * (31 + number) + _java_string_hash(topic)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=1024)
def _java_string_hash(text: str) -> int:
    """Return the `hashCode` of a Java String, as an unsigned number of 32 bits."""
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
    return value


def executor_locations(
    sc: SparkContext, strategy: LocationStrategy, ranges: Sequence[OffsetRange], packing: Packing, leaders: Mapping[Partition, str]
) -> list[list[str]] | None:
    """Find the preferred executor of each task. It is that of the partition of the task's longest split. Asks the JVM for the executors.

    An executor whose cores are all held by receivers is never preferred, because its tasks would wait for a core in vain.

    Args:
        sc: the SparkContext.
        strategy: the user's strategy.
        ranges: the planned ranges.
        packing: the limits for the distribution of ranges over tasks.
        leaders: partition → host of its leader, for PreferBrokers.

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

"""LocationStrategies: on which executor a Kafka partition should be read. Pure; Spark's names and Spark's choice (KafkaRDD.scala, 3.x).

A hint to Spark, which waits `spark.locality.wait` for the executor before it takes another one. Reading a partition on the same
executor each time lets its worker keep its connections; it changes nothing about the result.

On which executors the tasks of a KafkaRDD should run, by the strategy and the executors there are now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from kstream.spark.executors import executors, free_executors
from kstream_kafka.client.ports import Partition
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import Packing, Piece, pack
from kstream_kafka.planning.positions import as_partition

if TYPE_CHECKING:
    from pyspark import SparkContext


Executor: TypeAlias = tuple[str, str]
"""(host, executor id)"""


@dataclass(frozen=True)
class LocationStrategy:
    """One strategy. Calling it gives it back: `PreferConsistent` (Scala) and `PreferConsistent()` (Java) are the same."""

    kind: Literal["none", "consistent", "brokers", "fixed"]
    hosts: Mapping[Partition, str] = field(default_factory=dict[Partition, str])

    def __call__(self) -> LocationStrategy:
        return self

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "hosts": [[*p, host] for p, host in sorted(self.hosts.items())]}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> LocationStrategy:
        return LocationStrategy(values["kind"], {(str(t), int(n)): str(host) for t, n, host in values["hosts"]})


NO_PREFERENCE = LocationStrategy("none")


class LocationStrategies:
    """The strategies, by Spark's names."""

    PreferBrokers: ClassVar[LocationStrategy] = LocationStrategy("brokers")
    """Executors on the hosts of the partitions' leaders; only if brokers and executors share hosts."""
    PreferConsistent: ClassVar[LocationStrategy] = LocationStrategy("consistent")
    """Partitions spread evenly, each always on the same executor. For most cases."""

    @staticmethod
    def PreferFixed(hostMap: Mapping[Any, str]) -> LocationStrategy:
        """The given host for the partitions named, consistent for the others."""
        return LocationStrategy("fixed", {as_partition(p, "hostMap"): host for p, host in hostMap.items()})


def sorted_executors(executors: Sequence[Executor]) -> list[Executor]:
    """By host, then id, both falling: the order Spark counts in. Ids compare as text, as in Spark."""
    return sorted(executors, reverse=True)


def preferred(partition: Partition, executors: Sequence[Executor], host: str | None = None) -> list[str]:
    """The one executor a partition prefers, in Spark's notation; none without executors. `executors` as `sorted_executors` gives them.

    With a `host`, only its executors are looked at, unless it has none.
    """
    on_host = [e for e in executors if e[0] == host] if host is not None else []
    chosen_from = on_host or executors
    if not chosen_from:
        return []
    name, number = chosen_from[java_hash(partition) % len(chosen_from)]
    return [f"executor_{name}_{number}"]


def java_hash(partition: Partition) -> int:
    """`hashCode` of Java's TopicPartition, so that the choice is that of the JVM's connector. Python's own differs in each process."""
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

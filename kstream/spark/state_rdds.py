"""RDDs of states, one record of bytes a partition: the first ones, those read from elsewhere, and those after a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from kstream.rdd.map_with_state import MapWithState, initial_states
from kstream.rdd.stable_hash import partition_of
from kstream.rdd.state_map import EMPTY, StateMap
from kstream.spark.map_with_state_rdd import MapWithStateRDD
from kstream.spark.raw_records import NUMBER, by_key, java_class, pairs, raw, value_of_pair


class SparkStateRDDs:
    """`StateRDDs` on a SparkContext."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc

    def initial(self, pairs: RDD[Any] | list[tuple[Any, Any]], partitions: int, time_ms: int) -> RDD[bytes]:
        if not pairs:
            return states_from(self._sc, partitions)
        return initial(self._sc.parallelize(pairs) if isinstance(pairs, list) else pairs, partitions, time_ms)

    def updated(self, data: RDD[Any] | None, states: RDD[bytes], partitions: int, update: MapWithState) -> MapWithStateRDD:
        return MapWithStateRDD(self._sc.emptyRDD() if data is None else data, aligned(states, partitions), update)

    def remove_checkpoint(self, path: str) -> None:
        at = java_class(self._sc, "org.apache.hadoop.fs.Path")(path)
        at.getFileSystem(self._sc._jsc.hadoopConfiguration()).delete(at, True)  # pyright: ignore


def initial(pairs: RDD[Any], partitions: int, time_ms: int) -> RDD[bytes]:
    """The states to begin with, of (key, state) pairs, all updated at `time_ms`."""
    keyed: Any = pairs.partitionBy(partitions, partition_of)
    return raw(keyed.mapPartitions(partial(_initial, time_ms), preservesPartitioning=True))


def states_from(sc: SparkContext, partitions: int, read: Callable[[int], bytes] = lambda _index: EMPTY) -> RDD[bytes]:
    """States that workers read for themselves: `read(index)` gives the bytes of a partition. They lie where the data of their keys goes."""
    nothing: Any = sc.emptyRDD().map(_as_it_is).partitionBy(partitions, partition_of)
    return raw(nothing.mapPartitionsWithIndex(partial(_read, read), preservesPartitioning=True))


def aligned(states: RDD[bytes], partitions: int) -> RDD[bytes]:
    """Any RDD of states, one record a partition, as one whose partitions are where the data of their keys goes.

    That is itself, if it was partitioned by `partition_of` into so many. If Spark does not know that of it, its bytes are sent through
    one shuffle; if it has another number of partitions, every state is decoded and sent where it belongs.
    """
    if states.partitioner == by_key(partitions):
        return states
    if states.getNumPartitions() == partitions:
        partitioner = java_class(states.ctx, "org.apache.spark.api.python.PythonPartitioner")(partitions, id(partition_of))
        moved = pairs(states.mapPartitionsWithIndex(_numbered)).partitionBy(partitioner)
        made: RDD[bytes] = RDD(value_of_pair(states.ctx, moved), states.ctx, NoOpSerializer())
        made.partitioner = by_key(partitions)
        return made
    entries: Any = states.flatMap(_entries).partitionBy(partitions, partition_of)
    return raw(entries.mapPartitions(_regrouped, preservesPartitioning=True))


# -- in the workers


def _initial(time_ms: int, pairs: Iterable[tuple[Any, Any]]) -> Iterator[bytes]:
    yield initial_states(pairs, time_ms)


def _read(read: Callable[[int], bytes], index: int, nothing: Iterable[Any]) -> Iterator[bytes]:
    for _ in nothing:  # to its end, or Spark throws the worker away
        pass
    yield read(index)


def _entries(states: bytes) -> Iterator[tuple[Any, tuple[Any, int]]]:
    return ((key, (state, updated)) for key, state, updated in StateMap(states).items())


def _regrouped(entries: Iterable[tuple[Any, tuple[Any, int]]]) -> Iterator[bytes]:
    yield StateMap.of((key, state, updated) for key, (state, updated) in entries).to_bytes()


def _numbered(index: int, states: Iterable[bytes]) -> Iterator[bytes]:
    for record in states:
        yield NUMBER.pack(index)
        yield record


def _as_it_is(record: Any) -> Any:
    return record

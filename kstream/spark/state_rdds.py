"""RDDs of states, one record of bytes per partition: the first ones, those from a checkpoint, and MapWithStateRDD, those after a batch.

A partition of state is one JVM record (`byte[]`) all the time: the JVM caches it, sends it to the worker of the next batch, and gets it
back; it is neither pickled nor shuffled. The parts of PySpark's own `partitionBy` serve here. The data is partitioned by our hash. The
union of two RDDs with one partitioner unites them partition by partition. A `PairwiseRDD` takes two kinds of records from one worker, and
the JVM separates them by their numbers. So the user's function runs once per record, and a reader of the mapped values gets no states.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkContext, StorageLevel
from pyspark.serializers import BatchedSerializer, CPickleSerializer, NoOpSerializer

from kstream.errors import StateNotStorableError
from kstream.rdd.map_with_state import MapWithState, initial_states
from kstream.rdd.stable_hash import partition_of
from kstream.rdd.state_map import EMPTY, StateMap
from kstream.worker.pickled_chunks import pickled_chunks
from kstream.worker.process import freeze_gc

if TYPE_CHECKING:
    from pyspark.core.rdd import Partitioner
else:
    try:
        from pyspark.core.rdd import Partitioner
    except ModuleNotFoundError:  # pyspark 3.5
        from pyspark.rdd import Partitioner

_FILTERS = "_kstream_filters"
_CLASSES = "_kstream_java_classes"
_JAVA_PAIR_RDD = "org.apache.spark.api.java.JavaPairRDD"
NUMBER = struct.Struct("!q")
"""A number, as the JVM's PairwiseRDD reads it."""


def java_class(sc: SparkContext, name: str) -> Any:
    """The Java class of this full name. The SparkContext keeps the class: a look-up by name takes py4j several calls, 2 ms."""
    known: dict[str, Any] = sc.__dict__.setdefault(_CLASSES, {})
    if name not in known:
        found: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
        for part in name.split("."):
            found = getattr(found, part)
        known[name] = found
    return known[name]


def jrdd(rdd: RDD[Any]) -> Any:
    """The JVM's RDD behind an RDD."""
    return rdd._jrdd  # pyright: ignore[reportPrivateUsage]


def raw(made: RDD[bytes]) -> RDD[bytes]:
    """An RDD that was just made by `mapPartitions…`, and whose records are bytes: they go to the JVM as they are."""
    rdd: Any = made
    rdd._bypass_serializer = True
    rdd._jrdd_deserializer = NoOpSerializer()
    return made


def is_raw(rdd: RDD[Any]) -> bool:
    """Whether its records are bytes on the JVM's side, too; else they are pickled lists of records."""
    return isinstance(rdd._jrdd_deserializer, NoOpSerializer)  # pyright: ignore[reportPrivateUsage]


def pairs(numbered: RDD[bytes]) -> Any:
    """The JVM's pair RDD of an RDD that gives a NUMBER and a record by turns. It keeps the partitioner."""
    return java_class(numbered.ctx, "org.apache.spark.api.python.PairwiseRDD")(jrdd(raw(numbered)).rdd()).asJavaPairRDD()


def value_of_pair(sc: SparkContext, numbered: Any) -> Any:
    """The JVM's RDD of the records of a pair RDD, without their numbers."""
    return java_class(sc, "org.apache.spark.api.python.PythonRDD").valueOfPair(numbered)


def with_numbers(sc: SparkContext, numbered: Any, first: int, last: int) -> Any:
    """Filter a pair RDD of the JVM by its numbers, `first` to `last`; partitions stay as they are.

    That is `filterByRange(first, last)`, which however serializes the pairs with all they are made of when it is called, to see whether
    its function can be sent: the longer the lineage the slower, and after some fifty batches there is no stack left. So its function is
    taken out of such a filter of no pairs, once a SparkContext.
    """
    functions: dict[tuple[int, int], Any] = sc.__dict__.setdefault(_FILTERS, {})
    if (first, last) not in functions:
        functions[first, last] = _function_of_filter(sc, first, last)
    kept = numbered.rdd().filter(functions[first, last])
    return java_class(sc, _JAVA_PAIR_RDD)(kept, numbered.kClassTag(), numbered.vClassTag())


def _function_of_filter(sc: SparkContext, first: int, last: int) -> Any:
    """What says of a pair whether its number is between the two. The JVM has the function, and no name by which Python could call it."""
    nothing: Any = sc._jsc.emptyRDD()  # pyright: ignore
    filtered = java_class(sc, _JAVA_PAIR_RDD).fromJavaRDD(nothing).filterByRange(first, last).rdd()
    of_partition = _value(filtered, filtered.getClass().getDeclaredField("f"))
    (captured,) = of_partition.getClass().getDeclaredFields()
    return _value(of_partition, captured)


def _value(owner: Any, field: Any) -> Any:
    field.setAccessible(True)
    return field.get(owner)


def by_key(partitions: int) -> Partitioner:
    """How states are partitioned; PySpark finds two of them equal if their numbers are."""
    return Partitioner(partitions, partition_of)


class SparkStateRDDs:
    """Makes RDDs of states on a SparkContext."""

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
    """The initial states, from (key, state) pairs, all updated at `time_ms`."""
    keyed: Any = pairs.partitionBy(partitions, partition_of)
    return raw(keyed.mapPartitions(partial(_initial, time_ms), preservesPartitioning=True))


def states_from(sc: SparkContext, partitions: int, read: Callable[[int], bytes] = lambda _index: EMPTY) -> RDD[bytes]:
    """States that workers read themselves: `read(index)` returns the bytes of a partition. They are partitioned like the data."""
    nothing: Any = sc.emptyRDD().map(_as_it_is).partitionBy(partitions, partition_of)
    return raw(nothing.mapPartitionsWithIndex(partial(_read, read), preservesPartitioning=True))


def aligned(states: RDD[bytes], partitions: int) -> RDD[bytes]:
    """Return an RDD of states that is partitioned like the data of its keys.

    That is `states` itself if Spark knows its partitioner. If Spark does not, the bytes go through one shuffle. If the number of partitions
    differs, every state is decoded and shuffled by its key.

    Args:
        states: one record per partition.
        partitions: of the data.
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


_STATES, _MAPPED = 1 << 40, 1 << 41
"""The numbers by which the JVM separates the records of one worker. So large that py4j passes them as Longs."""
_MOST_BYTES = 2**31 - 2**16
"""The largest JVM array, and so the largest state of a partition."""


class MapWithStateRDD(RDD[bytes]):
    """An RDD of one record per partition, the `bytes` of its StateMap. `mapped` has what the function returned, partition by partition.

    Made on the driver, in the generator's thread; nothing runs. `persist` keeps both, so that the function runs once; `unpersist` drops
    both; a checkpoint, local or not, cuts the lineage of both.
    """

    def __init__(self, data: RDD[Any], states: RDD[bytes], update: MapWithState) -> None:
        """`data` are (key, value) pairs; `states` is as `aligned` gives it: the new states have its partitions."""
        sc, partitions = data.ctx, states.getNumPartitions()
        keyed: Any = data.partitionBy(partitions, partition_of)
        both: RDD[bytes] = RDD(jrdd(states).union(jrdd(keyed)), sc, NoOpSerializer())
        if both.getNumPartitions() != partitions:
            raise AssertionError(f"the union of data and states has {both.getNumPartitions()} partitions instead of {partitions}")
        made = pairs(both.mapPartitionsWithIndex(partial(_update, update, not is_raw(states)), preservesPartitioning=True))
        self._pairs = with_numbers(sc, made, _STATES, _MAPPED)  # all: a PairwiseRDD, unlike a filter, holds on to its parent for ever
        super().__init__(_records(sc, self._pairs, _STATES), sc, NoOpSerializer())
        self.partitioner = by_key(partitions)
        self.mapped: RDD[Any] = RDD(_records(sc, self._pairs, _MAPPED), sc, BatchedSerializer(CPickleSerializer()))

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> MapWithStateRDD:
        self.is_cached = True
        self._pairs.persist(self.ctx._getJavaStorageLevel(storageLevel))  # pyright: ignore[reportPrivateUsage]
        return self

    def unpersist(self, blocking: bool = False) -> MapWithStateRDD:
        self.is_cached = False
        self._pairs.unpersist(blocking)
        return self

    def localCheckpoint(self) -> None:
        self._pairs.rdd().localCheckpoint()

    def checkpoint(self) -> None:
        self.is_checkpointed = True
        self._pairs.rdd().checkpoint()

    def isCheckpointed(self) -> bool:
        return self._pairs.rdd().isCheckpointed()

    def getCheckpointFile(self) -> str | None:
        file = self._pairs.rdd().getCheckpointFile()
        return file.get() if file.isDefined() else None


def _records(sc: SparkContext, numbered: Any, number: int) -> Any:
    return value_of_pair(sc, with_numbers(sc, numbered, number, number))


# -- in the workers


def _update(update: MapWithState, unpickle: bool, index: int, records: Iterable[bytes]) -> Iterator[bytes]:
    """`records` are the partition's states (`unpickle`: in a pickled list, as other RDDs of PySpark have it) and then the pickled batches
    of its data; given are numbers and records by turns."""
    freeze_gc()
    received = iter(records)
    states = next(received)
    states, mapped = update.update(pickle.loads(states)[0] if unpickle else states, chain.from_iterable(map(pickle.loads, received)))
    yield NUMBER.pack(_STATES)
    yield _checked(states, index)
    for chunk in pickled_chunks(mapped, CPickleSerializer().dumps):
        yield NUMBER.pack(_MAPPED)
        yield chunk


def _checked(states: bytes, index: int) -> bytes:
    if len(states) > _MOST_BYTES:
        raise StateNotStorableError(
            f"the states of partition {index} take {len(states)} bytes, more than the {_MOST_BYTES} that a partition can have: "
            "give the StateSpec a greater numPartitions",
            key=None,
            reason="size",
        )
    return states

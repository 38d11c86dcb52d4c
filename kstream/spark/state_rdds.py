"""RDDs of states, with one record of bytes per partition: the first states, states from a checkpoint, and the states after a batch.

The last kind is MapWithStateRDD. A partition of state is one JVM record (`byte[]`) all the time. The JVM caches it, sends it to the worker
of the next batch, and gets it back; the record is neither pickled nor shuffled. This uses the parts of PySpark's own `partitionBy`. The
data is partitioned by our hash. The union of two RDDs with one partitioner unites them partition by partition. A `PairwiseRDD` takes two
kinds of records from one worker, and the JVM separates them by their numbers. So the user's function runs once per record, and a reader of
the mapped values gets no states.
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
from kstream.worker.process import begin_task

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
"""The form in which the JVM's PairwiseRDD reads a number."""


def java_class(sc: SparkContext, name: str) -> Any:
    """Return the Java class of this full name. The SparkContext keeps the class: a look-up by name takes py4j several calls, 2 ms."""
    known: dict[str, Any] = sc.__dict__.setdefault(_CLASSES, {})
    if name not in known:
        found: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
        for part in name.split("."):
            found = getattr(found, part)
        known[name] = found
    return known[name]


def jrdd(rdd: RDD[Any]) -> Any:
    """Return the JVM's RDD behind an RDD."""
    return rdd._jrdd  # pyright: ignore[reportPrivateUsage]


def raw(made: RDD[bytes]) -> RDD[bytes]:
    """Change an RDD of bytes that `mapPartitions…` has just made, so that its records go to the JVM unpickled. Return this RDD."""
    rdd: Any = made
    rdd._bypass_serializer = True
    rdd._jrdd_deserializer = NoOpSerializer()
    return made


def is_raw(rdd: RDD[Any]) -> bool:
    """Return whether the records of an RDD are plain bytes in the JVM, too. Otherwise the JVM has pickled lists of records."""
    return isinstance(rdd._jrdd_deserializer, NoOpSerializer)  # pyright: ignore[reportPrivateUsage]


def pairs(numbered: RDD[bytes]) -> Any:
    """Return the JVM's pair RDD of an RDD in which a NUMBER and a record alternate. The pair RDD has the same partitioner."""
    return java_class(numbered.ctx, "org.apache.spark.api.python.PairwiseRDD")(jrdd(raw(numbered)).rdd()).asJavaPairRDD()


def value_of_pair(sc: SparkContext, numbered: Any) -> Any:
    """Return the JVM's RDD of the records of a pair RDD, without their numbers."""
    return java_class(sc, "org.apache.spark.api.python.PythonRDD").valueOfPair(numbered)


def with_numbers(sc: SparkContext, numbered: Any, first: int, last: int) -> Any:
    """Return the JVM's RDD of those pairs whose number lies from `first` to `last`. The partitions stay the same. Nothing runs.

    The same as `filterByRange(first, last)`, which is too slow: each call serializes the pairs with their whole lineage, to test whether
    its function can be sent. The longer the lineage the slower the call, and after some fifty batches the stack overflows. So this takes
    the function out of such a filter of an empty RDD, once for each SparkContext.

    Args:
        sc: the SparkContext.
        numbered: a pair RDD of the JVM.
        first: the lowest number.
        last: the highest number.
    """
    functions: dict[tuple[int, int], Any] = sc.__dict__.setdefault(_FILTERS, {})
    if (first, last) not in functions:
        functions[first, last] = _function_of_filter(sc, first, last)
    kept = numbered.rdd().filter(functions[first, last])
    return java_class(sc, _JAVA_PAIR_RDD)(kept, numbered.kClassTag(), numbered.vClassTag())


def _function_of_filter(sc: SparkContext, first: int, last: int) -> Any:
    """Return the JVM's function that tests whether the number of a pair lies from `first` to `last`.

    Python cannot create this function by a name, so reflection reads it from a filter.
    """
    nothing: Any = sc._jsc.emptyRDD()  # pyright: ignore
    filtered = java_class(sc, _JAVA_PAIR_RDD).fromJavaRDD(nothing).filterByRange(first, last).rdd()
    of_partition = _value(filtered, filtered.getClass().getDeclaredField("f"))
    (captured,) = of_partition.getClass().getDeclaredFields()
    return _value(of_partition, captured)


def _value(owner: Any, field: Any) -> Any:
    """Return the value of a private field of a Java object."""
    field.setAccessible(True)
    return field.get(owner)


def by_key(partitions: int) -> Partitioner:
    """Return the partitioner of states. PySpark considers two of them equal if they have the same number of partitions."""
    return Partitioner(partitions, partition_of)


class SparkStateRDDs:
    """Makes RDDs of states on a SparkContext. Called on the driver. `initial` and `updated` run no job."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc

    def initial(self, pairs: RDD[Any] | list[tuple[Any, Any]], partitions: int, time_ms: int) -> RDD[bytes]:
        """Return the initial states, from (key, state) pairs that were all updated at `time_ms`. Empty states if there are no pairs."""
        if not pairs:
            return states_from(self._sc, partitions)
        return initial(self._sc.parallelize(pairs) if isinstance(pairs, list) else pairs, partitions, time_ms)

    def updated(self, data: RDD[Any] | None, states: RDD[bytes], partitions: int, update: MapWithState) -> MapWithStateRDD:
        """Return the states after a batch. Their attribute `mapped` is the RDD of the function's return values.

        Args:
            data: the (key, value) pairs of the batch; None for no data.
            states: the states before, with any number of partitions.
            partitions: the number of partitions of the new states.
            update: the user's function, with the time of the batch.
        """
        return MapWithStateRDD(self._sc.emptyRDD() if data is None else data, aligned(states, partitions), update)

    def compute(self, state: RDD[Any]) -> None:
        """Compute every partition of a state, without passing its records to Python. Blocks on a Spark job, whose error is raised."""
        jrdd(state).count()

    def remove_checkpoint(self, path: str) -> None:
        """Remove the files of one of Spark's RDD checkpoints. Blocks. No error if they do not exist."""
        at = java_class(self._sc, "org.apache.hadoop.fs.Path")(path)
        at.getFileSystem(self._sc._jsc.hadoopConfiguration()).delete(at, True)  # pyright: ignore


def initial(pairs: RDD[Any], partitions: int, time_ms: int) -> RDD[bytes]:
    """Return the initial states, from an RDD of (key, state) pairs, all updated at `time_ms`."""
    keyed: Any = pairs.partitionBy(partitions, partition_of)
    return raw(keyed.mapPartitions(partial(_initial, time_ms), preservesPartitioning=True))


def states_from(sc: SparkContext, partitions: int, read: Callable[[int], bytes] = lambda _index: EMPTY) -> RDD[bytes]:
    """Return an RDD of states that workers read themselves, partitioned like the data.

    Args:
        sc: the SparkContext.
        partitions: the number of partitions.
        read: returns the bytes of the partition of an index; runs in a worker. By default every partition is empty.
    """
    nothing: Any = sc.emptyRDD().map(_as_it_is).partitionBy(partitions, partition_of)
    return raw(nothing.mapPartitionsWithIndex(partial(_read, read), preservesPartitioning=True))


def aligned(states: RDD[bytes], partitions: int) -> RDD[bytes]:
    """Return an RDD of states that is partitioned like the data of its keys.

    If Spark knows the partitioner of `states`, that is `states` itself. If Spark does not, the bytes go through one shuffle. If the number
    of partitions differs, every state is decoded and shuffled by its key.

    Args:
        states: one record of bytes per partition.
        partitions: the number of partitions of the data.
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
    """Yield the bytes of a partition's initial states."""
    yield initial_states(pairs, time_ms)


def _read(read: Callable[[int], bytes], index: int, nothing: Iterable[Any]) -> Iterator[bytes]:
    """Yield the bytes that `read` returns for a partition. `nothing` is the empty input."""
    for _ in nothing:  # read to the end, or Spark discards the worker
        pass
    yield read(index)


def _entries(states: bytes) -> Iterator[tuple[Any, tuple[Any, int]]]:
    """Return (key, (state, time of the last update)) for each key of a partition's states."""
    return ((key, (state, updated)) for key, state, updated in StateMap(states).items())


def _regrouped(entries: Iterable[tuple[Any, tuple[Any, int]]]) -> Iterator[bytes]:
    """Yield the bytes of a partition's states, from the entries of `_entries`."""
    yield StateMap.of((key, state, updated) for key, (state, updated) in entries).to_bytes()


def _numbered(index: int, states: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the number of the partition before each record."""
    for record in states:
        yield NUMBER.pack(index)
        yield record


def _as_it_is(record: Any) -> Any:
    return record


_STATES, _MAPPED = 1 << 40, 1 << 41
"""The numbers by which the JVM separates the records of one worker. They are so large that py4j passes them as Longs."""
_MOST_BYTES = 2**31 - 2**16
"""The largest JVM array, and so the largest state of a partition."""


class MapWithStateRDD(RDD[bytes]):
    """The states after a batch: an RDD of one record per partition, the `bytes` of its StateMap.

    The attribute `mapped` is the RDD of the function's return values, in the same partitions. Made on the driver, in the generator's
    thread; no job runs. `persist` keeps both RDDs, so that the function runs once, and `unpersist` drops both. A checkpoint, local or not,
    cuts the lineage of both.
    """

    def __init__(self, data: RDD[Any], states: RDD[bytes], update: MapWithState) -> None:
        """Create the RDD. No job runs.

        Args:
            data: the (key, value) pairs of the batch.
            states: the states before, as `aligned` returns them; the new states have the same partitions.
            update: the user's function, with the time of the batch.
        """
        sc, partitions = data.ctx, states.getNumPartitions()
        keyed: Any = data.partitionBy(partitions, partition_of)
        both: RDD[bytes] = RDD(jrdd(states).union(jrdd(keyed)), sc, NoOpSerializer())
        if both.getNumPartitions() != partitions:
            raise AssertionError(f"the union of data and states has {both.getNumPartitions()} partitions instead of {partitions}")
        made = pairs(both.mapPartitionsWithIndex(partial(_update, update, not is_raw(states)), preservesPartitioning=True))
        self._pairs = with_numbers(sc, made, _STATES, _MAPPED)  # all pairs: a PairwiseRDD, unlike a filter, keeps its parent for ever
        super().__init__(_records(sc, self._pairs, _STATES), sc, NoOpSerializer())
        self.partitioner = by_key(partitions)
        self.mapped: RDD[Any] = RDD(_records(sc, self._pairs, _MAPPED), sc, BatchedSerializer(CPickleSerializer()))

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> MapWithStateRDD:
        """Keep the states and `mapped` once they are computed."""
        self.is_cached = True
        self._pairs.persist(self.ctx._getJavaStorageLevel(storageLevel))  # pyright: ignore[reportPrivateUsage]
        return self

    def unpersist(self, blocking: bool = False) -> MapWithStateRDD:
        """Drop the kept states and `mapped`. `blocking` waits for it."""
        self.is_cached = False
        self._pairs.unpersist(blocking)
        return self

    def localCheckpoint(self) -> None:
        """Cut the lineage at the next job; the data stays on the executors."""
        self._pairs.rdd().localCheckpoint()

    def checkpoint(self) -> None:
        """Cut the lineage at the next job, by files in the checkpoint directory of the SparkContext."""
        self.is_checkpointed = True
        self._pairs.rdd().checkpoint()

    def isCheckpointed(self) -> bool:
        """Return whether a checkpoint has cut the lineage."""
        return self._pairs.rdd().isCheckpointed()

    def getCheckpointFile(self) -> str | None:
        """Return the directory of the checkpoint's files; None if there is none."""
        file = self._pairs.rdd().getCheckpointFile()
        return file.get() if file.isDefined() else None


def _records(sc: SparkContext, numbered: Any, number: int) -> Any:
    """Return the JVM's RDD of the records with this number."""
    return value_of_pair(sc, with_numbers(sc, numbered, number, number))


# -- in the workers


def _update(update: MapWithState, unpickle: bool, index: int, records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the new states of a partition and then the pickled mapped values, each record after its number. Runs in a worker.

    Args:
        update: the user's function, with the time of the batch.
        unpickle: whether the states come in a pickled list, as in RDDs that PySpark made.
        index: the number of the partition.
        records: the states of the partition, and then the pickled lists of its data.

    Raises:
        StateNotStorableError: the new states are too large for a JVM array.
    """
    begin_task()
    received = iter(records)
    states = next(received)
    states, mapped = update.update(pickle.loads(states)[0] if unpickle else states, chain.from_iterable(map(pickle.loads, received)))
    yield NUMBER.pack(_STATES)
    yield _checked(states, index)
    for chunk in pickled_chunks(mapped, CPickleSerializer().dumps):
        yield NUMBER.pack(_MAPPED)
        yield chunk


def _checked(states: bytes, index: int) -> bytes:
    """Return the states of a partition. Raises StateNotStorableError if they are too large for a JVM array."""
    if len(states) > _MOST_BYTES:
        raise StateNotStorableError(
            f"the states of partition {index} take {len(states)} bytes, more than the {_MOST_BYTES} that a partition can have: "
            "give the StateSpec a greater numPartitions",
            key=None,
            reason="size",
        )
    return states

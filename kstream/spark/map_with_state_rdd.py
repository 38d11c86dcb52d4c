"""MapWithStateRDD: the states of a stream after one batch, and what its function returned, out of one pass over the data.

A partition of state is one JVM record (`byte[]`) all along: cached by the JVM, sent to the worker of the next batch, and back; it is not
pickled and not shuffled. What PySpark has for its own `partitionBy` serves: the data is partitioned by our hash; the union of two RDDs
with one partitioner unites them partition by partition; a `PairwiseRDD` takes two kinds of records out of one worker, which the JVM
then tells apart by their number. So the function runs once a record, and whoever wants the mapped values is not sent the states.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from pyspark import RDD, SparkContext, StorageLevel
from pyspark.serializers import BatchedSerializer, CPickleSerializer, NoOpSerializer

from kstream.errors import StateNotStorableError
from kstream.rdd.map_with_state import MapWithState
from kstream.rdd.stable_hash import partition_of
from kstream.spark.raw_records import NUMBER, by_key, is_raw, jrdd, pairs, value_of_pair, with_numbers
from kstream.worker.pickled_chunks import pickled_chunks
from kstream.worker.process import settle

_STATES, _MAPPED = 1 << 40, 1 << 41
"""How the JVM tells the records of one worker apart. So large that py4j hands them over as Longs."""
_MOST_BYTES = 2**31 - 2**16
"""What one JVM array, and so a partition's state, can hold."""


class MapWithStateRDD(RDD[bytes]):
    """An RDD of one record a partition, the `bytes` of its StateMap. `mapped` is what the function returned, partition by partition.

    Made on the driver, in the generator's thread; nothing runs. Persisting it keeps both, so that the function runs once; unpersisting
    lets go of both, and a checkpoint, local or not, forgets what both were made of.
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
    settle()
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
            key=None, reason="size",
        )  # fmt: skip
    return states

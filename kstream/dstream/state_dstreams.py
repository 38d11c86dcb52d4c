"""Streams with state: StateDStream (updateStateByKey), and InternalMapWithStateDStream with MapWithStateDStreamImpl (mapWithState)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Time
from kstream.dstream.arguments import Update
from kstream.dstream.node import DStreamNode
from kstream.dstream.rdd_functions import co_grouped
from kstream.dstream.state_spec import StateSpec
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.errors import NoRDDError
from kstream.rdd.map_with_state import MapWithState
from kstream.worker.process import begin_task

if TYPE_CHECKING:
    from pyspark import RDD

_CHECKPOINT_EVERY = 10
LONGEST_LINEAGE = 15
"""In batches. Each batch adds six RDDs to the lineage."""
_STORED = StorageLevel(True, True, False, True)
"""In memory and on disk, not serialized, because the state of a partition is one array of bytes already."""


class StateDStream(StatefulDStream):
    """The stream of `updateStateByKey`. The RDD at T has (key, new state) for every key that had a state or has values in the batch.

    `update` runs for every key in every batch, also for keys without data, and in planned batches whose parent has no RDD. `initial` has
    the (key, state) pairs before the first batch; None for no states.
    """

    key_hash = KeyHash.PYSPARK
    operator = "updateStateByKey"

    def __init__(self, parent: DStreamNode, update: Update, partitions: int | None, initial: RDD[Any] | None) -> None:
        super().__init__(parent, parent.slide_duration)
        self._update = update
        self._partitions = partitions
        self._parallelism = self.ssc.sparkContext.defaultParallelism
        self._initial = initial

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of the new states. A batch whose parent has no RDD has new states too, from an empty RDD of values."""
        values = self.dependencies[0].getOrCompute(time)
        state = self.previous(time) or self._initial
        sc = self.ssc.sparkContext
        before, new = state or sc.emptyRDD(), values or sc.emptyRDD()
        partitions = self.default_partitions(self._partitions, time, self._parallelism)
        return self.placed(time, lambda: updated(before, new, self._update, time, partitions))


def updated(state: RDD[Any], values: RDD[Any], update: Update, time: Time, partitions: int) -> RDD[Any]:
    """Return an RDD of (key, state) after a batch, hashed by key into `partitions` partitions. Runs on the driver; starts no job.

    Only RDDs that are not partitioned so are shuffled.

    Args:
        state: (key, state) before the batch.
        values: (key, value) of the batch.
        update: makes the new state of a key, in the workers; None drops the key.
        time: the batch.
        partitions: the number of partitions.
    """

    def run(entries: Iterable[tuple[Any, tuple[list[Any], list[Any]]]]) -> Iterable[Any]:
        begin_task()
        for key, (states, new) in entries:
            result = update(time, key, new, states[0] if states else None)
            if result is not None:
                yield key, result

    return co_grouped([state, values], partitions).mapPartitions(run, preservesPartitioning=True)


class InternalMapWithStateDStream(StatefulDStream):
    """The states of `mapWithState` after each batch, one `bytes` object a partition.

    Users do not see this stream: they see MapWithStateDStreamImpl and snapshots. `checkpoint_duration` is ten times the slide duration
    unless set.
    """

    key_hash = KeyHash.STABLE
    longest_lineage = LONGEST_LINEAGE
    operator = "mapWithState"

    def __init__(self, parent: DStreamNode, spec: StateSpec) -> None:
        super().__init__(parent, parent.slide_duration)
        self.storage_level = _STORED
        self.checkpoint_duration: Duration | None = parent.slide_duration * _CHECKPOINT_EVERY
        self._spec = spec

    def compute(self, time: Time) -> RDD[bytes]:
        """Return the RDD of the new states. A batch without data, or without an RDD, has new states too, because keys may time out."""
        spec, rdds = self._spec, self.ssc.state_rdds
        partitions = self.default_partitions(spec.partitions, time)
        data, before = self.dependencies[0].getOrCompute(time), self.previous(time)
        idle_before = None if spec.timeout_duration is None else (time - spec.timeout_duration).milliseconds
        update = MapWithState(spec.mapping_function, time.milliseconds, time.to_datetime(), idle_before, spec.pass_time)

        def made() -> RDD[bytes]:
            states = rdds.initial(spec.initial, partitions, time.milliseconds) if before is None else before
            return rdds.updated(data, states, partitions, update)

        return self.placed(time, made)

    def stands_in(self, state: Any, made: Any) -> None:
        """Keep `mapped`, the records that the mapping function returned, because a window may still need them."""
        state.mapped = getattr(made, "mapped", None)


class MapWithStateDStreamImpl(DStreamNode):
    """The records that the mapping function of `mapWithState` returned, batch by batch.

    The states and these records are made and persisted together, so the function runs once for each record. The storage level and the
    checkpoint interval of this stream are those of its states.
    """

    operator = "mapWithState"

    def __init__(self, parent: DStreamNode, spec: StateSpec) -> None:
        self.states = InternalMapWithStateDStream(parent, spec)
        super().__init__(parent.ssc, (self.states,), parent.slide_duration)

    def reaches_back_to(self, time: Time) -> Time:
        """Return the batch before `time`: the records of a batch are made from the state before it."""
        return time - self.slide_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of the records; None if the batch has no state. NoRDDError if only the state of the batch is still known."""
        states: Any = self.states.getOrCompute(time)
        if states is None:
            return None
        if getattr(states, "mapped", None) is None:
            raise NoRDDError(
                f"{self!r}: the states after batch {time} are known, but the return values of its function are no longer known",
                time=time.milliseconds,
            )
        return states.mapped

    def set_storage_level(self, level: StorageLevel) -> None:
        """Set the storage level of the states, with which these records are persisted."""
        self.states.set_storage_level(level)

    def set_checkpoint_interval(self, interval: Duration) -> None:
        self.states.set_checkpoint_interval(interval)

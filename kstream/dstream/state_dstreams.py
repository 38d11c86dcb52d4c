"""Streams of states: StateDStream (updateStateByKey), MapWithStateDStreamImpl and the states behind it (mapWithState)."""

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
from kstream.worker.process import freeze_gc

if TYPE_CHECKING:
    from pyspark import RDD

_CHECKPOINT_EVERY = 10
LONGEST_LINEAGE = 15
"""Batches, each of which adds six RDDs."""
_STORED = StorageLevel(True, True, False, True)
"""In memory and on disk, not serialized: a state is one array of bytes already."""


class StateDStream(StatefulDStream):
    """At T: every key that had a state or has values in the batch, with its new state by `update`. Keys without data are given again.

    `update` also runs for a planned batch whose parent has no RDD. `initial`: what keys start with, seen in the first batch.
    """

    key_hash = KeyHash.PYSPARK
    operator = "updateStateByKey"

    def __init__(self, parent: DStreamNode, update: Update, partitions: int, initial: RDD[Any] | None) -> None:
        super().__init__(parent, parent.slide_duration)
        self._update = update
        self._partitions = partitions
        self._initial = initial

    def compute(self, time: Time) -> RDD[Any] | None:
        values = self.dependencies[0].getOrCompute(time)
        state = self.previous(time) or self._initial
        sc = self.ssc.sparkContext
        before, new = state or sc.emptyRDD(), values or sc.emptyRDD()
        return self.placed(time, lambda: updated(before, new, self._update, time, self._partitions))


def updated(state: RDD[Any], values: RDD[Any], update: Update, time: Time, partitions: int) -> RDD[Any]:
    """The states after a batch, hashed by key into so many partitions. Shuffles only what is not yet so."""

    def run(entries: Iterable[tuple[Any, tuple[list[Any], list[Any]]]]) -> Iterable[Any]:
        freeze_gc()
        for key, (states, new) in entries:
            result = update(time, key, new, states[0] if states else None)
            if result is not None:
                yield key, result

    return co_grouped([state, values], partitions).mapPartitions(run, preservesPartitioning=True)


class InternalMapWithStateDStream(StatefulDStream):
    """The states after each batch, one `bytes` a partition. Users see the records of MapWithStateDStreamImpl and snapshots instead.

    `checkpoint_duration` is ten times the slide duration unless set.
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
        """Make the new states. A batch without data, or without an RDD, makes them too: some keys may time out."""
        spec, rdds = self._spec, self.ssc.state_rdds
        partitions = self.default_partitions(spec.partitions)
        data, before = self.dependencies[0].getOrCompute(time), self.previous(time)
        idle_before = None if spec.timeout_duration is None else (time - spec.timeout_duration).milliseconds
        update = MapWithState(spec.mapping_function, time.milliseconds, time.to_datetime(), idle_before, spec.pass_time)

        def made() -> RDD[bytes]:
            states = rdds.initial(spec.initial, partitions, time.milliseconds) if before is None else before
            return rdds.updated(data, states, partitions, update)

        return self.placed(time, made)

    def stands_in(self, state: Any, made: Any) -> None:
        """Keep the records that the function returned: a window that slides by more than a batch may still ask for them."""
        state.mapped = getattr(made, "mapped", None)


class MapWithStateDStreamImpl(DStreamNode):
    """The records that the mapping function returned, batch by batch.

    The function runs once a record and batch: its results are kept with the states until the next batch has them. Storage levels and
    checkpoint intervals of this stream are those of its states.
    """

    operator = "mapWithState"

    def __init__(self, parent: DStreamNode, spec: StateSpec) -> None:
        self.states = InternalMapWithStateDStream(parent, spec)
        super().__init__(parent.ssc, (self.states,), parent.slide_duration)

    def reaches_back_to(self, time: Time) -> Time:
        """The records come only from the making of a state, out of the state before."""
        return time - self.slide_duration

    def compute(self, time: Time) -> RDD[Any] | None:
        states: Any = self.states.getOrCompute(time)
        if states is None:
            return None
        if getattr(states, "mapped", None) is None:
            raise NoRDDError(
                f"{self!r}: the states after batch {time} are known, what the function returned in it is not any more",
                time=time.milliseconds,
            )
        return states.mapped

    def set_storage_level(self, level: StorageLevel) -> None:
        self.states.set_storage_level(level)

    def set_checkpoint_interval(self, interval: Duration) -> None:
        self.states.set_checkpoint_interval(interval)

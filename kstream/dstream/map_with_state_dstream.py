"""MapWithStateDStream: what the function of mapWithState returns; and the stream of states behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Duration, Seconds, Time
from kstream.dstream.dstream import DStream
from kstream.dstream.recipe import recorded
from kstream.dstream.state_spec import StateSpec
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.dstream.transformed import TransformedDStream
from kstream.errors import ConfigurationError, NoRDDError
from kstream.rdd.map_with_state import MapWithState, snapshot

if TYPE_CHECKING:
    from pyspark import RDD

_CHECKPOINT_EVERY = 10
LONGEST_LINEAGE = 15
"""Batches, each of which adds six RDDs."""
_STORED = StorageLevel(True, True, False, True)
"""In memory and on disk, and in memory as it is: a state is one array of bytes, which there is no need to serialize."""


class InternalMapWithStateDStream(StatefulDStream):
    """The states after each batch, one `bytes` a partition. Not for users: what they see is the MapWithStateDStream and its snapshots.

    `checkpoint_duration` is ten times the slide duration unless set.
    """

    key_hash = KeyHash.STABLE
    longest_lineage = LONGEST_LINEAGE
    operator = "mapWithState"

    def __init__(self, parent: DStream, spec: StateSpec) -> None:
        super().__init__(parent, parent.slide_duration)
        self.storage_level = _STORED
        self.checkpoint_duration: Duration | None = parent.slide_duration * _CHECKPOINT_EVERY
        self._spec = spec

    def compute(self, time: Time) -> RDD[bytes]:
        """A batch without data (or without an RDD of it) goes on with the states, too: some may time out."""
        spec, rdds = self._spec, self.ssc.state_rdds
        partitions = self._partitions(spec.partitions)
        data, before = self.dependencies[0].getOrCompute(time), self.previous(time)
        idle_before = None if spec.timeout_duration is None else (time - spec.timeout_duration).milliseconds
        update = MapWithState(spec.mapping_function, time.milliseconds, time.to_datetime(), idle_before, spec.pass_time)

        def made() -> RDD[bytes]:
            states = rdds.initial(spec.initial, partitions, time.milliseconds) if before is None else before
            return rdds.updated(data, states, partitions, update)

        return self.placed(time, made)

    def stands_in(self, state: Any, made: Any) -> None:
        """What the function returned may still be asked for by a window that slides by more than a batch."""
        state.mapped = getattr(made, "mapped", None)


class MapWithStateDStream(DStream):
    """The records that the mapping function returned, batch by batch; `stateSnapshots` gives the states themselves.

    The function runs once a record and batch: its results are kept with the states until the next batch has them. What is asked of this
    stream's storage and checkpoints is done to the stream of states behind it.
    """

    operator = "mapWithState"

    def __init__(self, parent: DStream, spec: StateSpec) -> None:
        self.states = InternalMapWithStateDStream(parent, spec)
        super().__init__(parent.ssc, (self.states,), parent.slide_duration)

    def reaches_back_to(self, time: Time) -> Time:
        """What the function returned comes only from the making of a state, out of the state before."""
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

    @recorded
    def stateSnapshots(self) -> DStream:
        """Every (key, state) after each batch, not only those of the batch's keys: all states are decoded."""
        return TransformedDStream([self.states], lambda _time, rdd: rdd.flatMap(snapshot, preservesPartitioning=True), "stateSnapshots")

    @recorded
    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> DStream:
        """Persists the states, and with them this stream, at the level."""
        return super().persist(storageLevel)

    def store(self, level: StorageLevel) -> None:
        self.states.store(level)

    @recorded
    def checkpoint(self, interval: float | Duration) -> DStream:
        """How often the states are stored: a multiple of the slide duration, in seconds or a Duration. Default: ten times that."""
        given = interval if isinstance(interval, Duration) else Seconds(interval)
        if given < self.slide_duration or not given.isMultipleOf(self.slide_duration):
            raise ConfigurationError(
                f"the checkpoint interval of {self!r} is {given}; it must be a multiple of the stream's slide duration, "
                f"{self.slide_duration}",
                key="interval", value=given,
            )  # fmt: skip
        self.states.checkpoint_duration, self.is_checkpointed = given, True
        return self

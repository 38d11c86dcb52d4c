"""The RDDs of mapWithState on an Application: the states of a batch and its results are made, and persisted, together."""

from __future__ import annotations

from typing import Any

from kstream.rdd.map_with_state import MapWithState, initial_states
from kstream.rdd.stable_hash import partition_of
from tests.simulator.states.application import Application, Task
from tests.simulator.states.rdds import Records, SimulatedRDD


class SimulatedStates(SimulatedRDD):
    """One record of bytes a partition. `mapped` has what the function returned; both are views of one RDD of pairs."""

    def __init__(self, made: SimulatedRDD) -> None:
        super().__init__(made.ctx, made.partitions, lambda task, p: [made.partition(task, p)[0][0]], [made], made.partitioner)
        self._made = made
        self.mapped = made.flatMap(lambda pair: pair[1])

    def persist(self, level: Any = None) -> SimulatedStates:
        self.is_cached = True
        self._made.persist(level)
        return self

    def unpersist(self, _blocking: bool = False) -> SimulatedStates:
        self.is_cached = False
        self._made.unpersist()
        return self

    def localCheckpoint(self) -> None:
        self._made.localCheckpoint()

    def partition(self, task: Task, index: int) -> Records:
        """No block of its own."""
        return self._compute(task, index)


class SimulatedStateRDDs:
    """`StateRDDs` of an Application."""

    def __init__(self, spark: Application) -> None:
        self._spark = spark

    def initial(self, pairs: list[tuple[Any, Any]], partitions: int, time_ms: int) -> SimulatedRDD:
        keyed = self._spark.parallelize(pairs).partitionBy(partitions, partition_of)
        return keyed.mapPartitions(lambda records: [initial_states(records, time_ms)], True)

    def updated(self, data: SimulatedRDD | None, states: SimulatedRDD, partitions: int, update: MapWithState) -> SimulatedStates:
        keyed = (self._spark.emptyRDD() if data is None else data).partitionBy(partitions, partition_of)
        if states.partitioner != keyed.partitioner:
            raise AssertionError(f"{states!r} is placed by {states.partitioner}, the data by {keyed.partitioner}")

        def compute(task: Task, p: int) -> Records:
            (before,) = states.partition(task, p)
            return [update.update(before, keyed.partition(task, p))]

        return SimulatedStates(SimulatedRDD(self._spark, partitions, compute, [states, keyed], keyed.partitioner))

    def compute(self, state: SimulatedRDD) -> None:
        state.glom_collect()

    def remove_checkpoint(self, path: str) -> None:
        raise AssertionError(f"no RDD of the simulation has a checkpoint in files, also not in {path}")

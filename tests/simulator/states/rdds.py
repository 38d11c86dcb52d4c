"""Lazy RDDs: parents and a function. A partition is computed when a task needs it, and kept only if the RDD is persisted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulator.states.application import Application, Task

Records = Sequence[Any]
Partitioner = tuple[int, Callable[[Any], int] | None]
"""The number of partitions, and the hash; None for PySpark's default."""


class CheckpointBlockLostError(Exception):
    """A task misses a block of a local checkpoint, and nothing is left from which it could be computed. Spark's words."""

    def __init__(self, rdd: int, partition: int) -> None:
        super().__init__(
            f"[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_{rdd}_{partition} not found! Either the executor that originally "
            "checkpointed this partition is no longer alive, or the original RDD is unpersisted."
        )


class SimulatedRDD:
    """An RDD of an Application, with the calls that streams make. No call but `collect` and `take` computes anything.

    `compute(task, p)` makes the records of partition p from partitions of the parents.
    """

    def __init__(
        self,
        ctx: Application,
        partitions: int,
        compute: Callable[[Task, int], Records],
        parents: Sequence[SimulatedRDD] = (),
        partitioner: Partitioner | None = None,
    ) -> None:
        self.ctx = ctx
        self.number = ctx.next_number()
        self.partitions = partitions
        self.parents = tuple(parents)
        self.partitioner = partitioner
        self._compute = compute
        self.is_cached = False
        self.on_disk = False
        """Whether its blocks are on disk, too: then short memory pushes none out."""
        self.is_marked = False
        """Whether `localCheckpoint` was called."""
        self.is_cut = False
        """Whether Spark has cut its lineage: its blocks are all that is left."""
        self.was_checked = False
        """Whether a job has looked here for local checkpoints to make. Spark looks once."""

    def __repr__(self) -> str:
        return f"rdd {self.number}"

    # -- in a task

    def partition(self, task: Task, index: int) -> Records:
        """The records of a partition: its block, or computed."""
        block = self.ctx.block(self.number, index)
        if block is not None:
            return block
        if self.is_cut:
            raise CheckpointBlockLostError(self.number, index)
        records = self._compute(task, index)
        if self.is_cached or self.is_marked:
            self.ctx.keep(self, index, task, records)
        return records

    # -- storage

    def persist(self, level: Any = None) -> SimulatedRDD:
        self.is_cached = True
        self.on_disk = self.on_disk or (level is not None and level.useDisk)
        return self

    def unpersist(self, _blocking: bool = False) -> SimulatedRDD:
        self.is_cached = False
        self.ctx.drop(self.number)
        return self

    def localCheckpoint(self) -> None:
        self.is_marked = self.on_disk = True
        self.ctx.local_checkpoints += 1

    def cut(self) -> None:
        """All partitions have blocks: what they were computed from is forgotten."""
        self.is_cut = True
        self.parents = ()

    def getCheckpointFile(self) -> str | None:
        return None

    def setName(self, _name: str) -> SimulatedRDD:
        return self

    # -- narrow

    def mapPartitionsWithIndex(self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> SimulatedRDD:
        kept = self.partitioner if preservesPartitioning else None
        return SimulatedRDD(self.ctx, self.partitions, lambda task, p: list(f(p, iter(self.partition(task, p)))), [self], kept)

    def mapPartitions(self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False) -> SimulatedRDD:
        return self.mapPartitionsWithIndex(lambda _index, records: f(records), preservesPartitioning)

    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> SimulatedRDD:
        return self.mapPartitions(lambda records: [f(record) for record in records], preservesPartitioning)

    def filter(self, f: Callable[[Any], Any]) -> SimulatedRDD:
        return self.mapPartitions(lambda records: [record for record in records if f(record)], True)

    def flatMap(self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False) -> SimulatedRDD:
        return self.mapPartitions(lambda records: [made for record in records for made in f(record)], preservesPartitioning)

    def mapValues(self, f: Callable[[Any], Any]) -> SimulatedRDD:
        return self.map(lambda pair: (pair[0], f(pair[1])), True)

    def union(self, other: SimulatedRDD) -> SimulatedRDD:
        return self.ctx.union([self, other])

    # -- by key

    def partitionBy(self, partitions: int, hashed: Callable[[Any], int] | None = None) -> SimulatedRDD:
        if self.partitioner == (partitions, hashed):
            return self
        return self.ctx.shuffled(self, partitions, hashed)

    def groupByKey(self, partitions: int) -> SimulatedRDD:
        return self.partitionBy(partitions).mapPartitions(_grouped, True)

    def reduceByKey(self, f: Callable[[Any, Any], Any], partitions: int) -> SimulatedRDD:
        return self.groupByKey(partitions).mapValues(lambda values: reduce(f, values))

    # -- actions

    def getNumPartitions(self) -> int:
        return self.partitions

    def glom_collect(self, partitions: Iterable[int] | None = None) -> list[Records]:
        """Runs a job; the records of these partitions, or of all."""
        return self.ctx.run_job(self, range(self.partitions) if partitions is None else partitions)

    def collect(self) -> list[Any]:
        return [record for records in self.glom_collect() for record in records]

    def take(self, num: int) -> list[Any]:
        """Reads one partition after the other until it has enough."""
        taken: list[Any] = []
        for p in range(self.partitions):
            if len(taken) < num:
                taken += islice(self.glom_collect([p])[0], num - len(taken))
        return taken


def _grouped(records: Iterable[Any]) -> Iterable[Any]:
    groups: dict[Any, list[Any]] = {}
    for key, value in records:
        groups.setdefault(key, []).append(value)
    return list(groups.items())

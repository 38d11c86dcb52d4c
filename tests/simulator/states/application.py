"""Application: what Spark does for one driver. Executors hold blocks, jobs run tasks on them, and an executor may be lost at any moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulator.states.rdds import Records, SimulatedRDD

TASK_TRIES = 4
"""How often a task may fail until its job does. The loss of its executor is no failure of the task."""


class JobAbortedError(Exception):
    """A task has failed too often; the message has the last error of the task."""


@dataclass(frozen=True, slots=True)
class Block:
    """A partition of a persisted RDD on an executor."""

    executor: int
    records: Records
    on_disk: bool


@dataclass(frozen=True, slots=True)
class Task:
    """One try of a task, on an executor."""

    executor: int


class Application:
    """A SparkContext: makes RDDs and runs their jobs, one task after the other, in the strand that asks.

    `point()` is called before and after each try of a task: others may run there, and the executor may be lost. Executors that are lost
    are replaced by new ones. `failed(error)` gets each error with which a try of a task fails.
    """

    def __init__(
        self, rng: random.Random, parallelism: int, executors: int, point: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        self._rng = rng
        self._point = point
        self._failed = failed
        self._numbers = 0
        self._next_executor = executors
        self.executors = list(range(executors))
        self.local_checkpoints = 0
        self._blocks: dict[tuple[int, int], Block] = {}
        """By RDD and partition."""
        self._outputs: dict[tuple[int, int], tuple[int, list[list[Any]]]] = {}
        """Map outputs of shuffles: (RDD behind the shuffle, partition before it) → executor, records by partition behind it."""
        self.defaultParallelism = parallelism

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- RDDs

    def parallelize(self, records: Sequence[Any], numSlices: int | None = None) -> SimulatedRDD:
        """Consecutive parts of the records."""
        parts, size = numSlices or self.defaultParallelism, len(records)
        return SimulatedRDD(self, parts, lambda _task, p: records[p * size // parts : (p + 1) * size // parts])

    def emptyRDD(self) -> SimulatedRDD:
        return self.parallelize([], 1)

    def union(self, rdds: Sequence[SimulatedRDD]) -> SimulatedRDD:
        """One partition after the other; or partition by partition, if all have the same partitioner."""
        first = rdds[0].partitioner
        if first is not None and all(rdd.partitioner == first for rdd in rdds):
            return SimulatedRDD(self, first[0], lambda task, p: [r for rdd in rdds for r in rdd.partition(task, p)], rdds, first)
        places = [(rdd, p) for rdd in rdds for p in range(rdd.partitions)]
        return SimulatedRDD(self, len(places), lambda task, p: places[p][0].partition(task, places[p][1]), rdds)

    def shuffled(self, rdd: SimulatedRDD, partitions: int, hashed: Callable[[Any], int] | None) -> SimulatedRDD:
        """The pairs of `rdd`, placed by their keys. What its tasks have written for the shuffle stays on their executors."""
        number = self.next_number()

        def compute(task: Task, p: int) -> Records:
            return [record for q in range(rdd.partitions) for record in self._map_output(number, rdd, q, partitions, hashed, task)[p]]

        return SimulatedRDD(self, partitions, compute, [rdd], (partitions, hashed))

    def _map_output(
        self, number: int, rdd: SimulatedRDD, q: int, partitions: int, hashed: Callable[[Any], int] | None, task: Task
    ) -> list[list[Any]]:
        known = self._outputs.get((number, q))
        if known is not None:
            return known[1]
        parts: list[list[Any]] = [[] for _ in range(partitions)]
        for key, value in rdd.partition(task, q):
            parts[(key if hashed is None else hashed(key)) % partitions].append((key, value))
        if task.executor in self.executors:
            self._outputs[number, q] = task.executor, parts
        return parts

    # -- blocks

    def block(self, rdd: int, partition: int) -> Records | None:
        known = self._blocks.get((rdd, partition))
        return None if known is None else known.records

    def keep(self, rdd: SimulatedRDD, partition: int, task: Task, records: Records) -> None:
        if task.executor in self.executors:
            self._blocks[rdd.number, partition] = Block(task.executor, records, rdd.on_disk)

    def drop(self, rdd: int) -> None:
        for key in [key for key in self._blocks if key[0] == rdd]:
            del self._blocks[key]

    def lose_executor(self) -> str:
        """One executor dies with its blocks, and another one comes. A line about it."""
        lost = self.executors.pop(self._rng.randrange(len(self.executors)))
        before = len(self._blocks)
        self._blocks = {key: kept for key, kept in self._blocks.items() if kept.executor != lost}
        self._outputs = {key: kept for key, kept in self._outputs.items() if kept[0] != lost}
        self.executors.append(self._next_executor)
        self._next_executor += 1
        return f"executor {lost} is lost with {before - len(self._blocks)} blocks"

    def push_out(self) -> str:
        """Memory is short: one block goes that is in memory only. A line about it."""
        keys = [key for key, kept in self._blocks.items() if not kept.on_disk]
        if not keys:
            return "no block is pushed out"
        key = keys[self._rng.randrange(len(keys))]
        del self._blocks[key]
        return f"block rdd_{key[0]}_{key[1]} is pushed out of memory"

    # -- jobs

    def run_job(self, rdd: SimulatedRDD, partitions: Iterable[int]) -> list[Records]:
        """Computes these partitions. JobAbortedError if one of them cannot be computed."""
        results = [self._run_task(rdd, p) for p in partitions]
        self._checkpoint(rdd)
        return results

    def _run_task(self, rdd: SimulatedRDD, p: int) -> Records:
        failures = 0
        while True:
            task = Task(self._place(rdd, p))
            self._point()
            try:
                records = rdd.partition(task, p)
            except Exception as e:
                failures += 1
                self._failed(e)
                if failures == TASK_TRIES:
                    raise JobAbortedError(
                        f"Job aborted due to stage failure: Task {p} failed {failures} times, most recent failure: {type(e).__name__}: {e}"
                    ) from e
                continue
            self._point()
            if task.executor in self.executors:
                return records

    def _place(self, rdd: SimulatedRDD, p: int) -> int:
        """An executor that has the block of the partition, or of one it is made of; else any."""
        at: SimulatedRDD | None = rdd
        while at is not None and at.partitions > p:
            known = self._blocks.get((at.number, p))
            if known is not None:
                return known.executor
            at = at.parents[0] if at.parents else None
        return self.executors[self._rng.randrange(len(self.executors))]

    def _checkpoint(self, rdd: SimulatedRDD) -> None:
        """As Spark after a job: makes the local checkpoints of RDDs in the lineage that no job has looked at, and cuts it there."""
        waiting = [rdd]
        while waiting:
            at = waiting.pop()
            if at.was_checked:
                continue
            at.was_checked = True
            if at.is_marked:
                for p in range(at.partitions):
                    if (at.number, p) not in self._blocks:
                        self._run_task(at, p)
                at.cut()
            waiting.extend(at.parents)

"""Cluster: a fake Kafka of lists. Each effect lies between two points, where its caller may freeze, die, or be overtaken."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kstream.continuous.ports import Chunk, EpochReceipt
from kstream.errors import FencedError, TransientError
from kstream.offsets.offset_range import Partition
from tests.simulator.runtime import Steps


@dataclass(slots=True)
class Cluster:
    """The truth.

    Attributes:
        ends: the input. The records of a partition are its offsets.
        ids: task → the producer epoch of its transactional id.
        receipts: the newest one of each partition.
        processed: the offsets of each partition that are in a committed epoch, in the order of the commits.
        outputs: the same of what was written.
        failing: the chance that an effect fails, or is done and reported as failed.
    """

    steps: Steps
    rng: random.Random
    note: Callable[[str], None]
    ends: dict[Partition, int] = field(default_factory=dict[Partition, int])
    ids: dict[int, int] = field(default_factory=dict[int, int])
    receipts: dict[Partition, EpochReceipt] = field(default_factory=dict[Partition, EpochReceipt])
    processed: dict[Partition, list[int]] = field(default_factory=dict[Partition, list[int]])
    outputs: dict[Partition, list[int]] = field(default_factory=dict[Partition, list[int]])
    failing: float = 0.0
    receipts_first: bool = False
    """A planted bug: receipts are read before the identities are taken."""
    empty_epochs_have_no_receipt: bool = False
    """A planted bug."""

    def fails(self) -> bool:
        return self.failing > 0 and self.rng.random() < self.failing

    def take(self, task: int) -> int:
        self.ids[task] = self.ids.get(task, 0) + 1
        return self.ids[task]

    def commit(self, task: int, epoch: int, read: Sequence[tuple[Partition, int]], made: Sequence[tuple[Partition, int]],
               receipts: Mapping[Partition, EpochReceipt]) -> None:  # fmt: skip
        """One transaction, all of it or, for an identity that was taken since, nothing."""
        if self.ids.get(task) != epoch:
            raise FencedError(f"another run has taken the id of task {task}")
        for partition, offset in read:
            self.processed.setdefault(partition, []).append(offset)
        for partition, offset in made:
            self.outputs.setdefault(partition, []).append(offset)
        if made or not self.empty_epochs_have_no_receipt:
            self.receipts.update(receipts)


def writes_output(offset: int) -> bool:
    """Whether the user's function makes something of a record. Long stretches have no output."""
    return offset // 4 % 2 == 0


class SimulatedRun:
    """The log, the output and the user's function of one run. `name` is for the trace."""

    def __init__(self, cluster: Cluster, task: int, generation: int, name: str) -> None:
        self._cluster = cluster
        self._task = task
        self._generation = generation
        self._name = name
        self._epoch = 0
        self._positions: dict[Partition, int] = {}
        self._read: list[tuple[Partition, int]] = []
        self._made: list[tuple[Partition, int]] = []

    # the log

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self._positions = dict(positions)

    def poll(self, wait_s: float) -> list[Chunk]:
        cluster = self._cluster
        cluster.steps.point()
        cluster.steps.wait(lambda: any(at < cluster.ends[p] for p, at in self._positions.items()), max(1, round(wait_s * 1000)))
        chunks: list[Chunk] = []
        for partition, at in self._positions.items():
            until = min(cluster.ends[partition], at + cluster.rng.randrange(1, 4))
            if at < until:
                records = [(partition, offset) for offset in range(at, until)]
                chunks.append(Chunk(partition, records, until, len(records), cluster.steps.monotonic, range(at, until)))
                self._positions[partition] = until
        return chunks

    def close(self) -> None:
        pass

    # the user's function

    def function(self, records: Iterator[Any]) -> Iterator[Any]:
        for partition, offset in records:
            self._read.append((partition, offset))
            if writes_output(offset):
                yield partition, offset

    # the output

    def open(self) -> None:
        self._cluster.steps.point()
        self._epoch = self._cluster.take(self._task)
        self._cluster.note(f"{self._name} takes its id, {self._epoch}")
        self._cluster.steps.point()

    def add(self, made: Iterable[Any]) -> None:
        self._cluster.steps.point()
        self._made += made

    @property
    def num_bytes(self) -> int:
        return len(self._made)

    def end(self, positions: Mapping[Partition, int]) -> None:
        cluster = self._cluster
        receipts = {partition: EpochReceipt(at, self._generation) for partition, at in positions.items()}
        cluster.steps.point()
        if cluster.fails():
            raise TransientError("the transaction failed")
        cluster.commit(self._task, self._epoch, self._read, self._made, receipts)
        cluster.note(f"{self._name} commits {dict(positions)}")
        self._read, self._made = [], []
        cluster.steps.point()
        if cluster.fails():
            raise TransientError("it is not known whether the transaction was committed")


class SimulatedHandOver:
    """The HandOver of a driver."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._later: list[int] = []

    def fence(self, tasks: Collection[int]) -> None:
        if self._cluster.receipts_first:
            self._later = list(tasks)
            return
        self._fence(tasks)

    def _fence(self, tasks: Collection[int]) -> None:
        for task in tasks:
            self._cluster.steps.point()
            if self._cluster.fails():
                raise TransientError("the brokers do not answer")
            self._cluster.take(task)
            self._cluster.note(f"{self._name} fences task {task}")
        self._cluster.steps.point()

    def receipts(self, partitions: Collection[Partition]) -> dict[Partition, EpochReceipt]:
        self._cluster.steps.point()
        if self._cluster.fails():
            raise TransientError("the brokers do not answer")
        found = {partition: self._cluster.receipts[partition] for partition in partitions if partition in self._cluster.receipts}
        self._cluster.note(f"{self._name} reads receipts { ({p: r.position for p, r in found.items()}) }")
        self._cluster.steps.point()
        if self._cluster.receipts_first:
            self._fence(self._later)
        return found

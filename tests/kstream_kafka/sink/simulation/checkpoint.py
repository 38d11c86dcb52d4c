"""SimulatedCheckpoint: what a checkpoint directory has of a job: epochs, plans, completions. A copy of it goes its own way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kstream.batch import Json
from kstream.batch_time import Time
from kstream.output import Writer

INTERVAL_MS = 1000


@dataclass(frozen=True)
class PlannedBatch:
    """The plan of a batch.

    Attributes:
        time: the batch time.
        nonce: no other plan has it.
        epoch: of the driver that has planned it.
        begin, until: the numbers that the batch has.
        num_partitions: how many partitions.
        stride: how the numbers are divided. With 0 all are in one partition.
        is_shuffled: whether the order of a partition is another one each time.
    """

    time: Time
    nonce: str
    epoch: int
    begin: int
    until: int
    num_partitions: int
    stride: int
    is_shuffled: bool

    def numbers(self, partition: int, num_partitions: int, hashing: int) -> list[int]:
        """The numbers of a partition, when so many there are and keys have these hashes."""
        return [n for n in range(self.begin, self.until) if (n * self.stride + n * hashing // 2) % num_partitions == partition]


@dataclass(frozen=True)
class LogAtStart:
    """What a driver finds in the log when it starts."""

    plans: dict[Time, PlannedBatch]
    done: frozenset[Time]
    settled: frozenset[Time]
    outcomes: dict[str, Json]

    @property
    def pending(self) -> list[PlannedBatch]:
        return [self.plans[time] for time in sorted(self.plans) if time not in self.done]

    def knows(self, time: Time, nonce: str) -> bool:
        """As `Writer.knows`."""
        plan = self.plans.get(time)
        return time in self.settled if plan is None else plan.nonce == nonce


@dataclass
class SimulatedCheckpoint:
    """A checkpoint.

    Attributes:
        name: for the trace.
        numbers: how many numbers there are to write.
        epochs: epoch → its nonce.
        read_by: the newest epoch whose driver has read the log. Plans of earlier drivers are void from then on.
        plans, done, outcomes, settled: as the log has them. `outcomes`: time → what each output has said.
    """

    name: str
    numbers: int
    epochs: dict[int, str] = field(default_factory=dict[int, str])
    read_by: int = 0
    plans: dict[Time, PlannedBatch] = field(default_factory=dict[Time, PlannedBatch])
    done: dict[Time, PlannedBatch] = field(default_factory=dict[Time, PlannedBatch])
    outcomes: dict[Time, dict[str, Json]] = field(default_factory=dict[Time, dict[str, Json]])
    settled: set[Time] = field(default_factory=set[Time])

    def copy(self, name: str) -> SimulatedCheckpoint:
        return SimulatedCheckpoint(
            name,
            self.numbers,
            dict(self.epochs),
            self.read_by,
            dict(self.plans),
            dict(self.done),
            dict(self.outcomes),
            set(self.settled),
        )

    @property
    def job(self) -> str:
        return self.epochs[1]

    @property
    def epoch(self) -> int:
        return len(self.epochs)

    def take_epoch(self) -> int:
        number = self.epoch + 1
        self.epochs[number] = f"{self.name}-{number}" if self.epochs else "job"
        return number

    def read(self, epoch: int) -> LogAtStart:
        """Read the log as the driver of an epoch. It has the plans that earlier drivers have stored by now."""
        self.read_by = max(self.read_by, epoch)
        outcomes = dict[str, Json]()
        for time in sorted(self.outcomes):
            outcomes.update(self.outcomes[time])
        return LogAtStart(dict(self.plans), frozenset(self.done), frozenset(self.settled), outcomes)

    def writer(self, epoch: int, log: LogAtStart) -> Writer:
        return Writer(self.job, epoch, self.epochs[epoch], self.epochs.get, log.knows)

    def plan(self, epoch: int, rng: random.Random, most_partitions: int, is_shuffled: bool) -> PlannedBatch | None:
        """Store the plan of the next batch. None if all numbers are planned, or if a later driver has read the log: then it is void."""
        newest = max((*self.plans.values(), *self.done.values()), key=lambda plan: plan.time, default=None)
        begin = 0 if newest is None else newest.until
        if begin >= self.numbers or self.read_by > epoch:
            return None
        time = Time(INTERVAL_MS if newest is None else newest.time.milliseconds + INTERVAL_MS)
        until = min(self.numbers, begin + rng.choice([0, 1, 2, 3, 5]))
        nonce = f"plan {time.milliseconds} of {self.epochs[epoch]}"
        made = PlannedBatch(time, nonce, epoch, begin, until, rng.randint(1, most_partitions), rng.choice([0, 1, 1, 3]), is_shuffled)
        self.plans[time] = made
        return made

    def complete(self, plan: PlannedBatch, outcomes: dict[str, Json]) -> bool:
        """Store a completion, if there is none. Return whether it is stored now."""
        if plan.time in self.done:
            return False
        self.done[plan.time] = plan
        self.outcomes[plan.time] = outcomes
        return True

    def clean(self) -> None:
        """Remove plans that no batch needs. The newest two stay."""
        for time in sorted(self.done)[:-2]:
            if time in self.plans and all(t in self.done for t in self.plans if t <= time):
                del self.plans[time]
                self.settled.add(time)

    @property
    def has_begun(self) -> bool:
        return bool(self.epochs)

    @property
    def is_complete(self) -> bool:
        """Whether all numbers are in batches that are completed."""
        return all(time in self.done for time in self.plans) and any(plan.until >= self.numbers for plan in self.done.values())

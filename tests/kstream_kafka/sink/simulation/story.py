"""What lives of an output and of a query have in common: drivers one after the other, what happens to them, and what the user does."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from kstream_kafka.errors import ReceiptsLostError

from tests.simulator.errors import SimulationStuckError

from .broker import SimulatedTransaction
from .clients import SimulatedKafka
from .report import LifeOutcome
from .turns import Chances, SimulatedProcess, Turns

RECEIPTS = "k-receipts"
CALM_DRIVERS = 8
"""From this driver on nothing happens any more."""
MOST_DRIVERS = 20


class AnyDriver(Protocol):
    """A driver of a life.

    Attributes:
        process: it runs in this one.
        is_left: whether the user has started another driver because this one seemed dead.
        ended_by: the error that has ended it.
    """

    process: SimulatedProcess
    is_left: bool
    ended_by: Exception | None

    @property
    def is_over(self) -> bool: ...

    @property
    def was_refused(self) -> bool:
        """Whether a refusal has ended it, or came before its end."""
        ...


class AnyCheckpoint(Protocol):
    """A checkpoint of a life. A copy of it goes its own way."""

    name: str

    @property
    def has_begun(self) -> bool:
        """Whether a driver has written to it."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether all numbers are in batches that are completed."""
        ...


DriverT = TypeVar("DriverT", bound=AnyDriver)
CheckpointT = TypeVar("CheckpointT", bound=AnyCheckpoint)


class Story(ABC, Generic[DriverT, CheckpointT]):
    """One seed's story, from the first driver to the last, and the verdict on it. Made for one run.

    Attributes:
        rng: made of the seed.
        turns, kafka: on which the drivers run.
        checkpoint: that of the next driver.
        other: another copy of the checkpoint.
        drivers: all that have been started.
        broken: what must not be, a line each.
        kind: what the user does.
    """

    checkpoint: CheckpointT
    kind: AnyKind[Any]

    def __init__(self, what: str, seed: int, chances: Chances | None) -> None:
        self.rng = random.Random(f"{what} {seed}")
        self.seed = seed
        self.turns = Turns(self.rng, Chances.drawn(self.rng) if chances is None else chances)
        self.kafka = SimulatedKafka(self.turns)
        self.turns.works, self.turns.passes, self.turns.happens = self.kafka.work, self.kafka.pass_time, self._happens
        self.kafka.held_up = self._held_up
        self.other: CheckpointT | None = None
        self.drivers: list[DriverT] = []
        self.broken: list[str] = []
        self.refusals = Counter[str]()

    def run(self) -> LifeOutcome:
        try:
            self._live()
            self._settle()
            self.broken += self._violations()
        except SimulationStuckError as e:
            self.broken.append(f"stuck: {e}")
        finally:
            self.turns.end_all()
        trace = [f"{at / 1000:7.1f} s  {who}: {what}" for at, who, what in self.turns.trace]
        return LifeOutcome(self.seed, self.kind.name, self.broken, trace, self.refusals, len(self.drivers))

    # -- what kinds ask

    @abstractmethod
    def copy_of_checkpoint(self) -> CheckpointT: ...

    @abstractmethod
    def knows_receipts(self) -> bool:
        """Whether all that may still write will miss the topic of the receipts."""

    # -- the story

    @abstractmethod
    def _driver(self, number: int) -> DriverT:
        """Start a driver."""

    @abstractmethod
    def _happens(self, process: SimulatedProcess) -> None:
        """Let one thing happen at a step of a process."""

    @abstractmethod
    def _held_up(self, transaction: SimulatedTransaction) -> None:
        """Note a process that waits for a transaction of its own that was open before. It must have taken the id, which ends it."""

    @abstractmethod
    def _violations(self) -> list[str]: ...

    def _live(self) -> None:
        """Start one driver after the other until all numbers are written, or the user has to give up."""
        while True:
            self.kind.before_driver()
            driver = self._driver(len(self.drivers) + 1)
            self.drivers.append(driver)
            self.turns.wait(lambda driver=driver: driver.is_over or driver.is_left)
            error = driver.ended_by
            if self.checkpoint.is_complete or (error is not None and driver.was_refused and not self.kind.after_refusal(error)):
                return
            if len(self.drivers) >= CALM_DRIVERS:
                self.turns.chances.faults = 0
            if len(self.drivers) >= MOST_DRIVERS:
                if not self.kind.may_end_refused():
                    self.broken.append(f"{MOST_DRIVERS} drivers have not written everything, the last one ended by {error!r}")
                return

    def _settle(self) -> None:
        """Let all processes end, all requests arrive and all transactions end."""
        self.turns.chances.faults = 0
        self.turns.wait(lambda: len(self.turns.strands.living) == 1)
        while self.kafka.broker.late:
            self.kafka.arrive()
        while self.kafka.broker.open_transactions():
            self.kafka.pass_time(None)
        while self.kafka.work(True):
            pass

    # -- what happens

    def _leave(self, driver: DriverT, process: SimulatedProcess) -> None:
        """Take a driver for dead. It stands still, or another process of it, and goes on when another driver has started."""
        if driver.is_over or driver.is_left:
            self.turns.freeze(process)
            return
        self.turns.note(f"takes {driver.process.name} for dead", "user")
        driver.is_left = True
        if self.rng.random() < 0.7:
            self.turns.freeze(driver.process)
        if process is not driver.process:
            self.turns.freeze(process)

    def _time_out(self, transactions: list[SimulatedTransaction]) -> None:
        transaction = self.rng.choice(transactions)
        self.turns.note(f"the transaction of {transaction.id} epoch {transaction.epoch} has timed out", "brokers")
        self.turns.now_ms = max(self.turns.now_ms, transaction.deadline_ms)
        self.kafka.broker.time_out(transaction)

    def _compact(self) -> None:
        topic = self.kafka.broker.topics.get(RECEIPTS)
        removed = 0 if topic is None else sum(log.compact() for log in topic.logs)
        self.turns.note(f"the topic of the receipts is compacted, {removed} records are gone", "brokers")

    # -- the verdict

    def _judge(self, driver: DriverT, batch: Any, error: Exception, is_after_stale: bool) -> None:
        """Note a refusal, and whether it is right. One that a leader of yesterday has caused may be wrong, once."""
        self.refusals[type(error).__name__] += 1
        if not self.kind.allows(driver, batch, error) and not is_after_stale:
            self.broken.append(f"{driver.process.name} was refused without a reason: {type(error).__name__}: {error}")


LifeT = TypeVar("LifeT", bound=Story[Any, Any])


class AnyKind(Generic[LifeT]):
    """A kind of life: what the user does beside what happens anyway, and how the life must end."""

    name: ClassVar[str]

    def __init__(self, life: LifeT) -> None:
        self.life = life

    def before_driver(self) -> None:
        """Do what the user does before the next driver starts."""

    def at_step(self) -> bool:
        """Do what the user does in the midst of a life. Return whether there was something to do."""
        return False

    def after_refusal(self, error: Exception) -> bool:
        """Do what the error tells the user to do. Return whether the life goes on."""
        return True

    def may_end_refused(self) -> bool:
        """Return whether a life may end before everything is written."""
        return False

    def allows(self, driver: Any, batch: Any, error: Exception) -> bool:
        """Return whether a refusal is right. It has come just now."""
        return False


class CopiesCheckpoint(AnyKind[LifeT]):
    """The user has two copies of the checkpoint: a backup that is restored, or drivers on both."""

    has_drivers_on_both: ClassVar[bool] = False

    def __init__(self, life: LifeT) -> None:
        super().__init__(life)
        self.is_refused = False

    def at_step(self) -> bool:
        """Make a backup. With some luck it is in the middle of a life."""
        if self.has_drivers_on_both or self.life.other is not None or not self.life.checkpoint.has_begun:
            return False
        self._copy()
        return True

    def before_driver(self) -> None:
        life, both = self.life, self.has_drivers_on_both
        if both and life.other is None and life.checkpoint.has_begun and life.rng.random() < 0.7:
            self._copy()
        if life.other is not None and not self.is_refused and (both or life.rng.random() < 0.5):
            self._swap()

    def _copy(self) -> None:
        self.life.other = self.life.copy_of_checkpoint()
        self.life.turns.note("a backup of the checkpoint is made", "user")

    def _swap(self) -> None:
        life = self.life
        life.checkpoint, life.other = life.other, life.checkpoint
        life.turns.note(f"uses {life.checkpoint.name}", "user")


class LosesTopic(AnyKind[LifeT]):
    """The topic of the receipts is deleted, after it had receipts. Drivers and batches are refused from then on.

    A process that does not know of the topic makes another one. So none of that kind may live.
    """

    is_remade: ClassVar[bool] = False
    """Whether somebody else makes the topic anew."""

    def __init__(self, life: LifeT) -> None:
        super().__init__(life)
        self.is_lost = False

    def at_step(self) -> bool:
        return self._lose()

    def before_driver(self) -> None:
        if self.life.rng.random() < 0.7:
            self._lose()

    def after_refusal(self, error: Exception) -> bool:
        return not (self.is_lost and isinstance(error, ReceiptsLostError))

    def may_end_refused(self) -> bool:
        return self.is_lost

    def allows(self, driver: Any, batch: Any, error: Exception) -> bool:
        return (self.is_lost and isinstance(error, ReceiptsLostError)) or super().allows(driver, batch, error)

    def _lose(self) -> bool:
        topic = self.life.kafka.broker.topics.get(RECEIPTS)
        if self.is_lost or not self.life.knows_receipts() or topic is None:
            return False
        self.is_lost = True
        self.life.turns.note("deletes the topic of the receipts", "user")
        self.life.kafka.broker.delete(RECEIPTS)
        if self.is_remade:
            self.life.kafka.broker.create(RECEIPTS, len(topic.logs))
        return True

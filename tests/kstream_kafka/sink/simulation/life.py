"""Life: one seed's story of an output, from the first driver to the last, and the verdict on it."""

from __future__ import annotations

from .broker import SimulatedTransaction
from .checkpoint import SimulatedCheckpoint
from .driver import Application, SinkDriver
from .kinds import KINDS, Kind
from .report import LifeOutcome, LivesReport, report_of
from .stage import STAGE, set_up
from .story import Story
from .turns import Chances, SimulatedProcess


def run_life(seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> LifeOutcome:
    """Run one life from its start to its end. One at a time in a process.

    Args:
        seed: decides everything.
        kind: the kind of life; None: the seed takes one.
        chances: how often things happen; None: drawn by the seed.
    """
    with set_up():
        return Life(seed, kind, chances).run()


def run_lives(seeds: range, kind: type[Kind] | None = None) -> LivesReport:
    """Run a life for each seed. SimulationFailedError for the first that breaks what must hold."""
    with set_up():
        return report_of(Life(seed, kind).run() for seed in seeds)


class Life(Story[SinkDriver, SimulatedCheckpoint]):
    """Made for one run, on a stage that is set up."""

    def __init__(self, seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> None:
        super().__init__("sink", seed, chances)
        rng, chosen = self.rng, KINDS[seed % len(KINDS)] if kind is None else kind
        self.checkpoint = SimulatedCheckpoint("the checkpoint", rng.choice([3, 6, 10]))
        outputs = chosen.outputs if rng.random() < 0.25 else chosen.outputs[:1]
        self.application = Application(outputs, rng.randint(1, 4), is_shuffled=rng.random() < 0.3, reports=rng.random() < 0.2)
        self.has_overlap = False
        """Whether drivers of two copies of the checkpoint, or their tasks, have run at once."""
        self.kind: Kind = chosen(self)
        for output in outputs:
            self.kafka.broker.create(output, 2)
        STAGE.enter(self.turns, self.kafka, rng.choice([1, 3, 16]))

    def copy_of_checkpoint(self) -> SimulatedCheckpoint:
        return self.checkpoint.copy("the copy")

    def knows_receipts(self) -> bool:
        """Whether the checkpoint and all drivers know the topic for each output."""
        outcomes = self.checkpoint.outcomes.values()
        if any(not driver.knows_topic for driver in self.drivers if not driver.is_over):
            return False
        return all(any(said.get(name) is not None for said in outcomes) for name in self.application.outputs)

    def _driver(self, number: int) -> SinkDriver:
        outputs = list(self.application.outputs)
        self.rng.shuffle(outputs)
        driver = SinkDriver(self.turns, self.kafka, self.checkpoint, self.application, outputs, number, self._judge)
        others = [other for other in self.drivers if other.checkpoint is not self.checkpoint]
        self.has_overlap |= any(not other.is_over or other.tasks.running for other in others)
        self.turns.note(f"starts driver {number} on {self.checkpoint.name}, {self.application}", "user")
        return driver

    def _happens(self, process: SimulatedProcess) -> None:
        turns, rng = self.turns, self.rng
        driver = next(driver for driver in self.drivers if process is driver.process or process in driver.tasks.known)
        is_task = process is not driver.process
        choice = rng.randrange(20)
        if choice < 3:
            turns.kill(process, "dies")
        elif choice < 6:
            turns.freeze(process)
        elif choice < 9 and not driver.is_over:
            turns.kill(driver.process, "dies")
        elif choice < 13:
            self._leave(driver, process)
        elif choice < 16 and is_task and process in driver.tasks.running:
            driver.tasks.copy(process)
        elif choice < 17 and (transactions := self.kafka.broker.open_transactions()):
            self._time_out(transactions)
        elif choice < 18:
            self._compact()
        elif not self.kind.at_step():
            self._leave(driver, process)

    def _held_up(self, transaction: SimulatedTransaction) -> None:
        driver = next((driver for driver in self.drivers if driver.process is self.turns.current), None)
        if driver is not None and transaction.id in driver.ids:
            epoch = self.kafka.taken.get((driver.process.number, transaction.id), 0)
            if transaction.epoch >= epoch > 0:
                return
            self.broken.append(f"{driver.process.name} waits for {transaction.id} epoch {transaction.epoch}, which it should have ended")

    def _violations(self) -> list[str]:
        broken = list[str]()
        copies = [self.checkpoint] if self.other is None else [self.checkpoint, self.other]
        for output in self.application.outputs:
            found = dict[int, list[str]]()
            for record in self.kafka.broker.committed(output):
                number, _, tag = (record.its_value or b"").decode().partition(" ")
                found.setdefault(int(number), []).append(tag)
            broken += [f"{output}: {number} is there {len(tags)} times" for number, tags in sorted(found.items()) if len(tags) > 1]
            for plan in [plan for copy in copies for plan in copy.done.values()]:
                if missing := [number for number in range(plan.begin, plan.until) if number not in found]:
                    broken.append(f"{output}: {missing} of batch {plan.time.milliseconds} are missing, and it is completed")
            broken += [f"{output}: {line}" for line in self.kind.violations(found)]
        return broken

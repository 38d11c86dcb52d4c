"""Life: one seed's story of an output, from the first driver to the last, and the verdict on it."""

from __future__ import annotations

import random
from collections import Counter

from tests.simulator.errors import SimulationStuckError

from .broker import SimulatedTransaction
from .checkpoint import PlannedBatch, SimulatedCheckpoint
from .clients import SimulatedKafka
from .driver import Application, SinkDriver
from .kinds import KINDS, Kind
from .report import LifeOutcome, LivesReport, report_of
from .stage import STAGE, set_up
from .turns import Chances, SimulatedProcess, Turns

CALM_DRIVERS = 8
"""From this driver on nothing happens any more."""
MOST_DRIVERS = 20


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


class Life:
    """Made for one run, on a stage that is set up."""

    def __init__(self, seed: int, kind: type[Kind] | None = None, chances: Chances | None = None) -> None:
        self.rng = rng = random.Random(f"sink {seed}")
        self.seed = seed
        chosen = KINDS[seed % len(KINDS)] if kind is None else kind
        self.turns = Turns(rng, Chances.drawn(rng) if chances is None else chances)
        self.kafka = SimulatedKafka(self.turns)
        self.turns.works, self.turns.passes, self.turns.happens = self.kafka.work, self.kafka.pass_time, self._happens
        self.kafka.held_up = self._held_up
        self.checkpoint = SimulatedCheckpoint("the checkpoint", rng.choice([3, 6, 10]))
        self.other: SimulatedCheckpoint | None = None
        """Another copy of the checkpoint."""
        outputs = chosen.outputs if rng.random() < 0.25 else chosen.outputs[:1]
        self.application = Application(outputs, rng.randint(1, 4), is_shuffled=rng.random() < 0.3, reports=rng.random() < 0.2)
        self.drivers: list[SinkDriver] = []
        self.has_overlap = False
        """Whether drivers of two copies of the checkpoint, or their tasks, have run at once."""
        self.broken: list[str] = []
        self.refusals = Counter[str]()
        self.kind = chosen(self)
        for output in outputs:
            self.kafka.broker.create(output, 2)
        STAGE.enter(self.turns, self.kafka, rng.choice([1, 3, 16]))

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

    # -- the story

    def _live(self) -> None:
        """Start one driver after the other until all numbers are written, or the user has to give up."""
        while True:
            driver = self._start()
            self.turns.wait(lambda driver=driver: driver.is_over or driver.is_left)
            error = driver.ended_by
            if self.checkpoint.is_complete or (error is not None and driver.refusals and not self.kind.after_refusal(error)):
                return
            if len(self.drivers) >= CALM_DRIVERS:
                self.turns.chances.faults = 0
            if len(self.drivers) >= MOST_DRIVERS:
                if not self.kind.may_end_refused():
                    self.broken.append(f"{MOST_DRIVERS} drivers have not written everything, the last one ended by {error!r}")
                return

    def _start(self) -> SinkDriver:
        self.kind.before_driver()
        outputs = list(self.application.outputs)
        self.rng.shuffle(outputs)
        driver = SinkDriver(self.turns, self.kafka, self.checkpoint, self.application, outputs, len(self.drivers) + 1, self._judge)
        others = [other for other in self.drivers if other.checkpoint is not self.checkpoint]
        self.has_overlap |= any(not other.is_over or other.tasks.running for other in others)
        self.drivers.append(driver)
        self.turns.note(f"starts driver {len(self.drivers)} on {self.checkpoint.name}, {self.application}", "user")
        return driver

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

    def _happens(self, process: SimulatedProcess) -> None:
        """Let one thing happen at a step of a process."""
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
            transaction = rng.choice(transactions)
            turns.note(f"the transaction of {transaction.id} epoch {transaction.epoch} has timed out", "brokers")
            turns.now_ms = max(turns.now_ms, transaction.deadline_ms)
            self.kafka.broker.time_out(transaction)
        elif choice < 18:
            self._compact()
        elif not self.kind.at_step():
            self._leave(driver, process)

    def _leave(self, driver: SinkDriver, process: SimulatedProcess) -> None:
        """Take a driver for dead. It stands still, or one of its tasks, and goes on when another driver has started."""
        if driver.is_over or driver.is_left:
            self.turns.freeze(process)
            return
        self.turns.note(f"takes {driver.process.name} for dead", "user")
        driver.is_left = True
        if self.rng.random() < 0.7:
            self.turns.freeze(driver.process)
        if process is not driver.process:
            self.turns.freeze(process)

    def _compact(self) -> None:
        topic = self.kafka.broker.topics.get("k-receipts")
        removed = 0 if topic is None else sum(log.compact() for log in topic.logs)
        self.turns.note(f"the topic of the receipts is compacted, {removed} records are gone", "brokers")

    # -- the verdict

    def _held_up(self, transaction: SimulatedTransaction) -> None:
        """Note a driver that waits for a transaction of its partitions that was open before. It must have taken the id, which ends it."""
        driver = next((driver for driver in self.drivers if driver.process is self.turns.current), None)
        if driver is not None and transaction.id in driver.ids:
            epoch = self.kafka.taken.get((driver.process.number, transaction.id), 0)
            if transaction.epoch >= epoch > 0:
                return
            self.broken.append(f"{driver.process.name} waits for {transaction.id} epoch {transaction.epoch}, which it should have ended")

    def _judge(self, driver: SinkDriver, plan: PlannedBatch, error: Exception, is_after_stale: bool) -> None:
        """Note a refusal, and whether it is right. One that a leader of yesterday has caused may be wrong, once."""
        self.refusals[type(error).__name__] += 1
        if not self.kind.allows(driver, plan, error) and not is_after_stale:
            self.broken.append(f"{driver.process.name} was refused without a reason: {type(error).__name__}: {error}")

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

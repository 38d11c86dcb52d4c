"""Schedule: one seed's story. Drivers start, plan, run and die while the world acts; then it is healed, and all must come right.

The one source of chance is `rng`, made of the seed; nothing here reads the machine's clock or iterates over a set. So the same seed
is the same trace, line by line, in any process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unittest.mock import patch

from kstream import crash_point
from kstream.checkpoint import LogContents, read_log, settled
from kstream.scheduler import missed_batches
from kstream.scheduler.retry_policy import CONTINUE, HOLD
from kstream.scheduler.settings import FAILED_BATCH, RETRIES
from kstream.storage import FileStore
from tests.simulator.driver import SimulatedDriver
from tests.simulator.errors import SimulationStuckError
from tests.simulator.faults import NO_FAULTS, Faults
from tests.simulator.history import History
from tests.simulator.runtime import SimulatedClock, Steps
from tests.simulator.source import JobSource, MakeSource, NumberSource
from tests.simulator.store import SimulatedStore, StoreView
from tests.simulator.strands import Strand, Strands

START_MS = 1_000_000
MOST_DRIVERS = 8
MOST_STEPS = 20_000
SETTLED_AT_ONCE = 2
"""Plans above an unfinished batch that are removed at once: ten, as in the product, are seldom there in a short schedule."""
GRACE_MS = 500
"""How long postponed batches stay unplanned: the ten seconds of the product are longer than the life of the last driver."""


@dataclass(frozen=True)
class Scenario:
    """What is simulated. `faults` None: drawn by the seed. `chaos_ms` None: drawn, 4 to 12 intervals."""

    source: MakeSource = NumberSource
    wrap_store: Callable[[FileStore], FileStore] = lambda store: store
    faults: Faults | None = None
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    interval_ms: int = 1000
    chaos_ms: int | None = None
    agrees: bool = False
    """Whether the lifecycle, its views and the log of a driver are compared after each of its steps. That takes half of the time."""


class Schedule:
    """Made for one run. After `run`: `history` and `trace`."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.rng = random.Random(f"kstream {seed}")
        self.seed = seed
        self.scenario = scenario
        self.wrap_store = scenario.wrap_store
        self.interval_ms = scenario.interval_ms
        self.trace: list[str] = []
        self.history = History(scenario.interval_ms)
        self.store = SimulatedStore(self.history, self.rng)
        self.faults = Faults.drawn(self.rng) if scenario.faults is None else scenario.faults
        self.store.faults = self.faults
        self.drivers: list[SimulatedDriver] = []
        self._chaos = True
        self._interrupts = self.rng.choice([0.05, 0.2, 0.5])
        self._acts = self.rng.choice([0.03, 0.08, 0.2])
        self._steps_taken = 0
        self.steps = Steps(
            Strands(self._choose), lambda: self.chance(self._interrupts), START_MS + self.rng.randrange(scenario.interval_ms)
        )
        self.source = scenario.source(self.rng, SimulatedClock(self.steps))
        if scenario.faults is None and isinstance(self.source, JobSource):
            self.faults = self.store.faults = self.source.faults(self.faults, self.rng)
        self.store.now_ms = lambda: self.steps.monotonic
        jobs = str(self.rng.choice([1, 1, 2, 3]))
        # Without a history: in segments of fifty no plan of a short schedule would ever be removed.
        own = {"spark.streaming.concurrentJobs": jobs, "spark.streaming.kstream.history": "0"}
        policy = random.Random(f"policy {seed}")  # of its own: other draws of a seed stay as they are
        own[RETRIES.key] = str(policy.choice([0, 0, 1, 3]))
        own[FAILED_BATCH.key] = policy.choice([CONTINUE, CONTINUE, HOLD])
        self._conf = {**own, **self.source.conf, **scenario.conf}
        self.history.holds = self._conf[FAILED_BATCH.key] == HOLD
        self._remember_ms = self.rng.choice([0, 0, 3]) * scenario.interval_ms

    # -- the story

    def run(self) -> None:
        """From the first start to the last stop. Raises SimulationStuckError if nothing can happen any more."""
        crash_point.install(self._at_crash_point)
        with patch.object(settled, "AT_ONCE", SETTLED_AT_ONCE), patch.object(missed_batches, "GRACE_MS", GRACE_MS):
            try:
                self._live()
            finally:
                crash_point.install(None)
                self._end_all()
        self._note_pending()

    def _live(self) -> None:
        """Start, act and die for a while; then heal, and let two drivers, one after the other, work and stop gracefully."""
        self._start_driver()
        intervals = self.source.intervals if isinstance(self.source, JobSource) else range(4, 13)
        chaos_ms = self.scenario.chaos_ms or self.rng.randrange(intervals.start, intervals.stop) * self.interval_ms
        self._pause(chaos_ms)
        self._heal()
        for last in (False, True):
            driver = self._a_good_driver()
            if driver is None:
                break
            self._pause(3 * self.interval_ms if not last else self.interval_ms)
            driver.ask_to_stop(graceful=True)
            self.steps.wait(lambda driver=driver: driver.over, 60 * self.interval_ms)
            if not driver.has_reported and not driver.fenced:
                self.history.left[driver.number] = frozenset(time.milliseconds for time in self._contents().pending)

    def _pause(self, milliseconds: int) -> None:
        """Lets everybody else live for so long."""
        self.steps.sleep(milliseconds)

    def _heal(self) -> None:
        self._chaos = False
        self.faults = self.store.faults = NO_FAULTS
        self.source.heal()
        for driver in self.drivers:
            driver.frozen = False
        self.note("world: healed")
        while self.store.delayed and self.chance(0.7):
            self.note(self.store.land())

    def _a_good_driver(self) -> SimulatedDriver | None:
        """One that runs and is not fenced, alone. All others that are left have found out by then, or are ended.

        None where drivers refuse to start, and are right to.
        """
        for _ in range(5):
            self._pause(2 * self.interval_ms)
            good = [d for d in self.drivers if d.state == "running" and not d.fenced]
            for driver in self.drivers:
                if not driver.over and driver not in good[-1:]:
                    self.note(f"world: {driver.name} is killed")
                    driver.die()
            if good:
                return good[-1]
            self._start_driver()
        if any(driver.refused for driver in self.drivers):
            return None
        raise SimulationStuckError("no driver starts, though nothing is wrong any more")

    def _end_all(self) -> None:
        for driver in self.drivers:
            if not driver.over:
                driver.die()
        self._chaos = False
        if any(s.killed for s in self.steps.strands.living):
            self.steps.strands.pause(lambda: not any(s.killed for s in self.steps.strands.living))

    def _contents(self) -> LogContents:
        return read_log(StoreView(self.store, 0, lambda: None, lambda _text: None))

    def _note_pending(self) -> None:
        contents = self._contents()
        self.history.pending = frozenset(time.milliseconds for time in contents.pending)
        for time in contents.pending:
            for data in contents.plans[time].inputs.values():
                self.history.pending_data[time.milliseconds] = data

    # -- who is next

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def _choose(self) -> Strand:
        """The next strand to run. Called by whichever strand pauses or ends."""
        strands = self.steps.strands
        while True:
            self._steps_taken += 1
            if self._steps_taken > MOST_STEPS:
                raise SimulationStuckError(f"no end after {MOST_STEPS} steps: {strands.living}")
            for strand in strands.living:
                if strand.killed:
                    return strand
            if self.scenario.agrees and strands.current.owner:
                self.drivers[strands.current.owner - 1].check_agreement()
            if self._chaos and self.rng.random() < self._acts:
                self._act()
                continue
            frozen = {d.number for d in self.drivers if d.frozen}
            now = self.steps.monotonic
            runnable = [s for s in strands.living if s.owner not in frozen and self._can_run(s, now)]
            if runnable:
                return runnable[self.rng.randrange(len(runnable))] if len(runnable) > 1 else runnable[0]
            self._pass_time(frozen)

    @staticmethod
    def _can_run(strand: Strand, now: int) -> bool:
        if strand.deadline is not None and strand.deadline <= now:
            return True
        return strand.ready is None or strand.ready()

    def _pass_time(self, frozen: set[int]) -> None:
        """Nobody can go on: to the next moment that somebody waits for."""
        deadlines = [s.deadline for s in self.steps.strands.living if s.deadline is not None and s.owner not in frozen]
        if not deadlines:
            raise SimulationStuckError(f"nobody can go on: {self.steps.strands.living}")
        later = max(self.steps.monotonic, min(deadlines))
        if self._chaos:  # in small steps, or a frozen driver would sleep through all of it
            later = min(later, self.steps.monotonic + self.interval_ms // 3)
        self.steps.monotonic = later

    # -- what happens

    def _act(self) -> None:
        """Something happens. Weights: calm things against what the faults allow."""
        faults = self.faults
        living = [d for d in self.drivers if not d.over]
        thawable = [d for d in living if d.frozen]
        choices: list[tuple[float, Callable[[], None]]] = [
            (faults.calm, self._outside),
            (1.0, self._some_time),
            (4.0 if self.store.delayed else 0.0, lambda: self.note(self.store.land())),
            (faults.crash if living else 0.0, lambda: self._crash(self.rng.choice(living))),
            (faults.freeze if living else 0.0, lambda: self._freeze(self.rng.choice(living))),
            (faults.freeze + 1.0 if thawable else 0.0, lambda: self._thaw(self.rng.choice(thawable))),
            (faults.stop if living else 0.0, lambda: self._ask_to_stop(self.rng.choice(living))),
            (faults.second if len(living) < 3 else 0.0, self._start_driver),
            (5.0 if not living else 0.0, self._start_driver),
            (faults.jump, self._jump),
        ]
        at = self.rng.random() * sum(weight for weight, _ in choices)
        for weight, action in choices:
            at -= weight
            if at < 0:
                action()
                return

    def _outside(self) -> None:
        self.note(f"world: {self.source.act(self.rng, self.chance(self.faults.outside))}")

    def _some_time(self) -> None:
        """Steps take time too."""
        self.steps.monotonic += self.rng.randrange(1, self.interval_ms)

    def _start_driver(self) -> None:
        if len(self.drivers) >= MOST_DRIVERS and self._chaos:
            return
        skew = self.rng.choice([0, 0, -300, 400]) if self.faults.jump else 0
        driver = SimulatedDriver(self, len(self.drivers) + 1, self._conf, self.interval_ms, self._remember_ms, skew)
        self.drivers.append(driver)
        self.history.drivers += 1
        driver.start()
        self.note(f"world: {driver.name} is started")

    def _crash(self, driver: SimulatedDriver) -> None:
        self.note(f"world: {driver.name} dies")
        driver.die()

    def _freeze(self, driver: SimulatedDriver) -> None:
        if not driver.frozen:
            self.note(f"world: {driver.name} is frozen")
            driver.frozen = True

    def _thaw(self, driver: SimulatedDriver) -> None:
        self.note(f"world: {driver.name} goes on")
        driver.frozen = False

    def _ask_to_stop(self, driver: SimulatedDriver) -> None:
        graceful = self.chance(0.7)
        self.note(f"world: {driver.name} is asked to stop{' gracefully' if graceful else ''}")
        driver.ask_to_stop(graceful)

    def _jump(self) -> None:
        by = self.rng.randrange(-3 * self.interval_ms, 4 * self.interval_ms)
        self.steps.offset += by
        self.note(f"world: the clock jumps by {by} ms")

    def _at_crash_point(self, name: str) -> None:
        driver = self.drivers[self.steps.strands.current.owner - 1]
        driver.point(f"({name})")

    # -- notes

    def note(self, line: str) -> None:
        self.trace.append(f"{len(self.trace):5d} {self.steps.monotonic:7d} ms  {line}")

"""Turns: processes that take turns, and the seed that says who goes on, who dies and who stands still.

A process is a driver, or a task on an executor. Its threads are strands (`tests.simulator.strands`), of which one runs at a time. Each
request to Kafka is a step: there others may go on, and something may happen. Time only passes when nobody can go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulator.errors import SimulationStuckError
from tests.simulator.strands import Killed, Strand, Strands

MOST_STEPS = 20_000
LONGEST_PAUSE = 60
"""Steps of others for which a process stands still at the most. It goes on sooner if nobody else can."""


@dataclass(eq=False)
class SimulatedProcess:
    """A process.

    Attributes:
        number: its number.
        name: for the trace.
        hashing: what its hash of a fixed word is.
        attempt: the attempt number of its task.
        frozen_until: the step up to which it stands still.
        on_death: what happens when it dies, beside that its threads end.
    """

    number: int
    name: str
    hashing: int = 0
    attempt: int = 0
    frozen_until: int = 0
    on_death: Callable[[], None] = lambda: None
    is_dead: bool = False

    def attemptNumber(self) -> int:
        """As that of Spark's TaskContext."""
        return self.attempt


@dataclass
class Chances:
    """How often things happen.

    Attributes:
        interrupt: at a step another process goes on.
        fault: at a step something happens, as long as `faults` are left.
        faults: how many things still happen.
        is_stale: leaders may be of yesterday.
    """

    interrupt: float
    fault: float
    faults: int
    is_stale: bool = False

    @classmethod
    def drawn(cls, rng: random.Random) -> Chances:
        return cls(rng.choice([0.05, 0.2, 0.5]), rng.choice([0.02, 0.06, 0.15]), rng.choice([0, 1, 2, 3, 4, 6, 9]), rng.random() < 0.3)


@dataclass
class Turns:
    """All processes of one life.

    Attributes:
        rng: made of the seed; the one source of chance.
        happens: happens(process) lets one thing happen at a step of a process.
        works: works() lets the brokers do what they do without being asked.
        passes: passes(now_ms, next_ms) returns the moment to go to when nobody can go on, before `next_ms` or there.
    """

    rng: random.Random
    chances: Chances
    happens: Callable[[SimulatedProcess], None] = lambda _: None
    works: Callable[[bool], bool] = lambda _: False
    passes: Callable[[int | None], int | None] = lambda next_ms: next_ms
    now_ms: int = 0
    steps: int = 0
    trace: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])

    def __post_init__(self) -> None:
        self.strands = Strands(self._choose)
        self.world = SimulatedProcess(0, "world")
        self.processes = [self.world]

    # -- for processes

    @property
    def current(self) -> SimulatedProcess:
        return self.processes[self.strands.current.owner]

    def note(self, what: str, who: str | None = None) -> None:
        self.trace.append((self.now_ms, self.current.name if who is None else who, what))

    def point(self, what: str) -> None:
        """A step: something may happen before it, and others may go on. Does not return in a process that dies there."""
        if self.strands.current.killed:
            raise Killed
        chances, me = self.chances, self.current
        if chances.faults > 0 and me.number and self.rng.random() < chances.fault:
            chances.faults -= 1
            self.happens(me)
        if self.strands.current.killed or me.frozen_until > self.steps or self.rng.random() < chances.interrupt:
            self.strands.pause()
        self.steps += 1
        self.trace.append((self.now_ms, me.name, what))

    def fails(self, share: float) -> bool:
        """Whether a request fails here: a fault, as long as some are left. `share`: how likely, in place of another fault."""
        chances = self.chances
        if chances.faults > 0 and self.rng.random() < chances.fault * share:
            chances.faults -= 1
            return True
        return False

    def wait(self, ready: Callable[[], bool], milliseconds: float | None = None) -> bool:
        """Wait until `ready()`, at most so long. Return whether it is."""
        if not ready():
            self.strands.pause(ready, None if milliseconds is None else self.now_ms + round(milliseconds))
        return ready()

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, seconds * 1000)

    def monotonic(self) -> float:
        return self.now_ms / 1000

    # -- processes

    def process(self, name: str, target: Callable[[], None], **attributes: Any) -> SimulatedProcess:
        """Start a process."""
        process = SimulatedProcess(len(self.processes), name, **attributes)
        self.processes.append(process)
        self.strands.spawn(name, process.number, target)
        return process

    def kill(self, process: SimulatedProcess, why: str) -> None:
        """End a process where it stands. Its threads do nothing more."""
        if not process.is_dead:
            process.is_dead = True
            self.note(why, process.name)
            self.strands.kill(process.number)
            process.on_death()

    def freeze(self, process: SimulatedProcess) -> None:
        process.frozen_until = self.steps + self.rng.randrange(5, LONGEST_PAUSE)
        self.note("stands still", process.name)

    def is_alive(self, process: SimulatedProcess) -> bool:
        return any(strand.owner == process.number for strand in self.strands.living)

    def end_all(self) -> None:
        """End what is left, so that no thread waits for ever."""
        for process in self.processes[1:]:
            self.strands.kill(process.number)
        if any(strand.killed for strand in self.strands.living):
            self.strands.pause(lambda: not any(strand.killed for strand in self.strands.living))

    # -- who is next

    def _choose(self) -> Strand:
        """Return the strand that goes on."""
        self.works(False)
        while True:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise SimulationStuckError(f"no end after {MOST_STEPS} steps: {self.strands.living}")
            runnable = list[Strand]()
            for strand in self.strands.living:
                if strand.killed:
                    return strand
                if self.processes[strand.owner].frozen_until <= self.steps and self._can_run(strand):
                    runnable.append(strand)
            if runnable:
                return runnable[0] if len(runnable) == 1 else self.rng.choice(runnable)
            if not self.works(True):
                self._go_on()

    def _can_run(self, strand: Strand) -> bool:
        return strand.ready is None or (strand.deadline is not None and strand.deadline <= self.now_ms) or strand.ready()

    def _go_on(self) -> None:
        """Nobody can go on: one that stands still does, or time passes."""
        frozen = [process for process in self.processes if process.frozen_until > self.steps and self.is_alive(process)]
        deadlines = [s.deadline for s in self.strands.living if s.deadline is not None and self.processes[s.owner] not in frozen]
        next_ms = self.passes(min(deadlines, default=None))
        if frozen and (next_ms is None or self.rng.random() < 0.5):
            self.rng.choice(frozen).frozen_until = 0
        elif next_ms is None:
            raise SimulationStuckError(f"nobody can go on: {self.strands.living}")
        else:
            self.now_ms = max(self.now_ms, next_ms)

"""One seed's story: drivers and runs live, freeze and die; then all is well, and what was committed is checked."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from kstream.checkpoint import names
from kstream.checkpoint.plan_log import probe, take_epoch
from kstream.continuous import messages
from kstream.continuous.assignment import AssignmentLog
from kstream.continuous.epoch_coordinator import CoordinatorParts, EpochCoordinator
from kstream.continuous.epoch_task import EpochLimits, EpochTask
from kstream.continuous.messages import CoordinatorLink
from kstream.continuous.ports import TaskRun
from kstream.continuous.position_log import PositionLog
from kstream.errors import KStreamError, RpcError, RpcUnreachableError
from kstream.offsets.offset_range import Partition
from kstream.rpc import of_body
from tests.simulator.continuous.cluster import Cluster, SimulatedHandOver, SimulatedRun, writes_output
from tests.simulator.errors import SimulationStuckError
from tests.simulator.faults import NO_FAULTS, Faults
from tests.simulator.history import History
from tests.simulator.runtime import SimulatedClock, SimulatedRuntime, Steps
from tests.simulator.store import SimulatedStore, StoreView
from tests.simulator.strands import Strand, Strands

MOST_STEPS = 200_000
MOST_DRIVERS = 5
LIMITS = EpochLimits(epoch_ms=100, epoch_bytes=6, idle_ms=200)


@dataclass(slots=True)
class Life:
    """A process that may freeze or die: a driver, or a run of a task. `owner`: the number of its strands."""

    owner: int
    name: str
    is_frozen: bool = False
    is_over: bool = False


class DriverLife:
    """One driver: its coordinator, and what the cluster does for it."""

    def __init__(self, lives: Lives, life: Life, tasks: int) -> None:
        self.lives = lives
        self.life = life
        self.tasks = tasks
        self.coordinator: EpochCoordinator | None = None
        self._runs: dict[int, tuple[TaskRun, Callable[[TaskRun, BaseException | None], None], Life]] = {}

    def main(self) -> None:
        lives, steps = self.lives, self.lives.steps
        store = StoreView(lives.store, self.life.owner, steps.point, lambda text: lives.note(f"{self.life.name}: {text}"))
        clock = SimulatedClock(steps)
        try:
            epoch = take_epoch(store, 0)
        except KStreamError:
            lives.end(self.life)
            return
        parts = CoordinatorParts(
            AssignmentLog(store, epoch), PositionLog(store), SimulatedHandOver(lives.cluster, self.life.name), self,
            lambda: probe(store, epoch), clock, SimulatedRuntime(steps, self.life.owner),
        )  # fmt: skip
        self.coordinator = EpochCoordinator(parts, self.tasks, self._over)
        self.coordinator.start(dict.fromkeys(lives.cluster.ends, 0))

    def _over(self, error: Exception) -> None:
        self.lives.note(f"{self.life.name} ends: {type(error).__name__}")
        if not isinstance(error, KStreamError):
            self.lives.broken.append(f"driver: {type(error).__name__}: {error}")
        self.life.is_over = True

    # the TaskRunner

    def start(self, run: TaskRun, ended: Callable[[TaskRun, BaseException | None], None]) -> None:
        life = self.lives.new_life(f"task {run.task} run {run.run} of {self.life.name}")
        self._runs[run.run] = (run, ended, life)
        self.lives.runs.append((life, self, run))
        self.lives.steps.strands.spawn(life.name, life.owner, lambda: self._run(run, life))

    def cancel(self, run: TaskRun) -> None:
        if run.run in self._runs and self.lives.rng.random() < 0.5:
            self.lives.kill_run(self._runs[run.run][2], self, run)

    def _run(self, run: TaskRun, life: Life) -> None:
        steps, lives = self.lives.steps, self.lives
        simulated = SimulatedRun(lives.cluster, run.task, run.generation, life.name)
        runtime = SimulatedRuntime(steps, life.owner)
        task = EpochTask(simulated, simulated, simulated.function, SimulatedClock(steps), runtime, LIMITS)
        try:
            task.run(CoordinatorLink(RunMessenger(self, life), run))
        except KStreamError as e:
            self.tell_end(run, e)
        else:
            self.tell_end(run, None)
        life.is_over = True

    def tell_end(self, run: TaskRun, error: BaseException | None) -> None:
        """Spark tells the driver that the job has ended."""
        found = self._runs.pop(run.run, None)
        if found is not None and not self.life.is_over:
            self.lives.steps.strands.spawn(f"ended {run.run}", self.life.owner, lambda: found[1](run, error))


class RunMessenger:
    """Carries the messages of a run to its driver. The handler runs on a strand of the driver, so it freezes and dies with it."""

    def __init__(self, driver: DriverLife, life: Life) -> None:
        self._driver = driver
        self._life = life

    def ask(self, what: str, body: bytes) -> bytes:
        lives, driver = self._driver.lives, self._driver
        steps, answers = lives.steps, list[bytes | Exception]()
        steps.point()
        if driver.life.is_over or driver.coordinator is None:
            raise RpcUnreachableError("the driver is gone")
        handler = driver.coordinator.handlers[what]

        def handle() -> None:
            steps.point()
            try:
                answer = handler(body)
            except KStreamError as e:
                answers.append(RpcError(str(e)))
                return
            if what == messages.REGISTER_TASK and of_body(answer)["accepted"]:
                lives.check_accepted(of_body(body), of_body(answer), self._life.name)
            answers.append(answer)

        steps.strands.spawn(f"rpc {what}", driver.life.owner, handle)
        steps.wait(lambda: bool(answers) or driver.life.is_over, 60_000)
        if not answers:
            raise RpcUnreachableError("the driver does not answer")
        [answer] = answers
        steps.point()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Lives:
    """The world of one seed. `broken` has a line for all that is wrong at the end."""

    def __init__(self, seed: int, plant: Callable[[Cluster], None] = lambda _cluster: None) -> None:
        self.rng = random.Random(seed)
        self.trace: list[str] = []
        self.broken: list[str] = []
        self.owners: dict[int, Life] = {}
        self.drivers: list[DriverLife] = []
        self.runs: list[tuple[Life, DriverLife, TaskRun]] = []
        self._interrupts = self.rng.choice([0.1, 0.3, 0.6])
        self._acts = self.rng.choice([0.02, 0.05, 0.15])
        self._chaos = True
        self._taken = 0
        self.steps = Steps(Strands(self._choose), lambda: self.rng.random() < self._interrupts, 0)
        self.cluster = Cluster(self.steps, self.rng, self.note)
        plant(self.cluster)
        for number in range(self.rng.randrange(1, 5)):
            self.cluster.ends["t", number] = self.rng.randrange(0, 6)
        self.cluster.failing = self.rng.choice([0.0, 0.02, 0.1])
        self.store = SimulatedStore(History(1000), self.rng)
        self.store.faults = Faults(write=self.rng.choice([0.0, 0.1, 0.3]), read=self.rng.choice([0.0, 0.05]))
        self._contents: dict[str, bytes] = {}

    def run(self) -> list[str]:
        """Live this seed. Return what is broken."""
        try:
            self._start_driver()
            self.steps.sleep(self.rng.randrange(2_000, 8_000))
            self._heal()
        except SimulationStuckError as e:
            self.broken.append(f"stuck: {e}")
        finally:
            self._chaos = False
            for life in self.owners.values():
                life.is_frozen = False
                life.is_over = True
                self.steps.strands.kill(life.owner)
            if any(strand.killed for strand in self.steps.strands.living):
                self.steps.strands.pause(lambda: not any(strand.killed for strand in self.steps.strands.living))
        self._check()
        return self.broken

    def _heal(self) -> None:
        """Nothing goes wrong any more. Frozen drivers and runs wake up while a last driver reads what is left."""
        self._chaos = False
        self.cluster.failing = 0.0
        self.store.faults = NO_FAULTS
        self.note("world: all is well")
        self._start_driver()
        for life in self.owners.values():
            life.is_frozen = False
        for partition in self.cluster.ends:
            self.cluster.ends[partition] += 2
        if not self.steps.wait(self._all_read, 200_000):
            self.broken.append("lost: the last driver has not read everything")
        self.steps.sleep(1000)

    def _all_read(self) -> bool:
        receipts = self.cluster.receipts
        return all(partition in receipts and receipts[partition].position >= end for partition, end in self.cluster.ends.items() if end)

    # -- checks

    def _check(self) -> None:
        for partition, end in self.cluster.ends.items():
            for what, found, wanted in (
                ("records", self.cluster.processed.get(partition, []), list(range(end))),
                ("outputs", self.cluster.outputs.get(partition, []), [n for n in range(end) if writes_output(n)]),
            ):
                if found != wanted:
                    kind = "doubled" if len(set(found)) < len(found) else "lost" if set(found) < set(wanted) else "order"
                    self.broken.append(
                        f"{kind}: the {what} of {partition} in committed epochs are {found[:60]}, and should be {wanted[:60]}"
                    )

    def check_accepted(self, asked: dict[str, int], answer: dict[str, list[list[object]]], name: str) -> None:
        """A run is accepted by an assignment that is stored, and that holds just its partitions; no stored one ever changes."""
        for file, data in self.store.files.items():
            if file.startswith(f"{names.ASSIGNMENTS}/") and self._contents.setdefault(file, data) != data:
                self.broken.append(f"generation: {file} has changed")
        log = AssignmentLog(StoreView(self.store, 0, lambda: None, lambda _text: None), 0)
        generation, faults, self.store.faults = asked["generation"], self.store.faults, NO_FAULTS
        file = names.assignment(generation)
        stored = log._read(generation) if file in self.store.files else None  # pyright: ignore[reportPrivateUsage]
        self.store.faults = faults
        partitions: list[Partition] = [(str(row[0]), int(str(row[1]))) for row in answer["positions"]]
        if stored is None or list(stored.tasks.get(asked["task"], ())) != partitions:
            self.broken.append(f"durable: {name} has {partitions} by an assignment that is not stored")

    # -- who is next

    def _choose(self) -> Strand:
        strands = self.steps.strands
        while True:
            self._taken += 1
            if self._taken > MOST_STEPS:
                raise SimulationStuckError(f"no end after {MOST_STEPS} steps")
            for strand in strands.living:
                if strand.killed:
                    return strand
            if self._chaos and self.rng.random() < self._acts:
                self._act()
                continue
            now = self.steps.monotonic
            runnable = [s for s in strands.living if not self._is_frozen(s) and _can_run(s, now)]
            if runnable:
                return runnable[self.rng.randrange(len(runnable))]
            deadlines = [s.deadline for s in strands.living if s.deadline is not None and not self._is_frozen(s)]
            if not deadlines:
                raise SimulationStuckError(f"nobody can go on: {strands.living}")
            later = max(now, min(deadlines))
            self.steps.monotonic = min(later, now + 100) if self._chaos else later

    def _is_frozen(self, strand: Strand) -> bool:
        life = self.owners.get(strand.owner)
        return life is not None and life.is_frozen

    # -- what happens

    def _act(self) -> None:
        living = [driver for driver in self.drivers if not driver.life.is_over]
        runs = [entry for entry in self.runs if not entry[0].is_over]
        frozen = [life for life in self.owners.values() if life.is_frozen and not life.is_over]
        choices: list[tuple[float, Callable[[], None]]] = [
            (4.0, self._records),
            (2.0, self._time_passes),
            (2.0 if self.store.delayed else 0.0, lambda: self.note(self.store.land())),
            (0.4 if living else 0.0, lambda: self._kill_driver(self.rng.choice(living))),
            (1.0 if living else 0.0, lambda: self._freeze(self.rng.choice(living).life)),
            (2.0 if runs else 0.0, lambda: self._freeze(self.rng.choice(runs)[0])),
            (0.6 if runs else 0.0, lambda: self.kill_run(*self.rng.choice(runs))),
            (2.0 if frozen else 0.0, lambda: self._thaw(self.rng.choice(frozen))),
            (1.0 if len(living) < 3 else 0.0, self._start_driver),
            (4.0 if not living else 0.0, self._start_driver),
            (0.5 if living else 0.0, lambda: self._found(self.rng.choice(living))),
            (0.8 if living else 0.0, lambda: self._resize(self.rng.choice(living))),
        ]
        at = self.rng.random() * sum(weight for weight, _ in choices)
        for weight, action in choices:
            at -= weight
            if at < 0:
                action()
                return

    def _records(self) -> None:
        partition = self.rng.choice(list(self.cluster.ends))
        self.cluster.ends[partition] += self.rng.randrange(1, 5)

    def _time_passes(self) -> None:
        self.steps.monotonic += self.rng.randrange(1, 300)

    def _start_driver(self) -> None:
        if self._chaos and len(self.drivers) >= MOST_DRIVERS:
            return
        life = self.new_life(f"driver {len(self.drivers) + 1}")
        driver = DriverLife(self, life, self.rng.randrange(1, 4))
        self.drivers.append(driver)
        self.note(f"world: {life.name} is started with {driver.tasks} tasks")
        self.steps.strands.spawn("main", life.owner, driver.main)

    def _kill_driver(self, driver: DriverLife) -> None:
        self.note(f"world: {driver.life.name} dies")
        self.end(driver.life)

    def kill_run(self, life: Life, driver: DriverLife, run: TaskRun) -> None:
        if not life.is_over:
            self.note(f"world: {life.name} is killed")
            self.end(life)
            driver.tell_end(run, RpcError("its executor was lost"))

    def _freeze(self, life: Life) -> None:
        self.note(f"world: {life.name} freezes")
        life.is_frozen = True

    def _thaw(self, life: Life) -> None:
        self.note(f"world: {life.name} wakes up")
        life.is_frozen = False

    def _found(self, driver: DriverLife) -> None:
        if driver.coordinator is not None:
            if self.rng.random() < 0.5 and len(self.cluster.ends) < 6:
                self.cluster.ends["t", len(self.cluster.ends)] = 1
            driver.coordinator.partitions_found(dict.fromkeys(self.cluster.ends, 0))

    def _resize(self, driver: DriverLife) -> None:
        if driver.coordinator is not None:
            driver.coordinator.resize(self.rng.randrange(1, 4))

    def new_life(self, name: str) -> Life:
        life = Life(len(self.owners) + 1, name)
        self.owners[life.owner] = life
        return life

    def end(self, life: Life) -> None:
        life.is_over, life.is_frozen = True, False
        self.steps.strands.kill(life.owner)

    def note(self, line: str) -> None:
        self.trace.append(f"{len(self.trace):5d} {self.steps.monotonic:7d} ms  {line}")


def _can_run(strand: Strand, now: int) -> bool:
    if strand.deadline is not None and strand.deadline <= now:
        return True
    return strand.ready is None or strand.ready()

"""A whole engine without a JVM: fake RDDs, an input that reads a list, drivers that can be killed, and a record of every attempt.

`World` is what outlives a driver: the log that is read, the store, the clock, the attempts. `Driver` is one process's life: kill it
(`die`) and nothing it does from then on reaches the store or the record, as after kill -9.
"""

from __future__ import annotations

import itertools
import threading
import time as real_time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kstream import crash_point
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.context.engine import Engine, EngineCallbacks, EngineServices, SparkServices
from kstream.context.engine_opener import EngineOpener
from kstream.dstream import DStream, ForEachDStream, InputDStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.ports import InputServices
from kstream.listener import StreamingListener, StreamingListenerBus
from kstream.loop import Thread
from kstream.storage import FileStore, MemoryFileStore
from kstream.testing import ManualClock
from tests.fakes import INTERVAL, FakeEnvironment, FakeHost, FakeRDD, FakeStateFiles
from tests.receivers import InDriver, received_in_driver
from tests.stores import FaultyStore, MortalStore

START = 1_000_000
PATIENCE = 20.0
_living: list[Driver] = []


class Killed(BaseException):
    """The driver died here."""


class LogInput(InputDStream[JsonPlan]):
    """Reads a growing list; a plan is the half-open range [from, until) of it, at most `most` records."""

    def __init__(self, host: Any, log: list[Any], most: int = 1_000_000) -> None:
        super().__init__(host)
        self.log = log
        self.cursor = 0
        self.most = most
        self.end: int | None = None
        self.before_plan: Callable[[Time], None] = lambda _time: None
        self.calls: list[str] = []
        self.unfinished: list[int] = []

    def start(self, services: InputServices) -> None:
        super().start(services)
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def starting_point(self) -> JsonPlan:
        self.calls.append("starting_point")
        return JsonPlan({"from": self.cursor, "until": self.cursor})

    def position_text(self) -> str:
        return f"log at {self.cursor}"

    def plan(self, time: Time) -> JsonPlan:
        self.before_plan(time)
        until = min(len(self.log), self.cursor + self.most)
        return JsonPlan({"from": self.cursor, "until": until}, until - self.cursor, is_empty=until == self.cursor)

    @property
    def exhausted(self) -> bool:
        return self.end is not None and self.cursor >= self.end

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        self.unfinished = sorted(time.milliseconds for time in unfinished)

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        self.calls.append(f"missed {len(times)}")
        return None

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self.cursor = plan["until"]

    def restored(self, time: Time, plan: JsonPlan) -> None:
        self.calls.append("restored")
        self.cursor = plan["until"]

    def skipped_between(self, before: JsonPlan, after: JsonPlan) -> Sequence[str]:
        return [f"[{before['until']}, {after['from']})"] if before["until"] < after["from"] else ()

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        return FakeRDD(self.log[plan["from"] : plan["until"]], (plan["from"], plan["until"]))


@dataclass
class Attempt:
    """One run of one batch, noted when it begins. `records` are what the output was handed."""

    driver: int
    time: int
    records: tuple[Any, ...]
    finished: bool = False


@dataclass
class Recorder(StreamingListener):
    """Every event a bus told, in order, as (method, event)."""

    world: World
    events: list[tuple[str, Any]] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on"):
            return lambda event: self._note(name, event)
        return super().__getattribute__(name)

    def _note(self, name: str, event: Any) -> None:
        self.events.append((name, event))
        self.world.notify()

    def named(self, name: str) -> list[Any]:
        return [event for method, event in self.events if method == name]

    def completed(self) -> list[int]:
        return [e.batchInfo().batchTime().milliseconds() for e in self.named("onBatchCompleted")]


class World:
    """What no driver's death changes."""

    def __init__(self, store: FileStore | None = None, clock: Clock | None = None) -> None:
        self.log: list[int] = []
        self.store: Any = MemoryFileStore(f"memory://{uuid.uuid4().hex}") if store is None else store
        self.clock: Any = ManualClock(START) if clock is None else clock
        self.attempts: list[Attempt] = []
        self.numbers = itertools.count(1)
        self._changed = threading.Condition()

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, what: Callable[[], Any], patience: float = PATIENCE) -> None:
        """Blocks until `what()` is true; AssertionError when it does not come true."""
        end = real_time.monotonic() + patience
        with self._changed:
            while not what():
                assert real_time.monotonic() < end, "what was waited for never happened"
                self._changed.wait(0.02)

    def produce(self, count: int) -> None:
        self.log.extend(range(len(self.log), len(self.log) + count))

    def begin(self, driver: Driver, time: Time, rdd: FakeRDD) -> Attempt:
        with self._changed:
            driver.check_alive()
            attempt = Attempt(driver.number, time.milliseconds, tuple(rdd.records))
            self.attempts.append(attempt)
            self._changed.notify_all()
        return attempt

    def end(self, driver: Driver, attempt: Attempt) -> None:
        with self._changed:
            driver.check_alive()
            attempt.finished = True
            self._changed.notify_all()

    def times(self) -> list[int]:
        return [a.time for a in self.attempts]

    def records_by_time(self) -> dict[int, tuple[Any, ...]]:
        """Batch time → its records. AssertionError if a batch time was ever seen with two different contents."""
        seen: dict[int, tuple[Any, ...]] = {}
        for attempt in self.attempts:
            assert seen.setdefault(attempt.time, attempt.records) == attempt.records, f"two contents for {attempt.time}"
        return seen

    def assert_exact(self) -> None:
        """No batch time with two contents, no record in two batches, every record in a batch that was finished."""
        contents = self.records_by_time()
        handed = [record for records in contents.values() for record in records]
        assert len(handed) == len(set(handed)), f"batches overlap: {sorted(handed)}"
        done = {record for a in self.attempts if a.finished for record in a.records}
        assert done == set(self.log), f"missed: {sorted(set(self.log) - done)}"


Build = Callable[[FakeHost, "Driver"], None]


class Driver:
    """One life of one driver, from `start` to `stop` or `die`."""

    def __init__(
        self, world: World, conf: Mapping[str, str] | None = None, *, build: Build | None = None,
        interval_ms: int = INTERVAL, store: Any = None, clock: Any = None, checkpoint: bool = True, most: int = 1_000_000,
        receiver_log: Any = None, allocation: Any = None,
    ) -> None:  # fmt: skip
        self.world = world
        self.number = next(world.numbers)
        self.alive = True
        self.host = FakeHost(conf or {}, interval_ms)
        self.clock = world.clock if clock is None else clock
        self.input = LogInput(self.host, world.log, most)
        self.before_job: Callable[[int], None] = lambda _time: None
        self.errors: list[tuple[str, BaseException]] = []
        self.fenced: list[BaseException] = []
        self.exhausted = 0
        self.bus = StreamingListenerBus()
        self.listener = Recorder(world)
        self.bus.add(self.listener)
        self.environment = FakeEnvironment()
        self.receivers = InDriver(self.clock, receiver_log)
        (build or (lambda host, driver: driver.output(driver.input)))(self.host, self)
        self.store = MortalStore(world.store if store is None else store, self) if checkpoint else None
        spark = SparkServices(
            self.environment, FakeStateFiles, partial(received_in_driver, self.receivers, self.clock, self.bus.post), allocation
        )
        callbacks = EngineCallbacks(self._on_error, self._on_fenced, self._on_exhausted)
        services = EngineServices(self.host.settings, self.host.graph, self.clock, self.bus, self.store, spark, callbacks)
        self.opener = EngineOpener(services)
        self.opened: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine, from `open` on."""
        assert self.opened is not None, "the driver has not opened its checkpoint"
        return self.opened

    def output(self, stream: DStream[Any] | DStreamNode) -> None:
        """An output that notes each attempt. `before_job(time)` runs between its beginning and its end."""
        self.host.graph.add_output_stream(ForEachDStream(getattr(stream, "_node", stream), self._job))

    def refuse(self, *times: int) -> set[int]:
        """Let the output refuse the batches of these times, until they are taken from the set that is returned."""
        away = set(times)

        def write(time: int) -> None:
            if time in away:
                raise ValueError(f"refused {time}")

        self.before_job = write
        return away

    def _job(self, time: Time, rdd: Any) -> None:
        attempt = self.world.begin(self, time, rdd)
        self.before_job(time.milliseconds)
        self.world.end(self, attempt)

    def _on_error(self, message: str, error: BaseException) -> None:
        self.errors.append((message, error))
        self.world.notify()

    def _on_fenced(self, error: BaseException) -> None:
        self.fenced.append(error)
        self.world.notify()

    def _on_exhausted(self) -> None:
        self.exhausted += 1
        self.world.notify()

    # -- life

    def open(self) -> Engine:
        """As the context opens it, if that was not done."""
        if self.opened is None:
            self.opened = self.opener.open()
        return self.opened

    def start(self) -> Driver:
        """As the context starts it: what fails is stopped at once."""
        _living.append(self)
        try:
            self.open().start()
        except BaseException:
            self.stop(graceful=False, timeout=1.0)
            raise
        return self

    def stop(self, graceful: bool = True, timeout: float = PATIENCE) -> None:
        if self in _living:
            _living.remove(self)
        if self.opened is not None:
            self.opened.stop(graceful, timeout)

    def die(self) -> None:
        """From here on nothing this driver does has an effect."""
        self.alive = False
        self.world.notify()

    def kill(self) -> None:
        """Dies, and ends the threads that a dead process would not have."""
        self.die()
        self.stop(graceful=False, timeout=1.0)

    def die_at(self, point: str, produced: int = 0) -> None:
        """As `tick_only`, with the driver killed when it gets to this crash point."""
        reached = threading.Event()

        def die(at: str) -> None:
            if at == point and self.alive:
                self.die()
                reached.set()
                self.check_alive()

        crash_point.install(die)
        self.tick_only(produced)
        assert reached.wait(PATIENCE), f"never at {point}"
        crash_point.install(None)
        self.kill()

    def check_alive(self) -> None:
        if not self.alive:
            raise Killed("the driver is dead")

    # -- time

    def tick(self, produced: int = 0) -> int:
        """Produces so many records, lets one interval pass and waits for the batch to be told as completed; its time."""
        time = self.tick_only(produced)
        self.world.wait(lambda: time in self.listener.completed())
        return time

    def tick_only(self, produced: int = 0) -> int:
        """As `tick`, without waiting."""
        self.world.produce(produced)
        wait_for_timers(self.clock)
        self.clock.advance(INTERVAL)
        return self.clock.time_ms() // INTERVAL * INTERVAL

    def settle(self) -> None:
        """Blocks until what is due has run, and what follows from it is handled."""
        assert self.engine.wait_idle(PATIENCE)

    def timer_threads(self) -> list[Thread]:
        return [] if self.opened is None else self.opened.timer_threads()

    def messages(self) -> list[str]:
        return [message for message, _ in self.errors]

    def wait_error(self, kind: type[BaseException], count: int = 1) -> None:
        self.world.wait(lambda: sum(isinstance(e, kind) for _, e in self.errors) >= count)


def wait_for_timers(clock: Any) -> None:
    """Blocks until every thread of a driver on this clock that waits for a time waits on the clock."""
    if not isinstance(clock, ManualClock):
        clock.wait_for_waiters(sum(len(driver.timer_threads()) for driver in _living if driver.clock is clock))
        return
    end = real_time.monotonic() + PATIENCE
    while real_time.monotonic() < end:
        threads = [thread for driver in _living if driver.clock is clock for thread in driver.timer_threads()]
        with clock._condition:
            if all(thread in clock._waiting for thread in threads):
                return
            clock._condition.wait(0.02)
    raise TimeoutError("a timer does not wait on the clock")


def stop_everything() -> None:
    """Kills the drivers a test left running."""
    for driver in list(_living):
        driver.kill()


def started(world: World, conf: Mapping[str, str] | None = None, **options: Any) -> Driver:
    return Driver(world, conf, **options).start()


def mapped(stream: DStream) -> DStream:
    """A stream between an input and its output: each record unchanged."""
    return stream.map(lambda x: x)


def at(n: int) -> int:
    return START + n * INTERVAL


def failing(world: World, *times: int, **options: object) -> Driver:
    """A driver whose jobs of those batch times raise."""
    driver = Driver(world, **options)

    def job(time: int) -> None:
        if time in times:
            raise ValueError("boom")

    driver.before_job = job
    return driver.start()


class Stopper:
    """Stops the thread that reaches a crash point the nth time (SIGSTOP), until `go_on`."""

    def __init__(self, point: str, nth: int = 1) -> None:
        self.reached, self._gate = threading.Event(), threading.Event()
        self._left, self._point = nth, point
        crash_point.install(self._hook)

    def _hook(self, name: str) -> None:
        if name == self._point and not self.reached.is_set():
            self._left -= 1
            if self._left == 0:
                self.reached.set()
                assert self._gate.wait(30)

    def go_on(self) -> None:
        self._gate.set()


def faulty_world() -> tuple[World, FaultyStore]:
    world = World()
    faulty = FaultyStore(world.store)
    return World(faulty, world.clock), faulty

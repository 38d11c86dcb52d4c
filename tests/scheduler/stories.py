"""A job that is killed at a step of a batch, and what its next driver must do."""

from __future__ import annotations

from collections.abc import Callable

from kstream import crash_point
from kstream.checkpoint import read_log
from kstream.storage import FileStore
from tests.fakes import FakeHost
from tests.harness import INTERVAL, Driver, Killed, World
from tests.stores import SteppingStore

TICKS = 7


Kill = Callable[[str], bool]


class Story:
    """Runs a stream over `TICKS` ticks; whenever the driver dies, time passes, records come, and the next one starts."""

    def __init__(
        self, kill: Kill, jobs: int, window: int | None = None, store: FileStore | None = None, history: str = "0"
    ) -> None:  # fmt: skip
        self.world = World(store)
        self.kill = kill
        self.deaths = 0
        self.cleanings = 0
        self.window = window
        self.conf = {"spark.streaming.concurrentJobs": str(jobs), "spark.streaming.kstream.history": history}
        self.store = SteppingStore(self.world.store, self._step)
        self.driver: Driver | None = None
        crash_point.install(self._reach)

    def _step(self, verb: str, name: str, done: bool) -> None:
        self._reach(f"{'after' if done else 'before'} {verb} {name.split('/')[0].split('-')[0]}")

    def _has_cleaned_up(self) -> bool:
        """Whether this tick's batch has ended, and all that its end gave the cleaner to do is done: it works in the background.

        Asked with the world's lock held, which the cleaner may want: so no longer than one look.
        """
        assert self.driver is not None
        ended = self.driver.listener.completed()
        begun = self.world.clock.time_ms() in ended and self.cleanings >= len(ended)
        return begun and self.driver.engine._generator._cleaner.drain(0)  # pyright: ignore

    def _reach(self, moment: str) -> None:
        driver = self.driver
        self.cleanings += moment == crash_point.CLEANING
        if driver is not None and driver.alive and self.kill(moment):
            self.deaths += 1
            driver.die()
            raise Killed(moment)

    def _build(self, _host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input if self.window is None else driver.input.window(self.window))

    def run(self) -> World:
        for tick in range(TICKS):
            self._life()
            assert self.driver is not None
            if self.driver.alive:
                self.driver.tick_only(1 + tick % 3)
                self._wait(self._has_cleaned_up)
            if not self.driver.alive:
                self.driver.kill()
                self.world.produce(2)
                self.world.clock.advance(INTERVAL * (self.deaths % 3))
        self.kill = lambda _moment: False
        self._life()
        self.driver.tick(1)
        self.driver.stop()
        return self.world

    def _life(self) -> None:
        """A driver that is alive, or one that died while it started."""
        if self.driver is not None and self.driver.alive:
            return
        self.cleanings = 0
        self.driver = Driver(self.world, self.conf, store=self.store, build=self._build)
        try:
            self.driver.start()
        except Killed:
            return
        except Exception:
            assert not self.driver.alive

    def _wait(self, what: Callable[[], bool]) -> None:
        self.world.wait(lambda: not self.driver.alive or what())


def nth(moment: str, *occurrences: int) -> Kill:
    seen = iter(range(1, 1_000_000))
    return lambda name: name == moment and next(seen) in occurrences


def check(world: World) -> None:
    world.assert_exact()
    contents = read_log(world.store)
    assert contents.pending == [] and contents.failures == {} and contents.given_up == frozenset()
    assert len(world.store.list("plans")) <= TICKS + 3

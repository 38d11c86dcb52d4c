"""Jobs that fail for a while, and what their driver counts."""

from __future__ import annotations

from typing import Any

from kstream.batch_time import Time
from kstream.errors import StorageError
from tests.harness import INTERVAL, Driver, World, wait_for_timers
from tests.stores import WrappedStore, full_disk

RETRIES = "spark.streaming.kstream.batch.retries"


POLICY = "spark.streaming.kstream.failedBatch"


MINUTE = 60_000


class SinkAwayError(Exception):
    """The sink of the tests is away."""


class Sink:
    """A sink that refuses batches while they are in `away`, or all while `down`."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.down = False

    def write(self, time: int) -> None:
        if self.down or time in self.away:
            raise SinkAwayError(f"refused {time}")


def made(world: World, sink: Sink, conf: dict[str, str], **options: Any) -> Driver:
    driver = Driver(world, conf, **options)
    driver.before_job = sink.write
    return driver


def running(world: World, sink: Sink, conf: dict[str, str], **options: Any) -> Driver:
    return made(world, sink, conf, **options).start()


def fails(driver: Driver, produced: int = 1) -> int:
    """One tick whose batch fails with retries left: the driver waits for its next try."""
    time = driver.tick_only(produced)
    driver.world.wait(lambda: Time(time) in driver.engine.lifecycle.open() - driver.engine.lifecycle.in_line())
    driver.settle()
    return time


def passes(driver: Driver, milliseconds: int) -> None:
    """Time passes, in steps that each thread sees, and what is due runs."""
    driver.settle()
    end = driver.clock.time_ms() + milliseconds
    while driver.clock.time_ms() < end:
        wait_for_timers(driver.clock)
        driver.clock.advance(min(INTERVAL, end - driver.clock.time_ms()))
        driver.settle()


def succeeded(world: World) -> list[int]:
    """The batches that were written, in the order of the writes."""
    return [a.time for a in world.attempts if a.finished]


class Away(WrappedStore):
    """Answers no look for a newer driver while `down`; plans and completions are stored."""

    down = False
    looks = 0

    def _call(self, verb: str, name: str, action: Any, size: int = 0) -> Any:
        if self.down and verb == "exists":
            self.looks += 1
            raise StorageError("store away", path=name)
        return action()


class NoCompletion(WrappedStore):
    """Refuses the next `refuse` completions."""

    refuse = 0

    def _call(self, verb: str, name: str, action: Any, size: int = 0) -> Any:
        if verb == "create" and name.startswith("done/") and self.refuse > 0:
            self.refuse -= 1
            raise full_disk(name)
        return action()

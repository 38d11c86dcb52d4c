"""The simulated product is the product: on threads and on strands, the same events leave the same log, record by record."""

from __future__ import annotations

import random
from typing import Any

from kstream.batch import BatchPlan
from kstream.checkpoint.format import decode_plan
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World
from tests.simulator import NO_FAULTS, NumberSource, Scenario
from tests.simulator.schedule import Schedule
from tests.simulator.source import NumberInput
from tests.stores import WrappedStore

LIVES = [[2, 0, 5, 1], [3, 3, 0, 1, 4], [1]]
"""How many records come before each tick of each driver's life."""
DOWN = 3


class Kept(WrappedStore):
    """Remembers what was ever created: clean-up takes it away, at a pace of its own."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.created: dict[str, bytes] = {}

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        super().create(name, data, private=private)
        self.created[name] = data


class Script(Schedule):
    """The events of LIVES, one after the other, with no chance in them but for whose turn it is."""

    def run(self) -> None:
        self._chaos = False
        self.steps.offset = START
        self.source.length, self.source.most = 0, 1000
        for life in LIVES:
            self._start_driver()
            driver = self.drivers[-1]
            self.steps.wait(lambda driver=driver: driver.state == "running" and is_on_time(driver))
            self._pause(1)  # or records would come at the very moment of a tick
            for records in life:
                self.source.length += records
                self._pause(INTERVAL)
            driver.ask_to_stop(graceful=True)
            self.steps.wait(lambda driver=driver: driver.over)
            self._pause(DOWN * INTERVAL - 1)
        self._end_all()


def is_on_time(driver: Any) -> bool:
    """Whether the missed batches of a driver are planned, and have ended."""
    assert driver.engine is not None
    generator = driver.engine._generator
    return generator._due._missed is None and not generator._lifecycle.open()


class NoSurroundings:
    """For an input that lives among real threads."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def point(self, what: str) -> None: ...
    def sleep(self, milliseconds: int) -> None: ...


def on_threads() -> dict[str, bytes]:
    world = World()
    store = Kept(world.store)
    source = NumberSource(random.Random(0), world.clock)
    source.length, source.most = 0, 1000

    def build(host: FakeHost, driver: Driver) -> None:
        driver.output(NumberInput(host, source, NoSurroundings(world.clock)))

    world.begin = lambda driver, time, rdd: None  # its attempts are about FakeRDDs
    world.end = lambda driver, attempt: None
    for life in LIVES:
        driver = Driver(world, store=store, build=build).start()
        driver.settle()
        for records in life:
            source.length += records
            driver.tick()
        driver.stop()
        world.clock.advance(DOWN * INTERVAL)
    return store.created


def on_strands(seed: int) -> dict[str, bytes]:
    kept: dict[str, bytes] = {}

    def keeping(store: Any) -> Kept:
        view = Kept(store)
        view.created = kept
        return view

    Script(seed, Scenario(NumberSource, keeping, NO_FAULTS)).run()
    return kept


def plans(created: dict[str, bytes]) -> dict[str, tuple[Any, ...]]:
    """Every plan, without its nonce and its floor, which depends on how far the jobs are just then."""
    decoded = {name: decode_plan(data, name) for name, data in created.items() if name.startswith("plans/")}
    return {name: _facts(plan) for name, plan in sorted(decoded.items())}


def _facts(plan: BatchPlan) -> tuple[Any, ...]:
    return (plan.time, plan.epoch, *plan.inputs.values(), *plan.num_records.values(), plan.after, plan.void)


def test_threads_and_strands_make_the_same_plans_through_three_lives() -> None:
    threads = on_threads()
    assert len(plans(threads)) == 1 + sum(map(len, LIVES)) + 2 * DOWN
    for seed in range(10):
        strands = on_strands(seed)
        assert plans(strands) == plans(threads)
        assert sorted(strands) == sorted(threads)

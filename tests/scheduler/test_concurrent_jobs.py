"""concurrentJobs = 2: batches may end out of order; nothing is cleaned too early and nothing told twice."""

from __future__ import annotations

import threading

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World, started

TWO = {"spark.streaming.concurrentJobs": "2"}


class Gates:
    """Holds the jobs of named batches until opened."""

    def __init__(self, *held: int) -> None:
        self.gates = {START + n * INTERVAL: threading.Event() for n in held}

    def wait(self, time: int) -> None:
        if time in self.gates:
            assert self.gates[time].wait(30)

    def open(self, n: int) -> None:
        self.gates[START + n * INTERVAL].set()


def held(world: World, *batches: int, **options: object) -> tuple[Driver, Gates]:
    driver, gates = Driver(world, TWO, **options), Gates(*batches)
    driver.before_job = gates.wait
    return driver.start(), gates


def at(n: int) -> int:
    return START + n * INTERVAL


def test_a_later_batch_may_end_first() -> None:
    world = World()
    driver, gates = held(world, 1)
    driver.tick_only(1)
    world.wait(lambda: world.attempts)
    driver.tick(1)
    assert driver.listener.completed() == [at(2)]
    assert read_log(world.store).pending == [Time(at(1))]
    gates.open(1)
    world.wait(lambda: driver.listener.completed() == [at(2), at(1)])
    driver.stop()
    world.assert_exact()


def test_nothing_is_cleaned_while_an_older_batch_runs() -> None:
    world = World()
    driver, gates = held(world, 1, build=lambda _h, d: d.output(d.input.window(2)))
    driver.tick_only(1)
    world.wait(lambda: world.attempts)
    for _ in range(6):
        driver.tick(1)
    assert [t.milliseconds for t in driver.input.generated_times] == [at(n) for n in range(1, 8)]
    assert {t.milliseconds for t in read_log(world.store).plans} >= {at(n) for n in range(1, 8)}
    assert all(not rdd.unpersisted for rdd in driver.input._generated.values())
    gates.open(1)
    world.wait(lambda: at(1) in driver.listener.completed())
    driver.tick(1)
    driver.tick(1)
    world.wait(lambda: len(world.store.list("plans")) <= 5)
    world.wait(lambda: min(t.milliseconds for t in driver.input.generated_times) >= at(6))


def test_a_driver_killed_with_batches_ended_out_of_order_reruns_only_the_open_one() -> None:
    world = World()
    driver, gates = held(world, 1)
    driver.tick_only(1)
    world.wait(lambda: world.attempts)
    driver.tick(2)
    driver.tick(3)
    driver.die()
    gates.open(1)
    driver.kill()
    again = started(world, TWO)
    world.wait(lambda: again.listener.completed() == [at(1)])
    again.tick(1)
    again.stop()
    world.assert_exact()
    assert world.times() == [at(1), at(2), at(3), at(1), at(4)]


def test_jobs_of_one_batch_run_side_by_side_and_the_last_one_ends_it() -> None:
    world = World()
    meeting = threading.Barrier(2, timeout=20)

    def build(_host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input)
        driver.output(driver.input)

    driver = Driver(world, TWO, build=build)
    driver.before_job = lambda _time: (meeting.wait(), None)[1]
    driver.start()
    time = driver.tick(1)
    assert driver.listener.completed() == [time]
    assert world.times() == [time, time]
    assert driver.errors == [], "each job has met the other one"


def test_with_one_thread_jobs_run_in_the_order_of_batches_and_outputs() -> None:
    world = World()
    order: list[str] = []

    def build(_host: FakeHost, driver: Driver) -> None:
        for name in "abc":
            driver.input.foreachRDD(lambda time, _rdd, name=name: order.append(name))

    driver = started(world, build=build)
    for _ in range(3):
        driver.tick_only(1)
    driver.stop()
    assert order == ["a", "b", "c"] * 3

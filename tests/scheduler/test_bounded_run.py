"""A run whose inputs come to an end, and what inputs are told at restarts and at the ends of batches."""

from __future__ import annotations

import threading
from typing import Any

from tests.harness import INTERVAL, START, Driver, LogInput, World, started


def bounded(world: World, end: int, most: int = 2, start: bool = True) -> Driver:
    driver = Driver(world, most=most)
    driver.input.end = end
    return driver.start() if start else driver


def test_a_run_ends_once_when_everything_is_planned_and_has_ended() -> None:
    world = World()
    driver = bounded(world, 5)
    driver.tick(9)
    driver.tick()
    assert driver.exhausted == 0
    driver.tick()
    world.wait(lambda: driver.exhausted == 1)
    driver.stop()
    assert driver.exhausted == 1
    assert [a.records for a in world.attempts] == [(0, 1), (2, 3), (4, 5)]


def test_it_does_not_end_while_a_batch_runs_and_plans_no_more_meanwhile() -> None:
    world = World()
    driver = bounded(world, 2)
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(20)
    driver.tick_only(2)
    world.wait(lambda: len(world.attempts) == 1)
    driver.tick_only(5)
    assert driver.exhausted == 0
    gate.set()
    world.wait(lambda: driver.exhausted == 1)
    driver.stop()
    assert len(world.attempts) == 1


def test_it_ends_also_when_its_last_batch_could_not_be_generated() -> None:
    world = World()

    def build(_host: Any, driver: Driver) -> None:
        driver.input.end = 2
        driver.output(driver.input.transform(lambda rdd: 1 / 0))

    driver = started(world, build=build)
    driver.tick_only(2)
    world.wait(lambda: driver.exhausted == 1)
    driver.stop()
    assert driver.messages() and world.attempts == []


def test_a_graceful_stop_tells_the_inputs_the_end_of_its_last_batch() -> None:
    for _ in range(20):
        world = World()
        driver = started(world)
        gate = threading.Event()
        driver.before_job = lambda _time, gate=gate: gate.wait(20)
        driver.tick_only(1)
        world.wait(lambda world=world: len(world.attempts) == 1)
        driver.input.unfinished = [-1]
        threading.Timer(0.01, gate.set).start()
        driver.stop()
        assert driver.input.unfinished == []


def test_a_run_that_has_nothing_to_do_ends_without_a_batch() -> None:
    world = World()
    driver = bounded(world, 0)
    world.wait(lambda: driver.exhausted == 1)
    driver.stop()
    assert world.attempts == []


def test_a_restart_at_the_end_runs_what_is_pending_and_makes_up_for_nothing() -> None:
    world = World()
    driver = bounded(world, 2)
    driver.before_job = lambda _time: driver.die()
    driver.tick_only(2)
    world.wait(lambda: not driver.alive)
    driver.kill()
    world.clock.advance(5 * INTERVAL)
    again = bounded(world, 2)
    world.wait(lambda: again.exhausted == 1)
    again.stop()
    assert [a.records for a in world.attempts] == [(0, 1), (0, 1)]
    assert [name for name in again.input.calls if name.startswith("missed")] == []


def test_one_endless_input_keeps_a_stream_going() -> None:
    world = World()

    def build(host: Any, driver: Driver) -> None:
        driver.input.end = 0
        driver.output(driver.input.union(LogInput(host, world.log)))

    driver = started(world, build=build)
    driver.tick(1)
    driver.tick(1)
    driver.stop()
    assert driver.exhausted == 0 and len(world.attempts) == 2


def test_each_input_is_told_of_all_missed_times_before_any_of_them_is_planned() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    driver.stop()
    world.clock.advance(4 * INTERVAL)
    again = Driver(world)
    planned: list[str] = []
    again.input.before_plan = lambda _time: planned.extend(again.input.calls[-1:])
    again.start()
    again.stop()
    assert planned[0] == "missed 4"


def test_inputs_are_told_what_is_unfinished_when_a_batch_ends() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    world.wait(lambda: driver.input.unfinished == [])
    driver.before_job = lambda time: 1 / 0 if time == START + 2 * INTERVAL else None
    driver.tick(1)
    driver.tick(1)
    world.wait(lambda: driver.input.unfinished == [START + 2 * INTERVAL])
    driver.stop()


def test_a_fenced_driver_tells_its_inputs_no_more_ends() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(20)
    running = driver.tick_only(1)
    world.wait(lambda: len(world.attempts) == 2)
    world.wait(lambda: driver.input.unfinished == [])
    successor = started(world)
    driver.tick_only(1)
    world.wait(lambda: driver.fenced)
    told = list(driver.input.unfinished)
    gate.set()
    world.wait(lambda: running in driver.listener.completed())
    driver.stop(graceful=False, timeout=1.0)
    successor.stop()
    assert driver.input.unfinished == told

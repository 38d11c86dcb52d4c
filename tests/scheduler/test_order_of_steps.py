"""The order of steps that a crash or a takeover in between depends on: each test fails if two of them are swapped."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import pytest

from kstream import crash_point
from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.dstream import TransformedDStream
from tests.fakes import FakeHost
from tests.harness import INTERVAL, PATIENCE, START, Driver, Killed, Stopper, World, started
from tests.receiver_driver import ReceiverDriver, together
from tests.scheduler.states import HISTORY, times_of_files, with_state
from tests.stores import SteppingStore

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
FIRST, SECOND, THIRD, FOURTH = (START + n * INTERVAL for n in (1, 2, 3, 4))


def test_a_batch_is_unfinished_until_its_completion_is_in_the_store() -> None:
    """Else commits, the floor and clean-up could pass a batch that a restart runs again."""
    seen: dict[str, Collection[Time]] = {}

    def step(verb: str, name: str, done: bool) -> None:
        if verb == "create" and name.startswith("done/") and not done and int(name[5:20]) > START:
            seen[name] = driver.engine.lifecycle.unfinished()

    world = World()
    driver = Driver(world, store=SteppingStore(world.store, step)).start()
    for _ in range(3):
        driver.tick(1)
    driver.stop()
    assert seen == {names.done(Time(t), 1): {Time(t)} for t in (FIRST, SECOND, THIRD)}


def test_functions_of_transform_do_not_run_for_a_batch_of_a_driver_that_was_replaced() -> None:
    """They may write somewhere: the successor runs them for that batch."""
    ran: list[tuple[int, int]] = []

    def build(_host: FakeHost, driver: Driver) -> None:
        def transform(time: Time, rdd: Any) -> Any:
            ran.append((driver.number, time.milliseconds))
            return rdd

        driver.output(TransformedDStream([driver.input], transform))

    world = World()
    a = started(world, build=build)
    a.tick(1)
    stopper = Stopper(crash_point.PLAN_DURABLE)
    a.tick_only(1)
    assert stopper.reached.wait(PATIENCE)
    b = started(world, build=build)
    world.wait(lambda: SECOND in b.listener.completed())
    stopper.go_on()
    world.wait(lambda: a.fenced)
    a.kill()
    b.stop()
    assert ran == [(a.number, FIRST), (b.number, SECOND)]


def test_a_received_block_is_known_as_used_before_the_plan_that_says_so_goes() -> None:
    """Clean-up is held up, as by a slow store, and has much to do at once. The driver is killed after the first plan went: its block must
    not wait for a second batch."""
    world = World()
    alive: list[ReceiverDriver] = []

    def step(verb: str, name: str, done: bool) -> None:
        if verb == "delete" and name == names.plan(Time(FIRST), 1) and done and alive:
            alive.pop().die()
            raise Killed(name)

    driver = ReceiverDriver(world, store=SteppingStore(world.store, step), logged=True).start()
    alive.append(driver)
    held = Stopper(crash_point.CLEANING)
    driver.receiver.storeAll([1, 2])
    for _ in range(5):
        driver.tick()
    assert held.reached.wait(PATIENCE)
    held.go_on()
    world.wait(lambda: not driver.alive)
    driver.kill()
    again = ReceiverDriver(world, logged=True).start()
    assert not again.waiting()
    again.tick()
    again.stop()
    assert together(world).count(1) == 1


def test_no_input_is_told_of_an_end_after_it_was_stopped() -> None:
    """A Kafka stream sends its last commit when it is stopped: what it hears later is never committed."""
    world = World()
    driver = Driver(world)
    told, gate = driver.input.batches_ended, threading.Event()

    def ended(unfinished: Collection[Time]) -> None:
        driver.input.calls.append(f"unfinished {len(unfinished)}")
        told(unfinished)

    driver.input.batches_ended = ended
    driver.before_job = lambda _time: gate.wait(PATIENCE)
    driver.start()
    driver.tick_only(1)
    world.wait(lambda: world.attempts)
    threading.Timer(0.01, gate.set).start()
    driver.stop()
    assert driver.input.calls[-2:] == ["unfinished 0", "stop"]


def test_a_driver_that_was_replaced_removes_no_state_that_its_successor_goes_on_from() -> None:
    """It names a newer state after the takeover, which its successor did not find when it read the log."""
    world = World()
    a = Driver(world, HISTORY, build=with_state(2)).start()
    for _ in range(3):
        a.tick(1)
    stopper = Stopper(crash_point.STATE_WRITTEN)
    a.tick_only(1)
    assert stopper.reached.wait(PATIENCE)
    b = Driver(world, HISTORY, build=with_state(2))
    gate = threading.Event()
    b.before_job = lambda _time: gate.wait(PATIENCE)
    b.start()
    stopper.go_on()
    world.wait(lambda: world.store.exists(names.done(Time(FOURTH), 1)))
    world.wait(lambda: FOURTH in a.listener.completed())
    a.engine._generator.drain(PATIENCE)
    a.engine._generator._cleaner.drain(PATIENCE)
    assert {SECOND, FOURTH} <= times_of_files(world)
    gate.set()
    world.wait(lambda: FOURTH in b.listener.completed())
    a.kill()
    b.tick(1)
    b.stop()
    assert world.records_by_time()[START + 5 * INTERVAL] == (0, 1, 2, 3, 4)

"""Few batches are generated at a time. Later plans wait as data, and missed batches are planned when they come to run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.errors import KStreamError
from tests.harness import INTERVAL, PATIENCE, Driver, World, at, started
from tests.scheduler.states import HISTORY, with_state
from tests.stores import FaultyStore

JOBS = "spark.streaming.concurrentJobs"


class BrokersAwayError(KStreamError):
    outage = True


def submitted(driver: Driver) -> list[int]:
    return [event.batchInfo().batch_time.milliseconds for event in driver.listener.named("onBatchSubmitted")]


class Gate:
    """Holds the jobs of a driver up, from a batch on, until it is opened."""

    def __init__(self, driver: Driver, first: int = 0) -> None:
        self._event = threading.Event()
        self._first = first
        driver.before_job = self._wait

    def _wait(self, time: int) -> None:
        if time >= self._first:
            assert self._event.wait(PATIENCE)

    def open(self) -> None:
        self._event.set()


def drain(driver: Driver) -> None:
    """Blocks until the generator and the listeners have nothing to do."""
    assert driver.engine._generator.drain(PATIENCE) and driver.bus.drain(PATIENCE)  # pyright: ignore


def plans_of(driver: Driver) -> list[int]:
    """The batches that the driver plans from now on, in their order."""
    times: list[int] = []
    advance = driver.input.planned

    def planned(time: Time, plan: Any) -> None:
        times.append(time.milliseconds)
        advance(time, plan)

    driver.input.planned = planned
    return times


def after_a_downtime(batches: int, conf: Mapping[str, str] | None = None) -> tuple[World, Driver]:
    """A driver that is not started yet, after one batch of an earlier one and so many missed batches."""
    world = World()
    first = started(world)
    first.tick(1)
    first.stop()
    world.clock.advance(batches * INTERVAL)
    return world, Driver(world, conf)


def backlog_of_states(batches: int) -> tuple[World, Driver, Gate]:
    """A driver with so many planned batches. The second one runs until the gate opens, and a state is written at its end."""
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2))
    gate, planned = Gate(driver, at(2)), plans_of(driver)
    driver.start()
    driver.tick(1)
    for _ in range(batches - 1):
        driver.tick_only(1)
    world.wait(lambda: len(planned) == batches)
    drain(driver)
    return world, driver, gate


@pytest.mark.parametrize("jobs", [1, 3])
def test_of_a_backlog_one_batch_more_is_generated_than_can_run_and_all_are_planned(jobs: int) -> None:
    world = World()
    driver = Driver(world, {JOBS: str(jobs)})
    gate, planned = Gate(driver), plans_of(driver)
    driver.start()
    for _ in range(8):
        driver.tick_only(1)
    world.wait(lambda: len(planned) == 8)
    drain(driver)
    assert submitted(driver) == [at(n) for n in range(1, jobs + 2)]
    pending = driver.engine.lifecycle.pending()
    assert (len(pending.running), len(pending.held)) == (8, 0), "no failed batch holds them"
    gate.open()
    driver.stop()
    assert sorted(submitted(driver)) == [at(n) for n in range(1, 9)]
    world.assert_exact()


def test_a_batch_that_waits_for_its_turn_was_submitted_when_it_was_planned() -> None:
    """So its scheduling delay, and the rate of back-pressure, have the time for which it waited."""
    world = World()
    driver = Driver(world)
    gate = Gate(driver)
    driver.start()
    for _ in range(5):
        driver.tick_only(1)
        world.wait(lambda: world.attempts)
        drain(driver)
    gate.open()
    driver.settle()
    infos = [event.batchInfo() for event in driver.listener.named("onBatchCompleted")]
    assert [info.submission_ms for info in infos] == [at(n) for n in range(1, 6)]
    assert [info.scheduling_delay_ms for info in infos] == [0, *(at(5) - at(n) for n in range(2, 6))]
    driver.stop()


def test_batches_that_wait_for_their_turn_are_not_held_by_a_failed_one(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = Driver(world, {"spark.streaming.kstream.maxHeldBatches": "2", "spark.streaming.kstream.failedBatch": "hold"})
    gate, planned = Gate(driver), plans_of(driver)
    driver.start()
    for _ in range(6):
        driver.tick_only(1)
    world.wait(lambda: len(planned) == 6)
    gate.open()
    driver.stop()
    assert "wait for a failed one" not in caplog.text
    world.assert_exact()


def test_the_batch_after_a_state_that_is_due_is_generated_when_that_state_is_written() -> None:
    world, driver, gate = backlog_of_states(4)
    assert submitted(driver) == [at(1), at(2)]
    gate.open()
    driver.settle()
    (state,) = driver.host.graph.active_states()
    assert state._lineage.bases[Time(at(3))] == Time(at(2))  # pyright: ignore
    driver.stop()
    assert driver.errors == [] and world.records_by_time()[at(4)] == (0, 1, 2, 3)


def test_slice_makes_no_rdd_of_a_batch_that_waits_for_its_turn() -> None:
    world, driver, gate = backlog_of_states(10)
    (state,) = driver.host.graph.active_states()
    made = state.generated_times
    assert len(state.remembered_rdds(Time(at(1)), Time(at(10)))) == 2 and state.generated_times == made
    gate.open()
    driver.settle()
    assert len(state.remembered_rdds(Time(at(9)), Time(at(10)))) == 2
    driver.stop()
    assert driver.errors == [] and world.records_by_time()[at(10)] == tuple(range(10))


def test_a_state_that_cannot_be_written_holds_no_batch_up() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2))

    def refuse(*_: Any) -> Any:
        raise OSError("no space left")

    driver.start()
    driver.engine._generator._parts.states._state_files().write = refuse  # pyright: ignore
    for _ in range(6):
        driver.tick(1)
    assert str(driver.engine.snapshot().state_error) == "no space left"
    driver.stop()
    assert driver.errors == [] and world.records_by_time()[at(6)] == (0, 1, 2, 3, 4, 5)


def test_missed_batches_are_planned_when_they_come_to_run_and_ticks_wait_behind_them() -> None:
    world, second = after_a_downtime(5)
    gate, planned = Gate(second), plans_of(second)
    second.start()
    drain(second)
    assert planned == [at(2), at(3)], "one runs, and one is next"
    second.tick_only(1)
    drain(second)
    assert planned == [at(2), at(3)]
    gate.open()
    second.settle()
    assert planned == [at(n) for n in range(2, 8)]
    second.tick(1)
    assert planned[-1] == at(8), "it is on time again"
    second.stop()
    world.assert_exact()


def test_a_stop_leaves_missed_batches_to_the_next_start() -> None:
    world, second = after_a_downtime(5)
    gate, planned = Gate(second), plans_of(second)
    second.start()
    drain(second)
    world.produce(2)
    stopper = threading.Thread(target=second.stop)
    stopper.start()
    world.wait(lambda: not second.engine._generator._due.plans_missed)  # pyright: ignore
    gate.open()
    stopper.join(PATIENCE)
    assert planned == [at(2), at(3)] and read_log(world.store).pending == []
    third = Driver(world)
    planned = plans_of(third)
    third.start()
    third.settle()
    assert planned == [at(n) for n in range(4, 7)]
    third.stop()
    world.assert_exact()


def test_a_missed_batch_that_meets_an_outage_is_planned_when_that_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world, second = after_a_downtime(3, {"spark.streaming.kstream.unreachableTimeout": "60s"})
    away = [True]

    def plan(_time: Time) -> None:
        if away[0]:
            raise BrokersAwayError("no broker answers")

    second.input.before_plan = plan
    planned = plans_of(second)
    second.start()
    drain(second)
    second.tick_only(1)
    drain(second)
    assert planned == []
    away[0] = False
    second.tick_only(1)
    second.settle()
    assert planned == [at(n) for n in range(2, 7)] and second.errors == []
    second.stop()
    world.assert_exact()


@pytest.mark.parametrize("refused", [1, 2])
def test_a_missed_batch_whose_plan_was_refused_holds_up_none_and_the_next_one_takes_its_records(refused: int) -> None:
    """A tombstone has its name, at once or, if the store refused the tombstone, too, with the next try."""
    world, _ = after_a_downtime(3)
    store, left = FaultyStore(world.store), [refused]

    def fault(verb: str, name: str) -> str | None:
        if verb != "create" or not name.startswith("plans/") or not left[0]:
            return None
        left[0] -= 1
        return "before"

    second = Driver(world, {"spark.streaming.kstream.unreachableTimeout": "60s"}, store=store)
    store.fault = fault
    planned = plans_of(second)
    world.produce(5)
    second.start()
    second.tick_only(1)
    second.settle()
    assert planned == [at(n) for n in range(3, 6)] and second.errors == []
    second.stop()
    world.assert_exact()

"""An input that fails in what it is told or asked at the end of a batch, or at the end of the stream, holds up nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kstream.batch import InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.history import read_ledger
from kstream.errors import CorruptRecordError
from kstream.scheduler.completions import OUTCOME_TRIES
from kstream.scheduler.job_generator import RetryDue, run_each
from tests.fakes import INTERVAL, FakeHost
from tests.harness import START, Driver, LogInput, World, started
from tests.scheduler.retries import MINUTE, POLICY, RETRIES, passes, succeeded
from tests.scheduler.states import with_state
from tests.stores import full_disk

FIRST, SECOND, THIRD = (START + n * INTERVAL for n in (1, 2, 3))


class CannotSayError(Exception):
    """The input of the tests cannot report."""


def unable(driver: Driver, times: int, batch: int = FIRST) -> list[int]:
    """Let the input fail so many times to report on a batch. Return the batches that it is asked about."""
    asked: list[int] = []

    def outcome(time: Time, _plan: Any) -> InputOutcome:
        asked.append(time.milliseconds)
        if time.milliseconds == batch and asked.count(batch) <= times:
            raise CannotSayError("no report")
        return InputOutcome()

    driver.input.outcome = outcome
    return asked


def driver_threads() -> list[str]:
    """The threads of this process that a driver has made."""
    named = ("JobGenerator", "JobScheduler", "PlanLogCleaner", "streaming-job", "StreamingListenerBus", "RecurringTimer")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(named)]


# -- the outcome of a batch


@pytest.mark.parametrize("policy", ["hold", "continue"])
def test_an_outcome_that_an_input_could_not_report_is_asked_for_again_and_no_restart_runs_the_batch(policy: str) -> None:
    world = World()
    driver = Driver(world, {POLICY: policy})
    asked = unable(driver, 2)
    driver.start()
    driver.tick(1)
    driver.wait_error(CannotSayError)
    for _ in range(3):
        driver.tick_only(1)
        driver.settle()
    assert asked.count(FIRST) == 3
    assert succeeded(world) == [FIRST, SECOND, THIRD, THIRD + INTERVAL]
    assert read_log(world.store).pending == [] and len(driver.errors) == 1


def test_a_graceful_stop_asks_again_too() -> None:
    world = World()
    driver = Driver(world)
    unable(driver, 1)
    driver.start()
    driver.tick(1)
    driver.wait_error(CannotSayError)
    driver.stop()
    assert read_log(world.store).pending == []


@pytest.mark.parametrize("policy", ["hold", "continue"])
def test_a_batch_whose_outcome_stays_unknown_is_left_to_a_restart_and_holds_nothing_up(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    driver = Driver(world, {POLICY: policy, RETRIES: "3"})
    asked = unable(driver, 1_000)
    driver.start()
    driver.tick(1)
    driver.wait_error(CannotSayError)
    with caplog.at_level(logging.ERROR, logger="kstream.scheduler.completions"):
        for _ in range(2 * OUTCOME_TRIES):
            driver.tick_only(1)
            driver.settle()
    assert asked.count(FIRST) == OUTCOME_TRIES
    assert len(succeeded(world)) == 1 + 2 * OUTCOME_TRIES, "later batches run"
    assert len([r for r in caplog.records if "a restart runs it again" in r.getMessage()]) == 1 and len(driver.errors) == 1
    assert not driver.input.has_batch(Time(FIRST)), "nothing needs its plan in memory"
    assert read_log(world.store).pending == [Time(FIRST)]
    driver.kill()
    started(world, {POLICY: policy}).settle()
    assert succeeded(world).count(FIRST) == 2 and read_log(world.store).pending == []


def test_a_batch_that_is_left_to_a_restart_is_forgotten_though_no_other_batch_ends() -> None:
    world = World()
    driver = Driver(world)
    unable(driver, 1_000)
    driver.start()
    for _ in range(3):
        driver.tick(1)
    driver.settle()
    assert driver.input.has_batch(Time(FIRST))
    for _ in range(OUTCOME_TRIES):
        driver.engine._generator._loop.post(RetryDue())
    driver.settle()
    assert not driver.input.has_batch(Time(FIRST))


def test_a_state_that_a_retry_has_computed_holds_no_batch_though_the_outcome_stays_unknown() -> None:
    world = World()
    driver = Driver(world, {RETRIES: "3"}, build=with_state(5))
    unable(driver, 1_000)
    away = driver.refuse(FIRST)
    states: Any = driver.host.graph.active_states()[0]
    compute = states.compute_state

    def compute_state(time: Time) -> None:
        if time == Time(FIRST) and away:
            raise ValueError("no state")
        compute(time)

    states.compute_state = compute_state
    driver.start()
    driver.tick_only(1)
    driver.settle()
    driver.tick_only(1)
    driver.settle()
    assert {a.time for a in world.attempts} == {FIRST}, "the second one waits for the state"
    away.clear()
    passes(driver, 10 * INTERVAL)
    assert succeeded(world)[:3] == [FIRST, SECOND, THIRD]
    assert read_log(world.store).pending == [Time(FIRST)]


@pytest.mark.parametrize("refusals", [0, 1], ids=["at-once", "when-it-is-tried-again"])
def test_under_hold_a_completion_that_can_never_be_stored_holds_nothing_up(refusals: int) -> None:
    world = World()
    driver = started(world, {POLICY: "hold"})
    completions: Any = driver.engine._scheduler.completions
    complete, tries = completions._log.complete, list[Time]()

    def damaged(time: Time, *fields: Any) -> Any:
        if time != Time(FIRST):
            return complete(time, *fields)
        tries.append(time)
        if len(tries) <= refusals:
            raise full_disk(names.done(time, 1))
        raise CorruptRecordError("the name is taken", path=names.done(time, 1), reason="checksum")

    completions._log.complete = damaged
    driver.tick(1)
    passes(driver, 3 * INTERVAL)
    assert succeeded(world)[:3] == [FIRST, SECOND, THIRD] and len(driver.errors) == 1
    assert len(tries) == 1 + refusals
    assert not driver.input.has_batch(Time(FIRST)), "nothing needs its plan in memory"


def test_an_input_that_has_reported_a_loss_is_not_asked_again_when_another_one_could_not_report() -> None:
    """It may give each loss only once, and no loss goes by in silence."""
    world = World()
    asked: list[str] = []

    class Losing(LogInput):
        def outcome(self, time: Time, plan: Any) -> InputOutcome:
            asked.append("losing")
            return InputOutcome(lost=[{"from": 0}] if asked.count("losing") == 1 else [], report=True)

    class Unable(LogInput):
        def outcome(self, time: Time, plan: Any) -> InputOutcome:
            asked.append("unable")
            if asked.count("unable") == 1:
                raise CannotSayError("no report")
            return InputOutcome()

    def build(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.clear()
        driver.input = Losing(host, world.log)
        for stream in (driver.input, Unable(host, world.log)):
            driver.output(stream)

    driver = Driver(world, build=build).start()
    driver.tick(1)
    driver.wait_error(CannotSayError)
    driver.tick(1)
    driver.settle()
    assert asked == ["losing", "unable", "unable", "losing", "unable"]
    assert [entry.time.milliseconds for entry in read_ledger(world.store)] == [FIRST]
    assert len(driver.listener.named("onDataLost")) == 1


# -- the ends of batches


class Deaf(LogInput):
    """Fails when it is told that batches have ended."""

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        raise ValueError("cannot commit")


class Stubborn(LogInput):
    """Fails when it is stopped."""

    def stop(self) -> None:
        raise ValueError("cannot close")


def beside(kind: Callable[[Any, list[int]], LogInput]) -> Callable[[FakeHost, Driver], None]:
    """Build a graph with an input of this kind, and then the driver's own."""

    def build(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.clear()
        driver.output(kind(host, driver.world.log))
        driver.input = LogInput(host, driver.world.log)
        driver.output(driver.input)

    return build


def test_an_input_that_fails_when_it_is_told_of_an_end_stops_neither_clean_up_nor_the_others() -> None:
    world = World()
    driver = Driver(world, build=beside(Deaf)).start()
    for _ in range(10):
        driver.tick(1)
    driver.settle()
    driver.engine._generator._cleaner.drain(20)
    assert len(driver.input._plans) == 1 and len(world.store.list("plans")) == 2
    assert driver.input.unfinished == []
    assert "failed when it was told that batches have ended" in driver.messages()[0]


def test_a_failed_batch_is_tried_again_though_an_input_fails_when_it_is_told_of_an_end() -> None:
    world = World()
    driver = Driver(world, {POLICY: "hold"}, build=beside(Deaf))
    away = driver.refuse(FIRST)
    driver.start()
    driver.tick(1)
    for _ in range(2):
        driver.tick_only(1)
        driver.settle()
    away.clear()
    passes(driver, MINUTE)
    assert list(dict.fromkeys(succeeded(world)))[:3] == [FIRST, SECOND, THIRD]


def test_a_bounded_run_ends_though_an_input_fails_when_it_is_told_of_an_end() -> None:
    world = World()

    def build(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.clear()
        driver.input = Deaf(host, world.log)
        driver.input.end = 2
        driver.output(driver.input)

    driver = Driver(world, build=build).start()
    driver.tick(2)
    world.wait(lambda: driver.exhausted)


# -- the stop


@pytest.mark.parametrize("graceful", [True, False])
@pytest.mark.parametrize("kind", [Deaf, Stubborn])
def test_an_input_that_fails_at_a_stop_leaves_no_thread_and_the_others_are_stopped(kind: type[LogInput], graceful: bool) -> None:
    world = World()
    driver = Driver(world, build=beside(kind)).start()
    driver.tick(1)
    driver.settle()
    driver.errors.clear()
    driver.stop(graceful)
    assert driver_threads() == []
    assert driver.input.calls[-1] == "stop"
    assert [type(error) for _, error in driver.errors] == [ValueError]


def test_a_part_that_fails_at_a_stop_leaves_the_others_stopped_and_its_error_is_raised() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    driver.settle()
    scheduler: Any = driver.engine._scheduler

    def no_answer() -> None:
        raise ZeroDivisionError

    scheduler.completions.retry = no_answer
    with pytest.raises(ZeroDivisionError):
        driver.stop()
    assert driver_threads() == [] and driver.input.calls[-1] == "stop"


def test_steps_run_whatever_fails_and_the_first_error_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def fails(error: BaseException) -> Callable[[], None]:
        def step() -> None:
            raise error

        return step

    with pytest.raises(KeyboardInterrupt):
        run_each(lambda: done.append(1), fails(KeyboardInterrupt()), fails(ValueError("later")), lambda: done.append(2))
    assert done == [1, 2]
    assert [record.getMessage() for record in caplog.records] == ["another error after KeyboardInterrupt: ValueError: later"]

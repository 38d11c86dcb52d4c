"""Missed batches wait unplanned while an earlier batch that has failed before runs again: failing starts do not pile up batches."""

from __future__ import annotations

import logging

import pytest

from kstream.batch_time import Duration, Time
from kstream.checkpoint import read_log
from kstream.scheduler.missed_batches import GRACE_MS, MissedBatches
from tests.harness import INTERVAL, START, World
from tests.scheduler.retries import MINUTE, POLICY, RETRIES, NoCompletion, Sink, SinkAwayError, passes, running, succeeded

FIRST = START + INTERVAL
FAILING = {Time(1000)}


def postponed(*, hold: bool = False) -> MissedBatches:
    return MissedBatches(Time(2000), Time(5000), Duration(1000), FAILING, hold)


def are_due(waiting: MissedBatches, unfinished: set[Time], running: set[Time], now_ms: int) -> bool:
    return waiting.are_due(lambda: unfinished, lambda: running, now_ms)


def broken(world: World, sink: Sink, conf: dict[str, str]) -> None:
    """A first life whose only batch fails."""
    sink.down = True
    driver = running(world, sink, conf)
    driver.tick(2)
    driver.wait_error(SinkAwayError)
    driver.kill()


def test_they_are_due_at_once_when_the_failing_batches_have_succeeded() -> None:
    assert are_due(postponed(), set(), set(), 0)
    assert are_due(postponed(hold=True), {Time(9000)}, {Time(9000)}, 0)


def test_they_wait_while_a_failing_batch_runs() -> None:
    assert not are_due(postponed(), FAILING, FAILING, 0)


def test_they_are_due_some_time_after_it_has_failed_again_because_the_program_lives_on() -> None:
    waiting = postponed()
    assert not are_due(waiting, FAILING, FAILING, 0)
    assert not are_due(waiting, FAILING, set(), 1000)
    assert not are_due(waiting, FAILING, set(), 1000 + GRACE_MS - 1)
    assert are_due(waiting, FAILING, set(), 1000 + GRACE_MS)


def test_the_time_begins_anew_when_it_runs_again_and_fails_again() -> None:
    waiting = postponed()
    assert not are_due(waiting, FAILING, set(), 1000)
    assert not are_due(waiting, FAILING, FAILING, 2000)
    assert not are_due(waiting, FAILING, set(), 9000)
    assert not are_due(waiting, FAILING, set(), 9000 + GRACE_MS - 1)
    assert are_due(waiting, FAILING, set(), 9000 + GRACE_MS)


def test_under_hold_they_wait_until_it_has_succeeded() -> None:
    waiting = postponed(hold=True)
    assert not are_due(waiting, FAILING, set(), 0)
    assert not are_due(waiting, FAILING, set(), 1_000_000)


def test_ticks_wait_behind_the_missed_batches_and_are_asked_about_when_those_are_planned() -> None:
    missed = MissedBatches(Time(2000), Time(5000), Duration(1000), (), hold=False)
    missed.select(missed.passed())
    missed.add_tick(Time(5000))
    missed.add_tick(Time(4000))  # the timer had ticked already when the batch was missed
    assert missed.next == Time(2000)
    for _ in range(3):
        missed.planned()
    assert missed.next is None and missed.passed() == [Time(5000)]


def test_a_completion_that_was_refused_once_does_not_hold_them_up() -> None:
    world, sink = World(), Sink()
    conf = {POLICY: "hold"}
    broken(world, sink, conf)
    world.clock.advance(5 * INTERVAL)
    sink.down = False
    store = NoCompletion(world.store)
    store.refuse = 1
    driver = running(world, sink, conf, store=store)
    driver.settle()
    passes(driver, 5 * INTERVAL)
    assert read_log(world.store).pending == []
    assert len(succeeded(world)) == 11


def test_they_wait_for_all_retries_of_a_failing_batch() -> None:
    world, sink, conf = World(), Sink(), {RETRIES: "2"}
    sink.down = True
    driver = running(world, sink, conf)
    driver.tick_only(1)
    passes(driver, 5 * INTERVAL)
    driver.kill()
    before = len(read_log(world.store).pending)
    for _ in range(3):
        world.clock.advance(10 * INTERVAL)
        driver = running(world, sink, conf)
        while not driver.errors:
            passes(driver, INTERVAL)
        driver.kill()
    assert len(read_log(world.store).pending) == before


@pytest.mark.parametrize("policy", ["continue", "hold"])
def test_a_program_that_ends_at_each_failure_has_one_pending_batch_after_five_starts(policy: str) -> None:
    world, sink, conf = World(), Sink(), {POLICY: policy}
    broken(world, sink, conf)
    for _ in range(5):
        world.clock.advance(20 * INTERVAL)
        world.produce(3)
        driver = running(world, sink, conf)
        driver.wait_error(SinkAwayError)
        driver.kill()
    assert [t.milliseconds for t in read_log(world.store).pending] == [FIRST]
    sink.down = False
    driver = running(world, sink, conf)
    world.wait(lambda: len(succeeded(world)) == 101)
    driver.settle()
    assert read_log(world.store).pending == []
    world.assert_exact()


def test_they_are_planned_as_soon_as_the_failing_batch_has_succeeded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world, sink = World(), Sink()
    broken(world, sink, {})
    world.clock.advance(3 * INTERVAL)
    sink.down = False
    driver = running(world, sink, {})
    world.wait(lambda: len(succeeded(world)) == 4)
    driver.settle()
    assert succeeded(world) == [FIRST + n * INTERVAL for n in range(4)]
    assert "missed batches 1002000 ms to 1004000 ms wait unplanned" in caplog.text


def test_a_program_that_lives_on_gets_them_after_a_while_before_its_next_batch() -> None:
    world, sink = World(), Sink()
    broken(world, sink, {})
    world.clock.advance(3 * INTERVAL)
    sink.down, sink.away = False, {FIRST}
    driver = running(world, sink, {})
    driver.wait_error(SinkAwayError)
    driver.settle()
    assert succeeded(world) == []
    for _ in range(GRACE_MS // INTERVAL):
        assert succeeded(world) == []
        passes(driver, INTERVAL)
    assert succeeded(world) == [FIRST + n * INTERVAL for n in range(1, 4 + GRACE_MS // INTERVAL)]


def test_under_hold_missed_batches_and_ticks_follow_when_a_retry_succeeds() -> None:
    world, sink = World(), Sink()
    conf = {POLICY: "hold", RETRIES: "3"}
    sink.down = True
    driver = running(world, sink, conf)
    driver.tick_only(1)
    driver.settle()
    passes(driver, 20 * INTERVAL)
    driver.wait_error(SinkAwayError)
    driver.kill()
    before = len(read_log(world.store).pending)
    world.clock.advance(3 * INTERVAL)
    driver = running(world, sink, conf)
    passes(driver, 5 * INTERVAL)
    assert len(read_log(world.store).pending) == before, "nothing more is planned"
    sink.down = False
    passes(driver, MINUTE)
    assert read_log(world.store).pending == []
    assert succeeded(world) == sorted(set(succeeded(world)))
    world.assert_exact()

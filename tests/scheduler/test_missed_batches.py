"""Missed batches wait unplanned while an earlier batch that has failed before runs again: failing starts do not pile up batches."""

from __future__ import annotations

import logging

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.scheduler.missed_batches import GRACE_MS, PostponedBatches
from tests.harness import INTERVAL, START, World
from tests.scheduler.test_retries import MINUTE, POLICY, RETRIES, NoCompletion, Sink, SinkAwayError, passes, running, succeeded

FIRST = START + INTERVAL
FAILING = {Time(1000)}


def postponed(*, hold: bool = False) -> PostponedBatches:
    return PostponedBatches(Time(2000), Time(5000), FAILING, hold)


def broken(world: World, sink: Sink, conf: dict[str, str]) -> None:
    """A first life whose only batch fails."""
    sink.down = True
    driver = running(world, sink, conf)
    driver.tick(2)
    driver.wait_error(SinkAwayError)
    driver.kill()


def test_they_are_due_at_once_when_the_failing_batches_have_succeeded() -> None:
    assert postponed().are_due(set(), set(), 0)
    assert postponed(hold=True).are_due({Time(9000)}, {Time(9000)}, 0)


def test_they_wait_while_a_failing_batch_runs() -> None:
    assert not postponed().are_due(FAILING, FAILING, 0)


def test_they_are_due_some_time_after_it_has_failed_again_because_the_program_lives_on() -> None:
    waiting = postponed()
    assert not waiting.are_due(FAILING, FAILING, 0)
    assert not waiting.are_due(FAILING, set(), 1000)
    assert not waiting.are_due(FAILING, set(), 1000 + GRACE_MS - 1)
    assert waiting.are_due(FAILING, set(), 1000 + GRACE_MS)


def test_under_hold_they_wait_until_it_has_succeeded() -> None:
    waiting = postponed(hold=True)
    assert not waiting.are_due(FAILING, set(), 0)
    assert not waiting.are_due(FAILING, set(), 1_000_000)


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

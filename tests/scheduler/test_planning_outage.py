"""While brokers or the store are away no batch is planned, nothing is lost, and the driver waits for its time before that is an error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import Outage
from kstream.clock import StopFlag
from kstream.errors import KStreamError, PlanFailedError, StorageError, TransientError
from kstream.scheduler.planning_outage import REMINDER_MS, PlanningOutage
from kstream.scheduler.settings import UNREACHABLE_TIMEOUT
from tests.clocks import JumpingClock
from tests.harness import INTERVAL, START, Driver, World, faulty_world, started

T = Time(1000)


class Now:
    """A clock. Its wall time is the monotonic time, plus what `wall` was set ahead by."""

    def __init__(self) -> None:
        self.ms, self.wall = 5_000, 0

    def monotonic_ms(self) -> int:
        return self.ms

    def time_ms(self) -> int:
        return self.ms + self.wall

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        raise AssertionError(f"nobody waits for {milliseconds} ms")


def outage(timeout_ms: int) -> tuple[PlanningOutage, Now]:
    now = Now()
    return PlanningOutage(timeout_ms, now), now


def test_an_outage_is_waited_for_until_its_time_is_over() -> None:
    away, now = outage(10_000)
    assert away.waits(T, TransientError("away"))
    now.ms += 9_999
    assert away.waits(T, StorageError("away too"))
    now.ms += 1
    assert not away.waits(T, TransientError("away"))


def test_the_time_begins_again_with_the_next_outage() -> None:
    away, now = outage(10_000)
    away.waits(T, TransientError("away"))
    now.ms += 9_999
    away.ended(T)
    now.ms += 9_999
    assert away.waits(T, TransientError("away"))


def test_an_outage_before_ticks_that_tried_nothing_does_not_count_for_the_next_one() -> None:
    away, now = outage(10_000)
    assert away.waits(T, TransientError("away"))
    away.passed_over()
    away.passed_over()
    now.ms += 20_000
    assert away.waits(T, TransientError("away"))


def test_an_outage_goes_on_while_held_batches_meet_it_though_ticks_plan_nothing() -> None:
    away, now = outage(10_000)
    for _ in range(10):
        assert away.waits(T, StorageError("away"), planned=True)
        away.passed_over()
        now.ms += 1_000
    assert not away.waits(T, StorageError("away"), planned=True)


@pytest.mark.parametrize("error", [ValueError("bad"), KStreamError("wrong password")])
def test_an_error_that_is_no_outage_is_reported_at_once(error: Exception) -> None:
    away, _ = outage(10_000)
    assert not away.waits(T, error)


def test_with_a_time_of_zero_an_outage_is_reported_at_once_as_in_spark() -> None:
    away, _ = outage(0)
    assert not away.waits(T, TransientError("away"))


def test_the_log_has_a_line_a_minute_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    away, now = outage(600_000)
    with caplog.at_level(logging.INFO):
        away.ended(T)
        for _ in range(90):
            away.waits(T, TransientError("brokers h:1 are away"))
            now.ms += 1000
        away.ended(T)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    first, second, last = (record.message for record in caplog.records)
    assert "the driver waits for 600 s more" in first and UNREACHABLE_TIMEOUT.key in first and "brokers h:1 are away" in first
    assert f"{1 + REMINDER_MS // 1000} in a row; the driver waits for 540 s more" in second
    assert "the outage is over after 90 s, 90 batches had no plan" in last


def test_an_outage_is_as_long_as_batches_were_missing_and_not_only_since_its_first_error(caplog: pytest.LogCaptureFixture) -> None:
    away, now = outage(600_000)
    away.tries()
    now.ms += 30_000
    away.waits(Time(2_000), TransientError("brokers h:1 have not answered for 30 s"))
    now.ms += 69_000
    away.tries()
    away.ended(Time(101_000))
    assert "the outage is over after 99 s" in caplog.records[-1].message


def test_an_outage_while_the_driver_catches_up_began_at_its_first_error_and_not_at_the_old_batch(caplog: pytest.LogCaptureFixture) -> None:
    """An outage of 5 s was said to have lasted for an hour: the batches that it missed were an hour old."""
    away, now = outage(600_000)
    away.tries()
    away.waits(Time(2_000), TransientError("brokers h:1 are away"))
    now.ms += 5_000
    away.tries()
    away.ended(Time(3_602_000))
    assert "the outage is over after 5 s" in caplog.records[-1].message


def test_an_outage_is_told_with_its_first_unplanned_batch_and_its_newest_error_until_it_is_over() -> None:
    away, now = outage(600_000)
    now.wall = 1_000_000
    assert away.outage is None
    away.tries()
    now.ms += 30_000
    away.waits(T, StorageError("no answer"), planned=True)
    assert away.outage == Outage(1_005_000, 1_635_000, "StorageError: no answer")
    now.ms += 1000
    away.waits(Time(2000), TransientError("brokers h:1 are away"))
    away.waits(Time(3000), TransientError("brokers h:2 are away"))
    assert away.outage == Outage(1_005_000, 1_635_000, "TransientError: brokers h:2 are away", Time(2000))
    away.started()
    away.ended(Time(4000))
    assert away.outage is None
    away.waits(T, TransientError("password=hunter2"))
    assert "hunter2" not in str(away.outage)
    away.passed_over()
    away.passed_over()
    assert away.outage is None


def test_a_tick_is_passed_over_only_while_an_outage_is_on_and_a_newer_tick_is_due() -> None:
    away, _ = outage(10_000)
    second = Duration(1000)
    assert not away.passes_over(T, 9_000, second)
    away.waits(T, TransientError("away"))
    assert away.passes_over(Time(2000), 3000, second) and not away.passes_over(Time(2000), 2999, second)
    away.ended(T)
    assert not away.passes_over(Time(2000), 9_000, second)


# -- in a driver


def drained(driver: Driver) -> bool:
    """Whether everything that was posted to the driver is handled."""
    generator: Any = driver.engine._generator
    scheduler: Any = driver.engine._scheduler
    return generator.drain(10) and scheduler.drain(10)


def refusing(prefix: str) -> Callable[[str, str], str | None]:
    """A fault of every create of such a name."""
    return lambda verb, name: "before" if verb == "create" and name.startswith(prefix) else None


def test_a_store_that_is_away_for_some_batches_is_no_error_and_loses_nothing() -> None:
    world, faulty = faulty_world()
    driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    driver.tick(2)
    faulty.fault = refusing("plans/")
    for _ in range(3):
        driver.tick_only(1)
        assert drained(driver)
    faulty.fault = lambda _verb, _name: None
    time = driver.tick(1)
    assert world.records_by_time() == {START + INTERVAL: (0, 1), time: (2, 3, 4, 5)}
    assert driver.errors == []
    driver.stop()
    world.assert_exact()


def test_an_end_that_the_store_refuses_is_no_error_and_is_stored_before_the_next_plan() -> None:
    world, faulty = faulty_world()
    driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    faulty.fault = refusing("done/")
    driver.tick(2)
    assert drained(driver) and driver.errors == []
    faulty.fault = lambda _verb, _name: None
    driver.tick(1)
    driver.stop()
    world.assert_exact()
    second: Driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    second.tick(1)
    second.stop()
    assert len(world.attempts) == 3, "no batch ran twice"


def test_a_store_that_stays_away_is_the_error_after_the_time() -> None:
    world, faulty = faulty_world()
    driver = started(world, {UNREACHABLE_TIMEOUT.key: f"{2 * INTERVAL}ms"})
    driver.tick(1)
    faulty.fault = refusing("plans/")
    for _ in range(2):
        driver.tick_only(1)
        assert drained(driver) and driver.errors == []
    driver.tick_only(1)
    driver.wait_error(PlanFailedError)
    faulty.fault = lambda _verb, _name: None
    driver.tick(1)
    driver.stop()
    world.assert_exact()


def test_a_driver_that_dies_in_an_outage_leaves_everything_to_the_next_one() -> None:
    world, faulty = faulty_world()
    driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    driver.tick(2)
    faulty.fault = refusing("plans/")
    driver.tick_only(2)
    assert drained(driver)
    driver.die()
    faulty.fault = lambda _verb, _name: None
    second: Driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    second.tick(1)
    second.stop()
    world.assert_exact()


def test_of_the_ticks_that_pass_while_a_request_waits_only_the_newest_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that times out after some intervals, or the planning of overdue batches would last longer than the outage."""
    world = World(clock=JumpingClock())
    driver = started(world)
    driver.tick(1)
    tried: list[int] = []
    plan, away = driver.input.plan, [True]

    def waits(time: Time) -> Any:
        tried.append(time.milliseconds)
        if len(tried) == 1:
            driver.clock.advance(6 * INTERVAL)
        if away[0]:
            raise TransientError("no broker has answered")
        return plan(time)

    monkeypatch.setattr(driver.input, "plan", waits)
    world.produce(7)
    driver.clock.advance(INTERVAL)
    world.wait(lambda: len(tried) == 2)
    assert tried == [START + 2 * INTERVAL, START + 8 * INTERVAL]
    away[0] = False
    driver.tick()
    assert world.records_by_time() == {START + INTERVAL: (0,), START + 9 * INTERVAL: tuple(range(1, 8))}


def test_a_planned_batch_whose_look_for_a_newer_driver_fails_waits_for_the_store_and_is_no_failure() -> None:
    world, faulty = faulty_world()
    driver = started(world, {UNREACHABLE_TIMEOUT.key: "10m"})
    faulty.fault = lambda verb, name: "before" if verb == "exists" and name.startswith("epoch-") else None
    first = driver.tick_only(1)
    driver.settle()
    driver.tick_only(1)
    driver.settle()
    assert world.attempts == [] and driver.errors == []
    faulty.fault = lambda _verb, _name: None
    third = driver.tick(1)
    driver.settle()
    assert world.times()[0] == first and world.times()[-1] == third
    assert driver.errors == []
    world.assert_exact()

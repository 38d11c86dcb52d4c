"""Which missed batches are made: after a restart, and after many overdue ticks of a clock that jumped or a driver that stood still."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from kstream.batch_time import Duration, Seconds, Time
from kstream.scheduler.missed_batches import MOST, OVERDUE, batches_during_downtime, overdue
from tests.clocks import JumpingClock
from tests.fakes import FakeHost
from tests.harness import INTERVAL, Driver, LogInput, World, at, started
from tests.scheduler.states import HISTORY, with_state

SECOND = Duration(1000)


# -- the choice (pure)


def downtime(last: int, restart: int, remember: int = 1, most: int = 1000, busy: Any = ()) -> list[int]:
    missed = [Time(s * 1000) for s in range(last + 1, restart)]
    times = batches_during_downtime(missed, Seconds(1), Seconds(remember), busy, most)
    return [t.milliseconds // 1000 for t in times]


def test_downtime_is_from_the_last_planned_to_the_restart_both_excluded() -> None:
    """Spark behaviour CP14."""
    assert downtime(5, 9) == [6, 7, 8]
    assert downtime(5, 6) == []
    assert downtime(5, 5) == []


def seconds(*values: int) -> list[Time]:
    return [Time(s * 1000) for s in values]


def test_by_timestamp_keeps_what_has_records_what_their_windows_reach_and_the_tail() -> None:
    times = downtime(0, 5001, remember=3, busy=[seconds(100, 2000)])
    assert times == [100, 101, 102, 103, 2000, 2001, 2002, 2003, 4998, 4999, 5000]


def test_a_second_input_that_catches_up_still_gets_its_first_batches() -> None:
    times = downtime(0, 5001, remember=3, busy=[seconds(3000), None])
    assert times[:997] == list(range(1, 998)) and times[997:] == [3000, 3001, 3002, 3003, 4998, 4999, 5000]


def test_a_busy_downtime_of_any_length_is_made_whole() -> None:
    assert downtime(0, 3001, busy=[seconds(*range(1, 3001))]) == list(range(1, 3001))


def test_long_downtimes_leave_out_the_middle_and_keep_every_window_whole() -> None:
    times = downtime(0, 5001, remember=10)
    assert len(times) == 1000
    assert times[:990] == list(range(1, 991)) and times[990:] == list(range(4991, 5001))


def test_a_window_longer_than_all_that_may_be_made_still_leaves_one_to_drain_the_backlog() -> None:
    times = downtime(0, 101, remember=50, most=10)
    assert times == [1, *range(92, 101)]


def test_a_downtime_of_exactly_the_most_is_made_whole() -> None:
    assert downtime(0, 1001, remember=10) == list(range(1, 1001))


# -- overdue ticks


def test_few_overdue_ticks_are_none_and_many_are_all_up_to_now() -> None:
    assert overdue(Time(5000), 5999, SECOND) == []
    assert overdue(Time(5000), 5000 + (OVERDUE - 1) * 1000 + 999, SECOND) == []
    assert overdue(Time(5000), 5000 + OVERDUE * 1000, SECOND) == [Time(5000 + n * 1000) for n in range(OVERDUE + 1)]
    assert overdue(Time(5000), 4999, SECOND) == [] and overdue(Time(5000), 7500, SECOND, most=1) == [Time(n) for n in (5000, 6000, 7000)]


def planned(driver: Driver) -> list[int]:
    driver.engine._generator.drain(20)
    return [e.batchInfo().batch_time.milliseconds for e in driver.listener.named("onBatchSubmitted")]


def ran(world: World, driver: Driver, time: int) -> None:
    """Blocks until a batch has ended. Each batch before it has the patience for itself: a thousand take long on a loaded machine."""
    while time not in driver.listener.completed():
        begun = len(world.attempts)
        world.wait(lambda before=begun: len(world.attempts) > before or time in driver.listener.completed())


def test_a_clock_that_jumps_forward_floods_the_stream_with_no_more_batches_than_a_restart_makes(caplog: pytest.LogCaptureFixture) -> None:
    """+30 minutes with batches of a second."""
    world = World(clock=JumpingClock())
    driver = started(world)
    driver.tick(2)
    world.produce(5)
    world.clock.wait_for_waiters()
    with caplog.at_level(logging.INFO, logger="kstream.scheduler.due_batches"):
        world.clock.jump(1800 * INTERVAL)
        ran(world, driver, at(1801))
    made = planned(driver)
    assert len(made) == 1 + MOST and made[:3] == [at(1), at(2), at(3)] and made[-1] == at(1801)
    assert "1800 batches are overdue" in caplog.text and "1000 of them are planned" in caplog.text
    driver.tick(1)
    assert planned(driver)[-1] == at(1802)
    driver.stop()
    world.assert_exact()


def test_a_restart_after_a_jump_finds_no_missing_plan() -> None:
    world = World(clock=JumpingClock())
    driver = started(world)
    driver.before_job = lambda _time: (_ for _ in ()).throw(ValueError("boom"))
    driver.tick(2)
    world.clock.wait_for_waiters()
    world.clock.jump(1100 * INTERVAL)
    ran(world, driver, at(1101))
    driver.stop()
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()


@pytest.mark.parametrize("ticks", [2, OVERDUE])
def test_a_short_lateness_makes_each_batch_and_asks_no_input_what_it_has_missed(ticks: int) -> None:
    world = World(clock=JumpingClock())
    driver = started(world)
    driver.tick(1)
    world.clock.wait_for_waiters()
    world.clock.jump(ticks * INTERVAL)
    ran(world, driver, at(1 + ticks))
    assert planned(driver) == [at(n) for n in range(1, ticks + 2)]
    assert not [call for call in driver.input.calls if call.startswith("missed")]


def test_a_clock_that_a_test_moves_by_hand_makes_every_batch() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    world.clock.wait_for_waiters()
    world.clock.advance(1500 * INTERVAL)
    ran(world, driver, at(1501))
    assert planned(driver) == [at(n) for n in range(1, 1502)]
    assert not [call for call in driver.input.calls if call.startswith("missed")]


class ByTimestamp(LogInput):
    """Knows at which of the missed times it has records."""

    busy: Sequence[int] = ()
    away = 0

    def missed(self, times: Sequence[Time]) -> Collection[Time]:
        super().missed(times)
        if self.away:
            self.away -= 1
            raise ConnectionError("no broker")
        return [Time(ms) for ms in self.busy]


def by_timestamp(host: FakeHost, driver: Driver) -> None:
    host.graph._inputs.clear()
    driver.input = ByTimestamp(host, driver.world.log)
    driver.output(driver.input.window(Seconds(3), Seconds(1)))


def jumped(busy: Sequence[int], away: int = 0) -> tuple[World, Driver]:
    world = World(clock=JumpingClock())
    driver = Driver(world, build=by_timestamp)
    driver.input.busy, driver.input.away = busy, away
    driver.start()
    driver.tick(1)
    world.clock.wait_for_waiters()
    world.clock.jump(1200 * INTERVAL)
    ran(world, driver, at(1201))
    return world, driver


def test_an_input_that_knows_its_times_is_asked_once_and_empty_batches_that_no_window_sees_are_left_out() -> None:
    _, driver = jumped([at(100)])
    reach = driver.host.graph.longest_remember().milliseconds // INTERVAL
    tail = [at(n) for n in range(1202 - reach, 1202)]
    assert planned(driver) == [at(1), *(at(n) for n in range(100, 101 + reach)), *tail]
    assert [call for call in driver.input.calls if call.startswith("missed")] == ["missed 1200"]


def test_an_input_that_cannot_say_what_it_missed_is_asked_again_with_the_next_tick() -> None:
    _, driver = jumped([at(100)], away=2)
    assert [str(e) for _, e in driver.errors] == ["no broker"] * 2
    assert [call for call in driver.input.calls if call.startswith("missed")] == ["missed 1200"] * 3
    assert at(100) in planned(driver) and at(50) not in planned(driver)


def test_a_state_carries_over_the_ticks_that_are_left_out() -> None:
    world = World(clock=JumpingClock())
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    driver.tick(2)
    world.clock.wait_for_waiters()
    world.produce(1)
    world.clock.jump(1200 * INTERVAL)
    ran(world, driver, at(1201))
    driver.tick(1)
    driver.stop()
    assert world.records_by_time()[at(1202)] == (0, 1, 2, 3) and driver.errors == []
    again = Driver(world, HISTORY, build=with_state(2)).start()
    again.tick(1)
    again.stop()
    assert world.records_by_time()[at(1203)] == (0, 1, 2, 3, 4)


def test_windows_after_a_jump_are_those_of_the_batches_that_stand() -> None:
    world, driver = jumped([])
    for _ in range(4):
        driver.tick(2)
    driver.stop()
    assert [world.records_by_time()[at(n)] for n in (1203, 1204, 1205)] == [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6), (3, 4, 5, 6, 7, 8)]

"""RecurringTimer ticks at every multiple, whatever the clock does (Spark behaviours RT1–RT3)."""

from __future__ import annotations

import threading

import pytest

from kstream.loop import RecurringTimer
from kstream.testing import ManualClock


class Ticks:
    """A timer of period 100 and what it called."""

    def __init__(self, now: int = 0) -> None:
        self.clock = ManualClock(now)
        self.seen: list[int] = []
        self.errors: list[BaseException] = []
        self.timer = RecurringTimer(self.clock, 100, self.seen.append, "test", self.errors.append)

    def advance(self, milliseconds: int) -> None:
        self.clock.wait_for_waiters()
        self.clock.advance(milliseconds)
        self.clock.wait_for_waiters()


def test_no_tick_is_skipped_when_the_clock_jumps() -> None:
    """Spark behaviour RT1."""
    ticks = Ticks()
    ticks.timer.start(0)
    ticks.clock.wait_for_waiters()
    assert ticks.seen == [0]
    ticks.advance(100)
    assert ticks.seen == [0, 100]
    ticks.advance(200)
    assert ticks.seen == [0, 100, 200, 300]
    assert ticks.timer.stop(interrupt=True) == 300


def test_a_stop_that_does_not_interrupt_ticks_what_it_waited_for_and_once_more() -> None:
    """Spark behaviour RT2."""
    ticks = Ticks()
    ticks.timer.start(0)
    ticks.clock.wait_for_waiters()
    answers: list[int] = []
    stopper = threading.Thread(target=lambda: answers.append(ticks.timer.stop(interrupt=False)))
    stopper.start()
    while not ticks.timer._stopping.is_set():
        stopper.join(0.01)
    ticks.clock.advance(200)
    stopper.join(10)
    assert ticks.seen == [0, 100, 200]
    assert answers == [200]


def test_a_stop_that_does_not_interrupt_waits_for_its_tick_no_longer_than_it_is_told() -> None:
    ticks = Ticks()
    ticks.timer.start(0)
    ticks.clock.wait_for_waiters()
    assert ticks.timer.stop(interrupt=False, timeout=0.01) == 0
    ticks.clock.advance(1000)
    assert ticks.seen == [0]


def test_an_interrupting_stop_ticks_no_more() -> None:
    ticks = Ticks()
    ticks.timer.start(100)
    ticks.clock.wait_for_waiters()
    assert ticks.timer.stop(interrupt=True) == -1
    ticks.clock.advance(1000)
    assert ticks.seen == []


def test_ticks_that_lie_in_the_past_come_at_once() -> None:
    ticks = Ticks(now=350)
    ticks.timer.start(100)
    ticks.clock.wait_for_waiters()
    assert ticks.seen == [100, 200, 300]
    ticks.timer.stop(interrupt=True)


@pytest.mark.parametrize(("now", "start"), [(0, 100), (99, 100), (100, 200), (101, 200)])
def test_the_start_is_strictly_in_the_future(now: int, start: int) -> None:
    """Spark behaviour RT3."""
    assert Ticks(now).timer.start_time() == start


@pytest.mark.parametrize(("now", "restart"), [(130, 230), (129, 130), (131, 230), (30, 130), (29, 30)])
def test_the_restart_keeps_the_step_of_the_zero_time(now: int, restart: int) -> None:
    """Spark behaviour RT3."""
    assert Ticks(now).timer.restart_time(30) == restart


def test_a_callback_that_raises_ends_the_timer_and_is_reported() -> None:
    clock, errors, raised = ManualClock(), [], threading.Event()

    def fail(time_ms: int) -> None:
        raise ValueError(f"at {time_ms}")

    timer = RecurringTimer(clock, 100, fail, "test", lambda e: (errors.append(e), raised.set()))
    timer.start(0)
    assert raised.wait(10)
    assert [str(e) for e in errors] == ["at 0"]
    assert timer.stop(interrupt=True) == -1

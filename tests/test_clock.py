"""Batch times only rise, and a clock moved by hand tells when everybody has noticed."""

from __future__ import annotations

import logging
import threading

import pytest

from kstream.clock import RisingClock, SystemClock
from kstream.testing import ManualClock

HOUR = 3_600_000


class TwoHands:
    """A clock whose wall hand can be set back while the monotonic one goes on."""

    def __init__(self, wall: int) -> None:
        self.wall = wall
        self.monotonic = 5_000

    def time_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_time(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.monotonic += milliseconds

    def wait(self, milliseconds: int, stop: threading.Event) -> bool:
        raise AssertionError("nobody waits here")


def test_a_rising_clock_follows_the_wall_clock() -> None:
    hands = TwoHands(1000)
    clock = RisingClock(hands)
    assert clock.time_ms() == 1000
    hands.pass_time(250)
    assert clock.time_ms() == 1250


def test_a_clock_set_back_an_hour_goes_on_at_the_normal_pace_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    hands = TwoHands(2 * HOUR)
    clock = RisingClock(hands)
    clock.time_ms()
    hands.wall -= HOUR
    seen = []
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            hands.pass_time(1000)
            seen.append(clock.time_ms() - 2 * HOUR)
    assert seen == [1000, 2000, 3000, 4000, 5000]
    assert len(caplog.records) == 1


def test_the_wall_clock_leads_again_once_it_has_caught_up() -> None:
    hands = TwoHands(10_000)
    clock = RisingClock(hands)
    clock.time_ms()
    hands.wall -= 4_000
    hands.pass_time(1_000)
    assert clock.time_ms() == 11_000
    hands.wall += 10_000
    assert clock.time_ms() == 17_000
    hands.pass_time(10)
    assert clock.time_ms() == 17_010


def test_each_parting_of_the_clocks_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    hands = TwoHands(HOUR)
    clock = RisingClock(hands)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            clock.time_ms()
            hands.wall -= 5_000
            clock.time_ms()
            clock.time_ms()
            hands.wall += 20_000
            clock.time_ms()
    assert len(caplog.records) == 2


def test_a_restart_goes_on_after_the_last_batch_when_the_wall_is_behind(caplog: pytest.LogCaptureFixture) -> None:
    hands = TwoHands(HOUR)
    clock = RisingClock(hands, not_before_ms=2 * HOUR)
    with caplog.at_level(logging.WARNING):
        first = clock.time_ms()
        hands.pass_time(700)
        second = clock.time_ms()
    assert (first, second) == (2 * HOUR, 2 * HOUR + 700)
    assert len(caplog.records) == 1 and str(HOUR) in caplog.text


def test_a_rising_clock_never_falls_whatever_the_wall_does() -> None:
    hands = TwoHands(100_000)
    clock = RisingClock(hands)
    last = clock.time_ms()
    for step in (500, -3000, 40, -1, 2900, 10_000, -10_000, 5, 20_000, -1):
        hands.monotonic += abs(step) % 50
        hands.wall += step
        now = clock.time_ms()
        assert now >= last
        last = now


def test_the_system_clock_ends_its_wait_when_told_to_stop() -> None:
    stop = threading.Event()
    stop.set()
    assert SystemClock().wait(60_000, stop) is True
    assert SystemClock().wait(0, threading.Event()) is False


def test_a_manual_clock_cannot_go_back() -> None:
    clock = ManualClock(10)
    with pytest.raises(ValueError, match="backwards"):
        clock.set_time(9)
    assert clock.time_ms() == 10


def test_a_waiter_that_was_due_has_done_its_work_when_advance_returns() -> None:
    clock, done, stop = ManualClock(), [], threading.Event()

    def work() -> None:
        for tick in range(1, 201):
            while clock.time_ms() < tick * 10:
                clock.wait(tick * 10 - clock.time_ms(), stop)
            threading.Event().wait(0.0005)  # the work takes a moment
            done.append(tick)

    thread = threading.Thread(target=work)
    thread.start()
    for tick in range(1, 201):
        clock.wait_for_waiters()
        clock.advance(10)
        assert done == list(range(1, tick + 1))
    thread.join(10)


def test_advance_does_not_wait_for_those_who_are_not_due() -> None:
    clock, stop = ManualClock(), threading.Event()
    thread = threading.Thread(target=clock.wait, args=(1000, stop))
    thread.start()
    clock.wait_for_waiters()
    clock.advance(999)
    assert thread.is_alive()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()

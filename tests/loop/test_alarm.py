"""An alarm calls once, at the earliest time that was set, and never after its stop."""

from __future__ import annotations

import threading

from kstream.loop import Alarm
from kstream.testing import ManualClock


def alarm(clock: ManualClock) -> tuple[Alarm, list[int], threading.Event]:
    calls: list[int] = []
    called = threading.Event()

    def call() -> None:
        calls.append(clock.time_ms())
        called.set()

    return Alarm(clock, call, "test"), calls, called


def test_it_calls_once_at_its_time() -> None:
    clock = ManualClock(1000)
    made, calls, called = alarm(clock)
    made.set(3000)
    clock.wait_for_waiters(1)
    clock.advance(1999)
    assert calls == []
    clock.wait_for_waiters(1)
    clock.advance(1)
    assert called.wait(10)
    clock.advance(10_000)
    assert calls == [3000]


def test_an_earlier_time_replaces_a_later_one_and_a_later_one_changes_nothing() -> None:
    clock = ManualClock(0)
    made, calls, called = alarm(clock)
    made.set(5000)
    made.set(2000)
    made.set(9000)
    clock.wait_for_waiters(1)
    clock.advance(2000)
    assert called.wait(10)
    clock.advance(20_000)
    assert calls == [2000]


def test_a_time_that_is_over_calls_at_once() -> None:
    clock = ManualClock(5000)
    made, calls, called = alarm(clock)
    made.set(1000)
    assert called.wait(10)
    assert calls == [5000]


def test_it_can_be_set_again_after_its_call() -> None:
    clock = ManualClock(0)
    made, calls, called = alarm(clock)
    for at in (1000, 2000):
        called.clear()
        made.set(at)
        clock.wait_for_waiters(1)
        clock.advance(1000)
        assert called.wait(10)
    assert calls == [1000, 2000]


def test_it_never_calls_after_its_stop() -> None:
    clock = ManualClock(0)
    made, calls, _ = alarm(clock)
    made.set(1000)
    assert made.alive_thread() is not None
    made.stop()
    made.set(500)
    assert made.alive_thread() is None
    clock.advance(2000)
    assert calls == []

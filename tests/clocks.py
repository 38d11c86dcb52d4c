"""Clocks and a condition that tell a test who waits on them."""

from __future__ import annotations

import threading
from typing import Any

from kstream.clock import StopFlag
from kstream.testing import ManualClock
from tests.harness import START


class JumpingClock:
    """A clock of a machine: nobody who asks for the time knows that a test moves it."""

    def __init__(self) -> None:
        self._clock = ManualClock(START)
        self.jumped = 0

    def time_ms(self) -> int:
        return self._clock.time_ms()

    def monotonic_ms(self) -> int:
        return self._clock.time_ms() - self.jumped

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        return self._clock.wait(milliseconds, stop)

    def wait_for_waiters(self, *args: Any) -> None:
        self._clock.wait_for_waiters(*args)

    def advance(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)

    def jump(self, milliseconds: int) -> None:
        self.jumped += milliseconds
        self._clock.advance(milliseconds)


class SteppedClock(ManualClock):
    """A wait moves it, and is noted."""

    def __init__(self) -> None:
        super().__init__(0)
        self.waits: list[int] = []

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self.waits.append(milliseconds)
        self.set_time(self.time_ms() + milliseconds)
        return stop.is_set()


class NotedCondition(threading.Condition):
    """Says when a thread waits on it. A wait lasts a minute, whatever its timeout: who is not woken is not done in time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.set()  # under the lock, so who takes it after this finds the thread waiting
        return super().wait(60)

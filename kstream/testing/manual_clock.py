"""ManualClock: stands still until a test moves it."""

from __future__ import annotations

import threading

from kstream.clock import StopFlag


class ManualClock:
    """A clock that moves only by `advance` or `set_time`, never back.

    Moving it returns once every thread that was waiting for a time now reached has been woken and waits again (or has ended),
    so what a timer posts at a tick is posted when `advance` returns. A thread that does neither is waited for 10 s.
    """

    def __init__(self, time_ms: int = 0) -> None:
        self._now = time_ms
        self._condition = threading.Condition()
        self._waiting: dict[threading.Thread, int] = {}
        self._woken: set[threading.Thread] = set()

    def time_ms(self) -> int:
        with self._condition:
            return self._now

    def monotonic_ms(self) -> int:
        return self.time_ms()

    def advance(self, milliseconds: int) -> None:
        """Moves on by so much. ValueError for a negative step: time can't go backwards."""
        self.set_time(self.time_ms() + milliseconds)

    def set_time(self, time_ms: int) -> None:
        with self._condition:
            if time_ms < self._now:
                raise ValueError(f"time can't go backwards: {time_ms} < {self._now}")
            self._now = time_ms
            self._woken.discard(threading.current_thread())
            self._condition.notify_all()
            for _ in range(500):  # in steps: a thread that ends notifies nobody
                if self._condition.wait_for(self._everybody_waits, 0.02):
                    break

    def _everybody_waits(self) -> bool:
        return all(due > self._now for due in self._waiting.values()) and not any(t.is_alive() for t in self._woken)

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Blocks until time has moved on by so much or `stop` is set."""
        me = threading.current_thread()
        with self._condition:
            target = self._now + milliseconds
            self._woken.discard(me)
            self._waiting[me] = target
            self._condition.notify_all()
            while self._now < target and not stop.is_set():
                self._condition.wait(0.02)  # `stop` is an Event: its setting notifies nobody here
            del self._waiting[me]
            if self._now >= target:
                self._woken.add(me)
            self._condition.notify_all()
            return stop.is_set()

    def wait_for_waiters(self, count: int = 1, timeout: float = 10) -> None:
        """Blocks until so many threads wait on this clock; TimeoutError past `timeout` seconds."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._waiting) >= count, timeout):
                raise TimeoutError(f"{len(self._waiting)} threads wait on the clock, expected {count}")

    def __repr__(self) -> str:
        return f"<ManualClock {self._now} ms, {len(self._waiting)} waiting>"

"""ManualClock: a clock that a test moves."""

from __future__ import annotations

import threading
import time

from kstream.clock import Follower, StopFlag

PATIENCE_S = 120.0


class ManualClock:
    """A clock that moves only by `advance` or `set_time`, never back. Any thread may move it.

    Pass it to a StreamingContext (`clock=`). After the start, moving the clock blocks until everything that is due has run: every batch up
    to the new time is planned, its jobs have ended or failed, and the listeners have got their events. It raises TimeoutError after
    `patience` seconds. A job, a function of `transform` and a listener may move the clock, too; then the clock does not wait for them.

    Without a context, moving the clock blocks until every thread whose time has come waits again or has ended: a timer has then posted its
    tick. For a thread that does neither, it waits 10 s.
    """

    def __init__(self, time_ms: int = 0, patience: float = PATIENCE_S) -> None:
        self._now = time_ms
        self._patience = patience
        self._condition = threading.Condition()
        self._waiting: dict[threading.Thread, int] = {}
        self._woken: set[threading.Thread] = set()
        self._followers: list[Follower] = []

    def time_ms(self) -> int:
        with self._condition:
            return self._now

    def monotonic_ms(self) -> int:
        return self.time_ms()

    def advance(self, milliseconds: int, wait: bool = True) -> None:
        """Move the clock forward.

        Args:
            milliseconds: the step.
            wait: whether to block until the batches that are due have run.

        Raises:
            ValueError: the step is negative.
            TimeoutError: the batches that are due have not ended in time.
        """
        self.set_time(self.time_ms() + milliseconds, wait)

    def set_time(self, time_ms: int, wait: bool = True) -> None:
        """Move the clock to this moment, in ms since the epoch; otherwise as `advance`."""
        self._wait_for_timers()
        with self._condition:
            if time_ms < self._now:
                raise ValueError(f"time can't go backwards: {time_ms} < {self._now}")
            self._now = time_ms
            self._woken.discard(threading.current_thread())
            self._condition.notify_all()
            for _ in range(500):  # in steps: a thread that ends notifies nobody
                if self._condition.wait_for(self._everybody_waits, 0.02):
                    break
        for follower in list(self._followers) if wait else ():
            if not follower.wait_idle(self._patience):
                raise TimeoutError(
                    f"after the clock was set to {time_ms} ms the batches that were due had not ended within {self._patience} s: a job "
                    "hangs, or waits for a later time (then move the clock with wait=False)"
                )

    def follow(self, follower: Follower) -> None:
        """Wait for this follower whenever the clock moves. Called by a context that starts."""
        with self._condition:
            self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """No longer wait for this follower."""
        with self._condition:
            self._followers = [known for known in self._followers if known is not follower]

    def _wait_for_timers(self) -> None:
        """Wait until all timers wait: a timer that has just been started would count its tick from the new time."""
        end = time.monotonic() + self._patience
        with self._condition:
            while time.monotonic() < end:
                timers = [timer for follower in self._followers if (timer := follower.timer_thread()) is not None]
                if all(timer in self._waiting or timer is threading.current_thread() for timer in timers):
                    return
                self._condition.wait(0.02)

    def _everybody_waits(self) -> bool:
        return all(due > self._now for due in self._waiting.values()) and not any(t.is_alive() for t in self._woken)

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Block until the clock has moved by so much, or `stop` is set. Return whether `stop` is set."""
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
        """Block until so many threads wait on this clock. TimeoutError after `timeout` seconds."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._waiting) >= count, timeout):
                raise TimeoutError(f"{len(self._waiting)} threads wait on the clock, expected {count}")

    def __repr__(self) -> str:
        return f"<ManualClock {self._now} ms, {len(self._waiting)} waiting>"

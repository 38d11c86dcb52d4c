"""ManualClock: a clock that moves only when a test moves it."""

from __future__ import annotations

import threading
import time

from kstream.clock import Follower, StopFlag

PATIENCE_S = 120.0


class ManualClock:
    """A clock that moves only by `advance` or `set_time`, never back. Any thread may move it.

    Pass it to a StreamingContext (`clock=`). After the start, moving the clock blocks until everything that is due has run. Then every
    batch up to the new time is planned, its jobs have ended or failed, and the listeners have got their events. The call raises
    TimeoutError after `patience` seconds. If a job, a function of `transform` or a listener moves the clock, the call does not wait for
    batches.

    Without a context, moving the clock blocks until every thread whose time has come waits again or has ended: a timer has then posted its
    tick. If a thread does neither, the call returns after about 10 s.

    Args:
        time_ms: the first time, in ms since the epoch.
        patience: seconds until TimeoutError.
    """

    def __init__(self, time_ms: int = 0, patience: float = PATIENCE_S) -> None:
        self._now = time_ms
        self._patience = patience
        self._condition = threading.Condition()
        self._waiting: dict[threading.Thread, int] = {}
        self._woken: set[threading.Thread] = set()
        self._followers: list[Follower] = []

    def time_ms(self) -> int:
        """Return the clock's time in ms since the epoch."""
        with self._condition:
            return self._now

    def monotonic_ms(self) -> int:
        """Return the same as `time_ms`, because the clock never moves back."""
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
        """Move the clock to a time. Any thread.

        Args:
            time_ms: the new time, in ms since the epoch.
            wait: whether to block until the batches that are due have run.

        Raises:
            ValueError: the time is before the present one.
            TimeoutError: the batches that are due have not ended in time.
        """
        self._wait_for_timers()
        with self._condition:
            if time_ms < self._now:
                raise ValueError(f"time can't go backwards: {time_ms} < {self._now}")
            self._now = time_ms
            self._woken.discard(threading.current_thread())
            self._condition.notify_all()
            for _ in range(500):  # in short steps, because a thread that ends does not notify the condition
                if self._condition.wait_for(self._everybody_waits, 0.02):
                    break
        for follower in list(self._followers) if wait else ():
            if not follower.wait_idle(self._patience):
                raise TimeoutError(
                    f"after the clock was set to {time_ms} ms the batches that were due had not ended within {self._patience} s: a job "
                    "hangs, or waits for a later time (then move the clock with wait=False)"
                )

    def follow(self, follower: Follower) -> None:
        """Make moves of the clock wait for this follower. Called by a context that starts. Any thread."""
        with self._condition:
            self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """Remove a follower: moves of the clock no longer wait for it. Any thread."""
        with self._condition:
            self._followers = [known for known in self._followers if known is not follower]

    def _wait_for_timers(self) -> None:
        """Block until the timers of all followers wait on the clock, or `patience` seconds have passed.

        Otherwise a timer that has just been started would count its tick from the new time.
        """
        end = time.monotonic() + self._patience
        with self._condition:
            while time.monotonic() < end:
                timers = [timer for follower in self._followers for timer in follower.timer_threads()]
                if all(timer in self._waiting or timer is threading.current_thread() for timer in timers):
                    return
                self._condition.wait(0.02)

    def _everybody_waits(self) -> bool:
        """Return whether no waiting thread is due, and every woken thread waits again or has ended. Call this under the condition."""
        return all(due > self._now for due in self._waiting.values()) and not any(t.is_alive() for t in self._woken)

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Block until the clock has moved by `milliseconds`, or `stop` is set. Return whether `stop` is set."""
        me = threading.current_thread()
        with self._condition:
            target = self._now + milliseconds
            self._woken.discard(me)
            self._waiting[me] = target
            self._condition.notify_all()
            while self._now < target and not stop.is_set():
                self._condition.wait(0.02)  # in short steps, because setting `stop` does not notify the condition
            del self._waiting[me]
            if self._now >= target:
                self._woken.add(me)
            self._condition.notify_all()
            return stop.is_set()

    def wait_for_waiters(self, count: int = 1, timeout: float = 10) -> None:
        """Block until at least `count` threads wait on this clock. TimeoutError after `timeout` seconds."""
        with self._condition:
            if not self._condition.wait_for(lambda: len(self._waiting) >= count, timeout):
                raise TimeoutError(f"{len(self._waiting)} threads wait on the clock, expected {count}")

    def __repr__(self) -> str:
        return f"<ManualClock {self._now} ms, {len(self._waiting)} waiting>"

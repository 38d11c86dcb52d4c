"""RecurringTimer: a callback at each multiple of a period, on a thread of its own (Spark's `RecurringTimer.scala`)."""

from __future__ import annotations

from collections.abc import Callable

from kstream.clock import Clock
from kstream.loop.threads import THREADS, Runtime, Thread


class RecurringTimer:
    """A thread that calls `callback(time_ms)` at start, start + period, start + 2 × period and so on.

    No tick is skipped if the clock jumps or a callback is slow. The callback decides which overdue ticks make a batch (`JobGenerator`,
    `scheduler/batch_planner.py`).

    Args:
        clock: gives the time, and waits for the next tick.
        period_ms: milliseconds between two ticks.
        callback: called with each tick's time in ms, on the timer's thread. It should only post an event. An error ends the timer.
        name: the last part of the thread's name.
        on_error: called with the error that ended the timer, on the timer's thread.
        runtime: makes the thread.
    """

    def __init__(
        self,
        clock: Clock,
        period_ms: int,
        callback: Callable[[int], None],
        name: str,
        on_error: Callable[[BaseException], None],
        runtime: Runtime = THREADS,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._period = period_ms
        self._callback = callback
        self._on_error = on_error
        self._stopping = runtime.event()
        self._interrupt = runtime.event()
        self._previous = -1
        self._next = -1
        self._thread = runtime.thread(self._loop, f"RecurringTimer - {name}")

    def start_time(self) -> int:
        """Return the first multiple of the period strictly after now, in ms."""
        return (self._clock.time_ms() // self._period + 1) * self._period

    def restart_time(self, zero_ms: int) -> int:
        """Return the first `zero_ms` + n × period strictly after now, in ms."""
        return ((self._clock.time_ms() - zero_ms) // self._period + 1) * self._period + zero_ms

    def start(self, start_ms: int) -> int:
        """Start the thread. Call once. Ticks whose times are in the past come at once.

        Args:
            start_ms: the time of the first tick.

        Returns:
            `start_ms`.
        """
        self._next = start_ms
        self._thread.start()
        return start_ms

    def alive_thread(self) -> Thread | None:
        """Return the timer's thread; None before its start and after its end."""
        return self._thread if self._thread.is_alive() else None

    def stop(self, interrupt: bool, timeout: float | None = None) -> int:
        """Stop the timer, and block until its thread has ended. The timer's own thread does not wait.

        Args:
            interrupt: end without another tick. Otherwise the next tick and one more come before the thread ends, as in Spark.
            timeout: seconds to wait for these ticks. Then the timer is interrupted. None waits without a limit.

        Returns:
            The time of the last tick in ms; −1 if there was none.
        """
        self._stopping.set()
        if interrupt:
            self._interrupt.set()
        if self._thread.is_alive() and not self._runtime.is_current(self._thread):
            self._thread.join(timeout)
            self._interrupt.set()
            self._thread.join()
        return self._previous

    def interrupt(self, timeout: float) -> None:
        """End the timer without another tick, and block until its thread has ended, or until `timeout` seconds have passed."""
        self._stopping.set()
        self._interrupt.set()
        if self._thread.is_alive() and not self._runtime.is_current(self._thread):
            self._thread.join(timeout)

    def _loop(self) -> None:
        """Tick until the stop flag is set, and once more. An error of the callback ends the thread, and `on_error` gets it."""
        try:
            while not self._stopping.is_set():
                self._tick()
            self._tick()  # the tick after the stop flag, as in Spark: data that arrived before it is still planned
        except BaseException as e:
            self._on_error(e)

    def _tick(self) -> None:
        """Wait for the time of the next tick, and call the callback. Return without a call if the timer is interrupted."""
        while (wait := self._next - self._clock.time_ms()) > 0:
            if self._clock.wait(wait, self._interrupt):
                return
        if self._interrupt.is_set():
            return
        self._callback(self._next)
        self._previous = self._next
        self._next += self._period

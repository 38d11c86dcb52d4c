"""Alarm: calls a function once at a time that is set, and may be set again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kstream.clock import Clock
from kstream.loop.threads import THREADS, Event, Runtime, Thread


class Alarm:
    """Calls `callback()` once the clock reaches the time that was set, on a thread that lives only while a time is set. Thread-safe.

    Args:
        clock: its monotonic time counts.
        callback: called on the alarm's thread. It should only post an event, and must not raise.
        name: the name of the thread.
        runtime: makes the thread.
    """

    def __init__(self, clock: Clock, callback: Callable[[], None], name: str, runtime: Runtime = THREADS) -> None:
        self._clock = clock
        self._callback = callback
        self._name = name
        self._runtime = runtime
        self._lock = threading.Lock()
        self._stopped = False
        self._at_ms: int | None = None
        self._cancelled: Event = runtime.event()
        self._thread: Thread | None = None

    def set(self, at_ms: int) -> None:
        """Set the time of the call. An earlier time that is set already stays; a later one is replaced. Does nothing after `stop`.

        Args:
            at_ms: of the clock's monotonic time.
        """
        with self._lock:
            if self._stopped or (self._at_ms is not None and self._at_ms <= at_ms):
                return
            self._cancelled.set()
            self._at_ms, self._cancelled = at_ms, self._runtime.event()
            self._thread = self._runtime.thread(partial(self._wait, at_ms, self._cancelled), self._name)
            self._thread.start()

    def stop(self) -> None:
        """Call the function no more, and block until the thread has ended. The alarm's own thread does not wait."""
        with self._lock:
            self._stopped = True
            self._cancelled.set()
            thread = self._thread
        if thread is not None and not self._runtime.is_current(thread):
            thread.join()

    def alive_thread(self) -> Thread | None:
        """Return the thread that waits for the set time or calls the function; None if there is none."""
        with self._lock:
            return self._thread if self._thread is not None and self._thread.is_alive() else None

    def _wait(self, at_ms: int, cancelled: Event) -> None:
        """Wait for the time, then call the function unless another time was set meanwhile, or the alarm was stopped."""
        while (left := at_ms - self._clock.monotonic_ms()) > 0:
            if self._clock.wait(left, cancelled):
                return
        with self._lock:
            if cancelled.is_set():
                return
            self._at_ms = None
        self._callback()

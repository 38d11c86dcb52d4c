"""UnfinishedBatches: which batch times still have to end, and how far clean-up may go. No JVM, no I/O."""

from __future__ import annotations

import threading

from kstream.batch_time import Time
from kstream.loop import THREADS, Runtime


class UnfinishedBatches:
    """Planned batches that have not succeeded. Failed ones stay until they have succeeded after all, or a restart. Thread-safe."""

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._running: set[Time] = set()
        self._failed: set[Time] = set()
        self._newest_ended: Time | None = None
        self._lock = threading.Lock()
        self._none_running = runtime.event()
        self._none_running.set()

    def planned(self, time: Time) -> None:
        with self._lock:
            self._running.add(time)
            self._none_running.clear()

    def ended(self, time: Time, succeeded: bool) -> None:
        with self._lock:
            self._running.discard(time)
            if succeeded:
                self._failed.discard(time)
            else:
                self._failed.add(time)
            if self._newest_ended is None or time > self._newest_ended:
                self._newest_ended = time
            if not self._running:
                self._none_running.set()

    def clean_up_to(self) -> Time | None:
        """The time T for which all that is older than T − remember may be forgotten in memory; None before the first end.

        Never newer than a batch that is still to run.
        """
        with self._lock:
            if self._newest_ended is None:
                return None
            return min({self._newest_ended, *self._running})

    def all(self) -> set[Time]:
        """All that have not succeeded: their plans must be kept."""
        with self._lock:
            return self._running | self._failed

    def running(self) -> set[Time]:
        """Planned, and neither succeeded nor failed yet."""
        with self._lock:
            return set(self._running)

    def wait_none_running(self, timeout: float) -> bool:
        """Blocks until every planned batch has ended; False if `timeout` seconds passed first."""
        return self._none_running.wait(timeout)

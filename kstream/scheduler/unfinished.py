"""UnfinishedBatches: the batches that have not succeeded, and the time up to which clean-up may go. No JVM, no I/O."""

from __future__ import annotations

import threading

from kstream.batch_time import Time
from kstream.loop import THREADS, Runtime


class UnfinishedBatches:
    """The planned batches that have not succeeded, running or failed. Thread-safe.

    A failed batch stays in here for the life of the driver, unless its completion is stored later.
    """

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._running: set[Time] = set()
        self._failed: set[Time] = set()
        self._newest_ended: Time | None = None
        self._lock = threading.Lock()
        self._none_running = runtime.event()
        self._none_running.set()

    def planned(self, time: Time) -> None:
        """Add a batch whose plan is durable. It counts as running."""
        with self._lock:
            self._running.add(time)
            self._none_running.clear()

    def ended(self, time: Time, succeeded: bool) -> None:
        """Mark a batch as ended: remove it if it succeeded, else keep it as failed. May be called again, with another result."""
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
        """Return the time T up to which batches may be forgotten in memory, except the remember duration before T.

        T is the newest batch that has ended, or the oldest running batch if that is older. None before the first end.
        """
        with self._lock:
            if self._newest_ended is None:
                return None
            return min({self._newest_ended, *self._running})

    def all(self) -> set[Time]:
        """Return all batches that have not succeeded. Their plans must be kept."""
        with self._lock:
            return self._running | self._failed

    def running(self) -> set[Time]:
        """Return the batches that are planned and have neither succeeded nor failed yet."""
        with self._lock:
            return set(self._running)

    def wait_none_running(self, timeout: float) -> bool:
        """Block until every planned batch has ended; return False if `timeout` seconds passed first."""
        return self._none_running.wait(timeout)

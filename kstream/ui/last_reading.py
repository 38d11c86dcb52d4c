"""LastReading: what was read of a store last, for all that look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kstream.clock import Clock
from kstream.errors import CheckpointError, StorageError

T = TypeVar("T")


class LastReading(Generic[T]):
    """What was read last, and the error of the last try. Any thread. One thread reads at a time, and no other waits for it.

    Args:
        read: reads. Blocks on a store, and raises its errors.
        clock: tells how old a reading is.
    """

    def __init__(self, read: Callable[[], T], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._is_reading = False
        self._read_ms: int | None = None
        self._value: T | None = None
        self._error: StorageError | CheckpointError | None = None
        self._thread: threading.Thread | None = None
        self.has_tried = threading.Event()
        """Set once there is a reading or an error."""

    def last(self) -> tuple[T | None, StorageError | CheckpointError | None]:
        """Return what was read last, None before the first reading, and the error of the last try, None if it has succeeded."""
        with self._lock:
            return self._value, self._error

    def is_due(self, milliseconds: int) -> bool:
        """Return whether the caller is to read: nobody does, and the last try is older than this, or there was none.

        After True the caller counts as the reader until it has called `renew`, or `renew_on_a_thread`.
        """
        with self._lock:
            is_fresh = self._read_ms is not None and self._clock.monotonic_ms() - self._read_ms < milliseconds
            is_due = not is_fresh and not self._is_reading
            self._is_reading |= is_due
            return is_due

    def renew(self) -> None:
        """Read, and keep what was read, or the error beside what was read before. Call it if `is_due`. Blocks on the store.

        A bug is raised. Nothing is kept of it, so the next one reads.
        """
        value: T | None = None
        error: StorageError | CheckpointError | None = None
        try:
            value = self._read()
        except (StorageError, CheckpointError) as e:
            error = e
        finally:
            with self._lock:
                self._is_reading = False
                if value is not None or error is not None:
                    self._value, self._error = self._value if value is None else value, error
                    self._read_ms = self._clock.monotonic_ms()
                    self.has_tried.set()

    def renew_on_a_thread(self, name: str) -> None:
        """As `renew`, on a thread of its own. Never blocks."""
        made = threading.Thread(target=self.renew, name=name, daemon=True)
        with self._lock:
            self._thread = made
        try:
            made.start()
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                self._is_reading, self._thread = False, None
            raise

    def wait(self, timeout: float) -> None:
        """Wait for a reading that runs on a thread of its own, up to `timeout` seconds."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

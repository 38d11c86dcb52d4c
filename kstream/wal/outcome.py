"""Outcome: what became of something that another thread does. Set once; who comes second changes nothing."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from kstream.loop.runtime import Runtime

T = TypeVar("T")


class Outcome(Generic[T]):
    """Thread-safe; one thread waits, any may set."""

    def __init__(self, runtime: Runtime) -> None:
        self._known = runtime.event()
        self._lock = threading.Lock()
        self._value: list[T] = []
        self._error: BaseException | None = None

    def succeed(self, value: T) -> None:
        with self._lock:
            if not self._known.is_set():
                self._value.append(value)
                self._known.set()

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if not self._known.is_set():
                self._error = error
                self._known.set()

    @property
    def is_known(self) -> bool:
        return self._known.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks for so many seconds; whether it is known."""
        return self._known.wait(timeout)

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def value(self) -> T:
        """Of a success that is known."""
        return self._value[0]

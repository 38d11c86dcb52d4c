"""Clocks. A clock is an argument everywhere in kstream, so that a test can move time by hand.

`SystemClock` is the machine's clock. `ManualClock` (in `kstream.testing`) moves only by calls. `RisingClock` wraps one of them, so that
batch times only rise: if the wall clock is set back, RisingClock continues from its last time at the normal pace.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from kstream.errors import ConfigurationError

logger = logging.getLogger(__name__)


class StopFlag(Protocol):
    """An event that ends a wait early: a `threading.Event`, or a simulated one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the flag is set, `timeout` seconds at most; return whether it is set."""
        ...


class Clock(Protocol):
    """Tells the time and waits. Both readings are in milliseconds. Thread-safe."""

    def time_ms(self) -> int:
        """Return the milliseconds since the Unix epoch. The value falls if the machine's clock is set back."""
        ...

    def monotonic_ms(self) -> int:
        """Return the milliseconds since a fixed moment. The value never falls."""
        ...

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Block until `milliseconds` have passed or `stop` is set; return whether `stop` is set.

        The call may return early, so the caller reads the clock again.
        """
        ...


@runtime_checkable
class SettableClock(Protocol):
    """A clock that moves only by calls, such as `kstream.testing.ManualClock`."""

    def set_time(self, time_ms: int) -> None:
        """Move the clock to a time, in milliseconds since the Unix epoch."""
        ...


class Follower(Protocol):
    """An object that works when time moves: the engine of a context."""

    def wait_idle(self, timeout: float) -> bool:
        """Block until all work that is due has run; return False if `timeout` seconds passed first."""
        ...

    def timer_threads(self) -> Sequence[object]:
        """Return the threads that wait on the clock."""
        ...


@runtime_checkable
class FollowedClock(Protocol):
    """A clock that waits for its followers when it is moved."""

    def follow(self, follower: Follower) -> None:
        """Wait for this follower at each move from now on."""
        ...

    def unfollow(self, follower: Follower) -> None:
        """No longer wait for this follower."""
        ...


class SystemClock:
    """The machine's clock. Thread-safe."""

    def time_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the milliseconds of the machine's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Block until `milliseconds` have passed or `stop` is set; return whether `stop` is set."""
        return stop.wait(max(0, milliseconds) / 1000)


class RisingClock:
    """A clock whose `time_ms` never falls.

    If the wall clock is behind, the time continues at the normal pace until the wall clock has caught up. Each time the two diverge, one
    warning is logged. Thread-safe.

    Args:
        clock: the wall clock.
        not_before_ms: `time_ms` is never before this time, in milliseconds since the Unix epoch. At a restart: the last planned batch.
    """

    def __init__(self, clock: Clock, not_before_ms: int = 0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = not_before_ms
        self._last_monotonic = clock.monotonic_ms()
        self._ahead = False

    def time_ms(self) -> int:
        """Return the milliseconds since the Unix epoch, or a later time; never less than before."""
        with self._lock:
            now, monotonic = self._clock.time_ms(), self._clock.monotonic_ms()
            steady = self._last + (monotonic - self._last_monotonic)
            behind = self._last - now
            parted = behind > 0 and not self._ahead
            self._ahead = behind > 0 or (self._ahead and now < steady)
            self._last = steady if self._ahead else now
            self._last_monotonic = monotonic
            result = self._last
        if parted:
            logger.warning(
                "the clock is %d ms behind the last batch time: batch times continue at the normal pace, ahead of the clock",
                behind,
            )
        return result

    def monotonic_ms(self) -> int:
        """Return `monotonic_ms` of the wrapped clock."""
        return self._clock.monotonic_ms()

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        """Wait on the wrapped clock."""
        return self._clock.wait(milliseconds, stop)


_given: ContextVar[Clock | None] = ContextVar("_given", default=None)
_NAMES = {
    "org.apache.spark.util.SystemClock": "kstream.clock.SystemClock",
    "org.apache.spark.util.ManualClock": "kstream.testing.ManualClock",
}


@contextmanager
def clock_of_new_contexts(clock: Clock) -> Generator[None]:
    """Make a clock the default of all contexts that this thread makes inside the `with` block."""
    token = _given.set(clock)
    try:
        yield
    finally:
        _given.reset(token)


def given_clock() -> Clock | None:
    """Return the clock of `clock_of_new_contexts` on this thread; None outside."""
    return _given.get()


def clock_named(name: str | None) -> Clock | None:
    """Make the clock that `spark.streaming.clock` names. Its class is called without arguments.

    Args:
        name: the dotted name of a class, or of one of Spark's two clocks; None or "" is no clock.

    Returns:
        The clock; None without a name.

    Raises:
        ConfigurationError: the class cannot be imported or called.
    """
    if not name:
        return None
    module, _, made = _NAMES.get(name, name).rpartition(".")
    try:
        clock = getattr(importlib.import_module(module), made)()
    except (ImportError, AttributeError, ValueError, TypeError) as e:
        raise ConfigurationError(
            f"spark.streaming.clock is {name!r}, of which no clock can be made ({e}): give the dotted name of a class, such as "
            "kstream.testing.ManualClock",
            key="spark.streaming.clock",
            value=name,
        ) from e
    return clock

"""SimulatedRuntime: one driver's threads, queues, events and locks, made of strands; and the clock they wait on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from kstream.clock import StopFlag
from kstream.loop import Thread
from tests.simulator.strands import Strand, Strands


class Steps:
    """What all parts of a schedule share: the strands, the time, and the place where a strand may be interrupted.

    `interrupt()` says whether the current strand lets others run now. Times are ms; `monotonic` only rises, the wall clock is
    `monotonic + offset` and may jump.
    """

    def __init__(self, strands: Strands, interrupt: Callable[[], bool], start_ms: int) -> None:
        self.strands = strands
        self.monotonic = 0
        self.offset = start_ms
        self._interrupt = interrupt

    def point(self) -> None:
        """A place between two effects: others may run here, the driver may die here."""
        if self.strands.current.killed or self._interrupt():
            self.strands.pause()

    def wait(self, ready: Callable[[], bool], timeout_ms: int | None = None) -> bool:
        """Waits until `ready()`, at most so long; returns whether it is."""
        if not ready() or self.strands.current.killed:
            deadline = None if timeout_ms is None else self.monotonic + max(0, timeout_ms)
            self.strands.pause(ready, deadline)
        return ready()

    def sleep(self, milliseconds: int) -> None:
        self.wait(lambda: False, milliseconds)


class SimulatedClock:
    """A driver's clock: its own skew on the world's wall clock."""

    def __init__(self, steps: Steps, skew_ms: int = 0) -> None:
        self._steps = steps
        self._skew = skew_ms

    def time_ms(self) -> int:
        return self._steps.monotonic + self._steps.offset + self._skew

    def monotonic_ms(self) -> int:
        return self._steps.monotonic

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self._steps.wait(stop.is_set, milliseconds)
        return stop.is_set()


class SimulatedRuntime:
    """The `Runtime` of one driver; `owner` is its number."""

    def __init__(self, steps: Steps, owner: int) -> None:
        self._steps = steps
        self._owner = owner

    def thread(self, target: Callable[[], None], name: str) -> SimulatedThread:
        return SimulatedThread(self._steps, self._owner, target, name)

    def is_current(self, thread: Thread) -> bool:
        return isinstance(thread, SimulatedThread) and thread.strand is self._steps.strands.current

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self._steps)

    def queue(self) -> SimulatedQueue:
        return SimulatedQueue(self._steps)

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self._steps)

    def monotonic(self) -> float:
        return self._steps.monotonic / 1000


class SimulatedThread:
    """A strand with a thread's methods."""

    def __init__(self, steps: Steps, owner: int, target: Callable[[], None], name: str) -> None:
        self._steps, self._owner, self._target = steps, owner, target
        self.name = name
        self.strand: Strand | None = None

    def start(self) -> None:
        self.strand = self._steps.strands.spawn(self.name, self._owner, self._target)

    def is_alive(self) -> bool:
        return self.strand is not None and not self.strand.done

    def join(self, timeout: float | None = None) -> None:
        self._steps.wait(lambda: not self.is_alive(), _ms(timeout))


class SimulatedEvent:
    """A flag to wait for."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._steps.wait(self.is_set, _ms(timeout))


class SimulatedQueue:
    """First in, first out."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        self._steps.wait(lambda: bool(self._items))
        return self._items.popleft()

    def qsize(self) -> int:
        return len(self._items)


class SimulatedLock:
    """A lock whose holder may pause: who wants it meanwhile waits as a strand."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._held = False

    def __enter__(self) -> None:
        self._steps.wait(lambda: not self._held)
        self._held = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held = False


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)

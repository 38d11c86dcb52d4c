"""Runtime: makes threads, queues, events, and the locks that are held while their holder blocks.

One idea: code that may block does so through a Runtime. The product uses `THREADS`, which makes real threads of this process. The
simulator (`tests.simulator`) implements the protocol with strands; one strand runs at a time, in an order that a seed decides. The code
above – EventLoop, RecurringTimer, WorkerPool, JobGenerator – is the same in both.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Event(Protocol):
    """The part of `threading.Event` that kstream uses."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """The part of `threading.Thread` that kstream uses."""

    @property
    def name(self) -> str: ...
    def start(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Queue(Protocol):
    """The part of `queue.SimpleQueue` that kstream uses. `put` never blocks; `get` blocks until there is an item."""

    def put(self, item: Any) -> None: ...
    def get(self) -> Any: ...
    def qsize(self) -> int: ...


class Runtime(Protocol):
    """A maker of threads, and of the events, queues and locks on which they wait. Timeouts and `monotonic` are in seconds."""

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """Make a daemon thread that runs `target`. The caller starts it."""
        ...

    def is_current(self, thread: Thread) -> bool:
        """Return whether the caller runs on `thread`."""
        ...

    def event(self) -> Event: ...
    def queue(self) -> Queue: ...

    def lock(self) -> AbstractContextManager[Any]:
        """Make a lock that a thread may hold while it blocks. A lock around a few lines without I/O can be a `threading.Lock`."""
        ...

    def monotonic(self) -> float: ...


class ThreadRuntime:
    """The Runtime of real threads."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def is_current(self, thread: Thread) -> bool:
        return threading.current_thread() is thread

    def event(self) -> threading.Event:
        return threading.Event()

    def queue(self) -> Queue:
        return queue.SimpleQueue[Any]()

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def monotonic(self) -> float:
        return time.monotonic()


THREADS = ThreadRuntime()
"""The default Runtime: real threads."""

"""Runtime: makes threads, queues, events, and the locks that are held while their holder blocks.

One idea: code that may block does so through a Runtime. `THREADS` is the product's: real threads of this process. The simulator
(`tests.simulator`) implements the protocol with strands; one strand runs at a time, in an order that a seed decides. The code above –
EventLoop, RecurringTimer, WorkerPool, JobGenerator – is the same in both.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Event(Protocol):
    """`threading.Event` as far as it is used."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Thread(Protocol):
    """`threading.Thread` as far as it is used."""

    @property
    def name(self) -> str: ...
    def start(self) -> None: ...
    def join(self, timeout: float | None = None) -> None: ...
    def is_alive(self) -> bool: ...


class Queue(Protocol):
    """`queue.SimpleQueue` as far as it is used: `put` never blocks, `get` waits."""

    def put(self, item: Any) -> None: ...
    def get(self) -> Any: ...
    def qsize(self) -> int: ...


class Runtime(Protocol):
    """Makes threads and what they wait on. Timeouts and `monotonic` are in seconds."""

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """Make a daemon thread, not started."""
        ...

    def is_current(self, thread: Thread) -> bool:
        """Whether the caller runs on `thread`."""
        ...

    def event(self) -> Event: ...
    def queue(self) -> Queue: ...

    def lock(self) -> AbstractContextManager[Any]:
        """Make a lock that may be held while its holder blocks. A lock around a few lines without I/O can be a `threading.Lock`."""
        ...

    def monotonic(self) -> float: ...


class ThreadRuntime:
    """The machine's threads."""

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
"""The Runtime of all code that is given no other."""

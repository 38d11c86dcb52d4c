"""Runtime: where threads, queues and blocking waits come from.

One idea: whoever may block says so through a Runtime. `THREADS` is the product's, real threads of this process; the simulator
(`tests.simulator`) fills the port with strands of which one runs at a time, in an order that a seed decides. Everything
above it – EventLoop, RecurringTimer, WorkerPool, JobGenerator – is the same code in both.
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
    """Makes what threads wait for and on. Timeouts and `monotonic` are in seconds."""

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """A daemon thread, not started."""
        ...

    def is_current(self, thread: Thread) -> bool:
        """Whether the caller runs on `thread`."""
        ...

    def event(self) -> Event: ...
    def queue(self) -> Queue: ...

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that may be held while its holder blocks. A lock held for a few lines of memory can be a `threading.Lock`."""
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
"""What every part uses unless it is given another."""

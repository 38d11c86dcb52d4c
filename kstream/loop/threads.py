"""Runtime: makes threads, queues, events, and the locks that are held while their holder blocks. WorkerPool and Future are made of them.

One idea: code that may block does so through a Runtime. The product uses `THREADS`, which makes real threads of this process. The
simulator (`tests.simulator`) implements the protocol with strands; one strand runs at a time, in an order that a seed decides. The code
above – EventLoop, RecurringTimer, WorkerPool, JobGenerator – is the same in both.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


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


class WorkerPool:
    """A pool of `threads` daemon threads. They start the submitted tasks in order. A task must not raise: its error would end a thread.

    `concurrent.futures` does not fit, for two reasons. Its threads keep a program alive that has ended with an error, until all queued
    work is done. And it can wait only on real threads, not through a Runtime.
    """

    def __init__(self, threads: int, name: str, runtime: Runtime = THREADS) -> None:
        self._runtime = runtime
        self._queue: Queue = runtime.queue()
        self._threads = [runtime.thread(self._run, f"{name}-{i}") for i in range(threads)]
        self._started = False

    def start(self) -> None:
        """Start the threads. Call once."""
        self._started = True
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        """Queue a task. Any thread may call this; it never blocks."""
        self._queue.put(task)

    def is_own_thread(self) -> bool:
        """Return whether the caller runs on a thread of this pool."""
        return any(self._runtime.is_current(thread) for thread in self._threads)

    def stop(self, timeout: float | None) -> bool:
        """End the threads after the tasks submitted so far, and block until they have ended.

        A task may stop its own pool: this call then does not wait for the thread of that task.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            Whether all threads, except the caller's own, have ended. True if the pool was never started.
        """
        if not self._started:
            return True
        for _ in self._threads:
            self._queue.put(None)
        end = None if timeout is None else self._runtime.monotonic() + timeout
        others = [thread for thread in self._threads if not self._runtime.is_current(thread)]
        for thread in others:
            thread.join(None if end is None else max(0, end - self._runtime.monotonic()))
        return not any(thread.is_alive() for thread in others)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            task()


class Future(Generic[T]):
    """The result or the error of work on another thread. The first call of `succeed` or `fail` sets it; later calls change nothing.

    Thread-safe: one thread waits, any thread may set.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._done = runtime.event()
        self._lock = threading.Lock()
        self._value: list[T] = []
        self._error: BaseException | None = None

    def succeed(self, value: T) -> None:
        with self._lock:
            if not self._done.is_set():
                self._value.append(value)
                self._done.set()

    def fail(self, error: BaseException) -> None:
        with self._lock:
            if not self._done.is_set():
                self._error = error
                self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether a result or an error is set."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a result or an error is set, `timeout` seconds at most; return whether one is set. None is no limit."""
        return self._done.wait(timeout)

    @property
    def error(self) -> BaseException | None:
        """The error; None after a success, and before the end."""
        return self._error

    @property
    def value(self) -> T:
        """The result. Read it only after a success; otherwise this raises IndexError."""
        return self._value[0]


def map_in_order(items: Sequence[A], action: Callable[[A], B], most: int, name: str, runtime: Runtime) -> Iterator[B]:
    """Apply `action` to the items on threads of a pool; yield the results in the order of the items.

    The iteration blocks until the next result is there. It may end early; actions that have begun then still run to their ends.

    Args:
        items: the arguments of `action`.
        action: called with each item, on a thread of the pool. It may block.
        most: the largest number of items that are begun and not yet yielded, however slowly the caller takes the results.
        name: the first part of the threads' names.
        runtime: makes the threads.

    Raises:
        BaseException: the error of an action, in the place of its result. It ends the iteration.
    """
    if not items:
        return
    pool = WorkerPool(min(most, len(items)), name, runtime)

    def begin(item: A) -> Future[B]:
        future = Future[B](runtime)
        pool.submit(lambda: _apply(action, item, future))
        return future

    pool.start()
    try:
        rest = iter(items)
        begun = deque(begin(item) for item in islice(rest, most))
        while begun:
            future = begun.popleft()
            future.wait()
            if future.error is not None:
                raise future.error
            yield future.value
            begun.extend(begin(item) for item in islice(rest, 1))
    finally:
        pool.stop(0)


def _apply(action: Callable[[A], B], item: A, future: Future[B]) -> None:
    """Set the future to the result, or to the error, of the action."""
    try:
        future.succeed(action(item))
    except BaseException as e:  # the thread that waits for the result raises it
        future.fail(e)

"""WorkerPool: a fixed number of daemon threads that run what is handed to them, in order.

Not `concurrent.futures`: its threads keep a program alive that has ended with an error, until all queued work is done.
"""

from __future__ import annotations

from collections.abc import Callable

from kstream.loop.runtime import THREADS, Queue, Runtime


class WorkerPool:
    """`submit` never blocks. What a task raises is the task's own affair: tasks must not raise."""

    def __init__(self, threads: int, name: str, runtime: Runtime = THREADS) -> None:
        self._runtime = runtime
        self._queue: Queue = runtime.queue()
        self._threads = [runtime.thread(self._run, f"{name}-{i}") for i in range(threads)]
        self._started = False

    def start(self) -> None:
        self._started = True
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        self._queue.put(task)

    def is_own_thread(self) -> bool:
        """Whether the caller is a task of this pool."""
        return any(self._runtime.is_current(thread) for thread in self._threads)

    def stop(self, timeout: float | None) -> bool:
        """Ends the threads after what was submitted so far; returns whether they ended within `timeout` seconds.

        A task may stop its own pool: its thread is not waited for.
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

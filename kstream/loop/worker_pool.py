"""WorkerPool: a fixed number of daemon threads that run what is handed to them, in order.

Not `concurrent.futures`: its threads keep a program alive that has ended with an error, until all queued work is done.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable


class WorkerPool:
    """`submit` never blocks. What a task raises is the task's own affair: tasks must not raise."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        self._started = False

    def start(self) -> None:
        self._started = True
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[[], None]) -> None:
        self._queue.put(task)

    def stop(self, timeout: float | None) -> bool:
        """Ends the threads after what was submitted so far; returns whether they ended within `timeout` seconds.

        A task may stop its own pool: its thread is not waited for.
        """
        if not self._started:
            return True
        for _ in self._threads:
            self._queue.put(None)
        end = None if timeout is None else time.monotonic() + timeout
        others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(None if end is None else max(0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in others)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            task()

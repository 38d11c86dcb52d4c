"""EventLoop: one daemon thread that handles posted events one after the other, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kstream.loop.runtime import THREADS, Event, Queue, Runtime

E = TypeVar("E")
logger = logging.getLogger(__name__)


class _Stop:
    """Ends the loop once the events before it are handled."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Sets `reached` once the events before it are handled."""

    reached: Event


class EventLoop(Generic[E]):
    """Handles posted events one by one on a daemon thread.

    Args:
        name: of the thread.
        on_receive: handles an event, on the loop's thread.
        on_error: gets what `on_receive` raises, on the loop's thread; the loop continues.
        runtime: makes the thread and the queue.
    """

    def __init__(
        self, name: str, on_receive: Callable[[E], None], on_error: Callable[[BaseException], None], runtime: Runtime = THREADS
    ) -> None:
        self._runtime = runtime
        self._on_receive = on_receive
        self._on_error = on_error
        self._queue: Queue = runtime.queue()
        self._stopped = runtime.event()
        self._discard = runtime.event()
        self._thread = runtime.thread(self._run, name)

    def start(self) -> None:
        """Start the thread. Call once."""
        self._thread.start()

    def post(self, event: E) -> None:
        """Queue an event. Any thread; never blocks. After `stop` the event is dropped."""
        if not self._stopped.is_set():
            self._queue.put(event)

    def drain(self, timeout: float) -> bool:
        """Block until every event posted so far is handled.

        Args:
            timeout: seconds.

        Returns:
            False if the timeout passed first. True at once if the loop has ended, and on the loop's own thread, where waiting would never
            end.
        """
        if not self._thread.is_alive() or self.is_own_thread():
            return True
        mark = _Mark(self._runtime.event())
        self._queue.put(mark)
        end = self._runtime.monotonic() + timeout
        while not mark.reached.wait(0.05):
            if not self._thread.is_alive():
                return True
            if self._runtime.monotonic() > end:
                return False
        return True

    def stop(self, drain: bool = False) -> None:
        """End the loop and wait for the current event. The loop's own thread does not wait.

        Args:
            drain: handle the queued events first; otherwise drop them.
        """
        if self._stopped.is_set():
            return
        self._stopped.set()
        if not drain:
            self._discard.set()
        self._queue.put(_Stop())
        if self._thread.is_alive() and not self.is_own_thread():
            self._thread.join()

    @property
    def is_active(self) -> bool:
        """Whether the loop is started and not stopped."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on this loop."""
        return self._runtime.is_current(self._thread)

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            if isinstance(event, _Stop):
                return
            if isinstance(event, _Mark):
                event.reached.set()
                continue
            if self._discard.is_set():
                continue
            try:
                self._on_receive(event)
            except BaseException as e:  # no error of a background thread is swallowed
                self._report(e)

    def _report(self, error: BaseException) -> None:
        try:
            self._on_error(error)
        except Exception:
            logger.exception("%s: the error handler failed", self._thread.name)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped.is_set() else "active" if self._thread.is_alive() else "new"
        return f"<EventLoop {self._thread.name} [{state}, {self._queue.qsize()} queued]>"

"""EventLoop: one daemon thread that handles posted events one after the other, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kstream.loop.threads import THREADS, Event, Queue, Runtime

E = TypeVar("E")
logger = logging.getLogger(__name__)


class _Stop:
    """A request in the queue: the loop ends when it reaches this."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark in the queue: the loop sets `reached` when it has handled the events before this."""

    reached: Event


class EventLoop(Generic[E]):
    """A daemon thread that handles posted events one by one, in order.

    Args:
        name: the thread's name.
        on_receive: called with each event, on the loop's thread.
        on_error: called with the error that `on_receive` raised, on the loop's thread; the loop continues.
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
        """Queue an event. Any thread may call this; it never blocks. After `stop` the event is dropped."""
        if not self._stopped.is_set():
            self._queue.put(event)

    def drain(self, timeout: float) -> bool:
        """Block until every event posted so far is handled. Any thread.

        Args:
            timeout: the longest wait in seconds.

        Returns:
            False if the timeout passed first, otherwise True. The answer is True at once in two cases: the loop's thread does not run, or
            the caller is that thread and would wait for itself.
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
        """End the loop, and block until its thread has ended. Any thread.

        On the loop's own thread the call returns at once, and so does a second call.

        Args:
            drain: handle the queued events first; otherwise drop them. The current event is handled in both cases.
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
        return self._thread.is_alive() and not self._stopped.is_set()

    def is_own_thread(self) -> bool:
        """Return whether the caller runs on this loop's thread."""
        return self._runtime.is_current(self._thread)

    def _run(self) -> None:
        """Handle the queued events until a `_Stop` comes; report their errors."""
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
        """Call `on_error`, and log the exception that `on_error` raises."""
        try:
            self._on_error(error)
        except Exception:
            logger.exception("%s: the error handler failed", self._thread.name)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped.is_set() else "active" if self._thread.is_alive() else "new"
        return f"<EventLoop {self._thread.name} [{state}, {self._queue.qsize()} queued]>"

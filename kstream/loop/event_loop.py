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
    """Ends the loop after the events posted before it."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Everything posted before it has been handled."""

    reached: Event


class EventLoop(Generic[E]):
    """Hands each posted event to `on_receive` on one thread; what that raises goes to `on_error`, and the loop goes on.

    `post` never blocks and may be called from any thread, the loop's own included. Events posted after `stop` are dropped.
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
        self._thread.start()

    def post(self, event: E) -> None:
        if not self._stopped.is_set():
            self._queue.put(event)

    def drain(self, timeout: float) -> bool:
        """Blocks until every event posted so far is handled; False if `timeout` seconds passed first. True for a loop that has ended,
        and from its own thread, which it could not wait for."""
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
        """Ends the loop and waits for the event in hand; with `drain` for those queued too. From its own thread: no wait."""
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
            except BaseException as e:  # nothing a background thread meets is swallowed
                self._report(e)

    def _report(self, error: BaseException) -> None:
        try:
            self._on_error(error)
        except Exception:
            logger.exception("error handler of %s failed", self._thread.name)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped.is_set() else "active" if self._thread.is_alive() else "new"
        return f"<EventLoop {self._thread.name} [{state}, {self._queue.qsize()} queued]>"

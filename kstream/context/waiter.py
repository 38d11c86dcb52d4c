"""StreamingContextState: where a context is in its life.

----

ContextWaiter: what awaitTermination waits on."""

from __future__ import annotations

import enum
import threading
from types import TracebackType


class StreamingContextState(enum.Enum):
    """INITIALIZED (streams may be added) → ACTIVE → STOPPED."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"


class ContextWaiter:
    """Holds the first error and whether the context has stopped. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._stopped = False

    def notify_error(self, error: BaseException) -> None:
        with self._changed:
            if self._error is None:
                self._error, self._traceback = error, error.__traceback__
            self._changed.notify_all()

    def notify_stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Blocks until stopped, an error or `timeout` seconds; raises the error, each time it is called; returns whether stopped.

        The error has the traceback it had when it came, also the second time. The streams go on all the same.
        Waits in short steps where there is no timeout, so that signals are handled.
        """
        with self._changed:
            if timeout is not None:
                self._changed.wait_for(self._ended, timeout)
            else:
                while not self._changed.wait_for(self._ended, 0.5):
                    pass
            if self._error is not None:
                raise self._error.with_traceback(self._traceback)
            return self._stopped

    def _ended(self) -> bool:
        return self._stopped or self._error is not None

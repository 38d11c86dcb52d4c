"""StreamingContextState: the states of a context. ContextWaiter: blocks threads until the context stops or an error comes."""

from __future__ import annotations

import enum
import threading
from types import TracebackType


class StreamingContextState(enum.Enum):
    """The life of a context: INITIALIZED (streams may be added) → ACTIVE → STOPPED."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"


class ContextWaiter:
    """Holds the first error of a context, and whether the context has stopped. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._stopped = False

    def notify_error(self, error: BaseException) -> None:
        """Record an error, if it is the first, and wake the waiting threads."""
        with self._changed:
            if self._error is None:
                self._error, self._traceback = error, error.__traceback__
            self._changed.notify_all()

    def notify_stop(self) -> None:
        """Record that the context has stopped, and wake the waiting threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def error(self) -> BaseException | None:
        """The first error; None if there is none."""
        with self._changed:
            return self._error

    def wait(self, timeout: float | None) -> bool:
        """Block until the context stops, an error comes, or the timeout passes.

        Without a timeout the call waits in steps of 0.5 s, so that signals are handled. An error does not stop the context.

        Args:
            timeout: seconds; None waits without a limit.

        Returns:
            Whether the context has stopped.

        Raises:
            BaseException: the first error of the streams, with its own traceback. Every later call raises it again.
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

    def wait_for_stop(self) -> None:
        """Block until the context stops, whatever errors come. In steps of 0.5 s, so that signals are handled."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._stopped, 0.5):
                pass

    def _ended(self) -> bool:
        return self._stopped or self._error is not None

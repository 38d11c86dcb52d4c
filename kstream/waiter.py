"""ContextWaiter: what awaitTermination waits on."""

from __future__ import annotations

import threading


class ContextWaiter:
    """Holds the first error and whether the context has stopped. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._stopped = False

    def notify_error(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def notify_stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Blocks until stopped, an error or `timeout` seconds; raises the error; returns whether stopped.

        Waits in short steps where there is no timeout, so that signals are handled.
        """
        with self._changed:
            if timeout is not None:
                self._changed.wait_for(self._ended, timeout)
            else:
                while not self._changed.wait_for(self._ended, 0.5):
                    pass
            if self._error is not None:
                raise self._error
            return self._stopped

    def _ended(self) -> bool:
        return self._stopped or self._error is not None

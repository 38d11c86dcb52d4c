"""Stops the context on SIGTERM, which reaches a driver in two ways.

Of `python job.py`, the signal reaches Python. Under spark-submit it reaches the JVM, which ends in 0.6 s without a word to
Python; there a shutdown hook of Hadoop's ShutdownHookManager runs before Spark's own (priority 50), and jobs still run inside it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyspark import SparkContext

logger = logging.getLogger(__name__)

_PRIORITY = 60
_LEAST_TIMEOUT_S = 600


class _JavaRunnable:
    """A Python callable as a java.lang.Runnable."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def run(self) -> None:
        try:
            self._action()
        except Exception:
            logger.exception("stopping on shutdown failed")

    class Java:
        implements = ["java.lang.Runnable"]  # noqa: RUF012 - py4j reads exactly this


def under_spark_submit() -> bool:
    """Whether the JVM is our parent (spark-submit) instead of our child."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


class ShutdownHook:
    """Calls `stop(graceful)` when the driver is asked to end. Call `remove` once the context has stopped.

    Plain Python: on SIGTERM, if the context was started in the main thread and no other code handles the signal. After a graceful stop the
    program continues behind `awaitTermination`; any other stop ends it by the signal. spark-submit: the program continues in either case,
    until the other hooks of the JVM have run. Without the stop, Spark would end during the batch, and the batch would count as failed.

    Args:
        sc: the SparkContext of the streams.
        graceful: how to stop.
        stop: stops the context.
        patience_s: seconds that a stop may take; afterwards the JVM of spark-submit ends without it.
    """

    def __init__(self, sc: SparkContext, graceful: bool, stop: Callable[[bool], None], patience_s: float = 0) -> None:
        self._graceful = graceful
        self._stop = stop
        self._jvm_hook: Any = None
        self._manager: Any = None
        if under_spark_submit():
            self._add_jvm_hook(sc, max(_LEAST_TIMEOUT_S, int(patience_s)))
        else:
            self._listen()

    def remove(self) -> None:
        """Remove the hook. Any thread. The handler stays, because only the main thread may remove it, and does what SIGTERM does."""
        global _current
        if _current is self:
            _current = None
        if self._jvm_hook is not None:
            manager, hook, self._jvm_hook = self._manager, self._jvm_hook, None
            try:
                manager.removeShutdownHook(hook)
            except Exception as e:  # the JVM is shutting down: the hook is what called us
                logger.debug("shutdown hook not removed: %s", e)

    def _add_jvm_hook(self, sc: SparkContext, timeout_s: int) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        gateway: Any = sc._gateway  # pyright: ignore
        ensure_callback_server_started(gateway)
        jvm = gateway.jvm
        # A bare proxy has no hashCode, which the manager's set needs; and after Ctrl-C there may be no Python left to call, which is no
        # news. A FutureTask has the one and keeps the other to itself.
        runnable = _JavaRunnable(lambda: self._stop(self._graceful))
        self._jvm_hook = jvm.java.util.concurrent.FutureTask(runnable, None)
        self._manager = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        self._manager.addShutdownHook(self._jvm_hook, _PRIORITY, timeout_s, jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _listen(self) -> None:
        global _current
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _on_signal):
            signal.signal(signal.SIGTERM, _on_signal)
            _current = self

    def hand_over(self) -> None:
        """Stop on a thread of its own, so that the interrupted code can finish."""
        threading.Thread(target=self._stop_and_leave, name="streaming-shutdown", daemon=False).start()

    def _stop_and_leave(self) -> None:
        logger.warning("SIGTERM: the context stops %s", "gracefully" if self._graceful else "at once")
        self._stop(self._graceful)
        if not self._graceful:
            os._exit(128 + signal.SIGTERM)


_current: ShutdownHook | None = None
"""The hook of the context that runs; one context is active at a time."""


def _on_signal(signum: int, frame: FrameType | None) -> None:
    """Runs in the main thread between two byte codes."""
    if _current is not None:
        _current.hand_over()
    else:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

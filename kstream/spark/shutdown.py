"""Stops the context on SIGTERM, and lets Ctrl-C stop no Spark job before the program stops the context.

SIGTERM reaches a driver in two ways.

If the driver is a plain `python job.py`, Python receives the signal. Under spark-submit the JVM receives it, and ends after 0.6 s without
a message to Python. There a shutdown hook of Hadoop's ShutdownHookManager stops the context. It runs before Spark's own hook (priority
50), so jobs still run inside it.
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

from kstream.spark.java import under_spark_submit
from kstream.spark.jvm_log import silence_jvm

logger = logging.getLogger(__name__)

_PRIORITY = 60
_LEAST_TIMEOUT_S = 600


class _JavaRunnable:
    """A Python callable as a java.lang.Runnable."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def run(self) -> None:
        """Call the action, for the JVM. Runs on a thread of py4j. An error is logged."""
        try:
            self._action()
        except Exception:
            logger.exception("stopping on shutdown failed")

    class Java:
        implements = ["java.lang.Runnable"]  # noqa: RUF012 - py4j reads this attribute


class ShutdownHook:
    """Calls `stop(graceful)` when the driver is asked to end. Call `remove` once the context has stopped.

    In plain Python SIGTERM calls it, if the context was started in the main thread and no other code handles the signal. After a graceful
    stop the program continues after its `awaitTermination`; any other stop ends the program with exit code 143, as the signal would.

    Under spark-submit the program continues in either case, until the other hooks of the JVM have run. Without the stop, Spark would end
    during the batch, and the batch would count as failed.

    Args:
        sc: the SparkContext of the streams.
        graceful: whether the stop is graceful.
        stop: stops the context, gracefully if its argument is true; called on a thread that is not the main thread.
        patience_s: the seconds that a stop may take, 600 at least. Afterwards the JVM of spark-submit ends without it.
    """

    def __init__(self, sc: SparkContext, graceful: bool, stop: Callable[[bool], None], patience_s: float = 0) -> None:
        self._sc = sc
        self._graceful = graceful
        self._stop = stop
        self._jvm_hook: Any = None
        self._manager: Any = None
        if under_spark_submit():
            self._add_jvm_hook(sc, max(_LEAST_TIMEOUT_S, int(patience_s)))
        else:
            self._listen()

    def remove(self) -> None:
        """Remove the hook, so that SIGTERM no longer stops the context. Any thread.

        The signal handler stays, because only the main thread may remove it. Without a hook it ends the process, as SIGTERM does by
        default.
        """
        global _current
        if _current is self:
            _current = None
        if self._jvm_hook is not None:
            manager, hook, self._jvm_hook = self._manager, self._jvm_hook, None
            try:
                manager.removeShutdownHook(hook)
            except Exception as e:  # the JVM is shutting down, and this call comes from the hook itself
                logger.debug("shutdown hook not removed: %s", e)

    def _add_jvm_hook(self, sc: SparkContext, timeout_s: int) -> None:
        """Register the stop as a shutdown hook of the JVM, which ends without it after `timeout_s`."""
        from pyspark.java_gateway import ensure_callback_server_started

        gateway: Any = sc._gateway  # pyright: ignore
        ensure_callback_server_started(gateway)
        jvm = gateway.jvm
        # The manager's set needs a hashCode, which a bare proxy lacks and a FutureTask has. After Ctrl-C there may be no Python left to
        # call: a FutureTask keeps this expected error to itself.
        runnable = _JavaRunnable(lambda: self._stop(self._graceful))
        self._jvm_hook = jvm.java.util.concurrent.FutureTask(runnable, None)
        self._manager = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        self._manager.addShutdownHook(self._jvm_hook, _PRIORITY, timeout_s, jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _listen(self) -> None:
        """Let SIGTERM call this hook, unless other code handles the signal. Does nothing outside of the main thread.

        Ctrl-C raises KeyboardInterrupt from now on, if pyspark has handled it until now.
        """
        global _current
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, _on_signal):
            signal.signal(signal.SIGTERM, _on_signal)
            _current = self
        if getattr(signal.getsignal(signal.SIGINT), "__module__", "").startswith("pyspark."):
            # It cancels all jobs before it raises, so that the jobs of batches would fail before a stop knows of it.
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def hand_over(self) -> None:
        """Stop the context on a new thread, so that the code that the signal has interrupted can finish. Returns at once."""
        threading.Thread(target=self._stop_and_leave, name="streaming-shutdown", daemon=False).start()

    def _stop_and_leave(self) -> None:
        """Stop the context. End the process with exit code 143 unless the stop is graceful."""
        logger.warning("SIGTERM: the context stops %s", "gracefully" if self._graceful else "at once")
        if not self._graceful:
            silence_jvm(self._sc)
        self._stop(self._graceful)
        if not self._graceful:
            os._exit(128 + signal.SIGTERM)


_current: ShutdownHook | None = None
"""The hook of the active context; only one context is active at a time."""


def _on_signal(signum: int, frame: FrameType | None) -> None:
    """Stop the active context; without one, end the process as SIGTERM does by default.

    Python calls this in the main thread, between two byte codes.
    """
    if _current is not None:
        _current.hand_over()
    else:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

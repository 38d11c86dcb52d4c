"""JvmWatch: notices that Spark's JVM has ended, at once and without work for a batch.

A thread waits at a connection of its own to py4j's server in the JVM. Nothing is ever sent on it. The kernel ends the connection when the
JVM ends, however that happens, under spark-submit, too, where the JVM is no child of this process.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from kstream.errors import JvmLostError, signal_name

logger = logging.getLogger(__name__)
CONNECTIONS_END_S = 0.5
"""Seconds between the ends of the first and the last connection to a JVM that has ended, and of its process."""
_STATUS_S = 5
"""Seconds in which the kernel tells the status of a JVM whose connections it has ended."""


class JvmWatch:
    """Watches the JVM of one SparkContext, from `start` to `stop`. Any thread may call `has_ended` and `error`.

    Args:
        address: host and port of py4j's server in the JVM.
        process: the JVM, if this process has started it; else None, as under spark-submit.
        on_end: on_end(error) is called once when the JVM has ended before `stop`, on the watch's own thread.
    """

    def __init__(self, address: tuple[str, int], process: Any, on_end: Callable[[JvmLostError], None]) -> None:
        self._address = address
        self._process = process
        self._on_end = on_end
        self._connection: socket.socket | None = None
        self._stopped = False
        self._ended = threading.Event()

    @classmethod
    def of(cls, sc: SparkContext, on_end: Callable[[JvmLostError], None]) -> JvmWatch:
        """Return the watch for the JVM of a SparkContext, not started. pyspark's accumulator server is silent about its end from now on."""
        gateway: Any = sc._gateway  # pyright: ignore
        _quieten(getattr(sc, "_accumulatorServer", None))
        server = gateway.gateway_parameters
        return cls((server.address, server.port), getattr(gateway, "proc", None), on_end)

    def start(self) -> None:
        """Connect to the JVM, and start the thread. Call once.

        Raises:
            JvmLostError: the JVM has ended already.
        """
        try:
            self._connection = socket.create_connection(self._address)
        except OSError as e:
            self._ended.set()
            raise self.error() from e
        threading.Thread(target=self._wait, args=(self._connection,), name="SparkJVM", daemon=True).start()

    def stop(self) -> None:
        """End the watch; the end of the JVM is no error from now on. Returns at once. May be called again, and without a start."""
        self._stopped = True
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes the connection
            except OSError:
                pass

    def has_ended(self, wait_s: float = 0) -> bool:
        """Return whether the JVM has ended.

        Args:
            wait_s: seconds to wait for that, for a caller whose own connection has failed: the kernel ends them one after the other.
        """
        return self._ended.wait(wait_s) if wait_s else self._ended.is_set()

    def error(self) -> JvmLostError:
        """Return the error of a batch or a context whose JVM has ended. May wait some seconds for the status of the JVM."""
        pid, status = None, None
        if self._process is not None:
            pid = self._process.pid
            try:
                status = self._process.wait(_STATUS_S)
            except TimeoutExpired:  # it lives without its server
                pass
        return JvmLostError(
            f"Spark's JVM{'' if pid is None else f' (process {pid})'} has ended{_why(status)}: this driver can run nothing more. "
            "If memory was short, give it more (spark.driver.memory). Planned batches run at the next start, with the same data.",
            pid=pid,
            status=status,
        )

    def _wait(self, connection: socket.socket) -> None:
        """Wait until the connection ends, and tell `on_end` unless the watch was stopped. Runs on the thread SparkJVM."""
        with connection:
            try:
                while connection.recv(1024):
                    pass  # py4j sends nothing that was not asked for
            except OSError as e:
                logger.debug("connection to Spark's JVM: %s", e)
        if not self._stopped:
            self._ended.set()
            self._on_end(self.error())


def _quieten(accumulators: Any) -> None:
    """Let pyspark's server for accumulators print no traceback when the JVM ends its connection by ending itself."""
    if accumulators is None:
        return
    of_its_class = type(accumulators).handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            logger.debug("the JVM has ended its connection for accumulators")
        else:
            of_its_class(accumulators, request, client_address)

    accumulators.handle_error = handle_error


def _why(status: int | None) -> str:
    """Return how a process has ended, as the end of a clause."""
    if status is None:
        return ""
    return f", killed by {signal_name(-status)}" if status < 0 else f" with exit code {status}"


def patience_after(error: BaseException) -> float:
    """Return how long to wait for the end of the JVM after an error, in seconds: nothing if it is no error of a connection to the JVM."""
    of_a_connection = isinstance(error, Py4JError | OSError | EOFError) and not isinstance(error, Py4JJavaError)
    return CONNECTIONS_END_S if of_a_connection else 0


def jvm_has_ended(error: BaseException) -> bool:
    """Return whether this process has started a JVM for Spark, and the JVM has ended. Waits a moment after an error of a connection to it.

    False under spark-submit, whose JVM is our parent.
    """
    process: Any = getattr(SparkContext._gateway, "proc", None)  # pyright: ignore[reportPrivateUsage]
    if process is None:
        return False
    try:
        process.wait(2 * patience_after(error))  # the driver ends anyway, and a slow machine must not hide the reason
    except TimeoutExpired:
        return False
    return True

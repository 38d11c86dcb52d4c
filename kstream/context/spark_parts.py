"""SparkParts: what of a running context stands on its SparkContext."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark import SparkContext

from kstream.clock import Clock
from kstream.conf import Settings
from kstream.context.engine import SparkServices
from kstream.dstream import DStreamGraph, ReceiverInputDStream
from kstream.dstream.state_files import StateFiles
from kstream.errors import JvmLostError
from kstream.receiver.settings import WAITING_TIME
from kstream.spark.broadcast_files import remove_unused_broadcast_files
from kstream.spark.executors import SparkExecutorAllocationClient
from kstream.spark.job_environment import SparkJobEnvironment, SparkUi
from kstream.spark.jvm_log import quiet_failed_tasks
from kstream.spark.jvm_watch import JvmWatch
from kstream.spark.receiver_runner import check_cores
from kstream.spark.receivers import open_received_blocks
from kstream.storage import FileStore, place_for_workers
from kstream.storage.settings import SINGLE_WRITER


class SparkParts:
    """The watch of the JVM, the way into Spark's UI, and the services of Spark for an engine. The thread that starts calls these methods.

    Args:
        sc: the SparkContext.
        settings: those of the context.
        on_jvm_lost: gets the error when the JVM has ended, on the thread SparkJVM.
    """

    def __init__(self, sc: SparkContext, settings: Settings, on_jvm_lost: Callable[[JvmLostError], None]) -> None:
        self._sc = sc
        self._settings = settings
        self._jvm = JvmWatch.of(sc, on_jvm_lost)
        self.ui: SparkUi | None = None
        """Leads from the page into Spark's UI; None without a page."""

    def start(self, has_page: bool) -> None:
        """Watch the JVM from now on, and prepare the driver for the jobs of batches. Asks the JVM. JvmLostError if it has ended."""
        self._jvm.start()
        quiet_failed_tasks(self._sc)
        remove_unused_broadcast_files(self._sc)
        self.ui = SparkUi(self._sc) if has_page else None

    def services(self, graph: DStreamGraph, clock: Clock, tell: Callable[[Any], None], stop_wanted: threading.Event) -> SparkServices:
        """Return what Spark does for the engine of this graph. From now on Spark's pages show the places in the user's code.

        Args:
            graph: the streams.
            clock: the clock of batch times.
            tell: posts an event to the listeners; any thread.
            stop_wanted: set when the context is to stop, which ends waits for executors.
        """
        environment = SparkJobEnvironment(self._sc, graph.batch_duration, self._jvm, self.ui)
        graph.placement = environment.placement
        received = partial(open_received_blocks, self._sc, self._settings, clock, tell, stop_wanted)
        return SparkServices(environment, self._state_files, received, SparkExecutorAllocationClient(self._sc))

    def wait_for_cores(self, graph: DStreamGraph, stop_wanted: threading.Event) -> None:
        """Block until the cluster has enough cores for the receivers of this graph; see `check_cores`. Returns at once without receivers.

        Raises:
            NotEnoughCoresError: the cluster has not given the cores in time.
        """
        receivers = sum(isinstance(stream, ReceiverInputDStream) for stream in graph.active_inputs())
        if receivers:
            check_cores(self._sc, receivers, stop_wanted, self._settings[WAITING_TIME] / 1000)

    def _state_files(self, store: FileStore, epoch: int) -> StateFiles:
        """Make the writer and reader of state, for the engine."""
        return StateFiles(self._sc, store, place_for_workers(store, self._settings[SINGLE_WRITER]), epoch)

    def stop(self) -> None:
        """End the watch of the JVM. Returns at once."""
        self._jvm.stop()

"""Observers: what watches a running context: progress, status, lines in the log, metrics, the page. No batch waits for any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration
from kstream.clock import Clock, SettableClock
from kstream.conf import ConfigEntry, Settings
from kstream.context.batch_lines import BatchLines
from kstream.context.continuous_engine import ContinuousEngine
from kstream.context.engine import Engine
from kstream.context.late_batches import LateBatches
from kstream.context.progress import BatchProgress, progress_of
from kstream.context.settings_table import settings_table
from kstream.context.status import StatusCollector, StatusReporter
from kstream.dstream import DStreamGraph, InputDStream, ReceiverInputDStream
from kstream.errors import MissingDependencyError
from kstream.listener import StreamingListenerBus
from kstream.metrics.settings import METRICS_PORT
from kstream.monitoring.job_history import KEPT, JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.receiver.receiver_tracker import receiver_name
from kstream.ui.settings import UI_ENABLED

if TYPE_CHECKING:
    from kstream.checkpoint.driver_status import DriverStatus
    from kstream.checkpoint.stop_request import StopRequest
    from kstream.metrics.metrics_system import MetricsSystem
    from kstream.spark.job_environment import SparkUi
    from kstream.storage import FileStore
    from kstream.ui.driver_source import SparkLinks
    from kstream.ui.ui_system import UiSystem

_NO_SPARK = "local"
"""The id of an application that does not run on Spark, which is a test's."""


class Observers:
    """The observers of one context. The thread that starts and stops the context calls `start`, `opened`, `report` and `ended`.

    Args:
        application: the name of the application.
        settings: those of the context.
        interval: the batch interval.
        clock: the clock of the context.
        bus: the listener bus of the context.
        parallelism: returns Spark's default parallelism; called on the listeners' thread.
        executors: returns the number of the executors that the driver found last, None if it has not looked; any thread, asks nobody.
    """

    def __init__(
        self,
        application: str,
        settings: Settings,
        interval: Duration,
        clock: Clock,
        bus: StreamingListenerBus,
        parallelism: Callable[[], int],
        executors: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._executors = executors
        self._application, self._interval = application, interval
        self.history = JobHistory(clock)
        self.collector = StatusCollector(application, interval, clock)
        bus.add(self.history)
        bus.add(BatchLines(interval))
        self._bus = bus
        self._late_batches = partial(LateBatches, interval, settings, parallelism)
        self._metrics = None if settings[METRICS_PORT] is None else _metrics_system(settings)
        self._ui = _ui_system(settings, interval, clock, bus, self.history) if settings[UI_ENABLED] else None
        self._engine: Engine | ContinuousEngine | None = None
        """The engine of the context, once its checkpoint is open. The thread that starts writes it; any thread reads it."""
        self._graph: DStreamGraph | None = None
        self._reporter: StatusReporter | None = None
        self._ended: str | None = None
        self.has_started = False
        """Whether `start` was called, whatever became of it. Any thread."""

    def measured(self, store: FileStore | None) -> FileStore | None:
        """Return the store for the plan log: with metrics one that measures its requests."""
        return store if store is None or self._metrics is None else self._metrics.measured(store)

    @property
    def has_ui(self) -> bool:
        """Whether the page is enabled."""
        return self._ui is not None

    def start(self, graph: DStreamGraph, store: FileStore | None = None, spark: SparkUi | None = None) -> None:
        """Open the ports for metrics and for the page, if they are wanted. Called before the checkpoint is opened: a port that is taken
        fences nobody.

        Args:
            graph: the streams.
            store: the checkpoint; None without one.
            spark: leads to Spark's own UI; None without one, or without the page.

        Raises:
            PortTakenError: another process has a port.
            ConfigurationError: a port cannot be opened, or a setting has no meaning.
        """
        self.has_started, self._graph = True, graph
        if self._metrics is not None:
            self._metrics.start(self.snapshot)
        if self._ui is not None:
            self._ui.start(self.snapshot, self._rates, store, _spark_links(spark))
        self._bus.add(self._late_batches(_tasks_settings(graph)))
        self.collector.started(self.metrics_url, self.ui_url)

    def opened(self, engine: Engine | ContinuousEngine) -> None:
        """Watch this engine from now on."""
        self._engine = engine

    def report(self, store: FileStore, on_stop: Callable[[StopRequest], None]) -> None:
        """Begin to renew the status record. On a clock that a test moves there is none: its thread would only wait for the test.

        Args:
            store: the checkpoint.
            on_stop: as of StatusReporter.
        """
        if not isinstance(self._clock, SettableClock):
            self._reporter = StatusReporter(store, self._clock, lambda ended: self.snapshot(ended).status, on_stop)
            self._reporter.start()

    def ended(self, how: str) -> None:
        """Write the last status record of this driver, which says how it has ended; close the ports. Blocks for a few seconds at most."""
        self._ended = how
        if self._reporter is not None:
            self._reporter.stop(how)
        if self._metrics is not None:
            self._metrics.stop()
        if self._ui is not None:
            self._ui.stop()

    def progress(self, most: int = KEPT) -> list[BatchProgress]:
        """Return the progress of the batches that ended last, in the order in which they ended. Any thread."""
        return [progress_of(info, self._interval, self._application) for info in self.history.snapshot().recent[-most:]]

    def status(self) -> DriverStatus:
        """Return the status of this moment. Any thread; asks no store."""
        return self.snapshot().status

    def snapshot(self, ended: str | None = None) -> JobSnapshot:
        """Return the job at this moment. Any thread; asks nobody.

        Args:
            ended: how the context has ended; None if it has not, or if `ended` has told it.
        """
        history = self.history.snapshot()  # before the engine: a batch that ends meanwhile is then shown as one that runs
        engine = EngineSnapshot() if self._engine is None else self._engine.snapshot()
        status = self.collector.status(history, engine, ended or self._ended)
        inputs = [] if self._graph is None else self._graph.active_inputs()
        return JobSnapshot(status, history, engine, _error_policies(inputs), _receivers(inputs), self._executors())

    def _rates(self) -> dict[int, int]:
        return {} if self._engine is None else self._engine.rates()

    @property
    def metrics_url(self) -> str | None:
        """The address of the metrics; None without a port. Any thread."""
        return None if self._metrics is None else self._metrics.url

    @property
    def ui_url(self) -> str | None:
        """The address of the page, without a token; None unless it is enabled and the context runs. Any thread."""
        return None if self._ui is None else self._ui.url


def _metrics_system(settings: Settings) -> MetricsSystem:
    """Make the metrics. Imported late: prometheus_client takes a tenth of a second, and most drivers have no port.

    Raises:
        MissingDependencyError: prometheus_client is not installed.
    """
    try:
        from kstream.metrics.metrics_system import MetricsSystem
    except ModuleNotFoundError as e:
        if e.name != "prometheus_client":
            raise
        install = "pip install prometheus-client"
        raise MissingDependencyError(f"{METRICS_PORT} needs {e.name}: {install}", package=e.name, install=install) from e
    return MetricsSystem(settings)


def _ui_system(settings: Settings, interval: Duration, clock: Clock, bus: StreamingListenerBus, history: JobHistory) -> UiSystem:
    """Make the page. Imported late: most drivers have none."""
    from kstream.ui.ui_system import UiSystem

    version = str(import_module("kstream").__version__)  # by its name: the root of the package knows rooms above this one
    return UiSystem(settings, settings_table().entries, interval, clock, bus, history, version)


def _spark_links(spark: SparkUi | None) -> SparkLinks:
    """Return what leads from the page into Spark's."""
    from kstream.ui.driver_source import SparkLinks

    return SparkLinks(_NO_SPARK) if spark is None else SparkLinks(spark.application, spark.url, spark.job_ids)


def _error_policies(inputs: Iterable[InputDStream[Any]]) -> dict[int, str]:
    """Return the policy of each input for a record that fails, by stream id."""
    return {stream.id: stream.errors_policy for stream in inputs}


def _tasks_settings(graph: DStreamGraph) -> dict[int, ConfigEntry[int]]:
    """Return the setting by which small ranges share tasks, of each input that has one, by stream id."""
    return {stream.id: stream.tasks_setting for stream in graph.active_inputs() if stream.tasks_setting is not None}


def _receivers(inputs: Iterable[InputDStream[Any]]) -> dict[int, str]:
    """Return the name of each receiver, whether it has ever started or not, by stream id."""
    streams = (stream for stream in inputs if isinstance(stream, ReceiverInputDStream))
    return {stream.id: receiver_name(stream.receiver, stream.id) for stream in streams}

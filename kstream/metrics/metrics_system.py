"""MetricsSystem: the metrics of one context, from its start to its stop (Spark's `MetricsSystem`): figures, registry and port."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from kstream.conf import Settings
from kstream.http.http_server import HttpServer
from kstream.metrics.measured_store import MeasuredStore, StoreFigures
from kstream.metrics.metrics_site import metrics_site
from kstream.metrics.settings import METRICS_HOST, METRICS_MAX_PARTITIONS, METRICS_PORT
from kstream.metrics.streaming_source import StreamingSource
from kstream.monitoring.job_snapshot import JobSnapshot
from kstream.storage import FileStore

logger = logging.getLogger(__name__)


class MetricsSystem:
    """Started and stopped once, by the thread that starts and stops the context. `url` may be read by any thread.

    Args:
        settings: those of the context. The port is set.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = StoreFigures()
        self._registry = CollectorRegistry()
        self._server: HttpServer | None = None

    @property
    def url(self) -> str | None:
        """The address for Prometheus; None before the start and after the stop."""
        server = self._server  # a stop may come in between
        return None if server is None else server.url

    def measured(self, store: FileStore) -> FileStore:
        """Return a store for the plan log whose requests are measured."""
        return MeasuredStore(store, self._store)

    def start(self, snapshot: Callable[[], JobSnapshot]) -> None:
        """Open the port.

        Args:
            snapshot: returns the job at this moment. Any thread.

        Raises:
            PortTakenError: another process has the port.
            ConfigurationError: the port cannot be opened, or a setting has no meaning.
        """
        most = self._settings[METRICS_MAX_PARTITIONS]
        host, port = self._settings[METRICS_HOST], self._settings[METRICS_PORT] or 0
        self._server = HttpServer(metrics_site(self._registry, lambda: snapshot().status), host, port)
        self._registry.register(StreamingSource(snapshot, self._store, most))
        ProcessCollector(registry=self._registry)
        self._server.start()
        logger.info("metrics are at %s", self._server.url)

    def stop(self) -> None:
        """Close the port and end its threads. Blocks for a moment. Does nothing before the start."""
        if self._server is None:
            return
        self._server.stop()
        self._server = None

"""UiSystem: the page of one context, from its start to its stop: what is kept for it, its source and its port."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from kstream.batch_time import Duration
from kstream.clock import Clock
from kstream.conf import ConfigEntry, Settings
from kstream.http.access import is_loopback, make_token
from kstream.http.http_server import HttpServer
from kstream.listener import StreamingListenerBus
from kstream.monitoring.batch_history import BatchHistory
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import JobSnapshot
from kstream.storage import FileStore
from kstream.ui.decisions import Decisions, LoggedWarnings
from kstream.ui.driver_ledger import DriverLedger, connectors_ranges
from kstream.ui.driver_source import DriverSource, SparkLinks
from kstream.ui.page_site import page_server
from kstream.ui.settings import RETAINED_BATCHES, UI_HOST, UI_PORT, UI_TOKEN
from kstream.ui.stored_batches import StoredBatches

logger = logging.getLogger(__name__)


class UiSystem:
    """Started and stopped once, by the thread that starts and stops the context. `url` may be read by any thread."""

    def __init__(
        self,
        settings: Settings,
        entries: Sequence[ConfigEntry[object]],
        interval: Duration,
        clock: Clock,
        bus: StreamingListenerBus,
        history: JobHistory,
        version: str,
    ) -> None:
        self._settings = settings
        self._entries = entries
        self._interval = interval
        self._clock = clock
        self._bus = bus
        self._history = history
        self._version = version
        self._decisions: Decisions | None = None
        self._warnings: LoggedWarnings | None = None
        self._server: HttpServer | None = None

    @property
    def url(self) -> str | None:
        """The address of the page, without a token; None before the start and after the stop."""
        return None if self._server is None else self._server.url

    def start(
        self,
        snapshot: Callable[[], JobSnapshot],
        rates: Callable[[], Mapping[int, int]],
        store: FileStore | None,
        spark: SparkLinks,
    ) -> None:
        """Open the port, and keep facts from now on.

        Args:
            snapshot: returns the job at this moment. Any thread.
            rates: returns the rate of each input that back-pressure has computed last, by stream id. Any thread. `snapshot` has them, too,
                but collects all pending batches: too much work for each event.
            store: the checkpoint; None without one.
            spark: leads to Spark's own page.

        Raises:
            PortTakenError: another process has the port.
            ConfigurationError: the port cannot be opened, or a setting has no meaning.
        """
        host, token, retained = self._settings[UI_HOST], self._settings[UI_TOKEN] or None, self._settings[RETAINED_BATCHES]
        is_made = token is None and not is_loopback(host)
        if is_made:
            token = make_token()
        self._decisions = Decisions(self._clock, rates)
        self._warnings = LoggedWarnings(self._decisions)
        ledger = DriverLedger(store, self._clock)
        stored = StoredBatches(store, connectors_ranges)
        source = DriverSource(self._settings, self._entries, snapshot, self._decisions, ledger, stored, spark, self._version)
        self._server = page_server(host, self._settings[UI_PORT], source, token)
        self._history.keep_batches(BatchHistory(self._interval.milliseconds, retained))
        self._bus.add(self._decisions)
        self._warnings.start()
        self._server.start()
        logger.info("the page is at %s%s", self.url, f"?token={token}" if is_made else "")

    def stop(self) -> None:
        """Close the port and end its threads. Blocks for a moment. Does nothing before the start."""
        if self._server is None or self._decisions is None or self._warnings is None:
            return
        self._warnings.stop()
        self._history.keep_batches(None)
        self._bus.remove(self._decisions)
        self._server.stop()
        self._server = None

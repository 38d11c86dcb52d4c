"""The status of a running context: StatusCollector makes it, and StatusReporter renews its record in the checkpoint.

StatusReporter also looks for a request to stop, which `kstream stop` leaves in the checkpoint.

A batch never waits for either. The reporter has a thread of its own; a store that is slow delays only the next renewal.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from functools import partial

from kstream.batch import BatchInfo, LogLag, slowest_output
from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import (
    AFTER_AN_ERROR,
    RECENT,
    RENEWAL_MS,
    BatchFigures,
    DriverStatus,
    StreamLag,
    drop_statuses_before,
    write_status,
)
from kstream.checkpoint.sign_of_life import mark_of_this_process
from kstream.checkpoint.stop_request import StopRequest, drop_stops_before, read_stop
from kstream.clock import Clock
from kstream.errors import CheckpointError, JvmLostError, StorageError, in_a_line
from kstream.monitoring.job_history import HistorySnapshot
from kstream.monitoring.job_snapshot import EngineSnapshot
from kstream.secret import harmless
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
LOOK_MS = 3000
"""The milliseconds between two looks for a request to stop: one small read. A person who stops a driver waits as long at most."""
_LAST_WRITE_S = 5.0
"""Seconds that a stop waits for the last record. Without that record `kstream status` shows the driver as dead, which is true, too."""


class StatusCollector:
    """Makes the status of a context. Thread-safe.

    Args:
        application: the name of the application.
        interval: the batch interval.
        clock: the clock of the context.
    """

    def __init__(self, application: str, interval: Duration, clock: Clock) -> None:
        self._application = application
        self._interval = interval
        self._clock = clock
        self._started_ms = clock.time_ms()
        self._metrics_url: str | None = None
        self._ui_url: str | None = None
        self._process = mark_of_this_process()
        self.is_supervised = False
        """Whether a supervisor starts the next driver after an error. It is set before the first status."""

    def started(self, metrics_url: str | None = None, ui_url: str | None = None) -> None:
        """Note that the context is started now.

        Args:
            metrics_url: where it shows its metrics; None without a port for them.
            ui_url: where it shows its page; None without one.
        """
        self._started_ms, self._metrics_url, self._ui_url = self._clock.time_ms(), metrics_url, ui_url

    def status(self, history: HistorySnapshot, engine: EngineSnapshot, ended: str | None = None) -> DriverStatus:
        """Return the status of this moment. Any thread; asks no store.

        Args:
            history: the history of the job.
            engine: what the engine knows.
            ended: how the context has ended; None if it has not.
        """
        pending, error = engine.pending, engine.state_error
        unfinished, how = pending.all(), "fenced" if engine.is_fenced else ended
        return DriverStatus(
            application=self._application,
            epoch=engine.epoch,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=self._started_ms,
            written_ms=self._clock.time_ms(),
            interval=self._interval,
            last_planned=engine.last_planned,
            unfinished=len(unfinished),
            oldest_unfinished=min(unfinished, default=None),
            failed=len(pending.failed),
            waiting=len(pending.retrying) + len(pending.held),
            recent=tuple(map(figures_of, history.recent[-RECENT:])),
            lag=tuple(stream_lag(number, lag) for number, lag in engine.lags.items()),
            rates=engine.rates,
            last_error=history.last_error,
            state_error=None if error is None else harmless(in_a_line(error)),
            outage=engine.outage if how is None else None,
            ended=how,
            metrics_url=self._metrics_url,
            ui_url=self._ui_url,
            process=self._process,
            supervised=self.is_supervised,
        )


def figures_of(info: BatchInfo) -> BatchFigures:
    """Return the figures of a batch that has ended. Pure."""
    return BatchFigures(
        info.batch_time,
        info.numRecords(),
        info.schedulingDelay(),
        info.processingDelay(),
        info.has_failed,
        info.numRecordErrors(),
        {found.field.name: found.value for found in info.figures},
        slowest_output(info),
    )


def stream_lag(number: int, lag: LogLag) -> StreamLag:
    """Return the lag of an input for the status. Pure."""
    return StreamLag(number, lag.plan.description, lag.records, lag.plan.limited_by, lag.unplanned, lag.at_ms)


def how_it_ended(in_order: bool, error: BaseException | None, was_asked: bool, is_started_again: bool) -> str:
    """Return how a context has ended, for its status. Pure.

    Args:
        in_order: whether all that it had planned has run.
        error: its first error; None without one.
        was_asked: whether `kstream stop` has asked for the end. The error of a batch is not the reason of the end then.
        is_started_again: whether the supervisor starts the next driver, whatever was asked.
    """
    if is_started_again or isinstance(error, JvmLostError):
        return AFTER_AN_ERROR
    if in_order:
        return "gracefully"
    return "at once" if error is None or was_asked else AFTER_AN_ERROR


class StatusReporter:
    """Writes the status record at the start, every RENEWAL_MS and at the end; looks for a request to stop every LOOK_MS. On one thread.

    The first renewal comes after LOOK_MS: at the start the driver does not know yet which batches it has to run.

    A write that fails is a warning, once until a write succeeds; the next renewal tries again. A write that takes long delays the next
    one: there is never more than one, and none is made up for.

    Args:
        store: the checkpoint.
        clock: the thread waits on it between two looks.
        status: status(ended) returns the status of this moment. Called on the thread.
        on_stop: on_stop(request) is called on the thread for a request to stop, and once more if it is now to be at once. Must not block.
    """

    def __init__(
        self,
        store: FileStore,
        clock: Clock,
        status: Callable[[str | None], DriverStatus],
        on_stop: Callable[[StopRequest], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._status = status
        self._on_stop = on_stop
        self._stopping = threading.Event()
        self._ended: str | None = None
        self._failing = False
        self._written: DriverStatus | None = None
        self._has_dropped_earlier = False
        self._obeyed: StopRequest | None = None
        self._thread = threading.Thread(target=self._run, name="StatusReporter", daemon=True)

    def start(self) -> None:
        """Start the thread. Call once. Never blocks."""
        self._thread.start()

    def stop(self, ended: str) -> None:
        """Write the last record and end the thread. Blocks until then, a few seconds at most.

        Args:
            ended: how the driver has ended.
        """
        self._ended = ended
        self._stopping.set()
        self._thread.join(_LAST_WRITE_S)

    def _run(self) -> None:
        due, pause = self._clock.monotonic_ms(), LOOK_MS
        while not self._stopping.is_set():
            if self._clock.monotonic_ms() >= due:
                self._guarded(partial(self._renew, None))
                due, pause = self._clock.monotonic_ms() + pause, RENEWAL_MS
            if self._written is not None and self._written.ended is not None:
                return  # it is fenced, and its successor removes the record
            self._guarded(self._look)
            self._clock.wait(max(0, min(LOOK_MS, due - self._clock.monotonic_ms())), self._stopping)
        self._guarded(partial(self._renew, self._ended))

    def _renew(self, ended: str | None) -> None:
        """Write the record; then delete the records for earlier drivers, until that has succeeded once. Raises StorageError."""
        status = self._status(ended)
        write_status(self._store, status)
        self._written = status
        if not self._has_dropped_earlier:
            drop_statuses_before(self._store, status.epoch)
            drop_stops_before(self._store, status.epoch)
            self._has_dropped_earlier = True
        self._failing = False

    def _look(self) -> None:
        """Look for a request to stop, one read; obey it. Raises StorageError, CorruptRecordError."""
        known = self._obeyed
        if self._written is None or (known is not None and known.now):
            return
        request = read_stop(self._store, self._written.epoch)
        if request is not None and (known is None or request.now):
            self._obeyed = request
            self._on_stop(request)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run an action. Its error is a warning, once until a record is written; it is never raised, as no batch depends on it."""
        try:
            action()
        except (StorageError, CheckpointError) as e:
            if not self._failing:
                logger.warning("status record not written, or request to stop not read; the driver tries again: %s", e)
            self._failing = True
        except Exception:
            logger.exception("status record not written, or request to stop not read")

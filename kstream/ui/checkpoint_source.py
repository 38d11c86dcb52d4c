"""CheckpointSource: the page of a driver from its checkpoint alone, for a driver that is dead or elsewhere. No Java, no pyspark."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from kstream.clock import Clock, SystemClock
from kstream.errors import CheckpointError, StorageError, one_line
from kstream.secret import without_secrets
from kstream.storage import FileStore
from kstream.ui import checkpoint_forms as forms_of
from kstream.ui.checkpoint_reader import CheckpointReader, Snapshot
from kstream.ui.forms import (
    ApplicationForm,
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    DecisionForm,
    LagForm,
    LedgerForm,
    OperationForm,
    ReceiverForm,
    SettingForm,
    StatisticsForm,
    TimelineForm,
    spark_time,
)
from kstream.ui.last_reading import LastReading
from kstream.ui.ledger_forms import RangesOf, ledger_forms
from kstream.ui.stored_facts import KnownBatch

logger = logging.getLogger(__name__)
RENEWAL_MS = 5000
"""The milliseconds between two looks at the checkpoint. Nobody who looks at the page costs nothing, and many cost as much as one."""


class CheckpointSource:
    """A PageSource that looks at a checkpoint. All methods may be called from any thread; one of them looks, and the others do not wait.

    If a look fails, the page shows the last one and says so.

    Args:
        store: the checkpoint.
        ranges_of: the tools of the connectors: returns the ranges in the plan data of an input.
        version: of kstream.
        last: the most batches.
        clock: tells the moment, and when to look again.

    Raises:
        CheckpointError: a record is damaged.
        StorageError: the store failed.
    """

    def __init__(self, store: FileStore, ranges_of: RangesOf, version: str, last: int, clock: Clock | None = None) -> None:
        self._ranges_of = ranges_of
        self._version = version
        self._clock = clock or SystemClock()
        self._reading = LastReading(CheckpointReader(store, last, self._clock).read, self._clock)
        self._reading.renew()
        self._application = _application(self._last()[0])

    def _look(self) -> Snapshot:
        """Return the checkpoint as it was at most RENEWAL_MS ago, or while another thread looks at it, a little earlier."""
        if self._reading.is_due(RENEWAL_MS):
            _, before = self._last()
            self._reading.renew()
            _, error = self._last()
            if error is not None and before is None:
                logger.warning("the checkpoint cannot be read: %s", one_line(error))
        return self._last()[0]

    def _last(self) -> tuple[Snapshot, CheckpointError | StorageError | None]:
        """Return the checkpoint as it was read last, and the error of the last try; raise that error if no try has succeeded."""
        snapshot, error = self._reading.last()
        if snapshot is None:
            assert error is not None
            raise error
        return snapshot, error

    def application(self) -> ApplicationForm:
        """Return the application. Its id is the path of the checkpoint, without what an address cannot have."""
        return self._application

    def statistics(self) -> StatisticsForm:
        """Return the figures at the head of the page. The state is `unknown` while the checkpoint cannot be read."""
        snapshot = self._look()
        found = forms_of.statistics(snapshot, self._clock.time_ms(), self._version)
        _, error = self._last()
        if error is not None:
            problem = without_secrets(one_line(error))
            found["state"] = "unknown"
            found["stateText"] = f"the checkpoint cannot be read: {problem}. The page shows it as of {spark_time(snapshot.read_ms)}"
        return found

    def timeline(self) -> TimelineForm:
        return forms_of.timeline(self._look())

    def batches(self, statuses: frozenset[BatchStatus] | None = None, limit: int | None = None) -> Sequence[BatchForm]:
        """Return the newest batches.

        Args:
            statuses: only batches with one of them; None for all.
            limit: at most so many; None for all.
        """
        rows = forms_of.batches(self._look())
        return [row for row in rows if statuses is None or row["status"] in statuses][:limit]

    def batch(self, batch_time_ms: int) -> BatchDetailForm | None:
        """Return a batch with its inputs; None if it is not among the newest."""
        snapshot = self._look()
        batch = _batch(snapshot, batch_time_ms)
        return None if batch is None else forms_of.batch_detail(snapshot, batch, self._ranges_of)

    def operations(self, batch_time_ms: int) -> Sequence[OperationForm] | None:
        """Return the operations that have figures, or the one that failed, if known; None if the batch is not among the newest."""
        snapshot = self._look()
        batch = _batch(snapshot, batch_time_ms)
        return None if batch is None else forms_of.operations(snapshot, batch)

    def receivers(self) -> Sequence[ReceiverForm]:
        """Return nothing: a checkpoint does not know them."""
        return []

    def lag(self) -> Sequence[LagForm]:
        """Return the lag of each input when the driver wrote its status record."""
        return forms_of.lag(self._look())

    def decisions(self) -> Sequence[DecisionForm]:
        """Return the last failures and data losses."""
        return forms_of.decisions(self._look())

    def ledger(self) -> Sequence[LedgerForm]:
        return [form for entry in self._look().entries for form in ledger_forms(entry, self._ranges_of)]

    def settings(self) -> Sequence[SettingForm]:
        """Return nothing: a checkpoint does not know them."""
        return []


def _application(snapshot: Snapshot) -> ApplicationForm:
    """Return the application of a checkpoint: by the status record, else by the last part of its path."""
    path = snapshot.url.rstrip("/")
    sign = snapshot.driver.sign
    name = path.rpartition("/")[2] or path if sign is None else sign.status.application
    return {"id": re.sub(r"[^A-Za-z0-9._]+", "-", path).strip("-") or "checkpoint", "name": name}


def _batch(snapshot: Snapshot, batch_time_ms: int) -> KnownBatch | None:
    """Return the batch of a batch time; None if it is not among the newest."""
    return next((batch for batch in snapshot.batches if batch.plan.time.milliseconds == batch_time_ms), None)

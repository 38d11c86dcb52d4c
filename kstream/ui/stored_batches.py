"""StoredBatches: what the checkpoint of a driver has of a batch whose facts the driver does not keep: it waits, or it is long over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kstream.batch_time import Duration, Time
from kstream.checkpoint import names
from kstream.checkpoint.history import PastBatch, find_past
from kstream.errors import CheckpointError, StorageError
from kstream.storage import FileStore
from kstream.ui.batch_forms import batch_form, detail_form, operation_form
from kstream.ui.forms import BatchDetailForm, BatchForm
from kstream.ui.ledger_forms import RangesOf
from kstream.ui.stored_facts import STATUSES, KnownBatch, facts_of, stored_row, with_input_facts

logger = logging.getLogger(__name__)
_KEPT = 16
"""Of how many batches that have succeeded the records are kept: a page asks again and again, and they do not change."""


class StoredBatches:
    """Finds a batch in the checkpoint when somebody looks at it and the driver does not keep its facts. Any thread; no batch waits.

    Args:
        store: the checkpoint; None without one.
        connectors: returns the tools of the connectors. Called when the first batch was found.
    """

    def __init__(self, store: FileStore | None, connectors: Callable[[], RangesOf]) -> None:
        self._store = store
        self._connectors = connectors
        self._done: dict[Time, KnownBatch] = {}
        self._lock = threading.Lock()

    def detail_form(self, time: Time, interval: Duration, form: BatchForm | None) -> BatchDetailForm | None:
        """Return a batch with its inputs, as its plan and its completion have them. Blocks on the store.

        Args:
            time: its batch time.
            interval: the batch interval.
            form: what the driver itself knows of it; None if it knows nothing.

        Returns:
            None if neither the driver nor the checkpoint knows it.

        Raises:
            CheckpointError: a record is damaged, and the driver knows nothing of the batch.
            StorageError: the store failed, and the driver knows nothing of the batch.
        """
        try:
            batch = self._find(time)
        except (CheckpointError, StorageError) as e:
            if form is None:
                raise
            logger.debug("batch %s was not read for the page: %s", time, e)
            batch = None
        if batch is None:
            return None if form is None else {**form, "inputs": [], "skipped": [], "operations": []}
        facts = with_input_facts(facts_of(batch), batch, self._connectors(), {})
        stored = batch_form(stored_row(batch, facts), STATUSES[batch.outcome], interval.milliseconds)
        known = stored if form is None else form
        shown: BatchForm = {**known, "inputSize": stored["inputSize"]} if known["inputSize"] is None else known
        return detail_form(shown, facts, [operation_form(operation) for operation in facts.outputs.values()])

    def _find(self, time: Time) -> KnownBatch | None:
        """Return a batch of the log or of the history; None if neither has it. Blocks on the store."""
        if self._store is None:
            return None
        with self._lock:
            known = self._done.get(time)
        if known is not None:
            return known
        past = find_past(self._store, time)
        if past is None:
            return None
        batch = _known(self._store, past)
        if batch.outcome == "done":
            with self._lock:
                self._done[time] = batch
                while len(self._done) > _KEPT:
                    del self._done[next(iter(self._done))]
        return batch


def _known(store: FileStore, past: PastBatch) -> KnownBatch:
    """Return a batch as the page knows it. Blocks: a small request if it has not succeeded."""
    plan = past.plan
    is_given_up = past.counts is None and store.exists(names.given_up(plan.time, plan.epoch))
    outcome = "given up" if is_given_up else "pending" if past.counts is None else "done"
    return KnownBatch(plan, outcome, past.counts, skipped=past.skipped, delays=past.delays, figures=past.figures)

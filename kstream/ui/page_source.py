"""PageSource: what the page shows at one moment. A living driver has one, and a checkpoint has one without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
)


class PageSource(Protocol):
    """The server calls each method on a thread of its own for each request, so any number at a time. Lists are newest first.

    A method may block on a store for a moment, but no batch may wait for it. It may raise StorageError and CheckpointError; the server then
    answers 503 with the text.
    """

    def application(self) -> ApplicationForm:
        """Return the application. Always the same."""
        ...

    def statistics(self) -> StatisticsForm:
        """Return the figures at the head of the page."""
        ...

    def timeline(self) -> TimelineForm:
        """Return the last hour in buckets, oldest first."""
        ...

    def batches(self, statuses: frozenset[BatchStatus] | None = None, limit: int | None = None) -> Sequence[BatchForm]:
        """Return the batches that are known.

        Args:
            statuses: only batches with one of them; None for all.
            limit: at most so many; None for all.
        """
        ...

    def batch(self, batch_time_ms: int) -> BatchDetailForm | None:
        """Return a batch with its inputs and operations; None if it is not known, or no longer."""
        ...

    def operations(self, batch_time_ms: int) -> Sequence[OperationForm] | None:
        """Return the output operations of a batch, in the order of the graph; None if the batch is not known, or no longer."""
        ...

    def receivers(self) -> Sequence[ReceiverForm]:
        """Return the receivers, by stream id."""
        ...

    def lag(self) -> Sequence[LagForm]:
        """Return the lag of each input that reads logs, by stream id."""
        ...

    def decisions(self) -> Sequence[DecisionForm]:
        """Return the last decisions, warnings and errors."""
        ...

    def ledger(self) -> Sequence[LedgerForm]:
        """Return the entries of the ledger."""
        ...

    def settings(self) -> Sequence[SettingForm]:
        """Return the settings that differ from their defaults, by key."""
        ...

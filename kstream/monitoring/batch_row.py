"""BatchRow: a batch that has ended or runs, in a few hundred bytes: what is kept of many batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kstream.batch import BatchInfo, KnownFigure, OutputOperationInfo
from kstream.secret import line_without_secrets

OperationStatus = Literal["QUEUED", "PROCESSING", "COMPLETED", "FAILED"]
Operations = Mapping[int, OutputOperationInfo]
"""The output operations of a batch by their numbers."""
_LONGEST_REASON = 300


class OperationCounts(NamedTuple):
    """How many output operations of a batch run, have succeeded, have failed, and how many there are."""

    active: int
    completed: int
    failed: int
    total: int


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch in a few hundred bytes. Delays are milliseconds, None if they are not known.

    Attributes:
        time_ms: the batch time.
        records: the records of its inputs.
        scheduling, processing, total: its delays.
        operations: the numbers of its output operations.
        reason: the first error of an output in one line; None without one.
        tries: how often its jobs have been submitted.
        record_errors, skipped, losses: what it was completed without.
        limited_by: why an input has fewer records than its logs had; None if none has.
        lag: the records of its logs that no batch had when it was planned; None if no input knows it.
        has_failed: whether an output operation has failed.
        figures: what was measured of it.
    """

    time_ms: int
    records: int
    scheduling: int | None
    processing: int | None
    total: int | None
    operations: OperationCounts
    reason: str | None
    tries: int
    record_errors: int
    skipped: int
    losses: int
    limited_by: str | None
    lag: int | None
    has_failed: bool = False
    figures: Sequence[KnownFigure] = ()


def row_of(info: BatchInfo, operations: Operations | None = None) -> BatchRow:
    """Return the row of a batch. Pure. Its cost does not depend on the number of partitions.

    Args:
        info: the facts.
        operations: its output operations, if they are newer than those of the facts.
    """
    known = info.outputs if operations is None else operations
    statuses = [status_of(known[number]) for number in sorted(known)]
    errors = [operation.error or operation.failure_reason or "" for _, operation in sorted(known.items()) if _has_failed(operation)]
    inputs, found = info.inputs.values(), info.input_figures
    reasons = dict.fromkeys(reason for source in inputs if (reason := source.progress.limited_by) is not None)
    lags = [lag for source in inputs if (lag := source.progress.lag) is not None]
    return BatchRow(
        time_ms=info.batch_time.milliseconds,
        records=sum(source.num_records for source in inputs),
        scheduling=info.scheduling_delay_ms,
        processing=info.processing_delay_ms,
        total=info.total_delay_ms,
        operations=OperationCounts(statuses.count("PROCESSING"), statuses.count("COMPLETED"), statuses.count("FAILED"), len(statuses)),
        reason=line_without_secrets(errors[0])[:_LONGEST_REASON] if errors else None,
        tries=info.tries,
        record_errors=found.record_errors,
        skipped=found.skipped,
        losses=found.losses,
        limited_by="; ".join(reasons) if reasons else None,
        lag=sum(lags) if lags else None,
        has_failed="FAILED" in statuses,
        figures=info.figures,
    )


def status_of(operation: OutputOperationInfo) -> OperationStatus:
    """Return the status of an output operation. Pure."""
    if _has_failed(operation):
        return "FAILED"
    if operation.end_ms is not None:
        return "COMPLETED"
    return "QUEUED" if operation.start_ms is None else "PROCESSING"


def _has_failed(operation: OutputOperationInfo) -> bool:
    """Return whether an output operation has failed."""
    return operation.failure_reason is not None or operation.error is not None  # a checkpoint may know the error alone

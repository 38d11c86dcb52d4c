"""The forms of batches, inputs and output operations, made from the facts that listeners get; BatchRow, which is what is kept of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from kstream.batch import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.offsets.offset_range import OffsetRange
from kstream.secret import line_without_secrets, without_secrets
from kstream.ui.forms import (
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    InputForm,
    OffsetsForm,
    OperationForm,
    OperationStatus,
    spark_time,
)

Operations = Mapping[int, OutputOperationInfo]
"""The output operations of a batch by their numbers."""
NO_POLICIES: Mapping[int, str] = MappingProxyType({})
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

    @property
    def has_failed(self) -> bool:
        """Whether an output operation has failed."""
        return self.operations.failed > 0


def row_of(info: BatchInfo, operations: Operations | None = None) -> BatchRow:
    """Return the row of a batch. Pure. Its cost does not depend on the number of partitions.

    Args:
        info: the facts.
        operations: its output operations, if they are newer than those of the facts.
    """
    known = info.outputs if operations is None else operations
    statuses = [status_of(known[number]) for number in sorted(known)]
    errors = [operation.error or operation.failure_reason or "" for _, operation in sorted(known.items()) if _has_failed(operation)]
    inputs = info.inputs.values()
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
        record_errors=sum(source.num_record_errors for source in inputs),
        skipped=sum(source.num_skipped for source in inputs),
        losses=sum(source.num_losses for source in inputs),
        limited_by="; ".join(reasons) if reasons else None,
        lag=sum(lags) if lags else None,
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
    return operation.failure_reason is not None


def batch_form(row: BatchRow, status: BatchStatus, interval_ms: int) -> BatchForm:
    """Return the form of a batch. Pure."""
    return {
        "batchId": row.time_ms,
        "batchTime": spark_time(row.time_ms),
        "batchTimeMs": row.time_ms,
        "status": status,
        "batchDuration": interval_ms,
        "inputSize": row.records,
        "schedulingDelay": row.scheduling,
        "processingTime": row.processing,
        "totalDelay": row.total,
        "numActiveOutputOps": row.operations.active,
        "numCompletedOutputOps": row.operations.completed,
        "numFailedOutputOps": row.operations.failed,
        "numTotalOutputOps": row.operations.total,
        "firstFailureReason": row.reason,
        "tries": row.tries,
        "numRecordErrors": row.record_errors,
        "numSkipped": row.skipped,
        "numLosses": row.losses,
        "limitedBy": row.limited_by,
    }


def planned_form(time_ms: int, status: BatchStatus, interval_ms: int) -> BatchForm:
    """Return the form of a batch of which only the time is known, such as one that waits for an earlier batch. Pure."""
    none = BatchRow(time_ms, 0, None, None, None, OperationCounts(0, 0, 0, 0), None, 0, 0, 0, 0, None, None)
    return {**batch_form(none, status, interval_ms), "inputSize": None}


def detail_form(
    form: BatchForm, info: BatchInfo, operations: Sequence[OperationForm], policies: Mapping[int, str] = NO_POLICIES
) -> BatchDetailForm:
    """Return the form of a batch with its inputs and operations. Pure.

    Args:
        form: the form of the batch.
        info: the facts.
        operations: the forms of its output operations.
        policies: the errors policy of each input, by stream id.
    """
    inputs = [source for _, source in sorted(info.inputs.items())]
    return {
        **form,
        "inputs": [input_form(source, policies.get(source.stream_id)) for source in inputs],
        "skipped": [{"stream": source.stream_id, "record": str(record)} for source in inputs for record in source.skipped],
        "operations": list(operations),
    }


def input_form(source: StreamInputInfo, policy: str | None = None) -> InputForm:
    """Return the form of an input of a batch. Pure.

    Args:
        source: the facts.
        policy: its errors policy; None if it is not known.
    """
    progress = source.progress
    limit = progress.read_limit
    return {
        "id": source.stream_id,
        "description": progress.description,
        "numRecords": source.num_records,
        "numRecordErrors": source.num_record_errors,
        "recordErrors": [{"operator": where, "exception": what, "numRecords": number} for where, what, number in source.record_errors],
        "errorsPolicy": policy,
        "numSkipped": source.num_skipped,
        "numLosses": source.num_losses,
        "numBytes": source.num_bytes,
        "limitedBy": None if limit is None else dict(limit),
        "offsets": [_offsets_form(r) for r in source.facts.get("offsets", ())],
        "blocks": [str(block.block_id) for block in source.facts.get("blocks", ())],
        "files": [str(path) for path in source.facts.get("files", ())],
        "facts": progress.other_facts,
    }


def _offsets_form(r: OffsetRange) -> OffsetsForm:
    """Return the form of a range of offsets."""
    return {
        "topic": r.topic,
        "partition": r.partition,
        "fromOffset": r.fromOffset,
        "untilOffset": r.untilOffset,
        "count": r.count(),
    }


def operation_form(operation: OutputOperationInfo, jobs: Sequence[int] = (), spark_url: str | None = None) -> OperationForm:
    """Return the form of an output operation. Pure.

    Args:
        operation: the facts.
        jobs: its jobs of Spark.
        spark_url: the address of Spark's UI; None without one.
    """
    start, end = operation.start_ms, operation.end_ms
    return {
        "outputOpId": operation.output_op_id,
        "name": operation.op_name,
        "description": operation.op_description,
        "startTime": None if start is None else spark_time(start),
        "endTime": None if end is None else spark_time(end),
        "startTimeMs": start,
        "endTimeMs": end,
        "duration": None if start is None or end is None else end - start,
        "status": status_of(operation),
        "error": None if operation.error is None else without_secrets(operation.error),
        "failureReason": None if operation.failure_reason is None else without_secrets(operation.failure_reason),
        "jobIds": list(jobs),
        "jobUrls": [] if spark_url is None else [f"{spark_url}/jobs/job/?id={job}" for job in jobs],
    }

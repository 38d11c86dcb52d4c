"""The forms of batches, inputs and output operations, and of the timeline, made from what is kept of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypedDict

from kstream.batch import BatchInfo, KnownFigure, OutputOperationInfo, StreamInputInfo
from kstream.batch.figures import camel_case
from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus
from kstream.monitoring.batch_row import BatchRow, OperationCounts, status_of
from kstream.monitoring.skewed_ranges import skewed_ranges
from kstream.monitoring.timeline import TimelineBucket, bucket_ms
from kstream.offsets.offset_range import OffsetRange
from kstream.secret import without_secrets
from kstream.ui.forms import (
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    BucketForm,
    FigureForm,
    InputForm,
    LastErrorForm,
    OffsetsForm,
    OperationForm,
    SkewForm,
    TimelineForm,
    spark_time,
)
from kstream.ui.stored_facts import StoredRange

NO_POLICIES: Mapping[int, str] = MappingProxyType({})


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
        "figures": figure_forms(row.figures),
    }


def figure_forms(figures: Iterable[KnownFigure]) -> list[FigureForm]:
    """Return the forms of what was measured. Pure."""
    return [{"name": camel_case(field.name), "label": field.label, "unit": field.unit.value, "value": value} for field, value in figures]


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
        "figures": figure_forms(source.figures.known()),
        "limitedBy": None if limit is None else dict(limit),
        "offsets": [_offsets_form(r) for r in source.facts.get("offsets", ())],
        "skewed": _skew_forms(source.facts.get("offsets", ())),
        "blocks": [str(block.block_id) for block in source.facts.get("blocks", ())],
        "files": [str(path) for path in source.facts.get("files", ())],
        "facts": source.facts.get("storedPlan", progress.other_facts),
    }


def _skew_forms(ranges: Iterable[OffsetRange | StoredRange]) -> list[SkewForm]:
    """Return the forms of the ranges that have far more records than the others of their topic."""
    found = skewed_ranges((r.topic, r.partition, r.count()) for r in ranges)
    return [
        {"topic": one.topic, "partition": one.partition, "count": one.records, "median": one.median, "factor": one.factor} for one in found
    ]


def _offsets_form(r: OffsetRange | StoredRange) -> OffsetsForm:
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
        "figures": figure_forms(operation.figures.known()),
        "jobIds": list(jobs),
        "jobUrls": [] if spark_url is None else [f"{spark_url}/jobs/job/?id={job}" for job in jobs],
    }


def timeline_form(buckets: Mapping[int, TimelineBucket], interval_ms: int) -> TimelineForm:
    """Return the form of the last hour, oldest bucket first. Pure.

    Args:
        buckets: those that have a batch, by the moment at which they begin.
        interval_ms: the batch interval.
    """
    return {"bucketMs": bucket_ms(interval_ms), "buckets": [_bucket_form(at, buckets[at], interval_ms) for at in sorted(buckets)]}


def _bucket_form(time_ms: int, bucket: TimelineBucket, interval_ms: int) -> BucketForm:
    """Return the form of the bucket that begins at `time_ms`."""
    return {
        "timeMs": time_ms,
        "numBatches": bucket.batches,
        "numFailed": bucket.failed,
        "numRecords": bucket.records,
        "inputRate": bucket.records * 1000 / (max(1, bucket.batches) * interval_ms),
        "schedulingDelay": bucket.scheduling / bucket.timed if bucket.timed else None,
        "processingTime": bucket.processing / bucket.timed if bucket.timed else None,
        "totalDelay": bucket.total / bucket.timed if bucket.timed else None,
        "maxTotalDelay": bucket.longest,
        "lagRecords": bucket.lag,
    }


class Averages(TypedDict):
    """The fields about the averages of batches."""

    avgInputRate: float | None
    avgSchedulingDelay: float | None
    avgProcessingTime: float | None
    avgTotalDelay: float | None


def averages(rows: Sequence[BatchRow], interval: Duration) -> Averages:
    """Return the averages of batches; None without a value. Pure."""
    seconds = len(rows) * interval.seconds
    return {
        "avgInputRate": sum(row.records for row in rows) / seconds if seconds else None,
        "avgSchedulingDelay": _mean(row.scheduling for row in rows),
        "avgProcessingTime": _mean(row.processing for row in rows),
        "avgTotalDelay": _mean(row.total for row in rows),
    }


def _mean(values: Iterable[int | None]) -> float | None:
    """Return the mean of the values that are known; None without one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def last_error_form(status: DriverStatus) -> LastErrorForm | None:
    """Return the form of the last error of a driver. Pure."""
    error = status.last_error
    if error is None:
        return None
    batch = None if error.batch is None else error.batch.milliseconds
    return {"timeMs": error.at_ms, "text": error.text, "batchTimeMs": batch, "operation": error.operation, "settled": status.error_settled}

"""The answers of the page about a checkpoint, from a snapshot of it. Pure.

A checkpoint knows the delays of batches that have succeeded, and of the last ones in the status record. It knows no output operations
except that of the last error, and neither receivers nor settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from kstream.batch.plan_kind import BLOCKS, FILES, kind_of, without_kind
from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus, StreamLag
from kstream.checkpoint.history import LedgerEntry
from kstream.checkpoint.sign_of_life import behind_without_driver, judge
from kstream.monitoring.timeline import HOUR_MS, bucket_ms
from kstream.offsets.offset_range import PlannedRange
from kstream.secret import line_without_secrets, without_secrets
from kstream.ui.checkpoint_reader import KnownBatch, Snapshot
from kstream.ui.forms import (
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    BucketForm,
    DecisionForm,
    InputForm,
    LagForm,
    LastErrorForm,
    OffsetsForm,
    OperationForm,
    SkippedForm,
    StatisticsForm,
    TimelineForm,
    spark_time,
)
from kstream.ui.ledger_forms import RangesOf, loss_text

DECISIONS = 200
"""The most decisions that are shown."""
_STATUSES: Mapping[str, BatchStatus] = {"done": "COMPLETED", "failed": "FAILED", "given up": "FAILED", "pending": "PENDING"}


# -- the head of the page


def statistics(snapshot: Snapshot, now_ms: int, version: str) -> StatisticsForm:
    """Return the figures at the head of the page.

    Args:
        snapshot: the checkpoint.
        now_ms: the moment, in milliseconds since the Unix epoch.
        version: of kstream.
    """
    status = _status(snapshot)
    ended = [batch for batch in snapshot.batches if batch.outcome == "done"]
    records = sum(batch.records for batch in ended)
    delays = [batch.delays for batch in ended if batch.delays is not None]
    begun_ms = snapshot.started_ms or 0
    span_s = len(ended) * snapshot.interval.seconds
    return {
        "startTime": spark_time(begun_ms),
        "startTimeMs": begun_ms,
        "batchDuration": snapshot.interval.milliseconds,
        "numReceivers": None,
        "numActiveReceivers": None,
        "numInactiveReceivers": None,
        "numTotalCompletedBatches": None,
        "numRetainedCompletedBatches": len(ended),
        "numActiveBatches": None,
        "numProcessedRecords": None,
        "numReceivedRecords": None,
        "avgInputRate": records / span_s if span_s else None,
        "avgSchedulingDelay": _mean([each.scheduling_ms for each in delays]),
        "avgProcessingTime": _mean([each.processing_ms for each in delays]),
        "avgTotalDelay": _mean([each.total_ms for each in delays]),
        "source": "checkpoint",
        "nowMs": now_ms,
        **_standing(snapshot, now_ms),
        "epoch": snapshot.driver.epoch,
        "host": None if status is None else status.host,
        "pid": None if status is None else status.pid,
        "lagRecords": sum(lag.records for lag in status.lag) if status is not None and status.lag else None,
        "lastError": _last_error(snapshot),
        "sparkUiUrl": None,
        "metricsUrl": None if status is None or status.ended is not None else status.metrics_url,
        "numLedgerEntries": snapshot.older_entries + sum(_is_new(entry) for entry in snapshot.entries),
        "version": version,
    }


class _Standing(TypedDict):
    """The fields about how the driver is, and what has not ended."""

    state: str
    stateText: str
    numUnfinishedBatches: int
    numFailedBatches: int
    numWaitingBatches: int | None
    numHeldBatches: None
    oldestUnfinishedMs: int | None
    secondsBehind: float


def _standing(snapshot: Snapshot, now_ms: int) -> _Standing:
    """Return the fields about how the driver is, and what has not ended: of a driver that lives, as it says; else by the log."""
    living, contents = snapshot.driver.living, snapshot.contents
    skews = "".join(f". Clock skew: {sentence}" for sentence in snapshot.driver.skews)
    if living is not None:
        state, sentence = judge(living)
        oldest = living.oldest_unfinished
        return {
            "state": "running" if state == "well" else state,
            "stateText": sentence + skews,
            "numUnfinishedBatches": living.unfinished,
            "numFailedBatches": living.failed,
            "numWaitingBatches": living.waiting,
            "numHeldBatches": None,
            "oldestUnfinishedMs": None if oldest is None else oldest.milliseconds,
            "secondsBehind": living.seconds_behind(living.written_ms),
        }
    state, sentence = snapshot.driver.end()
    pending = sorted([*contents.pending, *contents.unread])
    seconds, _ = behind_without_driver(contents.meta, contents.last_planned, pending, now_ms)
    return {
        "state": state,
        "stateText": sentence + skews,
        "numUnfinishedBatches": len(pending),
        "numFailedBatches": sum(batch.outcome == "failed" for batch in snapshot.batches),
        "numWaitingBatches": None,
        "numHeldBatches": None,
        "oldestUnfinishedMs": pending[0].milliseconds if pending else None,
        "secondsBehind": seconds,
    }


def _last_error(snapshot: Snapshot) -> LastErrorForm | None:
    """Return the last error of the newest driver that has left a status record."""
    error = None if snapshot.driver.sign is None else snapshot.driver.sign.status.last_error
    if error is None:
        return None
    batch = None if error.batch is None else error.batch.milliseconds
    return {"timeMs": error.at_ms, "text": error.text, "batchTimeMs": batch, "operation": error.operation}


def _is_new(entry: LedgerEntry) -> bool:
    """Return whether a person must be told of an entry."""
    return not (entry.is_acknowledged or entry.is_asked_for)


def _status(snapshot: Snapshot) -> DriverStatus | None:
    """Return the status record of the newest driver; None if it has left none."""
    sign = snapshot.driver.sign
    return None if sign is None or sign.status.epoch != snapshot.driver.epoch else sign.status


def _mean(values: Sequence[int]) -> float | None:
    """Return the mean; None without a value."""
    return sum(values) / len(values) if values else None


# -- the timeline


def timeline(snapshot: Snapshot) -> TimelineForm:
    """Return the last hour before the newest batch, as far as its batches are known, in buckets by batch time, oldest first."""
    width = bucket_ms(max(1, snapshot.interval.milliseconds))
    buckets: dict[int, list[KnownBatch]] = {}
    newest = snapshot.batches[0].plan.time.milliseconds if snapshot.batches else 0
    for batch in snapshot.batches:
        at = batch.plan.time.milliseconds
        if batch.outcome != "pending" and at > newest - HOUR_MS:
            buckets.setdefault(at // width * width, []).append(batch)
    return {"bucketMs": width, "buckets": [_bucket(at, buckets[at], snapshot.interval) for at in sorted(buckets)]}


def _bucket(at_ms: int, batches: Sequence[KnownBatch], interval: Duration) -> BucketForm:
    """Return a bucket. The input rate counts the intervals of its batches, because an interval may be longer than a bucket."""
    known = [batch.delays for batch in batches if batch.delays is not None]
    records = sum(batch.records for batch in batches)
    seconds = len(batches) * interval.seconds
    return {
        "timeMs": at_ms,
        "numBatches": len(batches),
        "numFailed": sum(batch.outcome in ("failed", "given up") for batch in batches),
        "numRecords": records,
        "inputRate": records / seconds if seconds else 0.0,
        "schedulingDelay": _mean([each.scheduling_ms for each in known]),
        "processingTime": _mean([each.processing_ms for each in known]),
        "totalDelay": _mean([each.total_ms for each in known]),
        "maxTotalDelay": max((each.total_ms for each in known), default=None),
        "lagRecords": None,
    }


# -- batches


def batch_form(snapshot: Snapshot, batch: KnownBatch) -> BatchForm:
    """Return the row of a batch."""
    return stored_form(batch, snapshot.interval, num_failed_ops=len(operations(snapshot, batch)))


def stored_form(batch: KnownBatch, interval: Duration, num_failed_ops: int = 0) -> BatchForm:
    """Return the row of a batch, from its records alone.

    Args:
        batch: the batch.
        interval: the batch interval.
        num_failed_ops: how many of its output operations are known to have failed.
    """
    at = batch.plan.time.milliseconds
    delays = batch.delays
    return {
        "batchId": at,
        "batchTime": spark_time(at),
        "batchTimeMs": at,
        "status": _STATUSES[batch.outcome],
        "batchDuration": interval.milliseconds,
        "inputSize": batch.records,
        "schedulingDelay": None if delays is None else delays.scheduling_ms,
        "processingTime": None if delays is None else delays.processing_ms,
        "totalDelay": None if delays is None else delays.total_ms,
        "numActiveOutputOps": 0,
        "numCompletedOutputOps": 0,
        "numFailedOutputOps": num_failed_ops,
        "numTotalOutputOps": num_failed_ops,
        "firstFailureReason": _failure_text(batch),
        "tries": batch.failures + (batch.outcome == "done"),
        "numRecordErrors": sum(batch.errors.values()),
        "numSkipped": len(batch.skipped),
        "numLosses": sum(len(found) for found in batch.losses.values()),
        "limitedBy": None,
    }


def detail_form(snapshot: Snapshot, batch: KnownBatch, ranges_of: RangesOf) -> BatchDetailForm:
    """Return a batch with its inputs, the records it leaves out, and the operation that failed if it is known."""
    said = _descriptions(snapshot, batch)
    return {
        **batch_form(snapshot, batch),
        "inputs": [input_form(batch, number, ranges_of, said.get(number)) for number in sorted(batch.plan.inputs)],
        "skipped": skipped_forms(batch),
        "operations": operations(snapshot, batch),
    }


def skipped_forms(batch: KnownBatch) -> list[SkippedForm]:
    """Return the records that a batch leaves out."""
    return [{"stream": record.stream, "record": str(record)} for record in sorted(batch.skipped)]


def _failure_text(batch: KnownBatch) -> str | None:
    """Return why a batch has failed, in one line; None if it has not, or if it has succeeded since."""
    if batch.outcome not in ("failed", "given up"):
        return None
    if batch.last_failure is not None:
        return first_line(batch.last_failure.reason)
    return f"given up: the batch has failed {batch.failures} times" if batch.failures else "given up"


def first_line(text: str) -> str:
    """Return the first line of an error that is not empty, without what may be a secret."""
    return line_without_secrets(next((line for line in text.splitlines() if line.strip()), ""))


def operations(snapshot: Snapshot, batch: KnownBatch) -> list[OperationForm]:
    """Return the output operation in which a batch has failed, if it is that of the driver's last error. Others are not stored."""
    error = None if snapshot.driver.sign is None else snapshot.driver.sign.status.last_error
    if error is None or error.operation is None or error.batch != batch.plan.time or batch.outcome not in ("failed", "given up"):
        return []
    number, _, name = error.operation.partition(", ")
    return [
        {
            "outputOpId": int(number) if number.isdecimal() else 0,
            "name": name or error.operation,
            "description": error.operation,
            "startTime": None,
            "endTime": spark_time(error.at_ms),
            "startTimeMs": None,
            "endTimeMs": error.at_ms,
            "duration": None,
            "status": "FAILED",
            "error": error.text,
            "failureReason": None if batch.last_failure is None else without_secrets(batch.last_failure.reason),
            "jobIds": [],
            "jobUrls": [],
        }
    ]


# -- inputs


def input_form(batch: KnownBatch, number: int, ranges_of: RangesOf, description: str | None = None) -> InputForm:
    """Return an input of a batch. What its connector does not explain is in its facts.

    Args:
        batch: the batch.
        number: of the input's stream.
        ranges_of: the tools of the connectors.
        description: what the input reads, in the words of its driver; None if they are not known.
    """
    data = batch.plan.inputs[number]
    ranges = ranges_of(data)
    files, blocks = _rows(data, FILES), _rows(data, BLOCKS)
    is_plain = ranges is None and files is None and blocks is None
    return {
        "id": number,
        "description": description if description is not None else _description(batch, number, ranges),
        "numRecords": batch.records_of(number),
        "numRecordErrors": batch.errors.get(number, 0),
        "recordErrors": [],
        "errorsPolicy": None,
        "numSkipped": sum(record.stream == number for record in batch.skipped),
        "numLosses": len(batch.losses.get(number, ())),
        "numBytes": None if files is None else sum(int(row[2]) for row in files),
        "limitedBy": None,
        "offsets": [] if ranges is None else _offsets(ranges, (batch.counts or {}).get(number)),
        "blocks": [str(row[0]) for row in blocks or ()],
        "files": [str(row[0]) for row in files or ()],
        "facts": dict(without_kind(data)) if is_plain else {},
    }


def _rows(data: Mapping[str, Any], kind: str) -> list[list[Any]] | None:
    """Return the rows that an input of a kind, FILES or BLOCKS, stores under its kind; None for another input."""
    found = data.get(kind) if kind_of(data) == kind else None
    return found if isinstance(found, list) and all(isinstance(row, list) and row for row in found) else None  # pyright: ignore


def _offsets(ranges: Sequence[PlannedRange], counts: Sequence[int | None] | None) -> list[OffsetsForm]:
    """Return the ranges of a log, with their record counts if there is one for each range."""
    known: Sequence[int | None] = counts if counts is not None and len(counts) == len(ranges) else [None] * len(ranges)
    return [
        {"topic": r.topic, "partition": r.partition, "fromOffset": r.begin, "untilOffset": r.until, "count": count}
        for r, count in zip(ranges, known, strict=True)
    ]


def _descriptions(snapshot: Snapshot, batch: KnownBatch) -> dict[int, str]:
    """Return what the inputs read, in the words of their driver, if the driver of the status record has made the plan."""
    sign = snapshot.driver.sign
    if sign is None or sign.status.epoch != batch.plan.epoch:
        return {}
    return {lag.stream: lag.description for lag in sign.status.lag}


def _description(batch: KnownBatch, number: int, ranges: Sequence[PlannedRange] | None) -> str:
    """Return what an input reads: the name of its stream, and its topics."""
    name = batch.plan.names.get(number) or f"stream {number}"
    topics = ", ".join(sorted({r.topic for r in ranges or ()}))
    return f"{name} ({topics})" if topics else name


def lag(snapshot: Snapshot) -> list[LagForm]:
    """Return the lag of each input, as the status record has it. It has no partitions. Without a driver that lives there is no rate."""
    status = _status(snapshot)
    if status is None:
        return []
    rates: Mapping[int, int] = {} if snapshot.driver.living is None else status.rates
    return [
        {
            "stream": found.stream,
            "description": found.description,
            "records": found.records,
            "unplanned": found.unplanned,
            "seconds": None,
            "rateLimit": rates.get(found.stream),
            "topics": [],
        }
        for found in sorted(status.lag, key=lambda found: found.stream)
    ]


# -- what was met


def decisions(snapshot: Snapshot) -> list[DecisionForm]:
    """Return what the drivers have met: failures of the newest batches, data losses, batches that were given up; newest first."""
    found = [*_failures(snapshot.batches), *_losses_met(snapshot.entries), *_of_status(snapshot)]
    return sorted(found, key=lambda decision: -decision["timeMs"])[:DECISIONS]


def _failures(batches: Iterable[KnownBatch]) -> list[DecisionForm]:
    """Return the failures of batches."""
    return [
        {
            "timeMs": batch.last_failure.at_ms,
            "kind": "error",
            "text": f"the batch failed: {first_line(batch.last_failure.reason)}",
            "batchTimeMs": batch.plan.time.milliseconds,
        }
        for batch in batches
        if batch.last_failure is not None
    ]


def _losses_met(entries: Iterable[LedgerEntry]) -> list[DecisionForm]:
    """Return the data losses, and the batches that were given up."""
    found: list[DecisionForm] = []
    for entry in entries:
        at, batch = entry.at_ms, entry.time.milliseconds
        if entry.kind == "given-up":
            text = f"the batch was given up: it has failed {entry.failures} times"
            found.append({"timeMs": at, "kind": "error", "text": text, "batchTimeMs": batch})
        elif entry.kind == "lost":
            for stream, losses in sorted(entry.streams.items()):
                more = f", and {len(losses) - 1} more" if len(losses) > 1 else ""
                text = f"stream {stream} has lost {loss_text(losses[0])}{more}"
                found.append({"timeMs": at, "kind": "data loss", "text": text, "batchTimeMs": batch})
    return found


def _limited(lag: StreamLag) -> str:
    """Return the sentence about an input whose newest batch did not take all records. An older kstream has told only what it left."""
    left = lag.records if lag.unplanned is None else lag.unplanned
    return f"stream {lag.stream}: the newest batch is limited by {lag.limited_by}, {left:,} records are in no batch yet"


def _of_status(snapshot: Snapshot) -> list[DecisionForm]:
    """Return what the status record tells: an error that is of no batch, and why the newest batch did not take all records."""
    status = _status(snapshot)
    if status is None:
        return []
    found: list[DecisionForm] = [
        {
            "timeMs": status.written_ms,
            "kind": "limit",
            "text": _limited(each),
            "batchTimeMs": None,
        }
        for each in status.lag
        if each.limited_by is not None
    ]
    if status.last_error is not None and status.last_error.batch is None:
        error = status.last_error
        found.append({"timeMs": error.at_ms, "kind": "error", "text": error.text, "batchTimeMs": None})
    return found

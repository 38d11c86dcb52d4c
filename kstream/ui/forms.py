"""The forms of the page's JSON: each answer of the server, and each part of one. docs/page.md says what each field means.

A name of Spark's streaming REST is used if the meaning is the same. A field whose name ends with `Time` is a moment in Spark's form (see
`spark_time`); one that ends with `Ms` is the same moment in milliseconds since the Unix epoch. Durations are milliseconds. None is null:
the value is not known.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Literal, TypedDict

from kstream.monitoring.batch_row import OperationStatus

BatchStatus = Literal["PROCESSING", "QUEUED", "COMPLETED", "FAILED", "HELD", "RETRYING", "PENDING"]
"""PENDING: planned, and nobody runs it: its driver has ended, or the page only knows its plan. HELD: it waits for an earlier batch that has
failed. RETRYING: it waits for its next try. FAILED: it has no retry left in this driver."""
DecisionKind = Literal["limit", "rate", "allocation", "warning", "error", "data loss"]
Source = Literal["driver", "checkpoint"]


class ApplicationForm(TypedDict):
    """The application. `id`: Spark's, or that of the checkpoint."""

    id: str
    name: str


class LastErrorForm(TypedDict):
    """The last error of the driver. `operation`: such as `0, pprint at job.py:7`."""

    timeMs: int
    text: str
    batchTimeMs: int | None
    operation: str | None


class StatisticsForm(TypedDict):
    """The figures at the head of the page. The averages are of the batches that are kept; rates are records a second.

    What counts since the start of the driver, and what only the driver knows of this moment, is None of a checkpoint.
    """

    startTime: str
    startTimeMs: int
    batchDuration: int
    numReceivers: int | None
    numActiveReceivers: int | None
    numInactiveReceivers: int | None
    numTotalCompletedBatches: int | None
    numRetainedCompletedBatches: int
    numActiveBatches: int | None
    numProcessedRecords: int | None
    numReceivedRecords: int | None
    avgInputRate: float | None
    avgSchedulingDelay: float | None
    avgProcessingTime: float | None
    avgTotalDelay: float | None
    source: Source
    nowMs: int
    state: str
    stateText: str
    epoch: int
    host: str | None
    pid: int | None
    numUnfinishedBatches: int
    numFailedBatches: int
    numWaitingBatches: int | None
    numHeldBatches: int | None
    oldestUnfinishedMs: int | None
    secondsBehind: float
    lagRecords: int | None
    lastError: LastErrorForm | None
    sparkUiUrl: str | None
    metricsUrl: str | None
    numLedgerEntries: int | None
    version: str


class BucketForm(TypedDict):
    """Some seconds of the timeline. The delays are means of the batches that ended in it; None without one that knows it."""

    timeMs: int
    numBatches: int
    numFailed: int
    numRecords: int
    inputRate: float
    schedulingDelay: float | None
    processingTime: float | None
    totalDelay: float | None
    maxTotalDelay: int | None
    lagRecords: int | None


class TimelineForm(TypedDict):
    """The last hour, oldest bucket first. Buckets without a batch are left out."""

    bucketMs: int
    buckets: list[BucketForm]


class FigureForm(TypedDict):
    """What was measured of a batch, or of an input or output of it. `unit`: `bytes`, `ms`, or empty for a number."""

    name: str
    label: str
    unit: str
    value: int


class BatchForm(TypedDict):
    """A batch. The delays are None before their end; `firstFailureReason` is one line. Of a batch that is held only its time is known."""

    batchId: int
    batchTime: str
    batchTimeMs: int
    status: BatchStatus
    batchDuration: int
    inputSize: int | None
    schedulingDelay: int | None
    processingTime: int | None
    totalDelay: int | None
    numActiveOutputOps: int
    numCompletedOutputOps: int
    numFailedOutputOps: int
    numTotalOutputOps: int
    firstFailureReason: str | None
    tries: int
    numRecordErrors: int
    numSkipped: int
    numLosses: int
    limitedBy: str | None
    figures: list[FigureForm]


class RecordErrorsForm(TypedDict):
    """Records that the errors policy has left out of a batch, all with one kind of error."""

    operator: str
    exception: str
    numRecords: int


class OffsetsForm(TypedDict):
    """The range of a partition in a batch. `count`: its records as far as they are counted, else its offsets."""

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int
    count: int | None


class InputForm(TypedDict):
    """An input of a batch. `offsets` for a log, `blocks` for a receiver, `files` for a directory; the other two are empty.

    `limitedBy` is the read limit of the batch: `reason`, and what the input says of it. `facts`: what else the input says.
    `recordErrors` is empty if the kinds of the record errors are not known. `errorsPolicy` is the stream's: fail, skip or dead-letter.
    """

    id: int
    description: str
    numRecords: int
    numRecordErrors: int
    recordErrors: list[RecordErrorsForm]
    errorsPolicy: str | None
    numSkipped: int
    numLosses: int
    numBytes: int | None
    figures: list[FigureForm]
    limitedBy: dict[str, Any] | None
    offsets: list[OffsetsForm]
    blocks: list[str]
    files: list[str]
    facts: dict[str, Any]


class SkippedForm(TypedDict):
    """A record that the batch leaves out. `record`: such as `orders-3@17`."""

    stream: int
    record: str


class OperationForm(TypedDict):
    """An output operation of a batch. `error` is one line that names the record; `failureReason` is the traceback."""

    outputOpId: int
    name: str
    description: str
    startTime: str | None
    endTime: str | None
    startTimeMs: int | None
    endTimeMs: int | None
    duration: int | None
    status: OperationStatus
    error: str | None
    failureReason: str | None
    figures: list[FigureForm]
    jobIds: list[int]
    jobUrls: list[str]


class BatchDetailForm(BatchForm):
    """A batch with everything that is known of it."""

    inputs: list[InputForm]
    skipped: list[SkippedForm]
    operations: list[OperationForm]


class ReceiverForm(TypedDict):
    """A receiver. `numStarts` and `numErrors` are counted since the start of the driver.

    `eventRates` has a pair of batch time in milliseconds and records a second for each batch of which the facts are kept, oldest first.
    `avgEventRate` is their mean, None without one. `rateLimit`: as of LagForm.
    """

    streamId: int
    streamName: str
    isActive: bool
    executorId: str
    executorHost: str
    lastErrorTime: str | None
    lastErrorMessage: str | None
    lastError: str | None
    avgEventRate: float | None
    eventRates: list[tuple[int, float]]
    numErrors: int
    numStarts: int
    rateLimit: int | None


class PartitionLagForm(TypedDict):
    """A partition. `offset`: where the next batch begins; `latest`: the end of its log; `records`: those in between.

    `seconds`: for how long the oldest of these records has waited; 0.0 without one.
    """

    partition: str
    offset: int
    latest: int
    records: int
    seconds: float


class TopicLagForm(TypedDict):
    """A topic."""

    topic: str
    records: int
    partitions: list[PartitionLagForm]


class LagForm(TypedDict):
    """How far an input is behind the ends of its logs: the records after the last batch that has succeeded without a gap.

    `unplanned`: those of them that no batch has. `seconds`: for how long the oldest record has waited. None if it is not known.
    `rateLimit`: the records a second that back-pressure allows now; None without back-pressure, before its first rate, and without a driver
    that lives.
    """

    stream: int
    description: str
    records: int
    unplanned: int | None
    seconds: float | None
    rateLimit: int | None
    topics: list[TopicLagForm]


class DecisionForm(TypedDict):
    """What the driver has decided or met: one sentence with its reason."""

    timeMs: int
    kind: DecisionKind
    text: str
    batchTimeMs: int | None


class LedgerForm(TypedDict):
    """An entry of the ledger. `stream`: None if it is of the whole batch."""

    batchTimeMs: int
    kind: str
    stream: int | None
    text: str
    acknowledged: bool


class SettingForm(TypedDict):
    """A setting that differs from its default. A value that may be a secret is `(secret)`."""

    key: str
    value: str
    default: str
    meaning: str


SECRET = "(secret)"
"""In place of a value that may be a secret."""


def spark_time(ms: int) -> str:
    """Return a moment in the form of Spark's REST, such as `2026-11-24T06:50:00.000GMT`. Pure.

    Args:
        ms: milliseconds since the Unix epoch.
    """
    seconds, millis = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{millis:03d}GMT"

"""The forms of the page's JSON: each answer of the server, and each part of one, with the meaning of each field.

`python -m kstream.ui.reference` makes the reference in docs/page.md of the meanings and of the docstrings of the forms.

A name of Spark's streaming REST is used if the meaning is the same. A field whose name ends with `Time` is a moment in Spark's form (see
`spark_time`); one that ends with `Ms` is the same moment in milliseconds since the Unix epoch. Durations are milliseconds. None is null:
the value is not known.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, Literal, TypedDict

from kstream.monitoring.batch_row import OperationStatus

BatchStatus = Literal["PROCESSING", "QUEUED", "COMPLETED", "FAILED", "HELD", "RETRYING", "PENDING"]
"""PENDING: planned, and nobody runs it: its driver has ended, or the page only knows its plan. HELD: it waits for an earlier batch that has
failed. RETRYING: it waits for its next try. FAILED: it has no retry left in this driver."""
DecisionKind = Literal["limit", "rate", "allocation", "warning", "error", "data loss"]
Source = Literal["driver", "checkpoint"]


class ApplicationForm(TypedDict):
    """The application."""

    id: Annotated[str, "Spark's id of the application; of a checkpoint its path"]
    name: Annotated[str, "its name"]


class LastErrorForm(TypedDict):
    """The last error of the driver."""

    timeMs: Annotated[int, "when"]
    text: Annotated[str, "the error in one line"]
    batchTimeMs: Annotated[int | None, "the batch; null if the error is of none"]
    operation: Annotated[str | None, "number and name of the output operation"]
    settled: Annotated[str | None, "what shows that it is over, such as `the batch has succeeded since`; null if nothing shows it"]


class StatisticsForm(TypedDict):
    """The figures at the head of the page. Averages are of the batches of which a row is kept."""

    startTime: Annotated[str, "when the context was started"]
    startTimeMs: Annotated[int, "the same in milliseconds"]
    batchDuration: Annotated[int, "the batch interval"]
    numReceivers: Annotated[int | None, "receivers that have started"]
    numActiveReceivers: Annotated[int | None, "those of them that run"]
    numInactiveReceivers: Annotated[int | None, "those that do not"]
    numTotalCompletedBatches: Annotated[int | None, "how often a batch has ended, in success or failure, since the start"]
    numRetainedCompletedBatches: Annotated[int, "batches that have ended and that `batches` lists"]
    numActiveBatches: Annotated[int | None, "batches that run or are about to"]
    numProcessedRecords: Annotated[int | None, "records of batches that have succeeded, since the start"]
    numReceivedRecords: Annotated[int | None, "records of all batches that have started to run, since the start"]
    avgInputRate: Annotated[float | None, "records a second"]
    avgSchedulingDelay: Annotated[float | None, "from submission to the start of the first job"]
    avgProcessingTime: Annotated[float | None, "from the start of the first job to the end of the last"]
    avgTotalDelay: Annotated[float | None, "both together"]
    source: Annotated[Source, "`driver` or `checkpoint`"]
    nowMs: Annotated[int, "the moment of this answer, by the clock of the driver"]
    state: Annotated[str, "`running`, `behind`, `failing`, `fenced`, `ended …`, `dead` or `unknown`, as `kstream status` judges"]
    stateText: Annotated[str, "the state as a sentence"]
    epoch: Annotated[int, "the epoch of the driver; 0 without a checkpoint"]
    host: Annotated[str | None, "where it runs"]
    pid: Annotated[int | None, "its process"]
    numUnfinishedBatches: Annotated[int, "planned batches that have not succeeded"]
    numFailedBatches: Annotated[int, "those of them without a retry left in this driver, and those whose completion the store refused"]
    numWaitingBatches: Annotated[int | None, "those that wait, for a retry or for an earlier batch"]
    numHeldBatches: Annotated[int | None, "those that wait for an earlier batch"]
    oldestUnfinishedMs: Annotated[int | None, "the oldest batch that has not succeeded"]
    secondsBehind: Annotated[float, "for how long the oldest batch has been due that has not succeeded, in seconds"]
    outageSinceMs: Annotated[int | None, "since when no batch can be planned, because brokers or the store are away; null if they are not"]
    lagRecords: Annotated[int | None, "the records of the [lag](#lag) of all inputs; null in an outage: nobody counts them"]
    lastError: Annotated[LastErrorForm | None, "the last error"]
    sparkUiUrl: Annotated[str | None, "Spark's own UI"]
    metricsUrl: Annotated[str | None, "the metrics for Prometheus"]
    numLedgerEntries: Annotated[int | None, "entries that nobody has acknowledged, read at most 30 s ago"]
    version: Annotated[str, "of kstream"]


class BucketForm(TypedDict):
    """Some seconds of the timeline. A delay that no batch of the bucket knows is null."""

    timeMs: Annotated[int, "where the bucket begins; a batch is in the bucket of its batch time"]
    numBatches: Annotated[int, "batches that have ended"]
    numFailed: Annotated[int, "those of them that have failed"]
    numRecords: Annotated[int, "their records"]
    inputRate: Annotated[float, "records a second"]
    schedulingDelay: Annotated[float | None, "the mean"]
    processingTime: Annotated[float | None, "the mean"]
    totalDelay: Annotated[float | None, "the mean"]
    maxTotalDelay: Annotated[int | None, "the longest"]
    lagRecords: Annotated[int | None, "records after the last batch of the bucket, up to the ends of the logs when it was planned"]


class TimelineForm(TypedDict):
    """The last hour, oldest bucket first. Buckets without a batch are left out."""

    bucketMs: Annotated[int, "the width of a bucket: whole batch intervals, 6 s at least"]
    buckets: Annotated[list[BucketForm], "the buckets with a batch, oldest first, at most 600"]


class FigureForm(TypedDict):
    """What was measured of a batch, or of an input or output of it."""

    name: Annotated[str, "such as `stateWrittenBytes`; the same figure is `state_written_bytes` in the JSON log"]
    label: Annotated[str, "for people"]
    unit: Annotated[str, "`bytes`, `ms`, or empty for a number"]
    value: Annotated[int, "the value"]


class BatchForm(TypedDict):
    """A batch. Its delays are null before their end."""

    batchId: Annotated[int, "the batch time in milliseconds"]
    batchTime: Annotated[str, "the batch time"]
    batchTimeMs: Annotated[int, "the same as `batchId`"]
    status: Annotated[
        BatchStatus,
        "`PROCESSING`, `QUEUED`, `COMPLETED`, `FAILED`, `HELD` (waits for an earlier batch), `RETRYING` (waits for its next "
        "try) or `PENDING` (planned, and no driver runs it)",
    ]
    batchDuration: Annotated[int, "the batch interval"]
    inputSize: Annotated[int | None, "its records; null in the list for one that is held"]
    schedulingDelay: Annotated[
        int | None, "from submission to the start of the first job; for a batch with retries, it includes all tries and back-offs"
    ]
    processingTime: Annotated[int | None, "from the start of the first job to the end of the last, in the last try"]
    totalDelay: Annotated[int | None, "both together"]
    numActiveOutputOps: Annotated[int, "output operations that run"]
    numCompletedOutputOps: Annotated[int, "those that have succeeded"]
    numFailedOutputOps: Annotated[int, "those that have failed"]
    numTotalOutputOps: Annotated[int, "all"]
    firstFailureReason: Annotated[str | None, "the first error in one line"]
    tries: Annotated[int, "how often its jobs were submitted"]
    numRecordErrors: Annotated[int, "records that the errors policy has left out"]
    numSkipped: Annotated[int, "records that `kstream skip` has left out"]
    numLosses: Annotated[int, "data losses, as entries of the ledger"]
    limitedBy: Annotated[
        str | None,
        "why inputs have fewer records than were in their logs ([back-pressure.md](back-pressure.md)); several reasons are joined by `; `",
    ]
    figures: Annotated[list[FigureForm], "what was measured of it, as far as it is known"]


class RecordErrorsForm(TypedDict):
    """Records that the errors policy has left out of a batch, all with one kind of error."""

    operator: Annotated[str, "where the records failed, such as `map at job.py:7`"]
    exception: Annotated[str, "the class of the exception"]
    numRecords: Annotated[int, "how many records"]


class OffsetsForm(TypedDict):
    """The range of a partition in a batch."""

    topic: Annotated[str, "the topic"]
    partition: Annotated[int, "the partition"]
    fromOffset: Annotated[int, "the first offset"]
    untilOffset: Annotated[int, "the offset after the last"]
    count: Annotated[int | None, "the number of records, if counted; else the number of offsets"]


class SkewForm(TypedDict):
    """A partition that gives a batch far more records than the others of its topic."""

    topic: Annotated[str, "the topic"]
    partition: Annotated[int, "a partition with more than 4 times the median, and 1,000 records at least"]
    count: Annotated[int, "its records in the batch, if counted; else its offsets"]
    median: Annotated[float, "the median of the partitions of the topic in the batch"]
    factor: Annotated[float | None, "how many times the median it has; null if most have none"]


class InputForm(TypedDict):
    """An input of a batch. A log has `offsets`, a receiver `blocks`, a directory `files`; the other two lists are empty."""

    id: Annotated[int, "the stream"]
    description: Annotated[str, "what it reads"]
    numRecords: Annotated[int, "its records"]
    numRecordErrors: Annotated[int, "as of the batch"]
    recordErrors: Annotated[list[RecordErrorsForm], "these records by the kind of their error; empty if the kinds are not known"]
    errorsPolicy: Annotated[
        str | None,
        "`fail`, `skip` or `dead-letter`: the [errors policy](dead-letters.md#the-errors-policy) of the stream; null of a checkpoint",
    ]
    numSkipped: Annotated[int, "as of the batch"]
    numLosses: Annotated[int, "as of the batch"]
    numBytes: Annotated[int | None, "bytes of keys and values, estimated"]
    figures: Annotated[list[FigureForm], "what was measured of the input, as of the batch"]
    limitedBy: Annotated[dict[str, Any] | None, "`reason`, and `records`: how many it has therefore; null if it has all"]
    offsets: Annotated[list[OffsetsForm], "the ranges of a log"]
    skewed: Annotated[
        list[SkewForm], "the partitions with far more records than the others of their topic, at most five, the longest first"
    ]
    blocks: Annotated[list[str], "the blocks of a receiver"]
    files: Annotated[list[str], "the paths of a directory"]
    facts: Annotated[dict[str, Any], "what else the input reports, such as `metrics`"]


class SkippedForm(TypedDict):
    """A record that the batch leaves out."""

    stream: Annotated[int, "the stream"]
    record: Annotated[str, "the record, such as `orders-3@17`"]


class OperationForm(TypedDict):
    """An output operation of a batch."""

    outputOpId: Annotated[int, "its number in the graph"]
    name: Annotated[str, "such as `foreachRDD at job.py:7`"]
    description: Annotated[str, "its place in the code"]
    startTime: Annotated[str | None, "when it started"]
    endTime: Annotated[str | None, "when it ended"]
    startTimeMs: Annotated[int | None, "the same in milliseconds"]
    endTimeMs: Annotated[int | None, "the same in milliseconds"]
    duration: Annotated[int | None, "the time in between"]
    status: Annotated[OperationStatus, "`QUEUED`, `PROCESSING`, `COMPLETED` or `FAILED`"]
    error: Annotated[str | None, "the error in one line, with the record if it is known"]
    failureReason: Annotated[str | None, "the traceback; if a task failed, the Python traceback alone, as Spark's error repeats it"]
    figures: Annotated[list[FigureForm], "what was measured of it, as of the batch"]
    jobIds: Annotated[list[int], "its jobs of Spark, of all tries"]
    jobUrls: Annotated[list[str], "links to them, in the same order"]


class BatchDetailForm(BatchForm):
    """A batch with its inputs and output operations."""

    inputs: Annotated[list[InputForm], "its inputs, by id"]
    skipped: Annotated[list[SkippedForm], "the records that it has left out"]
    operations: Annotated[
        list[OperationForm], "its output operations, in the order of the graph; of a batch from the checkpoint only those that have figures"
    ]


class ReceiverForm(TypedDict):
    """A receiver. What is counted is counted since the start of the driver."""

    streamId: Annotated[int, "the stream"]
    streamName: Annotated[str, "its name"]
    isActive: Annotated[bool, "whether it runs"]
    executorId: Annotated[str, "the executor"]
    executorHost: Annotated[str, "its host"]
    lastErrorTime: Annotated[str | None, "when it reported its last error"]
    lastErrorMessage: Annotated[str | None, "what it said of it"]
    lastError: Annotated[str | None, "the error"]
    avgEventRate: Annotated[float | None, "the mean of `eventRates`; null without one"]
    eventRates: Annotated[
        list[tuple[int, float]],
        "pairs of a batch time in milliseconds and its records a second, oldest first: for each batch that is kept with all facts",
    ]
    numErrors: Annotated[int, "how many it has reported"]
    numStarts: Annotated[int, "how often it has started"]
    rateLimit: Annotated[
        int | None, "the records a second that [back-pressure](back-pressure.md) allows now; null without it, and before its first rate"
    ]


class PartitionLagForm(TypedDict):
    """The lag of a partition."""

    partition: Annotated[str, "the partition, as text"]
    offset: Annotated[int, "where the first batch begins that has not succeeded, else where the next one begins"]
    latest: Annotated[int, "the end of its log"]
    records: Annotated[int, "the records in between"]
    seconds: Annotated[float, "for how long the oldest of them has been there, in seconds; 0 without one"]


class TopicLagForm(TypedDict):
    """The lag of a topic."""

    topic: Annotated[str, "the topic"]
    records: Annotated[int, "its records of the lag"]
    partitions: Annotated[list[PartitionLagForm], "its partitions, by number"]


class LagForm(TypedDict):
    """How far an input is behind the ends of its logs: the records after the last batch that has succeeded without a gap.

    The ends are those of the moment when the newest batch was planned. Nobody asks the brokers for them; `kstream lag` asks them.
    """

    stream: Annotated[int, "the stream"]
    description: Annotated[str, "what it reads"]
    records: Annotated[int, "the records after the last batch that has succeeded without a gap"]
    unplanned: Annotated[int | None, "those of them that no batch has; null if it is not known"]
    seconds: Annotated[float | None, "for how long the oldest of the records has been there, in seconds"]
    rateLimit: Annotated[
        int | None,
        "the records a second that [back-pressure](back-pressure.md) allows now; null without it, before its first rate, and "
        "without a driver that lives",
    ]
    topics: Annotated[list[TopicLagForm], "its topics, by name"]


class DecisionForm(TypedDict):
    """What the driver has decided or met: one sentence with its reason.

    At most 200 are kept, and the last 25 of each kind stay whatever there is of others; allocation has 50 of its own. A limit or a rate is
    one when it changes. A rate names the figures of the batch that led to it, and an allocation the ratio that was crossed.
    """

    timeMs: Annotated[int, "when"]
    kind: Annotated[DecisionKind, "`limit`, `rate`, `allocation`, `warning`, `error` or `data loss`"]
    text: Annotated[str, "one sentence with the reason"]
    batchTimeMs: Annotated[int | None, "the batch; null if it is of none"]


class LedgerForm(TypedDict):
    """An entry of the ledger."""

    batchTimeMs: Annotated[int, "the batch"]
    kind: Annotated[str, "`lost`, `given-up`, `skipped`, `to-skip` or `not-skipped`"]
    stream: Annotated[int | None, "the stream; null if it is of the whole batch"]
    text: Annotated[str, "one sentence"]
    acknowledged: Annotated[bool, "whether a person has seen it (`kstream ledger ack`)"]


class SettingForm(TypedDict):
    """A setting that differs from its default."""

    key: Annotated[str, "the setting"]
    value: Annotated[str, "its value; `(secret)` if it may be one"]
    default: Annotated[str, "its default"]
    meaning: Annotated[str, "its meaning"]


SECRET = "(secret)"
"""In place of a value that may be a secret."""


def spark_time(ms: int) -> str:
    """Return a moment in the form of Spark's REST, such as `2026-11-24T06:50:00.000GMT`. Pure.

    Args:
        ms: milliseconds since the Unix epoch.
    """
    seconds, millis = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{millis:03d}GMT"

"""The metrics: name, type, labels and meaning of each, in one table. The table in docs/monitoring.md is made from it.

Names begin with `kstream_`. Times are in seconds, moments in seconds since the Unix epoch. A counter ends in `_total` and begins at 0 with
each start of a context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kstream.batch import FigureField, Figures, InputFigures, OutputFigures, StateFigures
from kstream.batch.figures import Unit, declared


class MetricKind(Enum):
    """The type of a metric, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its labels. `meaning` is its HELP text."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


def _gauge(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"kstream_{name}", MetricKind.GAUGE, labels, meaning)


def _counter(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"kstream_{name}_total", MetricKind.COUNTER, labels, meaning)


def _histogram(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"kstream_{name}", MetricKind.HISTOGRAM, labels, meaning)


DRIVER_INFO = _gauge("driver_info", "The application. The value is 1.", "application")
EPOCH = _gauge("driver_epoch", "The epoch of the driver; 0 without a checkpoint directory.")
STARTED = _gauge("driver_start_timestamp_seconds", "When the context was started, by the clock of the driver.")
FENCED = _gauge("driver_fenced", "1 if another driver has taken over, else 0.")
STATE_WRITE_FAILED = _gauge("state_write_failed", "1 if the states that were due last could not be written, else 0.")
OUTAGE = _gauge(
    "planning_outage_seconds",
    "For how long no batch could be planned, or no planned batch could start, because brokers or the store are away; 0 if they are not.",
)
INTERVAL = _gauge("batch_interval_seconds", "The batch interval.")
BEHIND = _gauge("behind_seconds", "For how long the oldest batch has been due that has not succeeded, whether it is planned or not.")
BATCHES_BEHIND = _gauge("behind_batches", "The batches that are due and have not succeeded, whether they are planned or not.")
PENDING = _gauge(
    "pending_batches",
    "The planned batches that have not succeeded. running: submitted. retrying: between two tries. held: an earlier batch has failed. "
    "failed: no retry is left.",
    "state",
)
LAST_PLANNED = _gauge("last_planned_batch_timestamp_seconds", "The batch time of the newest planned batch.")
LAST_ENDED = _gauge("last_ended_batch_timestamp_seconds", "The batch time of the batch that ended last, in success or failure.")
LAST_RECORDS = _gauge("last_ended_batch_records", "The records of the batch that ended last.")
BATCHES = _counter("batches", "The batches that have ended. A failed batch that succeeds later is counted in both results.", "result")
RETRIES = _counter("batch_retries", "The tries of batches that had failed before.")
SCHEDULING = _histogram("batch_scheduling_delay_seconds", "From the submission of a batch to the start of its first job.")
PROCESSING = _histogram("batch_processing_delay_seconds", "From the start of the first job of a batch to the end of its last job.")
TOTAL = _histogram("batch_total_delay_seconds", "From the submission of a batch to the end of its last job.")
OPERATIONS = _counter(
    "output_operations", "The runs of output operations that have ended, retries included.", "operation", "name", "result"
)
INPUT_INFO = _gauge("input_info", "An input and what it reads. The value is 1.", "input", "description")
RECORDS = _counter("input_records", "The records of batches that have succeeded.", "input")
RECORD_ERRORS = _counter(
    "record_errors", "The records that failed and were left out of their batch. dead-letter: they are dead letters.", "input", "policy"
)
SKIPPED = _counter("skipped_records", "The records that batches have left out because `kstream skip` had named them.", "input")
LOSSES = _counter("data_losses", "The data losses that batches have met, as entries of the ledger.", "input")
LIMITED = _counter("limited_batches", "The batches that had fewer records than were in the logs, by the reason.", "input", "reason")
INPUT_LAG = _gauge(
    "input_lag_records",
    "The records after the last batch that has succeeded without a gap, up to the ends of the logs when the newest batch was planned. "
    "No value in an outage: nobody counts them.",
    "input",
)
INPUT_UNPLANNED = _gauge("input_unplanned_records", "The records of the lag that are in no batch yet. No value in an outage.", "input")
INPUT_LAG_S = _gauge("input_lag_seconds", "The largest lag of a partition in seconds; see kstream_partition_lag_seconds.", "input")
TOPIC_LAG = _gauge("topic_lag_records", "As kstream_input_lag_records, by topic.", "input", "topic")
TOPIC_LAG_S = _gauge("topic_lag_seconds", "As kstream_input_lag_seconds, by topic.", "input", "topic")
PARTITION_LAG = _gauge("partition_lag_records", "As kstream_input_lag_records, by partition.", "input", "topic", "partition")
PARTITION_LAG_S = _gauge(
    "partition_lag_seconds",
    "For how long the oldest record of the lag has been in the log, estimated from the ends of the log at earlier batches. "
    "For a record that is older than the newest batch of the driver before this one, or than the first batch: the time since that batch.",
    "input",
    "topic",
    "partition",
)
RATE = _gauge("input_rate_limit_records_per_second", "The rate that back-pressure has computed last.", "input")
RECEIVERS = _gauge("receiver_active", "1 if the receiver runs on an executor, else 0.", "input", "receiver")
RECEIVER_STARTS = _counter("receiver_starts", "How often the receiver has started on an executor.", "input", "receiver")
RECEIVER_ERRORS = _counter("receiver_errors", "The errors that the receiver has reported.", "input", "receiver")
WAITING_BLOCKS = _gauge("waiting_blocks", "The received blocks that are in no batch, of all receivers.")
EXECUTORS = _gauge(
    "executors", "The executors that the driver found when it looked last. It looks for receivers, preferred hosts and executor allocation."
)
WANTED = _gauge("executors_wanted", "The executors that the job should have, as executor allocation has decided last.")
LOG_TIME = _histogram(
    "plan_log_request_seconds",
    "The requests of the plan log to its store. plan, completion, failure: a record is written. probe: a look for a newer epoch.",
    "request",
)
LOG_ERRORS = _counter("plan_log_request_errors", "The requests of the plan log that failed.", "request")


def _of_figure(field: FigureField, *labels: str) -> Family:
    """Return the metric of a figure: a counter of all batches if they add up, else a gauge of the newest one."""
    is_time = field.unit is Unit.MILLISECONDS
    name = f"{field.name.removesuffix('_ms')}_seconds" if is_time else field.name
    return (_counter if field.adds else _gauge)(name, field.meaning, *labels)


def _of_part(figures: type[Figures], *labels: str) -> Mapping[str, Family]:
    """Return the metrics of the figures of a part of a batch, by the names of the figures."""
    return {field.name: _of_figure(field, *labels) for field in declared(figures)}


INPUT_FIGURES = _of_part(InputFigures, "input")
STATE_FIGURES = _of_part(StateFigures)
OUTPUT_FIGURES = _of_part(OutputFigures, "operation", "name")

FAMILIES: tuple[Family, ...] = (
    *(value for value in globals().values() if isinstance(value, Family)),
    *INPUT_FIGURES.values(),
    *STATE_FIGURES.values(),
    *OUTPUT_FIGURES.values(),
)


def markdown_table() -> str:
    """Return the table of the metrics in docs/monitoring.md."""
    rows = [f"| `{f.name}` | {f.kind.value} | {', '.join(f.labels)} | {f.meaning} |" for f in FAMILIES]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(markdown_table())

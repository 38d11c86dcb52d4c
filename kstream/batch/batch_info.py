"""BatchInfo and its parts: the facts about a batch that listeners get. Delays are in milliseconds; −1 where pyspark has −1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kstream.batch.figures import InputFigures, KnownFigure, OutputFigures, StateFigures, together
from kstream.batch.input_progress import InputProgress
from kstream.batch_time import Time
from kstream.offsets.offset_range import SkippedRecord


def _or_missing(value: int | None) -> int:
    """Return the value; −1 for None, as pyspark does."""
    return -1 if value is None else value


class Figure(int):
    """A number that can be read as an attribute and called as a method. Pyspark's own suite reads it; jobs written for pyspark call it."""

    def __call__(self) -> int:
        return int(self)


@dataclass(frozen=True, slots=True, order=True)
class ListenerTime:
    """A batch time as pyspark's listeners get it: `milliseconds()` is a method here, and an attribute of `Time`."""

    time: Time

    def milliseconds(self) -> int:
        """Return the batch time in milliseconds since the Unix epoch."""
        return self.time.milliseconds

    def __str__(self) -> str:
        return str(self.time)


@dataclass(frozen=True, slots=True)
class StreamInputInfo:
    """The share of one input stream in a batch.

    Attributes:
        stream_id: the id of the stream.
        num_records: the number of records, as known when the batch is submitted.
        facts: the stream's own metadata (see `InputDStream.metadata`).
        figures: what was measured; nothing before the completion.
        skipped: the records that the batch has left out; none before the completion.
        record_errors: the record errors by their kind: (operator, exception, number of records); none before the completion.
    """

    stream_id: int
    num_records: int
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    figures: InputFigures = field(default_factory=InputFigures)
    skipped: Sequence[SkippedRecord] = ()
    record_errors: Sequence[tuple[str, str, int]] = ()

    @property
    def num_record_errors(self) -> int:
        """How many of the records the errors policy has left out. It is 0 before the completion of the batch."""
        return self.figures.record_errors

    @property
    def num_bytes(self) -> int | None:
        """The bytes of their keys and values, estimated from the first records of each range; None if it is not known."""
        return self.figures.bytes

    @property
    def num_skipped(self) -> int:
        """How many records the batch has left out at the request of `kstream skip`. It is 0 before the completion."""
        return self.figures.skipped

    @property
    def num_losses(self) -> int:
        """How many data losses the batch has met, as entries of the ledger. It is 0 before the completion."""
        return self.figures.losses

    def then(self, newer: StreamInputInfo) -> StreamInputInfo:
        """Return the sum of this share, which may stand for several batches, and that of a newer batch. The facts are those of this one."""
        return StreamInputInfo(self.stream_id, self.num_records + newer.num_records, self.facts, self.figures.then(newer.figures))

    def metadata(self) -> Mapping[str, Any]:
        """Return `facts`."""
        return self.facts

    @property
    def progress(self) -> InputProgress:
        """What the stream reports of its share, from `facts`."""
        return InputProgress(self.facts.get("progress", {}))

    def inputStreamId(self) -> int:
        return self.stream_id

    @property
    def numRecords(self) -> Figure:
        """The number of records. An attribute, as pyspark's own suite reads it; it may also be called."""
        return Figure(self.num_records)

    def metadataDescription(self) -> str | None:
        """Return the description of the input for people; None without one."""
        return self.facts.get("Description")


@dataclass(frozen=True, slots=True)
class ReceiverInfo:
    """A receiver as listeners see it. `last_error_ms`: milliseconds since the Unix epoch; −1 if the receiver has reported no error."""

    stream_id: int
    receiver_name: str
    is_active: bool
    host: str
    executor_id: str
    last_error_message: str = ""
    last_error: str = ""
    last_error_ms: int = -1

    def streamId(self) -> int:
        return self.stream_id

    def name(self) -> str:
        return self.receiver_name

    def active(self) -> bool:
        return self.is_active

    def location(self) -> str:
        return self.host

    def executorId(self) -> str:
        return self.executor_id

    def lastErrorMessage(self) -> str:
        return self.last_error_message

    def lastError(self) -> str:
        return self.last_error

    def lastErrorTime(self) -> int:
        """Return the time of the last error in milliseconds since the Unix epoch; −1 without an error."""
        return self.last_error_ms


@dataclass(frozen=True, slots=True)
class OutputOperationInfo:
    """One output operation of a batch.

    Times are milliseconds since the Unix epoch; a time is None before it comes. `failure_reason` is the traceback of the error, and `error`
    the error in one line; both are None without an error. Pyspark's methods return −1 for a missing time. `figures` are what was measured;
    nothing before the end.
    """

    batch_time: Time
    output_op_id: int
    op_name: str
    op_description: str
    start_ms: int | None
    end_ms: int | None
    failure_reason: str | None
    error: str | None = None
    figures: OutputFigures = field(default_factory=OutputFigures)

    def batchTime(self) -> ListenerTime:
        return ListenerTime(self.batch_time)

    def id(self) -> int:
        return self.output_op_id

    def name(self) -> str:
        return self.op_name

    def description(self) -> str:
        return self.op_description

    def startTime(self) -> int:
        """Return the start in milliseconds since the Unix epoch; −1 before it."""
        return _or_missing(self.start_ms)

    def endTime(self) -> int:
        """Return the end in milliseconds since the Unix epoch; −1 before it."""
        return _or_missing(self.end_ms)

    def failureReason(self) -> str | None:
        """Return the traceback of the error; None without an error."""
        return self.failure_reason

    def duration(self) -> int:
        """Return the time from start to end in milliseconds; −1 before the end."""
        return -1 if self.start_ms is None or self.end_ms is None else self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch. Times are milliseconds since the Unix epoch.

    A field is None if its event has not happened yet; pyspark's methods return −1 for it.

    `tries` is how often the jobs have been submitted. After the first try the scheduling delay has all tries and back-offs in it, and the
    processing time is only that of the outputs that ran again: neither is a measure of the job's speed. `state` is what was measured of all
    states.
    """

    batch_time: Time
    inputs: Mapping[int, StreamInputInfo]
    submission_ms: int
    processing_start_ms: int | None
    processing_end_ms: int | None
    outputs: Mapping[int, OutputOperationInfo]
    tries: int = 1
    state: StateFigures = field(default_factory=StateFigures)

    @property
    def scheduling_delay_ms(self) -> int | None:
        """The milliseconds from submission to the start of the first job; None before that start."""
        return None if self.processing_start_ms is None else self.processing_start_ms - self.submission_ms

    @property
    def processing_delay_ms(self) -> int | None:
        """The milliseconds from the start of the first job to the end of the last; None before that end."""
        if self.processing_start_ms is None or self.processing_end_ms is None:
            return None
        return self.processing_end_ms - self.processing_start_ms

    @property
    def total_delay_ms(self) -> int | None:
        """The milliseconds from submission to the end of the last job; None before that end."""
        return None if self.processing_end_ms is None else self.processing_end_ms - self.submission_ms

    @property
    def has_failed(self) -> bool:
        """Whether an output operation has failed."""
        return any(output.failure_reason is not None for output in self.outputs.values())

    @property
    def input_figures(self) -> InputFigures:
        """The figures of all inputs together."""
        return together(InputFigures(), (source.figures for source in self.inputs.values()))

    @property
    def figures(self) -> list[KnownFigure]:
        """All figures that are known, those of the inputs together, and those of the outputs."""
        outputs = together(OutputFigures(), (output.figures for output in self.outputs.values()))
        return [*self.input_figures.known(), *self.state.known(), *outputs.known()]

    @property
    def measures_speed(self) -> bool:
        """Whether all outputs have succeeded in the first try, so that the delays show how fast the job is."""
        return self.tries == 1 and not self.has_failed

    def batchTime(self) -> ListenerTime:
        return ListenerTime(self.batch_time)

    def submissionTime(self) -> int:
        """Return the time of submission in milliseconds since the Unix epoch."""
        return self.submission_ms

    def processingStartTime(self) -> int:
        """Return the start of the first job in milliseconds since the Unix epoch; −1 before it."""
        return _or_missing(self.processing_start_ms)

    def processingEndTime(self) -> int:
        """Return the end of the last job in milliseconds since the Unix epoch; −1 before it."""
        return _or_missing(self.processing_end_ms)

    def schedulingDelay(self) -> int:
        """Return `scheduling_delay_ms`; −1 for None."""
        return _or_missing(self.scheduling_delay_ms)

    def processingDelay(self) -> int:
        """Return `processing_delay_ms`; −1 for None."""
        return _or_missing(self.processing_delay_ms)

    def totalDelay(self) -> int:
        """Return `total_delay_ms`; −1 for None."""
        return _or_missing(self.total_delay_ms)

    def numRecords(self) -> int:
        """Return the number of records of all inputs."""
        return sum(info.num_records for info in self.inputs.values())

    def numRecordErrors(self) -> int:
        """Return how many records of all inputs the errors policies have left out; 0 before the completion of the batch."""
        return self.input_figures.record_errors

    def streamIdToInputInfo(self) -> Mapping[int, StreamInputInfo]:
        """Return the share of each input, by stream id."""
        return self.inputs

    def outputOperationInfos(self) -> Mapping[int, OutputOperationInfo]:
        """Return the output operations, by id."""
        return self.outputs

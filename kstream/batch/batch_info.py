"""BatchInfo and its parts: what a listener learns about a batch. Delays are ms; −1 where Spark's Python view says −1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.batch_time import Time


def _or_missing(value: int | None) -> int:
    return -1 if value is None else value


class Figure(int):
    """A number that can be read and called: where pyspark's own suite reads an attribute, jobs that ran on it had to call it."""

    def __call__(self) -> int:
        return int(self)


@dataclass(frozen=True, slots=True, order=True)
class ListenerTime:
    """A batch time as pyspark's listeners get it: `milliseconds()` is a call, where it is an attribute of `Time`."""

    time: Time

    def milliseconds(self) -> int:
        return self.time.milliseconds

    def __str__(self) -> str:
        return str(self.time)


@dataclass(frozen=True, slots=True)
class StreamInputInfo:
    """What one input stream gave to a batch; `num_records` is known when the batch is submitted. `facts`: the stream's own words."""

    stream_id: int
    num_records: int
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def metadata(self) -> Mapping[str, Any]:
        return self.facts

    def inputStreamId(self) -> int:
        return self.stream_id

    @property
    def numRecords(self) -> Figure:
        """An attribute, unlike the others: so it is read in pyspark's own suite. It may be called, too."""
        return Figure(self.num_records)

    def metadataDescription(self) -> str | None:
        return self.facts.get("Description")


@dataclass(frozen=True, slots=True)
class ReceiverInfo:
    """A receiver as listeners see it. `last_error_ms` is −1 when it has reported none."""

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
        return self.last_error_ms


@dataclass(frozen=True, slots=True)
class OutputOperationInfo:
    """One output operation of a batch. Times are ms since the epoch; `failure_reason` is the error's traceback, None on success."""

    batch_time: Time
    output_op_id: int
    op_name: str
    op_description: str
    start_ms: int | None
    end_ms: int | None
    failure_reason: str | None

    def batchTime(self) -> ListenerTime:
        return ListenerTime(self.batch_time)

    def id(self) -> int:
        return self.output_op_id

    def name(self) -> str:
        return self.op_name

    def description(self) -> str:
        return self.op_description

    def startTime(self) -> int:
        return _or_missing(self.start_ms)

    def endTime(self) -> int:
        return _or_missing(self.end_ms)

    def failureReason(self) -> str | None:
        return self.failure_reason

    def duration(self) -> int:
        return -1 if self.start_ms is None or self.end_ms is None else self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch. The snake_case fields are None where something has not happened yet; pyspark's methods say −1 there."""

    batch_time: Time
    inputs: Mapping[int, StreamInputInfo]
    submission_ms: int
    processing_start_ms: int | None
    processing_end_ms: int | None
    outputs: Mapping[int, OutputOperationInfo]

    @property
    def scheduling_delay_ms(self) -> int | None:
        """From submission to the start of the first job."""
        return None if self.processing_start_ms is None else self.processing_start_ms - self.submission_ms

    @property
    def processing_delay_ms(self) -> int | None:
        """From the start of the first job to the end of the last."""
        if self.processing_start_ms is None or self.processing_end_ms is None:
            return None
        return self.processing_end_ms - self.processing_start_ms

    @property
    def total_delay_ms(self) -> int | None:
        """From submission to the end of the last job."""
        return None if self.processing_end_ms is None else self.processing_end_ms - self.submission_ms

    def batchTime(self) -> ListenerTime:
        return ListenerTime(self.batch_time)

    def submissionTime(self) -> int:
        return self.submission_ms

    def processingStartTime(self) -> int:
        return _or_missing(self.processing_start_ms)

    def processingEndTime(self) -> int:
        return _or_missing(self.processing_end_ms)

    def schedulingDelay(self) -> int:
        return _or_missing(self.scheduling_delay_ms)

    def processingDelay(self) -> int:
        return _or_missing(self.processing_delay_ms)

    def totalDelay(self) -> int:
        return _or_missing(self.total_delay_ms)

    def numRecords(self) -> int:
        return sum(info.num_records for info in self.inputs.values())

    def streamIdToInputInfo(self) -> Mapping[int, StreamInputInfo]:
        return self.inputs

    def outputOperationInfos(self) -> Mapping[int, OutputOperationInfo]:
        return self.outputs

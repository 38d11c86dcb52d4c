"""The events told to listeners. Each has pyspark's accessor (`event.batchInfo()`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kstream.batch.batch_info import BatchInfo, OutputOperationInfo


@dataclass(frozen=True, slots=True)
class StreamingListenerStreamingStarted:
    """The context was started at `at_ms`."""

    at_ms: int

    def time(self) -> int:
        return self.at_ms


@dataclass(frozen=True, slots=True)
class _BatchEvent:
    info: BatchInfo

    def batchInfo(self) -> BatchInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchSubmitted(_BatchEvent):
    """A batch's jobs were handed to the JobScheduler; its plan is durable."""


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchStarted(_BatchEvent):
    """The first job of a batch started."""


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchCompleted(_BatchEvent):
    """The last job of a batch ended, well or not; the completion is stored."""


@dataclass(frozen=True, slots=True)
class _OutputOperationEvent:
    info: OutputOperationInfo

    def outputOperationInfo(self) -> OutputOperationInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerOutputOperationStarted(_OutputOperationEvent):
    """A job of a batch started."""


@dataclass(frozen=True, slots=True)
class StreamingListenerOutputOperationCompleted(_OutputOperationEvent):
    """A job of a batch ended, well or not."""


StreamingListenerEvent: TypeAlias = (
    StreamingListenerStreamingStarted
    | StreamingListenerBatchSubmitted
    | StreamingListenerBatchStarted
    | StreamingListenerBatchCompleted
    | StreamingListenerOutputOperationStarted
    | StreamingListenerOutputOperationCompleted
)

"""The events told to listeners. Each has pyspark's accessor (`event.batchInfo()`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.batch.batch_info import BatchInfo, Figure, ListenerTime, OutputOperationInfo, ReceiverInfo
from kstream.batch_time import Time


@dataclass(frozen=True, slots=True)
class StreamingListenerStreamingStarted:
    """The context was started at `time`, ms since the epoch: an attribute, as pyspark's own suite reads it. It may be called, too."""

    time: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", Figure(self.time))


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


@dataclass(frozen=True, slots=True)
class _ReceiverEvent:
    info: ReceiverInfo

    def receiverInfo(self) -> ReceiverInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverStarted(_ReceiverEvent):
    """A receiver runs on an executor."""


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverError(_ReceiverEvent):
    """A receiver reported an error; it may go on or be started again."""


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverStopped(_ReceiverEvent):
    """A receiver has stopped."""


@dataclass(frozen=True, slots=True)
class StreamingListenerDataLost:
    """A batch ended without records that are gone for good; it is in the ledger. `lost`: stream id → entries."""

    batch_time: Time
    lost: Mapping[int, Sequence[Mapping[str, Any]]]

    def batchTime(self) -> ListenerTime:
        return ListenerTime(self.batch_time)


StreamingListenerEvent: TypeAlias = (
    StreamingListenerStreamingStarted
    | StreamingListenerReceiverStarted
    | StreamingListenerReceiverError
    | StreamingListenerReceiverStopped
    | StreamingListenerBatchSubmitted
    | StreamingListenerBatchStarted
    | StreamingListenerBatchCompleted
    | StreamingListenerOutputOperationStarted
    | StreamingListenerOutputOperationCompleted
    | StreamingListenerDataLost
)

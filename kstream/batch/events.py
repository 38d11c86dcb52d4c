"""The events that listeners get. Each has pyspark's accessor (`event.batchInfo()`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.batch.batch_info import BatchInfo, Figure, ListenerTime, OutputOperationInfo, ReceiverInfo
from kstream.batch_time import Time


@dataclass(frozen=True, slots=True)
class StreamingListenerStreamingStarted:
    """The context was started at `time`, in milliseconds since the Unix epoch.

    `time` is an attribute, as pyspark's own suite reads it; it may also be called.
    """

    time: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", Figure(self.time))


@dataclass(frozen=True, slots=True)
class _BatchEvent:
    """An event about a batch."""

    info: BatchInfo

    def batchInfo(self) -> BatchInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchSubmitted(_BatchEvent):
    """The jobs of a batch were submitted to the JobScheduler. Its plan is durable."""


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchStarted(_BatchEvent):
    """The first job of a batch started."""


@dataclass(frozen=True, slots=True)
class StreamingListenerBatchCompleted(_BatchEvent):
    """The last job of a batch ended, in success or failure. After a success the completion is stored, unless the store refused it."""


@dataclass(frozen=True, slots=True)
class _OutputOperationEvent:
    """An event about an output operation of a batch."""

    info: OutputOperationInfo

    def outputOperationInfo(self) -> OutputOperationInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerOutputOperationStarted(_OutputOperationEvent):
    """A job of a batch started."""


@dataclass(frozen=True, slots=True)
class StreamingListenerOutputOperationCompleted(_OutputOperationEvent):
    """A job of a batch ended, in success or failure."""


@dataclass(frozen=True, slots=True)
class _ReceiverEvent:
    """An event about a receiver."""

    info: ReceiverInfo

    def receiverInfo(self) -> ReceiverInfo:
        return self.info


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverStarted(_ReceiverEvent):
    """A receiver runs on an executor."""


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverError(_ReceiverEvent):
    """A receiver reported an error. It may continue, or be restarted."""


@dataclass(frozen=True, slots=True)
class StreamingListenerReceiverStopped(_ReceiverEvent):
    """A receiver has stopped."""


@dataclass(frozen=True, slots=True)
class StreamingListenerDataLost:
    """A batch ended without records that are gone for good; the loss is in the ledger. `lost`: stream id → entries of the ledger."""

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

"""StreamingListener: the base class of listeners to batches and receivers; its events; and the bus that delivers them.

All listeners are called on one thread of their own: one event after the other, in order, never concurrently. A slow listener delays the
others, but not the batches. An error of a listener is logged, and the next listener is called. `ssc.stop()` raises ListenerStopError in a
listener. Each event has pyspark's accessor (`event.batchInfo()`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.batch import BatchInfo, OutputOperationInfo, ReceiverInfo
from kstream.batch.batch_info import Figure, ListenerTime
from kstream.batch_time import Time
from kstream.loop import THREADS, EventLoop, Runtime

logger = logging.getLogger(__name__)


# -- the events


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


# -- the listener


class StreamingListener:
    """Base class of listeners. Override the methods of the events you want; each does nothing by default.

    Methods and parameters have pyspark's names. All methods are called on the listeners' thread.
    """

    def __init__(self) -> None: ...

    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        """Called when the context has been started."""

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        """Called when a receiver runs on an executor."""

    def onReceiverError(self, receiverError: StreamingListenerReceiverError) -> None:
        """Called when a receiver has reported an error."""

    def onReceiverStopped(self, receiverStopped: StreamingListenerReceiverStopped) -> None:
        """Called when a receiver has stopped."""

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Called when a batch has been planned and submitted. All three delays are unknown (−1)."""

    def onBatchStarted(self, batchSubmitted: StreamingListenerBatchStarted) -> None:
        """Called when the first job of a batch has started. The scheduling delay is known. (The parameter's name is pyspark's.)"""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Called when the last job of a batch has ended. All delays are known. Failures are in `outputOperationInfos()`."""

    def onOutputOperationStarted(self, outputOperationStarted: StreamingListenerOutputOperationStarted) -> None:
        """Called when one output operation of a batch has started."""

    def onOutputOperationCompleted(self, outputOperationCompleted: StreamingListenerOutputOperationCompleted) -> None:
        """Called when one output operation of a batch has ended, in success or failure."""

    def onDataLost(self, dataLost: StreamingListenerDataLost) -> None:
        """Called when a batch has ended without records that were gone before it could read them. Not in Spark.

        Only inputs whose `onDataLoss` is 'report' post this event.
        """


# -- the bus

_METHODS = {
    StreamingListenerStreamingStarted: "onStreamingStarted",
    StreamingListenerReceiverStarted: "onReceiverStarted",
    StreamingListenerReceiverError: "onReceiverError",
    StreamingListenerReceiverStopped: "onReceiverStopped",
    StreamingListenerBatchSubmitted: "onBatchSubmitted",
    StreamingListenerBatchStarted: "onBatchStarted",
    StreamingListenerBatchCompleted: "onBatchCompleted",
    StreamingListenerOutputOperationStarted: "onOutputOperationStarted",
    StreamingListenerOutputOperationCompleted: "onOutputOperationCompleted",
    StreamingListenerDataLost: "onDataLost",
}


class StreamingListenerBus:
    """Delivers events in the order in which they were posted, each to all listeners in the order in which they were added.

    An event posted after `stop` is dropped. All methods may be called from any thread.
    """

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._listeners: list[StreamingListener] = []
        self._lock = threading.Lock()
        self._loop: EventLoop[StreamingListenerEvent] = EventLoop(
            "StreamingListenerBus", self._deliver, lambda e: logger.error("listener bus failed", exc_info=e), runtime
        )
        self._started = False

    def add(self, listener: StreamingListener) -> None:
        """Deliver events to a listener from now on."""
        with self._lock:
            self._listeners.append(listener)

    def remove(self, listener: StreamingListener) -> None:
        """Deliver no more events to a listener. Does nothing if it was not added."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def start(self) -> None:
        """Start the thread. Events that were posted before are delivered, too. Call once."""
        self._started = True
        self._loop.start()

    def stop(self) -> None:
        """Deliver the events posted so far, then end the thread. Blocks, except in a listener. Does nothing before `start`."""
        if self._started:
            self._loop.stop(drain=True)

    def post(self, event: StreamingListenerEvent) -> None:
        """Queue an event. Returns at once."""
        self._loop.post(event)

    def drain(self, timeout: float) -> bool:
        """Block until the events posted so far are delivered; return False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a listener."""
        return self._loop.is_own_thread()

    def _deliver(self, event: StreamingListenerEvent) -> None:
        """Call the method of an event on each listener. An error of a listener is logged, and the next listener is called."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                getattr(listener, _METHODS[type(event)])(event)
            except Exception:
                logger.exception("listener %r failed on %s", listener, type(event).__name__)

"""StreamingListener: the base class of listeners to batches and receivers.

Listeners are called on one thread of their own, one event after the other, in order, never concurrently. A slow listener delays the
others, not the batches. An error of a listener is logged, and the next listener is called. `ssc.stop()` from inside raises
ListenerStopError.
"""

from __future__ import annotations

from kstream.batch import events


class StreamingListener:
    """Base class: override the methods of the events you want; each does nothing by default. Parameters have pyspark's names."""

    def __init__(self) -> None: ...

    def onStreamingStarted(self, streamingStarted: events.StreamingListenerStreamingStarted) -> None:
        """The context has been started."""

    def onReceiverStarted(self, receiverStarted: events.StreamingListenerReceiverStarted) -> None:
        """A receiver runs on an executor."""

    def onReceiverError(self, receiverError: events.StreamingListenerReceiverError) -> None:
        """A receiver reported an error."""

    def onReceiverStopped(self, receiverStopped: events.StreamingListenerReceiverStopped) -> None:
        """A receiver has stopped."""

    def onBatchSubmitted(self, batchSubmitted: events.StreamingListenerBatchSubmitted) -> None:
        """A batch has been planned and submitted; all three delays are unknown (−1)."""

    def onBatchStarted(self, batchSubmitted: events.StreamingListenerBatchStarted) -> None:
        """The first job of a batch has started; the scheduling delay is known. (The parameter has the name it has in pyspark.)"""

    def onBatchCompleted(self, batchCompleted: events.StreamingListenerBatchCompleted) -> None:
        """The last job of a batch has ended; all delays are known. Failures are in `outputOperationInfos()`."""

    def onOutputOperationStarted(self, outputOperationStarted: events.StreamingListenerOutputOperationStarted) -> None:
        """One output operation of a batch has started."""

    def onOutputOperationCompleted(self, outputOperationCompleted: events.StreamingListenerOutputOperationCompleted) -> None:
        """One output operation of a batch has ended, well or not."""

    def onDataLost(self, dataLost: events.StreamingListenerDataLost) -> None:
        """Not in Spark: records were gone before they could be read, and a stream whose `onDataLoss` is 'report' went on without them."""

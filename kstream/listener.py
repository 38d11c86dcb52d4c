"""StreamingListener: the base class of listeners to batches and receivers.

All listeners are called on one thread of their own: one event after the other, in order, never concurrently. A slow listener delays the
others, but not the batches. An error of a listener is logged, and the next listener is called. `ssc.stop()` raises ListenerStopError in a
listener.
"""

from __future__ import annotations

from kstream.batch import events


class StreamingListener:
    """Base class of listeners. Override the methods of the events you want; each does nothing by default.

    Methods and parameters have pyspark's names. All methods are called on the listeners' thread.
    """

    def __init__(self) -> None: ...

    def onStreamingStarted(self, streamingStarted: events.StreamingListenerStreamingStarted) -> None:
        """Called when the context has been started."""

    def onReceiverStarted(self, receiverStarted: events.StreamingListenerReceiverStarted) -> None:
        """Called when a receiver runs on an executor."""

    def onReceiverError(self, receiverError: events.StreamingListenerReceiverError) -> None:
        """Called when a receiver has reported an error."""

    def onReceiverStopped(self, receiverStopped: events.StreamingListenerReceiverStopped) -> None:
        """Called when a receiver has stopped."""

    def onBatchSubmitted(self, batchSubmitted: events.StreamingListenerBatchSubmitted) -> None:
        """Called when a batch has been planned and submitted. All three delays are unknown (−1)."""

    def onBatchStarted(self, batchSubmitted: events.StreamingListenerBatchStarted) -> None:
        """Called when the first job of a batch has started. The scheduling delay is known. (The parameter's name is pyspark's.)"""

    def onBatchCompleted(self, batchCompleted: events.StreamingListenerBatchCompleted) -> None:
        """Called when the last job of a batch has ended. All delays are known. Failures are in `outputOperationInfos()`."""

    def onOutputOperationStarted(self, outputOperationStarted: events.StreamingListenerOutputOperationStarted) -> None:
        """Called when one output operation of a batch has started."""

    def onOutputOperationCompleted(self, outputOperationCompleted: events.StreamingListenerOutputOperationCompleted) -> None:
        """Called when one output operation of a batch has ended, in success or failure."""

    def onDataLost(self, dataLost: events.StreamingListenerDataLost) -> None:
        """Called when a batch has ended without records that were gone before it could read them. Not in Spark.

        Only inputs whose `onDataLoss` is 'report' post this event.
        """

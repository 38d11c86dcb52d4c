"""StreamingListenerBus: tells listeners what happened, on a thread of its own."""

from __future__ import annotations

import logging
import threading

from kstream.batch import events
from kstream.listener import StreamingListener
from kstream.loop import THREADS, EventLoop, Runtime

logger = logging.getLogger(__name__)

_METHODS = {
    events.StreamingListenerStreamingStarted: "onStreamingStarted",
    events.StreamingListenerReceiverStarted: "onReceiverStarted",
    events.StreamingListenerReceiverError: "onReceiverError",
    events.StreamingListenerReceiverStopped: "onReceiverStopped",
    events.StreamingListenerBatchSubmitted: "onBatchSubmitted",
    events.StreamingListenerBatchStarted: "onBatchStarted",
    events.StreamingListenerBatchCompleted: "onBatchCompleted",
    events.StreamingListenerOutputOperationStarted: "onOutputOperationStarted",
    events.StreamingListenerOutputOperationCompleted: "onOutputOperationCompleted",
    events.StreamingListenerDataLost: "onDataLost",
}


class StreamingListenerBus:
    """Events are delivered in the order posted, each to all listeners in the order added. Nothing is told after `stop`."""

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._listeners: list[StreamingListener] = []
        self._lock = threading.Lock()
        self._loop: EventLoop[events.StreamingListenerEvent] = EventLoop(
            "StreamingListenerBus", self._deliver, lambda e: logger.error("listener bus failed", exc_info=e), runtime
        )
        self._started = False

    def add(self, listener: StreamingListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def remove(self, listener: StreamingListener) -> None:
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def start(self) -> None:
        self._started = True
        self._loop.start()

    def stop(self) -> None:
        """Delivers what was posted, then ends."""
        if self._started:
            self._loop.stop(drain=True)

    def post(self, event: events.StreamingListenerEvent) -> None:
        self._loop.post(event)

    def drain(self, timeout: float) -> bool:
        """Blocks until the listeners have heard what has been posted so far; False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def is_own_thread(self) -> bool:
        """Whether the caller is a listener being called."""
        return self._loop.is_own_thread()

    def _deliver(self, event: events.StreamingListenerEvent) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                getattr(listener, _METHODS[type(event)])(event)
            except Exception:
                logger.exception("listener %r failed on %s", listener, type(event).__name__)

"""StreamingListenerBus: delivers events to listeners on a thread of its own."""

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
    """Delivers events in the order in which they were posted, each to all listeners in the order in which they were added.

    An event posted after `stop` is dropped. All methods may be called from any thread.
    """

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._listeners: list[StreamingListener] = []
        self._lock = threading.Lock()
        self._loop: EventLoop[events.StreamingListenerEvent] = EventLoop(
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

    def post(self, event: events.StreamingListenerEvent) -> None:
        """Queue an event. Returns at once."""
        self._loop.post(event)

    def drain(self, timeout: float) -> bool:
        """Block until the events posted so far are delivered; return False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a listener."""
        return self._loop.is_own_thread()

    def _deliver(self, event: events.StreamingListenerEvent) -> None:
        """Call the method of an event on each listener. An error of a listener is logged, and the next listener is called."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                getattr(listener, _METHODS[type(event)])(event)
            except Exception:
                logger.exception("listener %r failed on %s", listener, type(event).__name__)

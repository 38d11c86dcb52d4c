"""The clocks of both sides, moved by hand."""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

INTERVAL_MS = 1000
_PATIENCE_S = 1200.0


class HandClock(Protocol):
    """The clock of one StreamingContext."""

    def set(self, time_ms: int) -> None:
        """Moves to this moment; before the start."""
        ...

    def follow(self) -> None:
        """Gets ready for `tick`; to be called before the start."""
        ...

    def tick(self, wait: bool) -> None:
        """One batch interval on. `wait`: returns when the batch has ended, and its listeners have heard so."""
        ...


def clock_of(side: str, ssc: Any) -> HandClock:
    return SparksClock(ssc) if side == "pyspark" else KStreamsClock(ssc)


class SparksClock:
    """Spark's ManualClock, in the JVM, which waits for nobody: a listener tells when the batch has ended."""

    def __init__(self, ssc: Any) -> None:
        self._ssc = ssc
        self._clock = ssc._jssc.ssc().scheduler().clock()
        self._ended = threading.Semaphore(0)

    def set(self, time_ms: int) -> None:
        self._clock.setTime(time_ms)

    def follow(self) -> None:
        from pyspark.streaming import StreamingListener

        ended = self._ended

        class Ended(StreamingListener):
            def onBatchCompleted(self, batchCompleted: Any) -> None:
                ended.release()

        self._ssc.addStreamingListener(Ended())

    def tick(self, wait: bool) -> None:
        self._clock.advance(INTERVAL_MS)
        if wait and not self._ended.acquire(timeout=_PATIENCE_S):
            self._ssc.awaitTerminationOrTimeout(0)  # raises what is to blame
            raise TimeoutError(f"a batch had not ended after {_PATIENCE_S} s")


class KStreamsClock:
    """kstream.testing.ManualClock, which waits by itself."""

    def __init__(self, ssc: Any) -> None:
        self._clock = ssc.clock

    def set(self, time_ms: int) -> None:
        self._clock.set_time(time_ms)

    def follow(self) -> None:
        pass

    def tick(self, wait: bool) -> None:
        self._clock.advance(INTERVAL_MS, wait=False)
        end = time.monotonic() + _PATIENCE_S
        while wait:
            try:
                return self._clock.advance(0)  # which has less patience
            except TimeoutError:
                if time.monotonic() > end:
                    raise

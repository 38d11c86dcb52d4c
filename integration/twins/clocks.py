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
    """Spark's ManualClock, in the JVM, which waits for nobody: a listener tells when a batch has ended."""

    def __init__(self, ssc: Any) -> None:
        self._ssc = ssc
        self._clock = ssc._jssc.ssc().scheduler().clock()
        self._changed = threading.Condition()
        self._ended = 0

    def set(self, time_ms: int) -> None:
        self._clock.setTime(time_ms)

    def follow(self) -> None:
        from pyspark.streaming import StreamingListener

        note = self._note

        class Ended(StreamingListener):
            def onBatchCompleted(self, batchCompleted: Any) -> None:
                note(batchCompleted.batchInfo().batchTime().milliseconds())

        self._ssc.addStreamingListener(Ended())

    def _note(self, batch_ms: int) -> None:
        with self._changed:
            self._ended = max(self._ended, batch_ms)
            self._changed.notify_all()

    def tick(self, wait: bool) -> None:
        self._clock.advance(INTERVAL_MS)
        now = self._clock.getTimeMillis()
        with self._changed:
            if wait and not self._changed.wait_for(lambda: self._ended >= now, _PATIENCE_S):
                self._ssc.awaitTerminationOrTimeout(0)  # raises what is to blame
                raise TimeoutError(f"the batch at {now} ms had not ended after {_PATIENCE_S} s")


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
                self._clock.advance(0)  # waits, too, but has less patience
                break
            except TimeoutError:
                if time.monotonic() > end:
                    raise

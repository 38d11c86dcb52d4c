"""RateLimiter: lets a receiver go on at most so many times a second (Spark's `RateLimiter.scala`)."""

from __future__ import annotations

import logging
import math
import threading

from kstream.clock import Clock, StopFlag
from kstream.loop import THREADS, Runtime

logger = logging.getLogger(__name__)
_SECOND = 1000.0


class RateLimiter:
    """Permits come one by one at the rate. Those nobody took are kept, of one second at most: after a pause so many may go at once.

    `max_rate` is `spark.streaming.receiver.maxRate`, records a second, which no update exceeds; `initial_rate` is
    `spark.streaming.backpressure.initialRate`, in force until the first update. None, 0 and less are no limit. Any thread.
    """

    def __init__(self, clock: Clock, max_rate: int | None = None, initial_rate: int | None = None, runtime: Runtime = THREADS) -> None:
        self._clock = clock
        self._never = runtime.event()
        self._max = max_rate if max_rate is not None and max_rate > 0 else None
        self._lock = threading.Lock()
        self._rate = self._bounded(initial_rate) if initial_rate is not None and initial_rate > 0 else self._max
        self._kept = 0.0
        self._next = float(clock.monotonic_ms())

    def getCurrentLimit(self) -> int | None:
        """Records a second; None is no limit."""
        with self._lock:
            return self._rate

    def updateRate(self, newRate: int) -> None:
        """The rate from now on, or the highest there may be if that is less. 0 and less change nothing.

        Who waits already is not told; permits that were kept stay the same part of a second's.
        """
        if newRate <= 0:
            return
        with self._lock:
            self._refill(self._clock.monotonic_ms())
            before, self._rate = self._rate, self._bounded(newRate)
            self._kept = self._kept * self._rate / before if before else 0.0
        if before != self._rate:
            logger.info("receivers may take %d records a second from now on", self._rate)

    def waitToPush(self, stop: StopFlag | None = None) -> bool:
        """Blocks until there is a permit, and takes it; True. False as soon as `stop` is set.

        The one who comes after a call waits for it: a first call, or one after a pause, goes on at once.
        """
        stop = self._never if stop is None else stop
        at = self._reserve()
        while (left := at - self._clock.monotonic_ms()) > 0:
            if self._clock.wait(math.ceil(left), stop):
                return False
        return not stop.is_set()

    def _reserve(self) -> float:
        """When the caller may go on; takes the permit that comes then."""
        with self._lock:
            now = self._clock.monotonic_ms()
            self._refill(now)
            if self._rate is None:
                return now
            at = self._next
            from_kept = min(1.0, self._kept)
            self._kept -= from_kept
            self._next += (1.0 - from_kept) * _SECOND / self._rate
            return at

    def _refill(self, now: int) -> None:
        if now > self._next:
            if self._rate is not None:
                self._kept = min(float(self._rate), self._kept + (now - self._next) * self._rate / _SECOND)
            self._next = float(now)

    def _bounded(self, rate: int) -> int:
        return rate if self._max is None else min(rate, self._max)

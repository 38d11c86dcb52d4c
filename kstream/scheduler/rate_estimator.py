"""RateEstimator: how many records a second a stream should take, by how fast its last batches were. Pure.

PIDRateEstimator re-implements `org.apache.spark.streaming.scheduler.rate.PIDRateEstimator` of Spark 3.0.1.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod

from kstream.batch_time import Duration
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.scheduler.settings import PID_DERIVED, PID_INTEGRAL, PID_MIN_RATE, PID_PROPORTIONAL, RATE_ESTIMATOR

PID = "pid"


class RateEstimator(ABC):
    """Base class of estimators. Each input stream has its own, and calls it in the thread that ends a batch.

    Subclass it, and give the dotted name of the class as `spark.streaming.backpressure.rateEstimator`. The constructor gets the batch
    interval in milliseconds.

    Example:
        class Steady(kstream.RateEstimator):
            def __init__(self, batchIntervalMillis):
                self.seconds = batchIntervalMillis / 1000

            def compute(self, time, elements, processingDelay, schedulingDelay):
                return 0.8 * elements / max(processingDelay / 1000, self.seconds)
    """

    @abstractmethod
    def compute(self, time: int, elements: int, processingDelay: int, schedulingDelay: int) -> float | None:
        """Return the rate of the next batches. Called for each batch of which all outputs have succeeded.

        Args:
            time: the end of the batch, in ms since the Unix epoch.
            elements: the number of records that the stream gave to the batch.
            processingDelay: how long the batch ran, in ms.
            schedulingDelay: how long the batch waited before it ran, in ms.

        Returns:
            Records a second for the whole stream; None to keep the rate of before.
        """


class PIDRateEstimator(RateEstimator):
    """Spark's estimator: a PID controller of the rate, whose error is the rate minus the processing speed.

    The new rate is the old one, minus three corrections: by the error (proportional), by the records that waited because batches were
    late (integral), and by the change of the error a second (derivative). It is never below `minRate`. The first batch only gives the
    speed.
    """

    def __init__(self, batchIntervalMillis: int, proportional: float, integral: float, derivative: float, minRate: float) -> None:
        """
        Args:
            batchIntervalMillis: the batch interval in ms, above 0.
            proportional: how strongly the error counts, 0 or more.
            integral: how strongly the waiting records count, 0 or more.
            derivative: how strongly the change of the error counts, 0 or more.
            minRate: the lowest rate, in records a second, above 0.

        Raises:
            ValueError: an argument is out of its range.
        """
        named = {"batchIntervalMillis": batchIntervalMillis, "proportional": proportional, "integral": integral}
        named |= {"derivative": derivative, "minRate": minRate}
        for name, value in named.items():
            above_zero = name in ("batchIntervalMillis", "minRate")
            if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
                raise ValueError(f"{name} of a PIDRateEstimator is {value}: it must be {'above 0' if above_zero else '0 or more'}")
        self._interval_ms = batchIntervalMillis
        self._proportional = proportional
        self._integral = integral
        self._derivative = derivative
        self._min_rate = minRate
        self._time = -1
        self._rate: float | None = None
        self._error = 0.0

    def compute(self, time: int, elements: int, processingDelay: int, schedulingDelay: int) -> float | None:
        """Return the new rate. None for the first batch, for one without records or time, and for one that ended before the last one."""
        if time <= self._time or elements <= 0 or processingDelay <= 0:
            return None
        seconds, self._time = (time - self._time) / 1000, time
        speed = elements / processingDelay * 1000
        if self._rate is None:
            self._rate = speed
            return None
        error = self._rate - speed
        waiting = schedulingDelay * speed / self._interval_ms
        change = (error - self._error) / seconds
        corrected = self._rate - self._proportional * error - self._integral * waiting - self._derivative * change
        self._rate, self._error = max(corrected, self._min_rate), error
        return self._rate


def create_rate_estimator(settings: Settings, interval: Duration) -> RateEstimator:
    """Create the estimator that the settings name: `pid`, or the dotted name of a RateEstimator.

    Raises:
        ConfigurationError: the class is not there or is no RateEstimator, or a figure of the PID controller is out of its range.
    """
    name = settings[RATE_ESTIMATOR]
    if name != PID:
        return _own_estimator(name, interval)
    figures = [settings[entry] for entry in (PID_PROPORTIONAL, PID_INTEGRAL, PID_DERIVED, PID_MIN_RATE)]
    try:
        return PIDRateEstimator(interval.milliseconds, *figures)
    except ValueError as e:
        raise ConfigurationError(f"spark.streaming.backpressure.pid.*: {e}", key=RATE_ESTIMATOR.key, value=name) from e


def _own_estimator(name: str, interval: Duration) -> RateEstimator:
    """Create an estimator of the user's class."""
    module, _, attribute = name.rpartition(".")
    try:
        made = getattr(importlib.import_module(module), attribute)(interval.milliseconds)
    except (ImportError, AttributeError, ValueError, TypeError) as e:
        hint = f"give {PID}, or the dotted name of a kstream.RateEstimator whose constructor takes the batch interval in ms"
        raise ConfigurationError(f"{RATE_ESTIMATOR} is {name!r}: {e}; {hint}", key=RATE_ESTIMATOR.key, value=name) from e
    if not isinstance(made, RateEstimator):
        raise ConfigurationError(f"{RATE_ESTIMATOR} is {name!r}, which is no kstream.RateEstimator", key=RATE_ESTIMATOR.key, value=name)
    return made

"""RateController: tells an input how fast its batches were, and the rate that an estimator makes of that (Spark's `RateController`)."""

from __future__ import annotations

import logging
import math
from typing import Any

from kstream.batch import BatchInfo
from kstream.dstream import InputDStream
from kstream.scheduler.rate_estimator import RateEstimator

logger = logging.getLogger(__name__)


class RateController:
    """Passes the figures of each batch to one input stream, and under back-pressure a rate. Called by the thread that ends the batch.

    Spark's RateController is a listener. This one hears of a batch before the next one is planned, as listeners may not.

    A batch with a failed output gives no rate: it may have ended early, so its speed is no speed of the job.

    Args:
        stream: the input. It must adapt its rate.
        estimator: computes the rate; None without back-pressure.
    """

    def __init__(self, stream: InputDStream[Any], estimator: RateEstimator | None) -> None:
        self._stream = stream
        self._estimator = estimator
        self._latest: int | None = None

    @property
    def stream_id(self) -> int:
        return self._stream.id

    @property
    def latest_rate(self) -> int:
        """The rate that the stream was told last, in records a second; −1 before the first, as in Spark."""
        return -1 if self._latest is None else self._latest

    def batch_completed(self, info: BatchInfo) -> None:
        """Pass on the figures of a batch, and the new rate, if all outputs have succeeded in the first try."""
        self._stream.batch_completed(info)
        rate = self._rate_after(info) if info.measures_speed else None
        if rate is None:
            return
        if not math.isfinite(rate) or rate < 0:
            logger.warning("stream %d: %s computed the rate %s; the stream keeps its rate", self._stream.id, self._estimator, rate)
            return
        self._latest = max(1, int(rate))
        self._stream.update_rate(self._latest)

    def _rate_after(self, info: BatchInfo) -> float | None:
        """Return the estimator's rate after a batch; None without an estimator, and if the batch had no job or nothing of the stream."""
        source = info.inputs.get(self._stream.id)
        ended, processing, scheduling = info.processing_end_ms, info.processing_delay_ms, info.scheduling_delay_ms
        if self._estimator is None or source is None or ended is None or processing is None or scheduling is None:
            return None
        return self._estimator.compute(ended, source.num_records, processing, scheduling)

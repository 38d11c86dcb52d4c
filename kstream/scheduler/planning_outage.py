"""PlanningOutage: what the driver says, and for how long it waits, while no batch can be planned because a system is away."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kstream.batch_time import Time
from kstream.errors import KStreamError

logger = logging.getLogger(__name__)
TIMEOUT = "spark.streaming.kstream.unreachableTimeout"
REMINDER_MS = 60_000
"""Milliseconds between two log lines about one outage."""


class PlanningOutage:
    """The outage in which no batch can be planned: from the first error with `outage` to the next batch that is planned.

    A batch that is not planned loses nothing: the next batch that is planned takes its records. So an outage is logged, and it is an error
    only after the timeout. Only the JobGenerator's thread calls the methods.
    """

    def __init__(self, timeout_ms: int, monotonic_ms: Callable[[], int]) -> None:
        """
        Args:
            timeout_ms: how long an outage may last before it is an error; 0: it is one at once, as in Spark.
            monotonic_ms: a monotonic clock in ms.
        """
        self._timeout_ms = timeout_ms
        self._monotonic_ms = monotonic_ms
        self._began_ms: int | None = None
        self._reminded_ms = 0
        self._unplanned = 0

    def waits(self, time: Time, error: Exception) -> bool:
        """Return whether the driver goes on waiting after an error of planning. Log the outage, at most once a minute.

        Args:
            time: the batch that was not planned.
            error: the error of its planning.

        Returns:
            False if the error is no outage, or if the outage has lasted longer than the timeout: then the error must be reported.
        """
        if not isinstance(error, KStreamError) or not error.outage:
            return False
        now = self._monotonic_ms()
        if self._began_ms is None:
            self._began_ms, self._reminded_ms, self._unplanned = now, now - REMINDER_MS, 0
        self._unplanned += 1
        if now - self._began_ms >= self._timeout_ms:
            return False
        if now - self._reminded_ms >= REMINDER_MS:
            self._reminded_ms = now
            left = (self._timeout_ms - (now - self._began_ms)) / 1000
            logger.warning(
                "batch %s was not planned, the next batch takes its records. %d in a row; the driver waits for %.0f s more (%s): %s",
                time,
                self._unplanned,
                left,
                TIMEOUT,
                error,
            )
        return True

    def ended(self, time: Time) -> None:
        """Note that a batch was planned. If an outage was on, log its end."""
        if self._began_ms is None:
            return
        seconds = (self._monotonic_ms() - self._began_ms) / 1000
        text = "batch %s was planned: the outage is over after %.0f s, %d batches had no plan"
        logger.warning(text, time, seconds, self._unplanned)
        self._began_ms = None

"""PlanningOutage: what the driver says, and for how long it waits, while no batch can be planned because a system is away."""

from __future__ import annotations

import logging

from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import Outage
from kstream.clock import Clock
from kstream.errors import KStreamError, in_a_line
from kstream.scheduler.settings import UNREACHABLE_TIMEOUT
from kstream.secret import harmless

logger = logging.getLogger(__name__)
_TAKEN = "the next batch takes its records"
REMINDER_MS = 60_000
"""Milliseconds between two log lines about one outage."""


class PlanningOutage:
    """The outage in which no batch can be planned: from the first error with `outage` to the next batch that is planned.

    A batch that is not planned loses nothing: the next batch that is planned takes its records. So an outage is logged, and it is an error
    only after the timeout. Only the JobGenerator's thread calls the methods; any thread reads `outage`.
    """

    def __init__(self, timeout_ms: int, clock: Clock) -> None:
        """
        Args:
            timeout_ms: how long an outage may last before it is an error; 0: it is one at once, as in Spark.
            clock: the clock of the context.
        """
        self._timeout_ms = timeout_ms
        self._clock = clock
        self.outage: Outage | None = None
        """The outage that lasts, as others are told of it; None without one."""
        self._began_ms: int | None = None
        """The moment of the first error; None without an outage. The timeout counts from it."""
        self._tried_ms: int | None = None
        self._refused_ms = 0
        """When the try began that met the first error: the error comes only after the time-out of a request."""
        self._reminded_ms = 0
        self._unplanned = 0
        self._has_failed = False
        """Whether an error came since the last tick that was passed over."""
        self._is_start_held_up = False
        """Whether the store was away when the last batch was to start."""

    def tries(self) -> None:
        """Note that a try to plan or to start a batch begins."""
        self._tried_ms = self._clock.monotonic_ms()

    def waits(self, time: Time, error: Exception, planned: bool = False) -> bool:
        """Return whether the driver goes on waiting after an error of planning. Log the outage, at most once a minute.

        Args:
            time: the batch that was not planned.
            error: the error of its planning.
            planned: the batch is planned, and only its start must wait.

        Returns:
            False if the error is no outage, or if the outage has lasted longer than the timeout: then the error must be reported.
        """
        if not isinstance(error, KStreamError) or not error.outage:
            return False
        now, self._has_failed = self._clock.monotonic_ms(), True
        if self._began_ms is None:
            self._began_ms, self._reminded_ms, self._unplanned = now, now - REMINDER_MS, 0
            self._refused_ms = now if self._tried_ms is None else self._tried_ms
        self._unplanned += not planned
        self.outage = self._as_of(now, None if planned else time, error)
        if now - self._began_ms >= self._timeout_ms:
            return False
        self._is_start_held_up = self._is_start_held_up or planned
        if now - self._reminded_ms >= REMINDER_MS:
            self._reminded_ms = now
            left = (self._timeout_ms - (now - self._began_ms)) / 1000
            logger.warning(
                "batch %s %s; the driver waits for %.0f s more (%s): %s",
                time,
                "is planned and waits to start" if planned else f"was not planned, {_TAKEN}. {self._unplanned} in a row",
                left,
                UNREACHABLE_TIMEOUT,
                error,
            )
        return True

    def _as_of(self, now: int, unplanned: Time | None, error: Exception) -> Outage:
        """Return the outage after one more error: `unplanned` is the batch that it kept from being planned."""
        text, known = harmless(in_a_line(error)), self.outage
        if known is not None:
            return Outage(known.since_ms, known.until_ms, text, known.first or unplanned)
        wall_ms = self._clock.time_ms()
        return Outage(wall_ms - (now - self._refused_ms), wall_ms + self._timeout_ms, text, unplanned)

    def passes_over(self, time: Time, now_ms: int, interval: Duration) -> bool:
        """Return whether a tick is passed over: an outage is on, and a newer tick is due, which takes its records.

        A try to plan may wait for the whole time-out of a request. With a try for each overdue tick, planning would stand still for longer
        than the outage, and so would batches that wait for the same thread.

        Args:
            time: the batch time of the tick.
            now_ms: the time now, in ms since the Unix epoch.
            interval: the batch interval.
        """
        if self._began_ms is None or now_ms < (time + interval).milliseconds:
            return False
        self._unplanned += 1
        return True

    def passed_over(self) -> None:
        """Note that a tick planned no batch without trying to, such as while too many batches wait.

        A whole interval without an error ends the outage: nobody has seen that it lasts, and the time until an error begins anew.
        """
        if not self._has_failed:
            self._began_ms = self.outage = None
        self._has_failed = False

    def started(self) -> None:
        """Note that a planned batch could start."""
        self._is_start_held_up = False

    def ended(self, time: Time) -> None:
        """Note that a batch was planned. If an outage was on, and holds no start up, log its end."""
        if self._began_ms is None or self._is_start_held_up:
            return
        seconds = (self._clock.monotonic_ms() - self._refused_ms) / 1000
        text = "batch %s was planned: the outage is over after %.0f s, %d batches had no plan"
        logger.warning(text, time, seconds, self._unplanned)
        self._began_ms = self.outage = None

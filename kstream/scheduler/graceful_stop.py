"""GracefulStop: waits until all that was received is planned and every batch has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kstream.batch_time import Time
from kstream.loop import Event
from kstream.scheduler.batch_planner import BatchPlanner, JobGeneratorParts
from kstream.scheduler.downtime import listed
from kstream.scheduler.job_generator_events import Drained, GenerateJobs, JobGeneratorEvent

logger = logging.getLogger(__name__)
PATIENCE_INTERVALS = 10
"""So many batch intervals a graceful stop waits where a restart runs the rest, as Spark's JobGenerator does."""
_LOOK_S = 0.05


class GracefulStop:
    """On the thread that stops. The timer has ended: ticks that are still needed are posted from here."""

    def __init__(self, parts: JobGeneratorParts, planner: BatchPlanner, post: Callable[[JobGeneratorEvent], None]) -> None:
        """`post` hands an event to the thread of the JobGenerator."""
        self._parts = parts
        self._planner = planner
        self._post = post

    def work_off(self, last: int, timeout: float, waiting: Callable[[], bool]) -> bool:
        """Block until nothing waits and every batch has ended.

        What waits still, since the batch of the `last` tick could not be planned, is tried again an interval later. A driver that has been
        replaced need not wait for jobs that never start.

        Args:
            last: when the timer ticked last, in ms; below 0 if it never did.
            timeout: in seconds.
            waiting: whether something has been received that is in no batch.

        Returns:
            False if `timeout` passed first, or if another driver has taken over.
        """
        runtime, unfinished, scheduler = self._parts.runtime, self._parts.unfinished, self._parts.scheduler
        interval = self._parts.graph.batch_duration
        drained, soon, told = self._drained(), PATIENCE_INTERVALS * interval.seconds, False
        begin = ticked = runtime.monotonic()
        while not (drained.wait(_LOOK_S) and not waiting() and unfinished.wait_none_running(_LOOK_S)):
            now = runtime.monotonic()
            if self._planner.is_fenced or now - begin >= timeout or (now - begin >= soon and scheduler.refuses_jobs):
                return False
            stuck = drained.is_set() and waiting()
            if stuck and (last < 0 or now - ticked < interval.seconds):
                runtime.event().wait(_LOOK_S)
            elif stuck:
                last, ticked = last + interval.milliseconds, now
                self._post(GenerateJobs(Time(last)))
                drained = self._drained()
            if now - begin >= soon and not told:
                left = listed(sorted(unfinished.running()))
                logger.warning("graceful stop: after %g s batches %s have not ended; it waits for up to %g s", soon, left, timeout)
                told = True
        return not self._planner.is_fenced

    def _drained(self) -> Event:
        """Set when what has been posted so far is handled."""
        drained = self._parts.runtime.event()
        self._post(Drained(drained))
        return drained

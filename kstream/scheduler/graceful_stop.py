"""GracefulStop: waits until all received data is planned and every batch has ended."""

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
"""The default timeout of a graceful stop in batch intervals, if a restart can run the rest. Spark's JobGenerator waits as long."""
_LOOK_S = 0.05


class GracefulStop:
    """Plans the received data and waits for the batches, on the thread that stops. The timer has ended, so this class posts the ticks."""

    def __init__(self, parts: JobGeneratorParts, planner: BatchPlanner, post: Callable[[JobGeneratorEvent], None]) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            planner: has `is_fenced` of this driver.
            post: posts an event to the JobGenerator's thread.
        """
        self._parts = parts
        self._planner = planner
        self._post = post

    def work_off(self, last: int, timeout: float, waiting: Callable[[], bool]) -> bool:
        """Block until all received data is planned and every batch has ended.

        If the batch of the last tick could not be planned, the next tick is posted one batch interval later, and so on. A fenced driver
        returns early. If the JobScheduler refuses jobs, the wait ends after PATIENCE_INTERVALS, because queued jobs never start.

        Args:
            last: the time of the timer's last tick in milliseconds; below 0 if there was none.
            timeout: seconds.
            waiting: whether some received data is in no batch.

        Returns:
            Whether all is done. False if `timeout` passed first, if queued jobs never start, or if another driver has taken over.
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
        """Return an event that is set once the JobGenerator has handled everything posted so far."""
        drained = self._parts.runtime.event()
        self._post(Drained(drained))
        return drained

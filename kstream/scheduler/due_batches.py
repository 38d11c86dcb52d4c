"""DueBatches: which batch times make a batch, and when a missed one is planned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from kstream.batch_time import Time, listed
from kstream.clock import SettableClock
from kstream.scheduler.batch_planner import BatchPlanner
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.job_scheduler import SchedulerParts
from kstream.scheduler.missed_batches import MissedBatches, overdue
from kstream.scheduler.planning_outage import PlanningOutage

logger = logging.getLogger(__name__)


class DueBatches:
    """Plans the batch of each tick at its time, and missed batches when they come to run.

    Threads: the thread that starts calls `begin_missed` at a restart. After that the JobGenerator's thread calls everything else. A stop
    sets `plans_missed`.
    """

    def __init__(self, parts: SchedulerParts, planner: BatchPlanner, submitter: BatchSubmitter, outage: PlanningOutage) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            planner: plans the batches.
            submitter: submits those that wait.
            outage: how long the driver waits for brokers or a store that are away.
        """
        self._parts = parts
        self._planner = planner
        self._submitter = submitter
        self._lifecycle = parts.lifecycle
        self._outage = outage
        self._interval = parts.graph.batch_duration
        self._missed: MissedBatches | None = None
        """The batches that are late and not planned yet; None if a tick is planned at its time."""
        self._until = Time(0)
        """The first batch time after those that were missed last. The timer may still tick for older ones."""
        self.plans_missed = True
        """Whether missed batches are planned. A stop sets it to False: the next start plans them."""

    def tick(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Make the batch of a tick. If many ticks are overdue, leave out those that a restart would leave out.

        While earlier batches are missed and not planned yet, the tick waits behind them. An error is reported to the JobScheduler and not
        raised.

        Args:
            time: the batch time of the tick.
            now_ms: reads the clock of the batch times, in milliseconds since the Unix epoch.
        """
        # Batches may wait for a completion that the store refused.
        if self._lifecycle.num_held or self._missed is not None or self._planner.exhausted:
            self._submitter.retry_completions()
        self._submitter.submit_held()
        if self._missed is not None:
            self._wait_behind_missed(self._missed, time, now_ms)
        elif time >= self._until:  # else it was left out, or is planned already
            self._plan_at_its_time(time, now_ms)

    def _plan_at_its_time(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Plan the batch of a tick, unless it is one of many overdue ticks."""
        if self._submitter.is_fenced or self._planner.is_full(time):
            self._outage.passed_over()
            return
        self._missed = self._overdue(time, now_ms)
        if self._missed is not None:
            self._wait_behind_missed(self._missed, time, now_ms)
        elif not self._is_passed_over_in_an_outage(time, now_ms):
            self._planner.generate(time)

    def _wait_behind_missed(self, missed: MissedBatches, time: Time, now_ms: Callable[[], int]) -> None:
        """Let a tick wait behind the missed batches, and plan those that can run now. In a graceful stop plan what is received instead."""
        if not self.plans_missed:
            self._planner.generate(time)
            return
        missed.add_tick(time)
        self._until = missed.until
        if not self._is_passed_over_in_an_outage(time, now_ms) and not self.plan_missed():
            self._outage.passed_over()

    def begin_missed(self, since: Time, until: Time, failing: Collection[Time]) -> list[Time]:
        """Take the missed batch times of a downtime. Passes them to the inputs, and may block on their systems; an error is raised.

        Args:
            since: the oldest missed batch time.
            until: the first tick of this driver.
            failing: the pending batches that have failed before. While they run again, the inputs are not asked, and nothing is planned.

        Returns:
            The batches that are to be planned, as far as that is known, oldest first.
        """
        missed = MissedBatches(since, until, self._interval, failing, self._parts.retry.hold)
        times = missed.passed()
        if not times:
            return []
        self._missed = missed
        if failing:
            text = "missed batches %s to %s wait unplanned, and lose nothing: %d earlier batches have failed before and run again first"
            logger.warning(text, since, until - self._interval, len(failing))
            return []
        selected = self._planner.missed(times)
        missed.select(selected)
        return selected

    def _overdue(self, time: Time, now_ms: Callable[[], int]) -> MissedBatches | None:
        """Return the batches that are missed, if a tick is one of many overdue ticks. With a settable clock none is missed."""
        late = [] if isinstance(self._parts.clock, SettableClock) else overdue(time, now_ms(), self._interval)
        if not late:
            return None
        logger.warning(
            "%d batches are overdue, %s to %s: the clock jumped, or planning was held up. They are treated as after a downtime",
            len(late),
            late[0],
            late[-1],
        )
        return MissedBatches(time, late[-1] + self._interval, self._interval, (), self._parts.retry.hold)

    def plan_missed(self) -> bool:
        """Plan the missed batches that can run now. Blocks on the store and on the inputs' systems.

        An error is reported, and the next tick tries again. When all are planned, the next tick is planned at its time.

        Returns:
            Whether a batch was planned, or its planning was tried.
        """
        tried = False
        while (missed := self._missed_that_may_run()) is not None:
            tried = True
            time = self._next_missed(missed)
            if time is None or not self._planner.generate(time):
                break
            if self._missed is not None:
                self._missed.planned()
        return tried

    def _missed_that_may_run(self) -> MissedBatches | None:
        """Return the missed batches, if one of them can run now or next; else None.

        While the first batch with records runs, the next one would get none: nothing is measured yet.
        """
        missed = self._missed
        if missed is None or self._submitter.is_fenced or not self.plans_missed:
            return None
        if not missed.are_due(self._lifecycle.to_come, self._lifecycle.open, self._parts.clock.monotonic_ms()):
            return None
        in_line, is_measuring = self._lifecycle.num_in_line(), any(stream.is_measuring for stream in self._planner.inputs)
        return missed if in_line == 0 or (in_line <= self._parts.concurrent_jobs and not is_measuring) else None

    def _next_missed(self, missed: MissedBatches) -> Time | None:
        """Return the missed batch that is planned next. If the inputs do not know the missed times yet, pass these to them first.

        Returns:
            None if no missed batch is left, or if an input has failed. Its error is reported, and the next tick asks it again.
        """
        if missed.next is None:
            times = missed.passed()
            if not times or self._planner.exhausted:
                self._missed = None
                return None
            self._outage.tries()
            try:
                selected = self._planner.missed(times)
            except Exception as e:
                self._planner.not_planned(missed.until, e)
                return None
            missed.select(selected)
            text = "batches %s (%d batches) are late and are planned in turn: %d of them are planned"
            level = logging.INFO if missed.rounds == 1 else logging.DEBUG  # a job that catches up asks again and again
            logger.log(level, text, listed(times), len(times), len(selected))
        return missed.next

    def _is_passed_over_in_an_outage(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Return whether an outage is on and a newer tick is due. With a settable clock no tick is passed over."""
        if isinstance(self._parts.clock, SettableClock):
            return False
        return self._outage.passes_over(time, now_ms(), self._interval)

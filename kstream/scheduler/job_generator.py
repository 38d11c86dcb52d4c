"""JobGenerator: at each tick makes a batch; when batches end, cleans up behind them.

Everything that decides about batches runs on this class's one event thread; the timer and the JobScheduler only post.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kstream import crash_point
from kstream.batch_time import Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.plan_log import removable_up_to
from kstream.clock import RisingClock
from kstream.loop import EventLoop, RecurringTimer, Thread
from kstream.scheduler.batch_planner import BatchPlanner, JobGeneratorParts
from kstream.scheduler.graceful_stop import GracefulStop
from kstream.scheduler.job_generator_events import ClearMetadata, Drained, GenerateJobs, JobGeneratorEvent, Resume
from kstream.scheduler.restart import Restart

logger = logging.getLogger(__name__)


class JobGenerator:
    """See the module. A start returns when the timer runs; on a restart that is after all missed batches were submitted."""

    def __init__(self, parts: JobGeneratorParts) -> None:
        self._parts = parts
        self._interval = parts.graph.batch_duration
        self._scheduler = parts.scheduler
        self._unfinished = parts.unfinished
        self._clock = RisingClock(parts.clock)
        self._planner = BatchPlanner(parts)
        self._told_exhausted = False
        self._clean_up_to = Time(0)
        self._timer = self._make_timer()
        self._loop: EventLoop[JobGeneratorEvent] = EventLoop(
            "JobGenerator", self._process, lambda e: self._scheduler.report_error("Error in job generator", e), parts.runtime
        )
        self._cleaner: EventLoop[Time] = EventLoop(
            "PlanLogCleaner", self._clean_log, lambda e: logger.warning("could not remove old plans: %s", e), parts.runtime
        )
        self._restart = Restart(parts, self._planner)
        self._graceful_stop = GracefulStop(parts, self._planner, self._loop.post)

    def _make_timer(self) -> RecurringTimer:
        return RecurringTimer(
            self._clock,
            self._interval.milliseconds,
            lambda ms: self._loop.post(GenerateJobs(Time(ms))),
            "JobGenerator",
            lambda e: self._scheduler.report_error("Error in the batch timer", e),
            self._parts.runtime,
        )

    # -- start and stop; the caller's thread

    def first_zero_time(self) -> Time:
        """The zero time of a stream that starts for the first time now: one interval before its first batch."""
        return Time(self._timer.start_time()) - self._interval

    def start_first_time(self, zero_time: Time) -> None:
        """Starts a stream that has never planned. The first batch is at `zero_time` + interval.

        A zero time that an earlier driver stored before it died keeps its step; the first batch is then the next of its times.
        """
        self._rise_from(zero_time)
        first = max(zero_time + self._interval, Time(self._timer.restart_time(zero_time.milliseconds)))
        self._begin(zero_time, None)
        for stream in self._planner.inputs:
            stream.start(self._parts.services)
        self._planner.store_starting_point(first - self._interval)
        self._timer.start(first.milliseconds)
        self._loop.post(ClearMetadata(first))  # a bounded run may have nothing to do
        logger.info("started JobGenerator at %s", first)

    def restart(self, zero_time: Time, contents: LogContents, last_planned: Time) -> None:
        """Goes on from what the log says: pending batches with their plans, missed ones planned now, then the timer."""
        self._rise_from(last_planned)
        self._begin(zero_time, last_planned)
        self._restart.restore(contents, last_planned)
        next_tick = Time(self._timer.restart_time(zero_time.milliseconds))
        resume = self._restart.left(contents, last_planned, next_tick)
        self._loop.post(resume)
        resume.ended.wait()
        self._timer.start(next_tick.milliseconds)
        self._loop.post(ClearMetadata(next_tick))
        logger.info("restarted JobGenerator at %s", next_tick)

    def _rise_from(self, time: Time) -> None:
        """Batch times from now on are later than `time`, even if the wall clock is behind it."""
        self._clock = RisingClock(self._parts.clock, not_before_ms=time.milliseconds)
        self._timer = self._make_timer()

    def _begin(self, zero_time: Time, last_planned: Time | None) -> None:
        self._planner.begin(zero_time, last_planned)
        self._loop.start()
        self._cleaner.start()

    def stop(self, graceful: bool, timeout: float, waiting: Callable[[], bool] = lambda: False) -> bool:
        """Stops planning. Graceful: all that waits is planned first, and every batch ends, within `timeout` seconds; False if that passed,
        or if another driver has taken over.

        `waiting`: whether something has been received that is in no batch. The timer ticks on for it; a direct stream holds nothing.
        """
        last = self._timer.stop(interrupt=not (graceful and waiting()), timeout=timeout)
        in_time = not graceful or self._graceful_stop.work_off(last, timeout, waiting)
        self._loop.stop()
        self._cleaner.stop(drain=True)
        if graceful:
            self._planner.retry_completions()
        self._planner.tell_unfinished()  # the end of the last batch may have been thrown away with the queue
        for stream in self._planner.inputs:
            stream.stop()
        return in_time

    def drain(self, timeout: float) -> bool:
        """Blocks until what has been posted so far is handled; False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def timer_thread(self) -> Thread | None:
        """The thread of the timer, while it ticks."""
        return self._timer.alive_thread()

    @property
    def is_fenced(self) -> bool:
        """Whether another driver is known to have taken over. Any thread."""
        return self._planner.is_fenced

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the generator's thread, as the user's functions of `transform` do."""
        return self._loop.is_own_thread()

    def on_batch_end(self, time: Time) -> None:
        """A batch has ended, and that is stored. Any thread; returns at once."""
        self._loop.post(ClearMetadata(time))

    # -- the event thread

    def _process(self, event: JobGeneratorEvent) -> None:
        match event:
            case GenerateJobs(time):
                self._planner.tick(time, self._clock.time_ms)
            case ClearMetadata():
                self._batch_ended()
            case Drained(reached):
                reached.set()
            case Resume():
                self._restart.resume(event)

    def _batch_ended(self) -> None:
        """Something ended (or the stream has just started): tell the inputs, clean up, and see whether all is done."""
        self._planner.tell_unfinished()
        self._clear_metadata()
        if self._planner.exhausted and not self._unfinished.running() and not self._told_exhausted:
            self._told_exhausted = True
            self._timer.stop(interrupt=True)
            self._parts.on_exhausted()

    def _clear_metadata(self) -> None:
        up_to = self._planner.clear_metadata()
        if up_to is not None:
            self._clean_up_to = up_to
            self._cleaner.post(up_to)

    # -- the cleaner's thread

    def _clean_log(self, up_to: Time) -> None:
        crash_point.reach(crash_point.CLEANING)
        if up_to < self._clean_up_to:  # what follows in the queue does it: clean-up that was held up does not go on being late
            return
        unfinished = self._unfinished.all()
        needed_from = self._parts.states.clean(up_to, unfinished)
        removable = removable_up_to(unfinished, up_to, self._parts.graph.longest_remember(), needed_from)
        self._parts.before_clean(removable)
        self._parts.log.clean(removable)

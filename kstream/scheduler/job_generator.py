"""JobGenerator: makes a batch at each tick, and cleans up when batches end.

All decisions about batches are made on the one event thread of this class. The timer and the JobScheduler only post events.
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
    """Generates the batches of one start of a context.

    The caller starts it once, by `start_first_time` or `restart`, and ends it by `stop`.

    Threads: the thread that starts and the thread that stops call these methods. The event thread plans and submits batches. The cleaner's
    thread deletes plans and state.
    """

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
            "PlanLogCleaner",
            self._clean_log,
            lambda e: logger.warning("old plans not removed, the next clean-up retries: %s", e),
            parts.runtime,
        )
        self._restart = Restart(parts, self._planner)
        self._graceful_stop = GracefulStop(parts, self._planner, self._loop.post)

    def _make_timer(self) -> RecurringTimer:
        """Make the batch timer on `self._clock`. Each tick posts GenerateJobs."""
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
        """Return the zero time of a stream that starts for the first time now: one interval before its first batch."""
        return Time(self._timer.start_time()) - self._interval

    def start_first_time(self, zero_time: Time) -> None:
        """Start the inputs, store the starting point and start the timer. Blocks on the store and on the inputs' systems.

        The first batch is at `zero_time` + interval. If an earlier driver stored the zero time and died before its first plan, the first
        batch is the next time after now that is a whole number of intervals after `zero_time`.

        Args:
            zero_time: the zero time of the stream.

        Raises:
            StorageError: the starting point could not be stored.
            Exception: an input could not start.
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
        """Continue from the log: submit the pending batches with their plans, plan the missed batches, then start the timer.

        Blocks until all pending and missed batches are submitted.

        Args:
            zero_time: the zero time of the stream.
            contents: of the log, with the stream numbers of this job.
            last_planned: the newest batch time that has a plan.

        Raises:
            CorruptRecordError: no stored state from which the batches can be made is whole.
            StorageError: the stored state could not be read.
            Exception: an input could not start, or could not continue from its stored plan.
        """
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
        """Use a clock and a timer whose batch times are later than `time`, even if the wall clock is behind it."""
        self._clock = RisingClock(self._parts.clock, not_before_ms=time.milliseconds)
        self._timer = self._make_timer()

    def _begin(self, zero_time: Time, last_planned: Time | None) -> None:
        """Initialize the graph, and start the event thread and the cleaner's thread."""
        self._planner.begin(zero_time, last_planned)
        self._loop.start()
        self._cleaner.start()

    def stop(self, graceful: bool, timeout: float, waiting: Callable[[], bool] = lambda: False) -> bool:
        """Stop planning, and stop the inputs. Blocks until the event thread and the cleaner's thread have ended.

        A graceful stop first plans all received data, and waits until every batch has ended. For received data the timer ticks once or
        twice more; a stream that reads by offsets needs no such tick. Queued events are dropped, and no batch is planned after the call.

        Args:
            graceful: whether to plan and wait first.
            timeout: seconds for the last ticks, and again for the wait.
            waiting: whether some received data is in no batch.

        Returns:
            False if a graceful stop did not finish: the timeout passed, queued jobs never start, or another driver has taken over.
        """
        last = self._timer.stop(interrupt=not (graceful and waiting()), timeout=timeout)
        in_time = not graceful or self._graceful_stop.work_off(last, timeout, waiting)
        self._loop.stop()
        self._cleaner.stop(drain=True)
        if graceful:
            self._planner.retry_completions()
        self._planner.tell_unfinished()  # the event about the end of the last batch may have been dropped with the queue
        for stream in self._planner.inputs:
            stream.stop()
        return in_time

    def drain(self, timeout: float) -> bool:
        """Block until every event posted so far is handled; return False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def timer_thread(self) -> Thread | None:
        """Return the timer's thread; None before its start and after its end."""
        return self._timer.alive_thread()

    @property
    def is_fenced(self) -> bool:
        """Whether this driver has found that another one has taken over. Any thread."""
        return self._planner.is_fenced

    def is_own_thread(self) -> bool:
        """Return whether the caller runs on the event thread, as the user's functions of `transform` do."""
        return self._loop.is_own_thread()

    def on_batch_end(self, time: Time) -> None:
        """Post that a batch has ended, in success or failure. Any thread; returns at once."""
        self._loop.post(ClearMetadata(time))

    # -- the event thread

    def _process(self, event: JobGeneratorEvent) -> None:
        """Handle one event."""
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
        """Pass the unfinished batches to the inputs, and clean up. At the end of a bounded run, stop the timer and call `on_exhausted`."""
        self._planner.tell_unfinished()
        self._clear_metadata()
        if self._planner.exhausted and not self._unfinished.running() and not self._told_exhausted:
            self._told_exhausted = True
            self._timer.stop(interrupt=True)
            self._parts.on_exhausted()

    def _clear_metadata(self) -> None:
        """Forget what no batch needs any more, and post its deletion from the checkpoint to the cleaner's thread."""
        up_to = self._planner.clear_metadata()
        if up_to is not None:
            self._clean_up_to = up_to
            self._cleaner.post(up_to)

    # -- the cleaner's thread

    def _clean_log(self, up_to: Time) -> None:
        """Delete the state, the received blocks and the plans that no restart needs. Blocks on the store."""
        crash_point.reach(crash_point.CLEANING)
        if up_to < self._clean_up_to:  # a newer clean-up request is queued and deletes this, too: a cleaner that is late catches up
            return
        unfinished = self._unfinished.all()
        needed_from = self._parts.states.clean(up_to, unfinished)
        removable = removable_up_to(unfinished, up_to, self._parts.graph.longest_remember(), needed_from)
        self._parts.before_clean(removable)
        self._parts.log.clean(removable)

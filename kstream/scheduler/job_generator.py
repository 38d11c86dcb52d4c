"""JobGenerator: makes a batch at each tick, and cleans up when batches end.

GracefulStop: waits until every batch has ended.

The event thread of the JobGenerator plans, generates and submits batches. The timer and the JobScheduler only post events to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from kstream import crash_point
from kstream.batch import BatchPlan
from kstream.batch.retention import RequiredBatches, required_batches
from kstream.batch_time import Time, listed
from kstream.checkpoint import LogContents, Meta
from kstream.checkpoint.driver_status import Outage
from kstream.clock import RisingClock
from kstream.dstream.ports import InputServices
from kstream.dstream.stored_stream import StoredStream
from kstream.errors import FencedError, in_a_line
from kstream.loop import Alarm, Event, EventLoop, RecurringTimer, Thread
from kstream.scheduler.batch_planner import BatchPlanner
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.due_batches import DueBatches
from kstream.scheduler.empty_batches import EmptyBatches
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts
from kstream.scheduler.planning_outage import PlanningOutage
from kstream.scheduler.restart import Restart, Resume

logger = logging.getLogger(__name__)
PATIENCE_INTERVALS = 10
"""The default timeout of a graceful stop in batch intervals, if a restart can run the rest. Spark's JobGenerator waits as long."""
_LOOK_S = 0.05


# -- the events of the event thread


@dataclass(frozen=True, slots=True)
class GenerateJobs:
    """A tick of the timer: the batch of this time is due."""

    time: Time


@dataclass(frozen=True, slots=True)
class ClearMetadata:
    """The batch of this time has ended, or the generator has just started: clean up, and see whether the inputs are exhausted."""

    time: Time


@dataclass(frozen=True, slots=True)
class Drained:
    """A mark in the queue: `reached` is set once all events posted before it are handled."""

    reached: Event


@dataclass(frozen=True, slots=True)
class TryFailed:
    """A try of a batch has failed, and the batch is tried again."""


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The back-off of a failed batch is over, or a graceful stop waits: do again what failed and is due."""


@dataclass(frozen=True, slots=True)
class StateLost:
    """A try of a batch found blocks or files of a state gone: generate the batch again."""

    time: Time


JobGeneratorEvent: TypeAlias = GenerateJobs | ClearMetadata | Drained | Resume | TryFailed | RetryDue | StateLost


# -- the generator


@dataclass(frozen=True, slots=True)
class JobGeneratorCallbacks:
    """The functions that a JobGenerator calls.

    Attributes:
        on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over. Nothing is planned or submitted
            after that.
        on_exhausted: called once, on the JobGenerator's thread, when all inputs are bounded, all their data is planned and every batch has
            ended.
        before_clean: before_clean(required) is called on the cleaner's thread, before plans of other batches are deleted. If it raises,
            they are not deleted this time.
    """

    on_fenced: Callable[[FencedError], None]
    on_exhausted: Callable[[], None]
    before_clean: Callable[[RequiredBatches], None]


class JobGenerator:
    """Generates the batches of one start of a context.

    The caller starts it once, by `start_first_time` or `restart`, and ends it by `stop`.

    Threads: the thread that starts and the thread that stops call these methods. The event thread plans and submits batches. The cleaner's
    thread deletes plans and state.

    Args:
        parts: the parts that the JobScheduler has, too.
        scheduler: runs the jobs.
        services: those of the driver for its inputs.
        callbacks: the functions to call.
        max_batch_failures: number of failures up to which restarts run a batch again; 0 is no limit.
    """

    def __init__(
        self,
        parts: SchedulerParts,
        scheduler: JobScheduler,
        services: InputServices,
        callbacks: JobGeneratorCallbacks,
        max_batch_failures: int,
    ) -> None:
        self._parts = parts
        self._services = services
        self._callbacks = callbacks
        self._interval = parts.graph.batch_duration
        self._scheduler = scheduler
        self._lifecycle = parts.lifecycle
        self._clock = RisingClock(parts.clock)
        self._outage = outage = PlanningOutage(parts.unreachable_timeout_ms, parts.clock)
        empty = EmptyBatches(parts.skip_empty_batches)
        self._submitter = BatchSubmitter(parts, scheduler, empty, outage, callbacks.on_fenced)
        self._planner = BatchPlanner(parts, scheduler, self._submitter, empty, outage)
        self._due = DueBatches(parts, self._planner, self._submitter, outage)
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
        self._alarm = Alarm(parts.clock, lambda: self._loop.post(RetryDue()), "JobGenerator-retry", parts.runtime)
        self._restart = Restart(parts, self._planner, self._submitter, self._due, scheduler, services, max_batch_failures)
        self._graceful_stop = GracefulStop(parts, self._submitter, scheduler, self._loop.post)

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

        The first batch is at `zero_time` + interval. But an earlier driver may have stored the zero time and died before its first plan.
        Then the first batch is the next time after now that is a whole number of intervals after `zero_time`.

        Raises:
            StorageError: the starting point could not be stored.
            Exception: an input could not start.
        """
        self._rise_from(zero_time)
        first = max(zero_time + self._interval, Time(self._timer.restart_time(zero_time.milliseconds)))
        self._begin(zero_time, None, ())
        for stream in self._planner.inputs:
            stream.start(self._services)
        self._planner.store_starting_point(first - self._interval)
        self._log_first_start()
        self._timer.start(first.milliseconds)
        self._loop.post(ClearMetadata(first))  # a bounded run may have nothing to do
        logger.info("started JobGenerator at %s", first)

    def _log_first_start(self) -> None:
        """Log that the checkpoint was empty, and where the streams begin: a path that is wrong by mistake looks like that."""
        log, places = self._parts.log, self._planner.places()
        if log.url:
            logger.info("checkpoint %s: first start, as epoch %d%s", log.url, log.epoch, places and f". The streams begin:{places}")

    def restart(self, meta: Meta, contents: LogContents, streams: Mapping[int, StoredStream[Any]], last_planned: Time) -> None:
        """Continue from the log: submit the pending batches with their plans, begin with the missed batches, then start the timer.

        The first of these batches are submitted when this method returns. The others wait for their turn, the missed ones unplanned.

        Args:
            meta: the meta record.
            contents: of the log, with the stream numbers of this job.
            streams: the inputs of this job with their stored plans, by stream id.
            last_planned: the newest batch time that has a plan.

        Raises:
            CorruptRecordError: no stored state from which the batches can be made is whole.
            StorageError: the stored state could not be read.
            Exception: an input could not start, or could not continue from its stored plan.
        """
        self._rise_from(last_planned)
        self._begin(meta.zero_time, last_planned, contents.plans.values())
        first = meta.next_batch(last_planned)
        self._restart.restore(contents, streams, first)
        if places := self._planner.places():
            logger.info("the streams go on:%s", places)
        next_tick = Time(self._timer.restart_time(meta.zero_time.milliseconds))
        resume = self._restart.left(contents, first, next_tick)
        self._loop.post(resume)
        resume.ended.wait()
        self._timer.start(next_tick.milliseconds)
        self._loop.post(ClearMetadata(next_tick))
        logger.info("restarted JobGenerator at %s", next_tick)

    def _rise_from(self, time: Time) -> None:
        """Use a clock and a timer whose batch times are later than `time`, even if the wall clock is behind it."""
        self._clock = RisingClock(self._parts.clock, not_before_ms=time.milliseconds)
        self._timer = self._make_timer()

    def _begin(self, zero_time: Time, last_planned: Time | None, earlier: Iterable[BatchPlan]) -> None:
        """Initialize the graph, and start the event thread and the cleaner's thread."""
        self._planner.begin(zero_time, last_planned, earlier)
        self._loop.start()
        self._cleaner.start()

    def stop(self, graceful: bool, timeout: float, waiting: Callable[[], bool] = lambda: False) -> bool:
        """Stop planning, and stop the inputs. Blocks until the event thread and the cleaner's thread have ended.

        Missed batches stay unplanned: the next start plans them. If received data needs a tick, the batch of that tick has the records of
        the missed ones, too. A graceful stop plans all received data, and waits until every batch has ended. For received data the timer
        ticks once or twice more; a stream that reads by offsets needs no such tick. Queued events are dropped, and no batch is planned
        after the call.

        Args:
            graceful: whether to plan and wait first.
            timeout: seconds for the last ticks, and again for the wait.
            waiting: whether some received data is in no batch.

        Returns:
            False if a graceful stop did not finish: the timeout passed, queued jobs never start, or another driver has taken over.

        Raises:
            Exception: the first error of a step. The other steps have run nevertheless.
        """
        in_time = False
        self._due.plans_missed = False

        def work_off() -> None:
            nonlocal in_time
            last = self._timer.stop(interrupt=not (graceful and waiting()), timeout=timeout)
            in_time = not graceful or self._graceful_stop.work_off(last, timeout, waiting)

        run_each(
            work_off,
            partial(self._timer.stop, interrupt=True),
            self._alarm.stop,
            self._loop.stop,
            partial(self._cleaner.stop, drain=True),
            self._submitter.retry_completions if graceful else None,
            # The event about the end of the last batch may have been dropped with the queue.
            lambda: self._planner.tell_unfinished(self._lifecycle.unfinished()),
            self._planner.stop_inputs,
        )
        return in_time

    def cut_short(self) -> None:
        """Make a graceful `stop` that runs return without waiting for the batches. Any thread; returns at once."""
        self._graceful_stop.cut_short()

    def drain(self, timeout: float) -> bool:
        """Block until every event posted so far is handled; return False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def timer_threads(self) -> list[Thread]:
        """Return the threads that wait on the clock: for the next tick, and for the next try of a failed batch."""
        return [thread for thread in (self._timer.alive_thread(), self._alarm.alive_thread()) if thread is not None]

    @property
    def is_fenced(self) -> bool:
        """Whether this driver has found that another one has taken over. Any thread."""
        return self._submitter.is_fenced

    @property
    def outage(self) -> Outage | None:
        """The outage of brokers or of the store that lasts; None without one. Any thread."""
        return self._outage.outage

    def is_own_thread(self) -> bool:
        """Return whether the caller runs on the event thread, as the user's functions of `transform` do."""
        return self._loop.is_own_thread()

    def on_failed_try(self) -> None:
        """Post that a try of a batch has failed, and that the batch is tried again. Any thread; returns at once."""
        self._loop.post(TryFailed())

    def on_lost(self, time: Time) -> None:
        """Post that a try of a batch found blocks or files of a state gone. Any thread; returns at once."""
        self._loop.post(StateLost(time))

    def on_batch_end(self, time: Time) -> None:
        """Post that a batch has ended, in success or failure. Any thread; returns at once."""
        self._loop.post(ClearMetadata(time))

    # -- the event thread

    def _process(self, event: JobGeneratorEvent) -> None:
        match event:
            case GenerateJobs(time):
                self._due.tick(time, self._clock.time_ms)
            case ClearMetadata():
                self._batch_ended()
            case Drained(reached):
                reached.set()
            case Resume():
                self._restart.resume(event)
            case TryFailed():
                self._submitter.submit_held()
                self._due.plan_missed()
            case StateLost(time):
                self._submitter.repair(time)
            case RetryDue():
                self._submitter.try_again()
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Make the alarm post RetryDue when the next try of a failed batch is due. A fenced driver tries nothing again."""
        due_ms = self._lifecycle.next_due_ms()
        if due_ms is not None and not self._submitter.is_fenced:
            self._alarm.set(due_ms)

    def _batch_ended(self) -> None:
        """Pass the unfinished batches to the inputs, and clean up. At the end of a bounded run, stop the timer and call `on_exhausted`."""
        run_each(
            lambda: self._planner.tell_unfinished(self._lifecycle.unfinished()),
            self._clear_metadata,
            self._submitter.submit_held,
            self._due.plan_missed,
            self._end_of_a_bounded_run,
        )

    def _end_of_a_bounded_run(self) -> None:
        """Stop the timer and call `on_exhausted`, once, if the inputs are exhausted and every batch has ended."""
        if self._planner.exhausted and not self._lifecycle.open() and not self._told_exhausted:
            self._told_exhausted = True
            self._timer.stop(interrupt=True)
            self._callbacks.on_exhausted()

    def _clear_metadata(self) -> None:
        """Forget what no batch needs any more, and post its deletion from the checkpoint to the cleaner's thread."""
        up_to = self._submitter.clear_metadata()
        if up_to is not None:
            self._clean_up_to = up_to
            self._cleaner.post(up_to)

    # -- the cleaner's thread

    def _clean_log(self, up_to: Time) -> None:
        """Delete the state, the received blocks and the plans that no restart needs. Blocks on the store."""
        crash_point.reach(crash_point.CLEANING)
        if up_to < self._clean_up_to:  # a newer clean-up request is queued and deletes this, too: a cleaner that is late catches up
            return
        unfinished = self._lifecycle.unfinished()
        needed = self._parts.states.clean(up_to, unfinished)
        required = required_batches(unfinished, up_to, self._parts.graph.longest_remember(), needed)
        self._callbacks.before_clean(required)
        self._parts.log.clean(required)


# -- a graceful stop


class GracefulStop:
    """Plans the received data and waits for the batches, on the thread that stops. The timer has ended, so this class posts the ticks."""

    def __init__(
        self, parts: SchedulerParts, submitter: BatchSubmitter, scheduler: JobScheduler, post: Callable[[JobGeneratorEvent], None]
    ) -> None:
        """
        Args:
            parts, scheduler: those of the JobGenerator.
            submitter: has `is_fenced` of this driver.
            post: posts an event to the JobGenerator's thread.
        """
        self._parts = parts
        self._scheduler = scheduler
        self._submitter = submitter
        self._post = post
        self._cut = parts.runtime.event()

    def cut_short(self) -> None:
        """Make `work_off` return. Any thread."""
        self._cut.set()

    def work_off(self, last: int, timeout: float, waiting: Callable[[], bool]) -> bool:
        """Block until all received data is planned and every batch has ended.

        If the batch of the last tick could not be planned, the next tick is posted one batch interval later, and so on. A fenced driver
        returns early. If the JobScheduler refuses jobs, the wait ends after PATIENCE_INTERVALS, because queued jobs never start.

        Args:
            last: the time of the timer's last tick in milliseconds; below 0 if there was none.
            timeout: seconds.
            waiting: whether some received data is in no batch.

        Returns:
            Whether all is done. False if `timeout` passed first, after `cut_short`, if queued jobs never start, or if another driver has
            taken over.
        """
        runtime, lifecycle, scheduler = self._parts.runtime, self._parts.lifecycle, self._scheduler
        interval = self._parts.graph.batch_duration
        drained, soon, told = self._drained(), PATIENCE_INTERVALS * interval.seconds, False
        begin = ticked = looked = runtime.monotonic()
        while not (drained.wait(_LOOK_S) and not waiting() and lifecycle.wait_none_open(_LOOK_S)):
            now = runtime.monotonic()
            if (
                self._submitter.is_fenced
                or self._cut.is_set()
                or now - begin >= timeout
                or (now - begin >= soon and scheduler.refuses_jobs)
            ):
                return False
            stuck = drained.is_set() and waiting()
            if now - looked >= interval.seconds:  # no tick does it any more
                looked = now
                self._post(RetryDue())
            if stuck and (last < 0 or now - ticked < interval.seconds):
                runtime.event().wait(_LOOK_S)
            elif stuck:
                last, ticked = last + interval.milliseconds, now
                self._post(GenerateJobs(Time(last)))
                drained = self._drained()
            if now - begin >= soon and not told:
                left = listed(sorted(lifecycle.open()))
                logger.warning("graceful stop: after %g s batches %s have not ended; it waits for up to %g s", soon, left, timeout)
                told = True
        return not self._submitter.is_fenced

    def _drained(self) -> Event:
        """Return an event that is set once the JobGenerator has handled everything posted so far."""
        drained = self._parts.runtime.event()
        self._post(Drained(drained))
        return drained


# -- steps that all run


def run_each(*steps: Callable[[], object] | None) -> None:
    """Run steps one after another, whatever fails: no error leaves a stop half done. None is no step.

    Raises:
        BaseException: the first error. A later one is logged.
    """
    first: BaseException | None = None
    for step in steps:
        try:
            if step is not None:
                step()
        except BaseException as e:
            if first is None:
                first = e
            else:
                logger.error("another error after %s: %s", in_a_line(first), in_a_line(e))
    if first is not None:
        raise first

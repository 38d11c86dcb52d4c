"""JobGenerator: at each tick plans a batch, makes the plan durable, generates its jobs and submits them.

Everything that decides about batches runs on this class's one event thread; the timer and the JobScheduler only post.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from kstream import crash_point
from kstream.batch import BatchPlan, InputPlan, JobSet, StreamInputInfo
from kstream.batch_time import Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.plan_log import removable_up_to
from kstream.clock import Clock, RisingClock, SettableClock
from kstream.dstream import DStreamGraph, InputDStream
from kstream.errors import FencedError, StorageError
from kstream.loop import THREADS, EventLoop, RecurringTimer, Runtime, Thread
from kstream.loop.runtime import Event
from kstream.scheduler.completions import Completion, not_noted
from kstream.scheduler.downtime import batches_during_downtime, listed, overdue, unplanned
from kstream.scheduler.input_info_tracker import InputInfoTracker
from kstream.scheduler.job_generator_events import ClearMetadata, Drained, GenerateJobs, JobGeneratorEvent, Resume
from kstream.scheduler.job_scheduler import JobScheduler
from kstream.scheduler.ports import BatchLog, JobEnvironment
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches

logger = logging.getLogger(__name__)
PATIENCE_INTERVALS = 10
"""So many batch intervals a graceful stop waits where a restart runs the rest, as Spark's JobGenerator does."""
_LOOK_S = 0.05


class JobGenerator:
    """See the module. `start` returns when the timer runs; on a restart that is after all missed batches were submitted.

    `on_fenced(error)` is called once, when another driver has taken over; nothing is planned or submitted from then on.
    `on_exhausted()` is called once, when every input is bounded, all of it is planned and every batch has ended.
    `before_clean(time)` is called, in the background, before plans of this time and older go. What it raises keeps them.
    """

    def __init__(
        self, graph: DStreamGraph, clock: Clock, log: BatchLog, scheduler: JobScheduler, environment: JobEnvironment,
        input_info: InputInfoTracker, unfinished: UnfinishedBatches, on_fenced: Callable[[FencedError], None],
        max_batch_failures: int = 0, on_exhausted: Callable[[], None] = lambda: None, runtime: Runtime = THREADS, *,
        states: StateCheckpointer, before_clean: Callable[[Time], None] = lambda _up_to: None,
    ) -> None:  # fmt: skip
        self._graph = graph
        self._states = states
        self._before_clean = before_clean
        self._runtime = runtime
        self._clock = RisingClock(clock)
        self._wall = clock
        self._log = log
        self._scheduler = scheduler
        self._environment = environment
        self._input_info = input_info
        self._unfinished = unfinished
        self._on_fenced = on_fenced
        self._max_failures = max_batch_failures
        self._on_exhausted = on_exhausted
        self._told_exhausted = self._fenced = False
        self._after = self._clean_up_to = Time(0)
        self._overdue: tuple[Time, frozenset[Time]] = (Time(0), frozenset())
        """Up to when overdue ticks have been decided on, and which of them make a batch."""
        self._inputs: list[InputDStream] = []
        self._timer = self._make_timer()
        self._loop: EventLoop[JobGeneratorEvent] = EventLoop(
            "JobGenerator", self._process, lambda e: self._scheduler.report_error("Error in job generator", e), runtime
        )
        self._cleaner: EventLoop[Time] = EventLoop(
            "PlanLogCleaner", self._clean_log, lambda e: logger.warning("could not remove old plans: %s", e), runtime
        )

    def _make_timer(self) -> RecurringTimer:
        return RecurringTimer(
            self._clock, self._graph.batch_duration.milliseconds, lambda ms: self._loop.post(GenerateJobs(Time(ms))), "JobGenerator",
            lambda e: self._scheduler.report_error("Error in the batch timer", e), self._runtime,
        )  # fmt: skip

    # -- start and stop; the caller's thread

    def first_zero_time(self) -> Time:
        """The zero time of a stream that starts for the first time now: one interval before its first batch."""
        return Time(self._timer.start_time()) - self._graph.batch_duration

    def start_first_time(self, zero_time: Time) -> None:
        """Starts a stream that has never planned. The first batch is at `zero_time` + interval.

        A zero time that an earlier driver stored before it died keeps its step; the first batch is then the next of its times.
        """
        interval = self._graph.batch_duration
        self._rise_from(zero_time)
        first = max(zero_time + interval, Time(self._timer.restart_time(zero_time.milliseconds)))
        self._begin(zero_time)
        for stream in self._inputs:
            stream.start()
        self._plan_starting_point(first - interval)
        self._timer.start(first.milliseconds)
        self._loop.post(ClearMetadata(first))  # a bounded run may have nothing to do
        logger.info("started JobGenerator at %s", first)

    def restart(self, zero_time: Time, contents: LogContents, last_planned: Time) -> None:
        """Goes on from what the log says: pending batches with their plans, missed ones planned now, then the timer."""
        self._rise_from(last_planned)
        self._after = last_planned
        self._begin(zero_time)
        for stream in self._inputs:
            self._restore(stream, contents)
            stream.start()
        interval = self._graph.batch_duration
        self._states.restore(contents, min([*contents.pending, last_planned + interval]))
        restart = Time(self._timer.restart_time(zero_time.milliseconds))
        pending, missed = contents.pending, self._missed((last_planned + interval).until(restart, interval))
        for what, times in (("during down time", missed), ("pending processing", pending)):
            logger.info("batches %s (%d batches): %s", what, len(times), listed(times))
        logger.info("batches to reschedule (%d batches): %s", len(pending + missed), listed(pending + missed))
        resume = Resume(contents, missed, self._runtime.event())
        self._loop.post(resume)
        resume.ended.wait()
        self._timer.start(restart.milliseconds)
        self._loop.post(ClearMetadata(restart))
        logger.info("restarted JobGenerator at %s", restart)

    def _missed(self, times: list[Time]) -> list[Time]:
        """Which of the batch times that passed without a driver are made up for. Each input is told of all of them."""
        if not times or self._all_exhausted():
            return []
        busy = [stream.missed(times) for stream in self._inputs]
        return batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)

    def _all_exhausted(self) -> bool:
        return bool(self._inputs) and all(stream.exhausted for stream in self._inputs)

    def _rise_from(self, time: Time) -> None:
        """Batch times from now on are later than `time`, even if the wall clock is behind it."""
        self._clock = RisingClock(self._wall, not_before_ms=time.milliseconds)
        self._timer = self._make_timer()

    def _begin(self, zero_time: Time) -> None:
        self._inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._loop.start()
        self._cleaner.start()

    def _restore(self, stream: InputDStream, contents: LogContents) -> None:
        newest = contents.newest_data(stream.id)
        if newest is not None:
            stream.restored(*newest)
            kept = contents.kept_data(stream.id)
            if kept is not None:
                stream.restored_kept(kept)
        for time, plan in contents.plans.items():
            if stream.id in plan.inputs:
                stream.remember_plan(time, plan.inputs[stream.id])

    def _plan_starting_point(self, time: Time) -> None:
        """Stores where the inputs stand before the first batch: a batch of nothing one interval before it, done at once.

        Without it a driver killed before its first plan would start at a later `latest` and miss what came in between.
        """
        plan = self._record(time, {stream.id: stream.starting_point() for stream in self._inputs})
        self._log.write_plan(plan)
        self._states.named(self._log.complete(time, plan.epoch, self._wall.time_ms(), {}, self._states.begin(time)))

    def stop(self, graceful: bool, timeout: float, waiting: Callable[[], bool] = lambda: False) -> bool:
        """Stops planning. Graceful: all that waits is planned first, and every batch ends, within `timeout` seconds; False if that passed,
        or if another driver has taken over.

        `waiting`: whether something has been received that is in no batch. The timer ticks on for it; a direct stream holds nothing.
        """
        last = self._timer.stop(interrupt=not (graceful and waiting()), timeout=timeout)
        in_time = not graceful or self._work_off(last, timeout, waiting)
        self._loop.stop()
        self._cleaner.stop(drain=True)
        if graceful:
            self._retry_completions()
        self._tell_unfinished()  # the end of the last batch may have been thrown away with the queue
        for stream in self._inputs:
            stream.stop()
        return in_time

    def _work_off(self, last: int, timeout: float, waiting: Callable[[], bool]) -> bool:
        """See `stop`. What waits still, since the batch of the `last` tick could not be planned, is tried again an interval later. Who has
        been replaced need not wait for jobs that never start."""
        interval = self._graph.batch_duration
        drained, soon, told = self._drained(), PATIENCE_INTERVALS * interval.seconds, False
        begin = ticked = self._runtime.monotonic()
        while not (drained.wait(_LOOK_S) and not waiting() and self._unfinished.wait_none_running(_LOOK_S)):
            now = self._runtime.monotonic()
            if self._fenced or now - begin >= timeout or (now - begin >= soon and self._scheduler.refuses_jobs):
                return False
            stuck = drained.is_set() and waiting()
            if stuck and (last < 0 or now - ticked < interval.seconds):
                self._runtime.event().wait(_LOOK_S)
            elif stuck:
                last, ticked = last + interval.milliseconds, now
                self._loop.post(GenerateJobs(Time(last)))
                drained = self._drained()
            if now - begin >= soon and not told:
                left = listed(sorted(self._unfinished.running()))
                logger.warning("graceful stop: after %g s batches %s have not ended; it waits for up to %g s", soon, left, timeout)
                told = True
        return not self._fenced

    def _drained(self) -> Event:
        """Set when what has been posted so far is handled."""
        drained = self._runtime.event()
        self._loop.post(Drained(drained))
        return drained

    def drain(self, timeout: float) -> bool:
        """Blocks until what has been posted so far is handled; False if `timeout` seconds passed first."""
        return self._loop.drain(timeout)

    def timer_thread(self) -> Thread | None:  # while it ticks
        return self._timer.alive_thread()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the generator's thread, as the user's functions of `transform` do."""
        return self._loop.is_own_thread()

    def on_batch_end(self, time: Time, succeeded: bool) -> None:
        """Called by the JobScheduler when a batch's jobs have ended and that is stored."""
        self._loop.post(ClearMetadata(time))

    # -- the event thread

    def _process(self, event: JobGeneratorEvent) -> None:
        match event:
            case GenerateJobs(time):
                self._tick(time)
            case ClearMetadata():
                self._batch_ended()
            case Drained(reached):
                reached.set()
            case Resume():
                self._resume(event)

    def _tick(self, time: Time) -> None:
        """Make the batch of a tick. Of many overdue ticks those that a restart would not make up for are left out."""
        try:
            left_out = not self._fenced and self._is_left_out(time)
        except Exception as e:  # an input could not say what it has missed: the next tick asks again
            self._scheduler.report_error(f"Error generating jobs for time {time}", e)
        else:
            if not left_out:
                self._generate(time)

    def _is_left_out(self, time: Time) -> bool:
        """Whether the tick is overdue with many others and its batch is not made up for. A clock that a test moves leaves out none."""
        last, kept = self._overdue
        if time > last:
            late = [] if isinstance(self._wall, SettableClock) else overdue(time, self._clock.time_ms(), self._graph.batch_duration)
            if not late:
                return False
            kept = frozenset(self._missed(late))
            self._overdue = late[-1], kept
            logger.warning(
                "%d batches are overdue, %s to %s: the clock jumped, or planning was held up. They are made up for as after a downtime: %d "
                "of them are planned",
                len(late),
                late[0],
                late[-1],
                len(kept),
            )
        return time not in kept

    def _generate(self, time: Time) -> None:
        """One tick: plan, make durable, generate, submit. Whatever fails is reported; the stream goes on."""
        if self._fenced or self._all_exhausted():
            return
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed and had happened: it stands, and comes first
                self._go_on(settled)
            self._retry_completions()
            if self._fenced:
                return
            crash_point.reach(crash_point.BEFORE_PLAN)
            plans = {stream.id: stream.plan(time) for stream in self._inputs}
            plan = self._record(time, plans)
            self._log.write_plan(plan)
        except StorageError as e:
            self._scheduler.report_error(f"batch {time} was not planned", unplanned(time, e))
        except Exception as e:
            self._scheduler.report_error(f"Error generating jobs for time {time}", e)
        else:
            crash_point.reach(crash_point.PLAN_DURABLE)
            self._go_on(plan)

    def _retry_completions(self) -> None:
        """Store the ends of batches that could not be stored when they ended."""
        if self._fenced:  # the successor runs those batches again
            return
        try:
            written = self._scheduler.completions.retry()
        except FencedError as e:
            self._fence(e)
            return
        for completion in written:
            self._scheduler.tell_lost(completion)
            self._loop.post(ClearMetadata(completion.time))

    def _record(self, time: Time, plans: dict[int, InputPlan]) -> BatchPlan:
        data = {stream_id: plan.data for stream_id, plan in plans.items()}
        records = {stream_id: plan.num_records for stream_id, plan in plans.items()}
        floor = min(self._unfinished.all() | {time})
        return BatchPlan(time, self._log.epoch, uuid.uuid4().hex, data, records, floor, self._after, names=self._graph.input_names())

    def _go_on(self, plan: BatchPlan) -> None:
        """The plan is durable: move the cursors, look for a newer writer, submit."""
        self._unfinished.planned(plan.time)
        try:
            for stream in self._inputs:
                data = plan.inputs.get(stream.id)
                if data is not None:
                    stream.remember_plan(plan.time, data)
                    stream.planned(plan.time, data)
            self._report_records(plan)
        except Exception as e:
            self._end_unsubmitted(plan, e)
        else:
            self._submit(plan)

    def _resume(self, event: Resume) -> None:
        try:
            for time in event.contents.pending:  # all of them first: until it has run, a pending batch's plan must be kept
                self._unfinished.planned(time)
            for time in event.contents.pending:
                self._rerun(event.contents.plans[time], event.contents.failures.get(time, 0))
            for time in event.missed:
                self._generate(time)
        finally:
            event.ended.set()

    def _rerun(self, plan: BatchPlan, failures: int) -> None:
        """Submit a pending batch of an earlier driver with its own plan. A batch that failed too often is given up instead."""
        if self._fenced:
            return
        if failures > self._max_failures > 0:
            self._give_up(plan, failures)
        else:
            self._report_records(plan)
            self._submit(plan)

    def _give_up(self, plan: BatchPlan, failures: int) -> None:
        """Put the batch into the ledger and log a warning. The stream goes on: giving a batch up is no error of this run."""
        try:
            command = self._log.give_up(plan, self._wall.time_ms(), failures)
        except StorageError as e:  # not in the ledger: the next restart tries again
            self._unfinished.ended(plan.time, succeeded=False)
            self._scheduler.report_error(f"batch {plan.time} could not be given up", e)
            return
        self._unfinished.ended(plan.time, succeeded=True)
        logger.warning(
            "batch %s failed %d times and is given up (spark.streaming.kstream.maxBatchFailures=%d). It is in the ledger, no restart runs "
            "it again, and the stream goes on. When its cause is mended, run it again while its plan is kept "
            "(spark.streaming.kstream.history): %s",
            plan.time,
            failures,
            self._max_failures,
            command,
        )

    def _report_records(self, plan: BatchPlan) -> None:
        for stream in self._inputs:
            if stream.id in plan.inputs and stream.reports_input_info:
                info = StreamInputInfo(stream.id, plan.num_records[stream.id], stream.metadata(plan.time, plan.inputs[stream.id]))
                self._input_info.reportInfo(plan.time, info)

    def _submit(self, plan: BatchPlan) -> None:
        time = plan.time
        try:
            self._log.probe()
            with self._environment.for_generation(time):
                jobs = self._graph.generate_jobs(time)
        except FencedError as e:
            self._fence(e)
        except Exception as e:  # a StorageError, too: where it is unknown whether somebody took over, nothing may be submitted
            self._end_unsubmitted(plan, e)
        else:
            if jobs:
                job_set = JobSet(time, jobs, self._input_info.getInfo(time), self._wall.time_ms())
                self._scheduler.submit_job_set(job_set, plan.epoch)
            else:
                self._end_without_jobs(plan)

    def _end_without_jobs(self, plan: BatchPlan) -> None:
        outcomes, states = self._graph.outcomes(plan.time), self._states.unnamed()
        try:
            self._scheduler.completions.note(Completion(plan.time, plan.epoch, self._wall.time_ms(), outcomes, states))
        except StorageError as e:
            self._scheduler.report_error(not_noted(plan.time, e), e)
        self._loop.post(ClearMetadata(plan.time))

    def _end_unsubmitted(self, plan: BatchPlan, error: Exception) -> None:
        """The batch stays pending: no completion, run again at a restart."""
        self._unfinished.ended(plan.time, succeeded=False)
        self._scheduler.report_error(f"Error generating jobs for time {plan.time}", error)
        try:
            self._log.fail(plan.time, plan.epoch, self._wall.time_ms(), str(error))
        except StorageError as e:  # without the note it is pending all the same
            logger.warning("could not note the failure of batch %s: %s", plan.time, e)
        self._loop.post(ClearMetadata(plan.time))

    def _fence(self, error: FencedError) -> None:
        self._fenced = True
        for stream in self._inputs:
            stream.fenced = True
        self._scheduler.refuse_jobs()
        self._on_fenced(error)

    def _batch_ended(self) -> None:
        """Something ended (or the stream has just started): tell the inputs, clean up, and see whether all is done."""
        self._tell_unfinished()
        self._clear_metadata()
        if self._all_exhausted() and not self._unfinished.running() and not self._told_exhausted:
            self._told_exhausted = True
            self._timer.stop(interrupt=True)
            self._on_exhausted()

    def _tell_unfinished(self) -> None:
        if not self._fenced:  # a fenced driver tells the outside nothing any more: its successor does
            unfinished = self._unfinished.all()
            for stream in self._inputs:
                stream.batches_ended(unfinished)

    def _clear_metadata(self) -> None:
        up_to = self._unfinished.clean_up_to()
        if up_to is None:
            return
        self._graph.clear_metadata(up_to)
        self._input_info.cleanup(up_to - self._graph.longest_remember())
        self._clean_up_to = up_to
        self._cleaner.post(up_to)

    def _clean_log(self, up_to: Time) -> None:
        crash_point.reach(crash_point.CLEANING)
        if up_to < self._clean_up_to:  # what follows in the queue does it: clean-up that was held up does not go on being late
            return
        unfinished = self._unfinished.all()
        needed_from = self._states.clean(up_to, unfinished)
        removable = removable_up_to(unfinished, up_to, self._graph.longest_remember(), needed_from)
        self._before_clean(removable)
        self._log.clean(removable)

"""BatchPlanner: makes a batch of what the inputs plan, makes the plan durable, generates the jobs and submits them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kstream import crash_point
from kstream.batch import Batch, BatchPlan, BatchState, JobSet, PlannedInput, StreamInputInfo
from kstream.batch_time import Time
from kstream.clock import Clock, SettableClock
from kstream.dstream import DStreamGraph, InputDStream
from kstream.dstream.ports import InputServices
from kstream.errors import FencedError, StorageError
from kstream.loop import Runtime
from kstream.scheduler.completions import Failure
from kstream.scheduler.downtime import batches_during_downtime, overdue, unplanned
from kstream.scheduler.input_info_tracker import InputInfoTracker
from kstream.scheduler.job_scheduler import JobScheduler
from kstream.scheduler.ports import BatchLog, JobEnvironment
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobGeneratorParts:
    """What a JobGenerator works with.

    `on_fenced(error)` is called once, when another driver has taken over; nothing is planned or submitted from then on.
    `on_exhausted()` is called once, when every input is bounded, all of it is planned and every batch has ended.
    `before_clean(time)` is called, in the background, before plans of this time and older go. What it raises keeps them.
    """

    graph: DStreamGraph
    clock: Clock
    log: BatchLog
    scheduler: JobScheduler
    environment: JobEnvironment
    unfinished: UnfinishedBatches
    states: StateCheckpointer
    services: InputServices
    runtime: Runtime
    on_fenced: Callable[[FencedError], None]
    on_exhausted: Callable[[], None]
    before_clean: Callable[[Time], None]
    max_batch_failures: int


class BatchPlanner:
    """Of one start. `begin` and `store_starting_point` come from the thread that starts, before the first batch; all else from the thread
    of the JobGenerator."""

    def __init__(self, parts: JobGeneratorParts) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._scheduler = parts.scheduler
        self._unfinished = parts.unfinished
        self._input_info = InputInfoTracker()
        self.inputs: Sequence[InputDStream] = ()
        self.is_fenced = False
        """Whether another driver is known to have taken over. Any thread may read it."""
        self._after = Time(0)
        self._last_made: Batch | None = None
        """The batch whose plan was written last, well or not."""
        self._overdue: tuple[Time, frozenset[Time]] = (Time(0), frozenset())
        """Up to when overdue ticks have been decided on, and which of them make a batch."""

    def begin(self, zero_time: Time, last_planned: Time | None) -> None:
        """Make the graph ready. `last_planned`: the newest batch of an earlier driver."""
        self.inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._after = last_planned or Time(0)

    def store_starting_point(self, time: Time) -> None:
        """Stores where the inputs stand before the first batch: a batch of nothing one interval before it, done at once.

        Without it a driver killed before its first plan would start at a later `latest` and miss what came in between.
        """
        plan = self._make(time, {stream.id: stream.starting_point() for stream in self.inputs}).plan
        self._log.write_plan(plan)
        states = self._parts.states
        states.named(self._log.complete(time, plan.epoch, self._parts.clock.time_ms(), {}, states.begin(time)))

    @property
    def exhausted(self) -> bool:
        """Whether the inputs are bounded and have planned all that they will ever give."""
        return bool(self.inputs) and all(stream.exhausted for stream in self.inputs)

    # -- which ticks make a batch

    def missed(self, times: Sequence[Time]) -> list[Time]:
        """Which of the batch times that passed without a driver are made up for. Each input is told of all of them."""
        if not times or self.exhausted:
            return []
        busy = [stream.missed(times) for stream in self.inputs]
        return batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)

    def tick(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Make the batch of a tick. Of many overdue ticks those that a restart would not make up for are left out.

        Args:
            now_ms: the clock of the batch times.
        """
        try:
            left_out = not self.is_fenced and self._is_left_out(time, now_ms)
        except Exception as e:  # an input could not say what it has missed: the next tick asks again
            self._scheduler.report_error(f"Error generating jobs for time {time}", e)
        else:
            if not left_out:
                self.generate(time)

    def _is_left_out(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Whether the tick is overdue with many others and its batch is not made up for. A clock that a test moves leaves out none."""
        last, kept = self._overdue
        if time > last:
            late = [] if isinstance(self._parts.clock, SettableClock) else overdue(time, now_ms(), self._graph.batch_duration)
            if not late:
                return False
            kept = frozenset(self.missed(late))
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

    # -- a batch

    def generate(self, time: Time) -> None:
        """One tick: plan, make durable, generate, submit. Whatever fails is reported; the stream goes on."""
        if self.is_fenced or self.exhausted:
            return
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed and had happened: it stands, and comes first
                assert self._last_made is not None and settled is self._last_made.plan
                self._go_on(self._last_made)
            self.retry_completions()
            if self.is_fenced:
                return
            crash_point.reach(crash_point.BEFORE_PLAN)
            batch = self._last_made = self._make(time, {stream.id: stream.plan(time) for stream in self.inputs})
            self._log.write_plan(batch.plan)
        except StorageError as e:
            self._scheduler.report_error(f"batch {time} was not planned", unplanned(time, e))
        except Exception as e:
            self._scheduler.report_error(f"Error generating jobs for time {time}", e)
        else:
            crash_point.reach(crash_point.PLAN_DURABLE)
            self._go_on(batch)

    def retry_completions(self) -> None:
        """Store the ends of batches that could not be stored when they ended."""
        if self.is_fenced:  # the successor runs those batches again
            return
        try:
            written = self._scheduler.completions.retry()
        except FencedError as e:
            self._fence(e)
            return
        for completion in written:
            self._scheduler.tell_lost(completion)

    def _make(self, time: Time, inputs: Mapping[int, PlannedInput]) -> Batch:
        """Make a batch of the plans of its inputs, which are encoded here, once."""
        data = {stream_id: plan.encode() for stream_id, plan in inputs.items()}
        records = {stream_id: plan.num_records for stream_id, plan in inputs.items()}
        floor = min(self._unfinished.all() | {time})
        names = self._graph.input_names()
        return Batch(BatchPlan(time, self._log.epoch, uuid.uuid4().hex, data, records, floor, self._after, names=names), inputs)

    def _go_on(self, batch: Batch) -> None:
        """The plan is durable: move the cursors, look for a newer writer, submit."""
        batch.become(BatchState.DURABLE)
        self._unfinished.planned(batch.time)
        try:
            for stream in self.inputs:
                plan = batch.inputs.get(stream.id)
                if plan is not None:
                    stream.remember_plan(batch.time, plan)
                    stream.planned(batch.time, plan)
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit(batch)

    def run_again(self, batch: Batch) -> None:
        """Submit a pending batch of an earlier driver with its own plan. A batch that cannot be submitted fails, and stays pending."""
        try:
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit(batch)

    def _report_records(self, batch: Batch) -> None:
        for stream in self.inputs:
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a plan that was decoded need not know
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))

    def _submit(self, batch: Batch) -> None:
        try:
            self._log.probe()
            with self._parts.environment.for_generation(batch.time):
                jobs = self._graph.generate_jobs(batch.time)
        except FencedError as e:
            batch.become(BatchState.FENCED)
            self._fence(e)
        except Exception as e:  # a StorageError, too: where it is unknown whether somebody took over, nothing may be submitted
            self._fail(batch, e)
        else:
            at_ms = self._parts.clock.time_ms()
            if jobs:
                self._scheduler.submit_job_set(batch, JobSet(batch.time, jobs, self._input_info.getInfo(batch.time), at_ms))
            else:
                self._end_without_jobs(batch, at_ms)

    def _end_without_jobs(self, batch: Batch, at_ms: int) -> None:
        ended = self._scheduler.completions.end(batch, at_ms, self._parts.states.unnamed())
        if ended.trouble is not None:
            self._scheduler.report_error(*ended.trouble)
        if ended.completion is not None:
            self._scheduler.tell_lost(ended.completion)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """End a batch that was not submitted. It stays pending: no completion, run again at a restart."""
        self._scheduler.report_error(f"Error generating jobs for time {batch.time}", error)
        ended = self._scheduler.completions.end(batch, self._parts.clock.time_ms(), failure=Failure(str(error)))
        if ended.trouble is not None:  # without the note it is pending all the same
            logger.warning("%s: %s", *ended.trouble)

    def _fence(self, error: FencedError) -> None:
        self.is_fenced = True
        self._scheduler.refuse_jobs()
        self._parts.on_fenced(error)

    # -- after a batch

    def tell_unfinished(self) -> None:
        """Tell the inputs which batches have not ended. A fenced driver tells the outside nothing any more: its successor does."""
        if not self.is_fenced:
            unfinished = self._unfinished.all()
            for stream in self.inputs:
                stream.batches_ended(unfinished)

    def clear_metadata(self) -> Time | None:
        """Forget what no batch needs any more. Returns the newest batch for which that holds."""
        up_to = self._unfinished.clean_up_to()
        if up_to is not None:
            self._graph.clear_metadata(up_to)
            self._input_info.cleanup(up_to - self._graph.longest_remember())
        return up_to

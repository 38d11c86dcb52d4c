"""BatchPlanner: collects the plans of the inputs, makes the plan of the batch durable, generates the jobs and submits them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """The parts that a JobGenerator works with, and its callbacks.

    Attributes:
        on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over. Nothing is planned or submitted
            after that.
        on_exhausted: called once, on the JobGenerator's thread, when all inputs are bounded, all their data is planned and every batch has
            ended.
        before_clean: before_clean(time) is called on the cleaner's thread, before plans of this time and older are deleted. If it raises,
            they are not deleted this time.
        max_batch_failures: number of failures up to which restarts run a batch again; 0 is no limit.
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
    """Plans, generates and submits the batches of one start of a context.

    Threads: the thread that starts calls `begin` and `store_starting_point` before the first batch, and `missed` at a restart. After that
    the JobGenerator's thread calls everything else. When this thread has ended, the thread that stops makes the last calls.
    """

    def __init__(self, parts: JobGeneratorParts) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._scheduler = parts.scheduler
        self._unfinished = parts.unfinished
        self._input_info = InputInfoTracker()
        self.inputs: Sequence[InputDStream[Any]] = ()
        self.is_fenced = False
        """Whether another driver is known to have taken over. Any thread may read it."""
        self._after = Time(0)
        self._last_made: Batch | None = None
        """The batch of the newest write of a plan, whether the write succeeded or failed."""
        self._overdue: tuple[Time, frozenset[Time]] = (Time(0), frozenset())
        """The last overdue tick that was decided on, and the overdue ticks that make a batch."""

    def begin(self, zero_time: Time, last_planned: Time | None) -> None:
        """Initialize the graph.

        Args:
            zero_time: the zero time of the stream.
            last_planned: the newest batch that an earlier driver planned; None at a first start.
        """
        self.inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._after = last_planned or Time(0)

    def store_starting_point(self, time: Time) -> None:
        """Store the starting point: a plan without records, and its completion. Blocks on the store.

        Without it, a driver that is killed before its first plan would restart at a later `latest`, and skip the records in between.

        Args:
            time: one interval before the first batch.

        Raises:
            StorageError: the store failed.
        """
        plan = self._make(time, {stream.id: stream.starting_point() for stream in self.inputs}).plan
        self._log.write_plan(plan)
        states = self._parts.states
        states.named(self._log.complete(time, plan.epoch, self._parts.clock.time_ms(), {}, states.begin(time)))

    @property
    def exhausted(self) -> bool:
        """Whether all inputs are bounded and have planned all of their data. False without inputs."""
        return bool(self.inputs) and all(stream.exhausted for stream in self.inputs)

    # -- which ticks make a batch

    def missed(self, times: Sequence[Time]) -> list[Time]:
        """Pass the missed batch times to all inputs, and select those that are planned late.

        May block on the inputs' systems. An error of an input is raised. If all inputs are exhausted, no input is called.

        Args:
            times: rising, without gaps.

        Returns:
            The times to plan, oldest first; see `batches_during_downtime`.
        """
        if not times or self.exhausted:
            return []
        busy = [stream.missed(times) for stream in self.inputs]
        return batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)

    def tick(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Make the batch of a tick. If many ticks are overdue, leave out those that a restart would leave out.

        An error is reported to the JobScheduler and not raised.

        Args:
            time: the batch time of the tick.
            now_ms: reads the clock of the batch times, in milliseconds since the Unix epoch.
        """
        try:
            left_out = not self.is_fenced and self._is_left_out(time, now_ms)
        except Exception as e:  # an input failed in `missed`: the next tick asks it again
            self._scheduler.report_error(f"Error generating jobs for time {time}", e)
        else:
            if not left_out:
                self.generate(time)

    def _is_left_out(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Return whether the tick is one of many overdue ticks and makes no batch. With a settable clock no tick is left out."""
        last, kept = self._overdue
        if time > last:
            late = [] if isinstance(self._parts.clock, SettableClock) else overdue(time, now_ms(), self._graph.batch_duration)
            if not late:
                return False
            kept = frozenset(self.missed(late))
            self._overdue = late[-1], kept
            logger.warning(
                "%d batches are overdue, %s to %s: the clock jumped, or planning was held up. They are treated as after a downtime: %d "
                "of them are planned",
                len(late),
                late[0],
                late[-1],
                len(kept),
            )
        return time not in kept

    # -- a batch

    def generate(self, time: Time) -> None:
        """Plan a batch, make its plan durable, generate its jobs and submit them. Blocks on the store and on the inputs' systems.

        First it resolves an in-doubt plan, and stores completions that were refused before. An error is reported to the JobScheduler and
        not raised; the stream continues. Does nothing if this driver is fenced, or if all inputs are exhausted.
        """
        if self.is_fenced or self.exhausted:
            return
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed, but the plan was stored: its batch runs first
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
        """Store the completions that the store refused when their batches ended, and report the data that these batches lost.

        Blocks on the store. A FencedError fences this driver and is not raised; a StorageError is logged, and the completions are kept.
        """
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
        """Make a batch from the plans of its inputs, by stream id. Each plan is encoded here, once."""
        data = {stream_id: plan.encode() for stream_id, plan in inputs.items()}
        records = {stream_id: plan.num_records for stream_id, plan in inputs.items()}
        floor = min(self._unfinished.all() | {time})
        names = self._graph.input_names()
        return Batch(BatchPlan(time, self._log.epoch, uuid.uuid4().hex, data, records, floor, self._after, names=names), inputs)

    def _go_on(self, batch: Batch) -> None:
        """Move the cursors past a durable plan and submit its batch, unless another driver has taken over."""
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
        """Submit a pending batch of an earlier driver with its own plan. Blocks on the store.

        An error is reported and not raised: the batch fails and stays pending.
        """
        try:
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit(batch)

    def _report_records(self, batch: Batch) -> None:
        """Note the record counts and the metadata of a batch's inputs, for listeners."""
        for stream in self.inputs:
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a decoded plan may lack the count
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))

    def _submit(self, batch: Batch) -> None:
        """Probe for a newer epoch, generate the jobs of a batch, and submit them. An error ends the batch and is not raised."""
        try:
            self._log.probe()
            with self._parts.environment.for_generation(batch.time):
                jobs = self._graph.generate_jobs(batch.time)
        except FencedError as e:
            batch.become(BatchState.FENCED)
            self._fence(e)
        except Exception as e:  # also a StorageError of the probe: another driver may have taken over, so nothing may be submitted
            self._fail(batch, e)
        else:
            at_ms = self._parts.clock.time_ms()
            if jobs:
                self._scheduler.submit_job_set(batch, JobSet(batch.time, jobs, self._input_info.getInfo(batch.time), at_ms))
            else:
                self._end_without_jobs(batch, at_ms)

    def _end_without_jobs(self, batch: Batch, at_ms: int) -> None:
        """Store the completion of a batch for which no output has a job."""
        ended = self._scheduler.completions.end(batch, at_ms, self._parts.states.unnamed())
        if ended.trouble is not None:
            self._scheduler.report_error(*ended.trouble)
        if ended.completion is not None:
            self._scheduler.tell_lost(ended.completion)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Report the error of a batch that was not submitted, and end the batch. It gets no completion, so a restart runs it again."""
        self._scheduler.report_error(f"Error generating jobs for time {batch.time}", error)
        ended = self._scheduler.completions.end(batch, self._parts.clock.time_ms(), failure=Failure(str(error)))
        if ended.trouble is not None:  # the batch is pending also without the failure record
            logger.warning("%s: %s", *ended.trouble)

    def _fence(self, error: FencedError) -> None:
        """Plan and submit nothing from now on, start no queued job, and call `on_fenced`."""
        self.is_fenced = True
        self._scheduler.refuse_jobs()
        self._parts.on_fenced(error)

    # -- after a batch

    def tell_unfinished(self) -> None:
        """Pass the unfinished batches to the inputs, which may then commit ended ones. A fenced driver leaves this to its successor."""
        if not self.is_fenced:
            unfinished = self._unfinished.all()
            for stream in self.inputs:
                stream.batches_ended(unfinished)

    def clear_metadata(self) -> Time | None:
        """Forget the RDDs, plans and counts that no batch needs any more.

        Returns:
            The time up to which batches have ended; None before the first end.
        """
        up_to = self._unfinished.clean_up_to()
        if up_to is not None:
            self._graph.clear_metadata(up_to)
            self._input_info.cleanup(up_to - self._graph.longest_remember())
        return up_to

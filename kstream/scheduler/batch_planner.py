"""BatchPlanner: collects the plans of the inputs, and makes the plan of a batch durable."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from kstream import crash_point
from kstream.batch import Batch, BatchOutcome, BatchPlan, PlannedInput
from kstream.batch.plan import with_kind
from kstream.batch_time import Time
from kstream.checkpoint.binding import places
from kstream.dstream import InputDStream
from kstream.errors import PlanFailedError, StorageError
from kstream.scheduler.batch_submitter import BatchSubmitter
from kstream.scheduler.empty_batches import EmptyBatches
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts
from kstream.scheduler.missed_batches import batches_during_downtime
from kstream.scheduler.planning_outage import PlanningOutage
from kstream.scheduler.settings import MAX_HELD_BATCHES

logger = logging.getLogger(__name__)


class BatchPlanner:
    """Plans the batches of one start of a context, and passes them to the BatchSubmitter.

    Threads: the thread that starts calls `begin` and `store_starting_point` before the first batch, and `missed` at a restart. After that
    the JobGenerator's thread calls everything else. When this thread has ended, the thread that stops makes the last calls.
    """

    def __init__(
        self, parts: SchedulerParts, scheduler: JobScheduler, submitter: BatchSubmitter, empty: EmptyBatches, outage: PlanningOutage
    ) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            scheduler: reports errors.
            submitter: takes each batch whose plan is durable.
            empty: which batches need no plan.
            outage: how long the driver waits for brokers or a store that are away.
        """
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._lifecycle = parts.lifecycle
        self._scheduler = scheduler
        self._submitter = submitter
        self._outage = outage
        self._was_full = False
        self._empty = empty
        self.inputs: Sequence[InputDStream[Any]] = ()
        self._outputs: Sequence[str] = ()
        self._parallelism: int | None = None
        self._after = Time(0)
        self._oldest: Time | None = None
        """The batch that was the oldest unfinished one when `_floor` looked last."""
        self._last_made: Batch | None = None
        """The batch of the newest write of a plan, whether the write succeeded or failed."""

    def begin(self, zero_time: Time, last_planned: Time | None, earlier: Iterable[BatchPlan]) -> None:
        """Initialize the graph.

        Args:
            zero_time: the zero time of the stream.
            last_planned: the newest batch that an earlier driver planned; None at a first start.
            earlier: the plans of earlier drivers.
        """
        self.inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._empty.begin(self._graph.in_order(), [stream.id for stream in self.inputs])
        self._outputs = self._graph.output_names()
        self._parallelism = self._graph.keep_parallelism(earlier)
        self._after = last_planned or Time(0)

    def places(self) -> str:
        """Return where each input plans its next batch, with a line for each, for the log of a start. "" if no input has offsets."""
        names = self._graph.input_names()
        return places({stream.id: names.get(stream.id) for stream in self.inputs}, {s.id: s.position_text() for s in self.inputs})

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
        states.named(self._log.complete(time, plan.epoch, BatchOutcome(self._parts.clock.time_ms(), states=states.begin(time))))

    @property
    def exhausted(self) -> bool:
        """Whether all inputs are bounded and have planned all of their data. False without inputs."""
        return bool(self.inputs) and all(stream.exhausted for stream in self.inputs)

    # -- for DueBatches

    def missed(self, times: Sequence[Time]) -> list[Time]:
        """Pass the missed batch times to all inputs, and select those that are planned late.

        May block on the inputs' systems. An error of an input is raised. If all inputs are exhausted, no input is called.

        Args:
            times: rising, without gaps.

        Returns:
            The times to plan, oldest first; see `batches_during_downtime` and `EmptyBatches.missed`.
        """
        if not times or self.exhausted:
            return []
        busy = [stream.missed(times) for stream in self.inputs]
        selected = batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)
        return self._empty.missed(selected, busy)

    def is_full(self, time: Time) -> bool:
        """Return whether no batch may be planned, because too many wait for an earlier one. Log when that begins and ends."""
        full, held = self._lifecycle.is_full(), self._lifecycle.num_held
        if full and not self._was_full:
            text = "batch %s was not planned: %d batches wait for a failed one (%s). The next plan takes its records"
            logger.warning(text, time, held, MAX_HELD_BATCHES)
        elif self._was_full and not full:
            logger.warning("batch %s is planned, the first since too many waited: %d batches wait", time, held)
        self._was_full = full
        return full

    # -- a batch

    def generate(self, time: Time) -> bool:
        """Plan a batch, make its plan durable, generate its jobs and submit them. Blocks on the store and on the inputs' systems.

        First it resolves an in-doubt plan, and stores completions that were refused before. An error is reported to the JobScheduler and
        not raised; the stream continues. Does nothing if this driver is fenced, if all inputs are exhausted, or if the batch is a missed
        one that needs no plan or whose plan the store has refused.

        Returns:
            False if the batch is not planned and can be planned later: an outage is on, or this driver is fenced.
        """
        if self._submitter.is_fenced:
            return False
        if self.exhausted or self._empty.needs_no_plan(time):
            return True
        self._outage.tries()
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed, but the plan was stored: its batch runs first
                assert self._last_made is not None and settled is self._last_made.plan
                self._submitter.go_on(self._last_made)
                if settled.time == time:
                    return True
            if self._log.is_void(time):
                return True
            self._submitter.retry_completions()
            if self._submitter.is_fenced:
                return False
            crash_point.reach(crash_point.BEFORE_PLAN)
            batch = self._last_made = self._make(time, {stream.id: stream.plan(time) for stream in self.inputs})
            self._log.write_plan(batch.plan)
        except Exception as e:
            return not self.not_planned(time, e)
        crash_point.reach(crash_point.PLAN_DURABLE)
        self._outage.ended(time)
        self._empty.planned(time, batch.inputs)
        self._submitter.go_on(batch)
        return True

    def not_planned(self, time: Time, error: Exception) -> bool:
        """Report the error of a batch that was not planned, unless the driver waits for a system that is away. Return whether it waits."""
        if self._outage.waits(time, error):
            return True
        if isinstance(error, StorageError):
            self._scheduler.report_error(f"batch {time} was not planned", unplanned(time, error))
        else:
            self._scheduler.report_error(f"Error generating jobs for time {time}", error)
        return False

    def _make(self, time: Time, inputs: Mapping[int, PlannedInput]) -> Batch:
        """Make a batch from the plans of its inputs, by stream id. Each plan is encoded here, once."""
        data = {stream_id: with_kind(plan.encode()) for stream_id, plan in inputs.items()}
        records = {stream_id: plan.num_records for stream_id, plan in inputs.items()}
        floor, names = self._floor(time), self._graph.input_names()
        plan = BatchPlan(
            time,
            self._log.epoch,
            uuid.uuid4().hex,
            data,
            records,
            floor,
            self._after,
            names=names,
            outputs=self._outputs,
            parallelism=self._parallelism,
        )
        return Batch(plan, inputs)

    def _floor(self, time: Time) -> Time:
        """Return the oldest batch that has not succeeded, or `time` if that is older.

        Batches are planned, and those of earlier drivers marked, oldest first. So the oldest one stays the oldest until it succeeds.
        """
        if self._oldest is None or self._oldest not in self._lifecycle:
            self._oldest = min(self._lifecycle.unfinished(), default=None)
        return time if self._oldest is None else min(self._oldest, time)

    # -- after a batch

    def tell_unfinished(self, unfinished: Set[Time]) -> None:
        """Pass the unfinished batches to the inputs, which may then commit ended ones. A fenced driver leaves this to its successor."""
        if not self._submitter.is_fenced:
            self._for_each_input(lambda stream: stream.batches_ended(unfinished), "failed when it was told that batches have ended")

    def stop_inputs(self) -> None:
        self._for_each_input(lambda stream: stream.stop(), "could not be stopped")

    def _for_each_input(self, call: Callable[[InputDStream[Any]], None], failed: str) -> None:
        """Call a function for each input. An error is reported, with the words `failed`, and not raised: the others are called, too."""
        for stream in self.inputs:
            try:
                call(stream)
            except Exception as e:
                self._scheduler.report_error(f"{stream!r} {failed}", e)


def unplanned(time: Time, error: StorageError) -> PlanFailedError:
    """Return the error about a batch that was not planned: the store refused its plan, or an earlier plan is in doubt."""
    return PlanFailedError(f"batch {time} was not planned: {error}. Its records go to the next batch.", time=time.milliseconds)

"""BatchPlanner: collects the plans of the inputs, makes the plan of the batch durable, generates the jobs and submits them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from kstream import crash_point
from kstream.batch import Batch, BatchPlan, BatchState, Job, JobSet, PlannedInput, SkippedRecord, StreamInputInfo
from kstream.batch_time import Time
from kstream.checkpoint.binding import places
from kstream.dstream import InputDStream
from kstream.errors import FencedError, JvmLostError, PlanFailedError, StorageError, in_a_line, is_of_a_task
from kstream.scheduler.empty_batches import EmptyBatches
from kstream.scheduler.failed_batches import FailedBatches, FailedTry, HeldBatches
from kstream.scheduler.input_info_tracker import InputInfoTracker
from kstream.scheduler.job_scheduler import MOST_REPAIRS, JobScheduler, SchedulerParts
from kstream.scheduler.missed_batches import batches_during_downtime
from kstream.scheduler.planning_outage import PlanningOutage
from kstream.scheduler.retry_policy import MAX_HELD
from kstream.scheduler.state_checkpointer import is_lost_state, state_lost

logger = logging.getLogger(__name__)


class BatchPlanner:
    """Plans, generates and submits the batches of one start of a context.

    At most `concurrentJobs` + 1 new batches are generated and have not ended. Later plans wait as data, without RDDs. So a backlog costs
    little, and each batch is made from the newest state that is written. Retries and repairs of batches come on top.

    Threads: the thread that starts calls `begin` and `store_starting_point` before the first batch, and `missed` at a restart. After that
    the JobGenerator's thread calls everything else. When this thread has ended, the thread that stops makes the last calls.
    """

    def __init__(
        self, parts: SchedulerParts, scheduler: JobScheduler, on_fenced: Callable[[FencedError], None], outage: PlanningOutage
    ) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            scheduler: runs the jobs.
            on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over.
            outage: how long the driver waits for brokers or a store that are away.
        """
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._scheduler = scheduler
        self._on_fenced = on_fenced
        self._outage = outage
        self._unfinished = parts.unfinished
        self._held = HeldBatches(parts.retry)
        self._was_full = False
        self._is_start_held_up = False
        """Whether the store was away when the last batch was to start."""
        self._failed = FailedBatches(parts.retry)
        self._input_info = InputInfoTracker()
        self._empty = EmptyBatches(parts.skip_empty_batches)
        self.inputs: Sequence[InputDStream[Any]] = ()
        self.is_fenced = False
        """Whether another driver is known to have taken over. Any thread may read it."""
        self._after = Time(0)
        self._oldest: Time | None = None
        """The batch that was the oldest unfinished one when `_floor` looked last."""
        self._went_back = 0
        """How often the states were made again from written ones."""
        self._last_made: Batch | None = None
        """The batch of the newest write of a plan, whether the write succeeded or failed."""

    def begin(self, zero_time: Time, last_planned: Time | None) -> None:
        """Initialize the graph.

        Args:
            zero_time: the zero time of the stream.
            last_planned: the newest batch that an earlier driver planned; None at a first start.
        """
        self.inputs = self._graph.active_inputs()
        self._graph.initialize(zero_time)
        self._empty.begin(self._graph.in_order())
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
        states.named(self._log.complete(time, plan.epoch, self._parts.clock.time_ms(), {}, states.begin(time)))

    @property
    def has_held(self) -> bool:
        """Whether planned batches wait. They may wait for a completion that the store refused."""
        return len(self._held) > 0

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
        full = self._held.is_full(self._failed_ahead)
        if full and not self._was_full:
            text = "batch %s was not planned: %d batches wait for a failed one (%s). The next plan takes its records"
            logger.warning(text, time, len(self._held), MAX_HELD)
        elif self._was_full and not full:
            logger.warning("batch %s is planned, the first since too many waited: %d batches wait", time, len(self._held))
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
        if self.is_fenced:
            return False
        if self.exhausted or self._empty.needs_no_plan(time):
            return True
        try:
            settled = self._log.resolve_in_doubt_plan()
            if settled is not None:  # its write was reported as failed, but the plan was stored: its batch runs first
                assert self._last_made is not None and settled is self._last_made.plan
                self._go_on(self._last_made)
                if settled.time == time:
                    return True
            if self._log.is_void(time):
                return True
            self.retry_completions()
            if self.is_fenced:
                return False
            crash_point.reach(crash_point.BEFORE_PLAN)
            batch = self._last_made = self._make(time, {stream.id: stream.plan(time) for stream in self.inputs})
            self._log.write_plan(batch.plan)
        except Exception as e:
            return not self.not_planned(time, e)
        crash_point.reach(crash_point.PLAN_DURABLE)
        if not self._is_start_held_up:
            self._outage.ended(time)
        self._empty.planned(time, self._ids(), batch.inputs)
        self._go_on(batch)
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
        floor, names = self._floor(time), self._graph.input_names()
        return Batch(BatchPlan(time, self._log.epoch, uuid.uuid4().hex, data, records, floor, self._after, names=names), inputs)

    def _floor(self, time: Time) -> Time:
        """Return the oldest batch that has not succeeded, or `time` if that is older.

        Batches are planned, and those of earlier drivers marked, oldest first. So the oldest one stays the oldest until it succeeds.
        """
        if self._oldest is None or self._oldest not in self._unfinished:
            self._oldest = min(self._unfinished.all(), default=None)
        return time if self._oldest is None else min(self._oldest, time)

    def to_come(self) -> Set[Time]:
        """Return the batches that have not succeeded and that this driver may still end. Copies the set of all."""
        return self._unfinished.all() - self._scheduler.completions.left_to_a_restart

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
            self._submit_in_turn(batch)

    def run_again(self, batch: Batch) -> None:
        """Submit a pending batch of an earlier driver with its own plan. Blocks on the store.

        An error is reported and not raised: the batch fails and stays pending.
        """
        try:
            self._report_records(batch)
        except Exception as e:
            self._fail(batch, e)
        else:
            self._submit_in_turn(batch)

    def _submit_in_turn(self, batch: Batch) -> None:
        """Submit a batch, unless it must wait for an older one or for its turn.

        Its submission time is the time of its planning, unless it waits for a failed batch: then it is the time at which it goes on.
        """
        oldest = self._held.oldest
        is_held = min(self._failed_ahead(), default=batch.time) < batch.time
        if not is_held:
            batch.submission_ms = self._parts.clock.time_ms()
        if (oldest is not None and oldest < batch.time) or not self._may_generate(batch.time):
            self._held.add(batch)
            self._unfinished.waits(batch.time)
            self._unfinished.are_held(is_held)
        else:
            self._submit(batch)

    def _failed_ahead(self) -> Set[Time]:
        """Return the batches that have failed and that later ones wait for."""
        return self.to_come() - self._unfinished.in_line() if self._parts.retry.hold else self._failed.holding

    def _may_generate(self, time: Time) -> bool:
        """Return whether the oldest batch that waits may be generated now.

        It must not wait for an older one, and few batches may be generated at a time. If one of them writes a state at its end, the batch
        is made from that state, so that its lineage begins there.
        """
        if self._scheduler.awaits_repair or self._held.must_wait(time, self.to_come, self._failed.holding):
            return False
        submitted = self._scheduler.submitted()
        return len(submitted) <= self._parts.concurrent_jobs and not self._parts.states.is_awaited(submitted)

    def submit_held(self) -> None:
        """Submit the held batches that may start now, oldest first. Blocks on the store."""
        while (oldest := self._held.oldest) is not None and not self.is_fenced and self._may_generate(oldest):
            batch = self._held.take()
            self._unfinished.planned(batch.time)
            if self._submit(batch):  # the next tick tries again
                return
        if oldest is not None:
            self._unfinished.are_held(min(self._failed_ahead(), default=oldest) < oldest)

    def _waits_for_the_store(self, batch: Batch, error: Exception, failed: JobSet | None) -> bool:
        """Let a batch wait again that was not submitted because the store is away: no failed try. False if the driver does not wait."""
        if not isinstance(error, StorageError) or is_of_a_task(error) or not self._outage.waits(batch.time, error, planned=True):
            return False
        self._is_start_held_up = True
        self._put_back(batch, failed)
        return True

    def _put_back(self, batch: Batch, failed: JobSet | None) -> None:
        """Let a batch wait as before, because it could not start. `failed`: the jobs of its last try, of which some may have succeeded."""
        if failed is None and not batch.failures:
            self._held.add(batch)
            self._unfinished.waits(batch.time)
            return
        self._failed.put_back(FailedTry(batch, failed), self._in_an_interval())
        if batch.failures:
            self._unfinished.not_tried(batch.time, between_tries=not self._parts.retry.is_used_up(batch.failures))
        else:  # it was to be repaired
            self._unfinished.waits(batch.time)

    def _in_an_interval(self) -> int:
        """Return the time one batch interval from now, in milliseconds of the monotonic clock."""
        return self._parts.clock.monotonic_ms() + self._graph.batch_duration.milliseconds

    def _report_records(self, batch: Batch) -> None:
        """Note the record counts and the metadata of a batch's inputs, for listeners, and how far the inputs are behind their logs."""
        for stream in self.inputs:
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a decoded plan may lack the count
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))
        self._parts.lags.planned(batch.time, self._input_info.getInfo(batch.time).values(), self._parts.clock.time_ms())

    def _submit(self, batch: Batch, failed: JobSet | None = None) -> bool:
        """Probe for a newer epoch, generate the jobs of a batch, and submit them. An error ends the try and is not raised.

        Args:
            batch: the batch.
            failed: the jobs of the last try, if some of them failed: those that succeeded do not run again.

        Returns:
            Whether the batch waits again, because the store is away.
        """
        probed_ms = self._parts.clock.monotonic_ms()
        try:
            self._log.probe()
            self._is_start_held_up = False
            self._leave_out(batch, failed)
            batch.generated_after = self._went_back
            jobs = self._generate_jobs(batch)
        except FencedError as e:
            batch.become(BatchState.FENCED)
            self._fence(e)
        except Exception as e:  # also a StorageError of the probe: another driver may have taken over, so nothing may be submitted
            if isinstance(e, JvmLostError):
                self._scheduler.refuse_jobs()
            if self._waits_for_the_store(batch, e, failed):
                return True
            self._fail(batch, e, failed)
        else:
            at_ms = self._parts.clock.time_ms()
            if jobs:
                infos = self._input_info.getInfo(batch.time)
                since_ms = at_ms if batch.submission_ms is None else batch.submission_ms
                job_set = JobSet(batch.time, jobs, infos, since_ms) if failed is None else failed.for_retry(jobs)
                self._scheduler.submit_job_set(batch, job_set, probed_ms)
            else:
                self._scheduler.end_without_jobs(batch, at_ms)
        return False

    def _leave_out(self, batch: Batch, failed: JobSet | None) -> None:
        """Leave out what `kstream skip` asks for, and forget the RDDs that have it. The store is only asked before a retry.

        Args:
            batch: the batch.
            failed: the jobs of the last try; None if there was none, or if they could not be generated.

        Raises:
            StorageError, CorruptRecordError: the requests cannot be read, so nobody knows whether the batch may run as it is.
        """
        if batch.failures:
            self._log.read_skips(self._unfinished.all())
        asked = self._log.skips_of(batch.time, batch.plan.epoch)
        for stream in self.inputs if asked else ():
            known = stream.skipped(batch.time)
            places = {record.place for record in known}
            new = [record for record in asked.get(stream.id, ()) if record.place not in places]
            if new:
                self._leave_out_of(stream, batch, [*known, *new], failed)

    def _leave_out_of(self, stream: InputDStream[Any], batch: Batch, records: Sequence[SkippedRecord], failed: JobSet | None) -> None:
        """Leave these records of an input out of a batch, unless totals of a window have them that a later batch takes out again."""
        computed = (failed is not None and failed.state_error is None) or self._graph.has_states_after(batch.time)
        if (computed and any(state.takes_out for state in self._graph.active_states())) or self._graph.has_taken_in(batch.time):
            logger.warning(
                "batch %s runs with %s, although kstream skip asks for it: the totals of a window have it already, and a later batch takes "
                "it out again",
                batch.time,
                ", ".join(map(str, records)),
            )
            return
        done = () if failed is None else tuple(sorted(job.output_op_id for job in failed.jobs if job.error is None))
        known = set(stream.skipped(batch.time))
        stream.leave_out(batch.time, [record if record in known else replace(record, read_by=done) for record in records])
        if not stream.skipped(batch.time):
            logger.warning("batch %s runs with %s: %r cannot leave out single records", batch.time, ", ".join(map(str, records)), stream)
            return
        self._graph.forget(stream, batch.time, keep_states=computed)
        logger.warning("batch %s leaves out %s, as kstream skip asks for", batch.time, ", ".join(map(str, records)))

    def _generate_jobs(self, batch: Batch) -> list[Job]:
        """Return the jobs of a batch, none if it is skipped. Functions of `transform` run here; an error is raised.

        If blocks or files were gone when a state was to be written, the states are made again from the one that was written last.
        """
        time = batch.time
        if self._empty.is_skipped(self._ids(), batch.inputs):
            self._graph.reaches(time)
            return []
        if self._parts.states.take_loss() and self._go_back():
            logger.warning("batch %s is made from the states that were written last: blocks or files of newer ones are gone", time)
        with self._parts.environment.for_generation(time):
            return self._graph.generate_jobs(time)

    def _ids(self) -> list[int]:
        """Return the ids of the inputs on which outputs depend."""
        return [stream.id for stream in self.inputs]

    def _fail(self, batch: Batch, error: Exception, failed: JobSet | None = None) -> None:
        """End the try of a batch that was not submitted. Report its error if no retry is left.

        Listeners hear of the end if they have heard of the batch before, in a try that was submitted.
        """
        if self._scheduler.reports_failure_of(batch):
            self._scheduler.report_error(f"Error generating jobs for time {batch.time}", error)
        is_end = self._scheduler.fail(batch, self._parts.clock.time_ms(), str(error), failed)
        if is_end and failed is not None:
            self._scheduler.tell_ended(failed)

    def _fence(self, error: FencedError) -> None:
        """Plan and submit nothing from now on, start no queued job, and call `on_fenced`."""
        self.is_fenced = True
        self._scheduler.refuse_jobs()
        self._on_fenced(error)

    # -- tries

    def try_failed(self) -> int | None:
        """Do again what failed and is due: store refused completions, submit held batches, then failed ones, oldest first. Blocks.

        Returns:
            When the next try is due, in milliseconds of the monotonic clock; None if no batch waits for one.
        """
        self.retry_completions()
        self.submit_held()
        is_away = False
        for failed in self._failed.take_due(self._parts.clock.monotonic_ms()):
            batch = failed.batch
            if is_away:  # each try may wait for the time-out of a request
                self._failed.put_back(failed, self._in_an_interval())
            elif not self.is_fenced and self._is_in_memory(batch):
                if batch.state is BatchState.FAILED:  # else it was put back
                    batch.become(BatchState.DURABLE)
                self._unfinished.planned(batch.time)
                is_away = self._submit(batch, failed.job_set)
        return self._failed.next_due_ms()

    def repair(self, lost: FailedTry) -> int | None:
        """Generate a batch again from the states that were written last, because blocks or files of a state are gone. Blocks on the store.

        So are the other generated batches of which no job had started. Jobs that have succeeded do not run again. Return as `try_failed`.

        If the repair of another batch has gone back since this one was generated, it is only generated again.
        """
        batch, job_set = lost.batch, lost.job_set
        if self.is_fenced or job_set is None:
            return None
        self._scheduler.begin_repair([batch.time, *(known.time for known, _ in job_set.withdrawn)])
        batch.become(BatchState.DURABLE)
        is_repaired = batch.generated_after < self._went_back or self._go_back()
        if is_repaired:
            batch.repairs += 1
            logger.warning(
                "batch %s: blocks or files of a state are gone, so it is generated again from the state that was written last "
                "(%d of %d): %s",
                batch.time,
                batch.repairs,
                MOST_REPAIRS,
                "; ".join(in_a_line(e) for e in job_set.all_errors),
            )
        else:
            gone = next(error for error in job_set.all_errors if is_lost_state(error))
            self._fail(batch, state_lost(batch.time, batch.repairs, gone, "no written state has all plans after it in memory"), job_set)
        again = [(batch, job_set), *job_set.withdrawn] if is_repaired else job_set.withdrawn
        is_away = False
        for known, jobs in sorted(again, key=lambda known: known[0].time):
            if is_away:
                self._put_back(known, jobs)
            else:
                is_away = self._submit(known, jobs)
        self.submit_held()
        return self._failed.next_due_ms()

    def _go_back(self) -> bool:
        """Let the next batches be generated from the written states; see `DStreamGraph.go_back`."""
        has_gone = self._graph.go_back()
        self._went_back += has_gone
        return has_gone

    def _is_in_memory(self, batch: Batch) -> bool:
        """Return whether the plan of a batch is kept by its inputs. Without it a retry would make no job, and end without its outputs."""
        if all(stream.has_batch(batch.time) for stream in self.inputs if stream.id in batch.inputs):
            return True
        logger.error("batch %s is not tried again, its plan is not in memory any more: the next start runs it", batch.time)
        return False

    def add_failed(self, failed: FailedTry) -> int | None:
        """Note a failed try. Return as `try_failed`.

        In a graph with state, a batch without retries left is tried again only if later ones wait for it: the states before the others
        would stay in memory, too.
        """
        is_kept = self._parts.retry.hold or failed.holds or not self._graph.active_states()
        if not self._failed.add(failed, self._parts.clock.monotonic_ms(), is_kept):
            logger.warning("batch %s has no retry left: the next start runs it again", failed.batch.time)
        self.submit_held()
        return self._failed.next_due_ms()

    def note_ends(self, unfinished: Set[Time], open_batches: Set[Time]) -> int | None:
        """Take note of batches that have ended, and submit those that waited for them. Return as `try_failed`.

        Args:
            unfinished: the batches that had not succeeded a moment ago.
            open_batches: the batches that ran or waited a moment before that.
        """
        left = self._scheduler.completions.left_to_a_restart
        self._failed.ended(unfinished - left if left else unfinished, open_batches, self._parts.clock.monotonic_ms())
        self.submit_held()
        return self._failed.next_due_ms()

    # -- after a batch

    def tell_unfinished(self, unfinished: Set[Time]) -> None:
        """Pass the unfinished batches to the inputs, which may then commit ended ones. A fenced driver leaves this to its successor."""
        if not self.is_fenced:
            self._for_each_input(lambda stream: stream.batches_ended(unfinished), "failed when it was told that batches have ended")

    def stop_inputs(self) -> None:
        """Stop the inputs."""
        self._for_each_input(lambda stream: stream.stop(), "could not be stopped")

    def _for_each_input(self, call: Callable[[InputDStream[Any]], None], failed: str) -> None:
        """Call a function for each input. An error is reported, with the words `failed`, and not raised: the others are called, too."""
        for stream in self.inputs:
            try:
                call(stream)
            except Exception as e:
                self._scheduler.report_error(f"{stream!r} {failed}", e)

    def clear_metadata(self, unfinished: Set[Time]) -> Time | None:
        """Forget the RDDs, plans and counts that no batch needs any more. Keep those of failed batches that are tried again.

        Args:
            unfinished: the batches that had not succeeded a moment ago. Those that run need what is newer than the time that is returned.

        Returns:
            The time up to which batches have ended; None before the first end.
        """
        up_to = self._unfinished.clean_up_to()
        if up_to is not None:
            kept = unfinished - self._failed.left_to_a_restart - self._scheduler.completions.left_to_a_restart
            self._graph.clear_metadata(up_to, kept)
            self._input_info.cleanup(up_to - self._graph.longest_remember(), kept)
        return up_to


def unplanned(time: Time, error: StorageError) -> PlanFailedError:
    """Return the error about a batch that was not planned: the store refused its plan, or an earlier plan is in doubt."""
    return PlanFailedError(f"batch {time} was not planned: {error}. Its records go to the next batch.", time=time.milliseconds)

"""BatchPlanner: collects the plans of the inputs, makes the plan of the batch durable, generates the jobs and submits them.

InputInfoTracker: record counts and facts of each input stream, for each batch.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from kstream import crash_point
from kstream.batch import Batch, BatchPlan, BatchState, Job, JobSet, PlannedInput, SkippedRecord, StreamInputInfo
from kstream.batch_time import Time, listed
from kstream.clock import SettableClock
from kstream.dstream import InputDStream
from kstream.errors import FencedError, IllegalStateError, JvmLostError, PlanFailedError, StorageError, is_of_a_task
from kstream.scheduler.empty_batches import EmptyBatches
from kstream.scheduler.failed_batches import FailedBatches, FailedTry, HeldBatches
from kstream.scheduler.job_scheduler import JobScheduler, SchedulerParts
from kstream.scheduler.missed_batches import PostponedBatches, batches_during_downtime, overdue
from kstream.scheduler.planning_outage import PlanningOutage
from kstream.scheduler.retry_policy import MAX_HELD

logger = logging.getLogger(__name__)


class InputInfoTracker:
    """Keeps a StreamInputInfo per batch and input: added when a batch is planned, read when it is submitted, removed with its metadata.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._infos: dict[Time, dict[int, StreamInputInfo]] = {}
        self._lock = threading.Lock()

    def reportInfo(self, time: Time, info: StreamInputInfo) -> None:
        """Add the info of one input to a batch.

        Raises:
            IllegalStateError: the batch has an info of this input already.
        """
        with self._lock:
            infos = self._infos.setdefault(time, {})
            if info.stream_id in infos:
                raise IllegalStateError(f"input stream {info.stream_id} has already reported for batch {time}", state="reported")
            infos[info.stream_id] = info

    def getInfo(self, time: Time) -> dict[int, StreamInputInfo]:
        """Return the infos of a batch by stream id; empty if there are none."""
        with self._lock:
            return dict(self._infos.get(time, {}))

    def cleanup(self, threshold: Time, kept: Set[Time] = frozenset()) -> None:
        """Remove the infos of batches strictly older than `threshold`, except those that are `kept`: they are tried again."""
        with self._lock:
            for old in [t for t in self._infos if t < threshold and t not in kept]:
                del self._infos[old]


class BatchPlanner:
    """Plans, generates and submits the batches of one start of a context.

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
        self._last_made: Batch | None = None
        """The batch of the newest write of a plan, whether the write succeeded or failed."""
        self._postponed: PostponedBatches | None = None
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
        self._empty.begin(self._graph.in_order())
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
            The times to plan, oldest first; see `batches_during_downtime` and `EmptyBatches.missed`.
        """
        if not times or self.exhausted:
            return []
        busy = [stream.missed(times) for stream in self.inputs]
        selected = batches_during_downtime(times, self._graph.batch_duration, self._graph.longest_remember(), busy)
        return self._empty.missed(selected, busy)

    def tick(self, time: Time, now_ms: Callable[[], int]) -> None:
        """Make the batch of a tick. If many ticks are overdue, leave out those that a restart would leave out.

        An error is reported to the JobScheduler and not raised.

        Args:
            time: the batch time of the tick.
            now_ms: reads the clock of the batch times, in milliseconds since the Unix epoch.
        """
        if len(self._held) or self._postponed is not None or self.exhausted:  # batches may wait for a completion that the store refused
            self.retry_completions()
        self.submit_held()
        if self.is_fenced or self._is_full(time) or self._is_postponed(time):
            self._outage.passed_over()
            return
        try:
            passed_over = self._is_passed_over_in_an_outage(time, now_ms) or self._is_passed_over(time, now_ms)
        except Exception as e:  # an input failed in `missed`: the next tick asks it again
            self._not_planned(time, e)
        else:
            if not passed_over:
                self.generate(time)

    def postpone(self, since: Time, until: Time, failing: Collection[Time]) -> None:
        """Leave the missed batches from `since` to `until` unplanned while these pending batches, which have failed before, run again."""
        self._postponed = PostponedBatches(since, until, failing, self._parts.retry.hold)
        logger.warning(
            "missed batches %s to %s wait unplanned, and lose nothing: %d earlier batches have failed before and run again first",
            since,
            until - self._graph.batch_duration,
            len(failing),
        )

    def _is_postponed(self, time: Time) -> bool:
        """Return whether the batch of a tick waits with the missed ones. Plan those first if they wait no longer."""
        self._plan_postponed()
        if self._postponed is not None:
            self._postponed.until = time + self._graph.batch_duration
        return self._postponed is not None

    def _plan_postponed(self) -> None:
        """Plan the missed batches that wait, if they wait no longer. An error of an input is reported, and the next tick asks it again."""
        waiting, unfinished = self._postponed, self._unfinished
        if waiting is None or not waiting.are_due(self._to_come(), unfinished.open(), self._parts.clock.monotonic_ms()):
            return
        try:
            selected = self.missed(waiting.since.until(waiting.until, self._graph.batch_duration))
        except Exception as e:
            self._not_planned(waiting.until, e)
            return
        self._postponed = None
        logger.info("missed batches %s (%d batches) are planned now", listed(selected), len(selected))
        for time in selected:
            self.generate(time)

    def _is_full(self, time: Time) -> bool:
        """Return whether no batch may be planned, because too many wait for an earlier one. Log when that begins and ends."""
        full = self._held.is_full
        if full and not self._was_full:
            text = "batch %s was not planned: %d batches wait for a failed one (%s). The next plan takes its records"
            logger.warning(text, time, len(self._held), MAX_HELD)
        elif self._was_full and not full:
            logger.warning("batch %s is planned, the first since too many waited: %d batches wait", time, len(self._held))
        self._was_full = full
        return full

    def _is_passed_over_in_an_outage(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Return whether an outage is on and a newer tick is due. With a settable clock no tick is passed over."""
        if isinstance(self._parts.clock, SettableClock):
            return False
        return self._outage.passes_over(time, now_ms(), self._graph.batch_duration)

    def _is_passed_over(self, time: Time, now_ms: Callable[[], int]) -> bool:
        """Return whether the tick is one of many overdue ticks and makes no batch. With a settable clock no tick is passed over."""
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
        not raised; the stream continues. Does nothing if this driver is fenced, if all inputs are exhausted, or if the batch is a missed
        one that needs no plan.
        """
        if self.is_fenced or self.exhausted or self._empty.needs_no_plan(time):
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
        except Exception as e:
            self._not_planned(time, e)
        else:
            crash_point.reach(crash_point.PLAN_DURABLE)
            if not self._is_start_held_up:
                self._outage.ended(time)
            self._empty.planned(time, self._ids(), batch.inputs)
            self._go_on(batch)

    def _not_planned(self, time: Time, error: Exception) -> None:
        """Report the error of a batch that was not planned, unless the driver waits for a system that is away."""
        if self._outage.waits(time, error):
            return
        if isinstance(error, StorageError):
            self._scheduler.report_error(f"batch {time} was not planned", unplanned(time, error))
        else:
            self._scheduler.report_error(f"Error generating jobs for time {time}", error)

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

    def _to_come(self) -> Set[Time]:
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
        """Submit a batch, unless it must wait for an older one."""
        if self._held.must_wait(batch.time, self._to_come, self._failed.holding):
            self._held.add(batch)
            self._unfinished.waits(batch.time)
        else:
            self._submit(batch)

    def submit_held(self) -> None:
        """Submit the held batches that may start now, oldest first. Blocks on the store."""
        if self.is_fenced:
            return
        while (batch := self._held.take(self._to_come, self._failed.holding)) is not None:
            self._unfinished.planned(batch.time)
            if self._submit(batch):  # the next tick tries again
                return

    def _waits_for_the_store(self, batch: Batch, error: Exception, failed: JobSet | None) -> bool:
        """Let a batch wait again that was not submitted because the store is away: no failed try. False if the driver does not wait."""
        if not isinstance(error, StorageError) or is_of_a_task(error) or not self._outage.waits(batch.time, error, planned=True):
            return False
        self._is_start_held_up = True
        if batch.failures:
            self._failed.put_back(FailedTry(batch, failed), self._in_an_interval())
            self._unfinished.not_tried(batch.time, between_tries=not self._parts.retry.is_used_up(batch.failures))
        else:
            self._held.put_back(batch)
            self._unfinished.waits(batch.time)
        return True

    def _in_an_interval(self) -> int:
        """Return the time one batch interval from now, in milliseconds of the monotonic clock."""
        return self._parts.clock.monotonic_ms() + self._graph.batch_duration.milliseconds

    def _report_records(self, batch: Batch) -> None:
        """Note the record counts and the metadata of a batch's inputs, for listeners."""
        for stream in self.inputs:
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a decoded plan may lack the count
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))

    def _submit(self, batch: Batch, failed: JobSet | None = None) -> bool:
        """Probe for a newer epoch, generate the jobs of a batch, and submit them. An error ends the try and is not raised.

        Args:
            batch: the batch.
            failed: the jobs of the last try, if some of them failed: those that succeeded do not run again.

        Returns:
            Whether the batch waits again, because the store is away.
        """
        try:
            self._log.probe()
            self._is_start_held_up = False
            self._leave_out(batch, failed)
            jobs = [] if self._empty.is_skipped(self._ids(), batch.inputs) else self._generate_jobs(batch.time)
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
                job_set = JobSet(batch.time, jobs, infos, at_ms) if failed is None else failed.for_retry(jobs)
                self._scheduler.submit_job_set(batch, job_set)
            else:
                self._end_without_jobs(batch, at_ms)
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
        computed = failed is not None and failed.state_error is None
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

    def _generate_jobs(self, time: Time) -> list[Job]:
        """Return the jobs of a batch. Functions of `transform` run here; an error is raised."""
        with self._parts.environment.for_generation(time):
            return self._graph.generate_jobs(time)

    def _ids(self) -> list[int]:
        """Return the ids of the inputs on which outputs depend."""
        return [stream.id for stream in self.inputs]

    def _end_without_jobs(self, batch: Batch, at_ms: int) -> None:
        """Store the completion of a batch for which no output has a job, or which is skipped."""
        ended = self._scheduler.completions.end(batch, at_ms, self._parts.states.unnamed())
        if ended.trouble is not None:
            self._scheduler.report_error(*ended.trouble)
        if ended.completion is not None:
            self._scheduler.tell_lost(ended.completion)

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
        self._plan_postponed()
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
        self._plan_postponed()
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

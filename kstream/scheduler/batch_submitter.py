"""BatchSubmitter: generates the jobs of planned batches and submits them in their turn. Also those of tries and repairs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

from kstream.batch import Batch, Job, JobSet, SkippedRecord, StreamInputInfo
from kstream.batch_time import Time
from kstream.dstream import InputDStream
from kstream.errors import FencedError, IllegalStateError, JvmLostError, StorageError, in_a_line, is_of_a_task
from kstream.output import OutputBatch
from kstream.scheduler.batch_lifecycle import Try
from kstream.scheduler.empty_batches import EmptyBatches
from kstream.scheduler.job_scheduler import MOST_REPAIRS, JobScheduler, SchedulerParts
from kstream.scheduler.planning_outage import PlanningOutage
from kstream.scheduler.state_checkpointer import is_lost_state, state_lost

logger = logging.getLogger(__name__)


class BatchSubmitter:
    """Generates and submits the batches of one start of a context.

    At most `concurrentJobs` + 1 new batches are generated and have not ended. Later plans wait as data, without RDDs. So a backlog costs
    little, and each batch is made from the newest state that is written. Retries and repairs of batches come on top.

    Threads: only the JobGenerator's thread calls the methods. When this thread has ended, the thread that stops makes the last calls.
    """

    def __init__(
        self,
        parts: SchedulerParts,
        scheduler: JobScheduler,
        empty: EmptyBatches,
        outage: PlanningOutage,
        on_fenced: Callable[[FencedError], None],
    ) -> None:
        """
        Args:
            parts: those of the JobGenerator.
            scheduler: runs the jobs.
            empty: which batches have no jobs.
            outage: how long the driver waits for a store that is away.
            on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over.
        """
        self._parts = parts
        self._graph = parts.graph
        self._log = parts.log
        self._lifecycle = parts.lifecycle
        self._scheduler = scheduler
        self._empty = empty
        self._outage = outage
        self._on_fenced = on_fenced
        self._inputs = parts.graph.active_inputs
        self._input_info = InputInfoTracker()
        self._went_back = 0
        """How often the states were made again from written ones."""
        self.is_fenced = False
        """Whether another driver is known to have taken over. Any thread may read it."""

    def go_on(self, batch: Batch) -> None:
        """Move the cursors past a durable plan and submit its batch, unless another driver has taken over. Blocks on the store."""
        self._lifecycle.plan(batch)
        try:
            for stream in self._inputs():
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
        """Submit a pending batch of an earlier driver with its own plan. Its lifecycle has begun. Blocks on the store.

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
        oldest = self._lifecycle.oldest_held
        if not self._lifecycle.is_behind_failed(batch.time):
            batch.submission_ms = self._parts.clock.time_ms()
        if (oldest is not None and oldest < batch.time) or not self._may_generate(batch.time):
            self._lifecycle.hold(batch.time)
        else:
            self._submit(Try(batch, None))

    def _may_generate(self, time: Time) -> bool:
        """Return whether the oldest batch that waits may be generated now.

        It must not wait for an older one, and few batches may be generated at a time. If one of them writes a state at its end, the batch
        is made from that state, so that its lineage begins there.
        """
        if self._lifecycle.awaits_repair or self._lifecycle.must_wait(time):
            return False
        in_hand = self._lifecycle.in_hand()
        return len(in_hand) <= self._parts.concurrent_jobs and not self._parts.states.is_awaited(in_hand)

    def submit_held(self) -> None:
        """Submit the held batches that may start now, oldest first. Blocks on the store."""
        while (oldest := self._lifecycle.oldest_held) is not None and not self.is_fenced and self._may_generate(oldest):
            waits = self._submit(Try(self._lifecycle.take_held(), None))
            if waits:  # the next tick tries again
                return

    def _waits_for_the_store(self, batch: Batch, error: Exception) -> bool:
        """Put a batch back because the store is away. That is no failed try. Return False if the driver does not wait for the store."""
        if not isinstance(error, StorageError) or is_of_a_task(error) or not self._outage.waits(batch.time, error, planned=True):
            return False
        self._put_back(batch)
        return True

    def _put_back(self, batch: Batch) -> None:
        """Let a batch wait as before, because it could not start."""
        in_an_interval = self._parts.clock.monotonic_ms() + self._graph.batch_duration.milliseconds
        self._lifecycle.put_back(batch.time, in_an_interval)

    def _report_records(self, batch: Batch) -> None:
        """Note the record counts and the metadata of a batch's inputs, for listeners, and how far the inputs are behind their logs."""
        for stream in self._inputs():
            plan = batch.inputs.get(stream.id)
            if plan is not None and stream.reports_input_info:
                records = batch.plan.num_records[stream.id]  # a decoded plan may lack the count
                self._input_info.reportInfo(batch.time, StreamInputInfo(stream.id, records, stream.metadata(batch.time, plan)))
        self._parts.lags.planned(batch.time, self._input_info.getInfo(batch.time).values(), self._parts.clock.time_ms())

    def _submit(self, begun: Try) -> bool:
        """Probe for a newer epoch, generate the jobs of a batch, and submit them. An error ends the try and is not raised.

        Args:
            begun: the batch, with the jobs of the last try if some of them failed: those that succeeded do not run again.

        Returns:
            Whether the batch waits again, because the store is away.
        """
        batch, last = begun.batch, begun.job_set
        probed_ms = self._parts.clock.monotonic_ms()
        self._outage.tries()
        try:
            self._log.probe()
            self._outage.started()
            self._leave_out(batch, last)
            batch.generated_after = self._went_back
            jobs = self._generate_jobs(batch, last)
        except FencedError as e:
            self._lifecycle.fence(batch.time)
            self.fence(e)
        except Exception as e:  # also a StorageError of the probe: another driver may have taken over, so nothing may be submitted
            if isinstance(e, JvmLostError):
                self._scheduler.refuse_jobs()
            if self._waits_for_the_store(batch, e):
                return True
            self._fail(batch, e, last)
        else:
            at_ms = self._parts.clock.time_ms()
            if jobs:
                self._lifecycle.generated(batch.time)
                infos = self._input_info.getInfo(batch.time)
                since_ms = at_ms if batch.submission_ms is None else batch.submission_ms
                job_set = JobSet(batch.time, jobs, infos, since_ms) if last is None else last.for_retry(jobs)
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
        if self._lifecycle.failures(batch.time):
            self._log.read_skips(self._lifecycle.unfinished())
        asked = self._log.skips_of(batch.time, batch.plan.epoch)
        for stream in self._inputs() if asked else ():
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
        done = () if failed is None else failed.succeeded
        read_by, outputs = tuple(one.number for one in done), tuple(map(str, done))
        known = set(stream.skipped(batch.time))
        stream.leave_out(
            batch.time, [record if record in known else replace(record, read_by=read_by, outputs=outputs) for record in records]
        )
        if not stream.skipped(batch.time):
            logger.warning("batch %s runs with %s: %r cannot leave out single records", batch.time, ", ".join(map(str, records)), stream)
            return
        self._graph.forget(stream, batch.time, keep_states=computed)
        logger.warning("batch %s leaves out %s, as kstream skip asks for", batch.time, ", ".join(map(str, records)))

    def _generate_jobs(self, batch: Batch, last: JobSet | None) -> list[Job]:
        """Return the jobs of a batch, none if it is skipped. Functions of `transform` run here; an error is raised.

        `last`: the jobs of the last try; None without one.

        If blocks or files were gone when a state was to be written, the states are made again from the one that was written last.
        """
        time = batch.time
        if self._empty.is_skipped(batch.inputs):
            self._graph.reaches(time)
            return []
        if self._parts.states.take_loss() and self._go_back():
            logger.warning("batch %s is made from the states that were written last: blocks or files of newer ones are gone", time)
        with self._parts.environment.for_generation(time):
            is_first_try = batch.plan.epoch == self._log.epoch and last is None and not self._lifecycle.failures(time) and not batch.repairs
            return self._graph.generate_jobs(OutputBatch(time, batch.plan.nonce, is_first_try, batch.inputs))

    def _fail(self, batch: Batch, error: Exception, last: JobSet | None = None) -> None:
        """End the try of a batch that was not submitted. Report its error if no retry is left. `last`: the jobs of the last try."""
        if self._scheduler.reports_failure_of(batch):
            self._scheduler.report_error(f"Error generating jobs for time {batch.time}", error)
        self._scheduler.fail(batch, self._parts.clock.time_ms(), str(error), last)

    def fence(self, error: FencedError) -> None:
        """Submit nothing from now on, start no queued job, and call `on_fenced`."""
        self.is_fenced = True
        self._scheduler.refuse_jobs()
        self._on_fenced(error)

    # -- tries

    def retry_completions(self) -> None:
        """Store the completions that the store refused when their batches ended, and report the data that these batches lost.

        Blocks on the store. A FencedError fences this driver and is not raised; a StorageError is logged, and the completions are kept.
        """
        if self.is_fenced:  # the successor runs those batches again
            return
        try:
            written = self._scheduler.completions.retry()
        except FencedError as e:
            self.fence(e)
            return
        for completed in written:
            self._scheduler.tell_lost(completed)

    def try_again(self) -> None:
        """Write kept completions, then submit held batches, then try failed ones again that are due, oldest first. Blocks."""
        self.retry_completions()
        self.submit_held()
        if self.is_fenced:
            return
        is_away = False
        for begun in self._lifecycle.take_due():
            if is_away:  # each try may wait for the time-out of a request
                self._put_back(begun.batch)
            elif not self.is_fenced and self._is_in_memory(begun.batch):
                is_away = self._submit(begun)

    def repair(self, time: Time) -> None:
        """Generate a batch again from the states that were written last, because blocks or files of a state are gone. Blocks on the store.

        Batches that were withdrawn with it are generated again, too. Jobs that have succeeded do not run again. The driver does not go back
        to older states if the repair of another batch has done so since this one was generated.
        """
        if self.is_fenced:
            return
        again = self._lifecycle.repair(time)
        lost = next(begun for begun in again if begun.time == time)
        if not self._is_repaired(lost):
            again.remove(lost)
        is_away = False
        for begun in again:
            if is_away:
                self._put_back(begun.batch)
            else:
                is_away = self._submit(begun)
        self.submit_held()

    def _is_repaired(self, lost: Try) -> bool:
        """Return whether a batch whose state is gone can be generated again. Else its try fails."""
        batch, job_set = lost.batch, lost.job_set
        assert job_set is not None
        if batch.generated_after == self._went_back and not self._go_back():
            gone = next(error for error in job_set.all_errors if is_lost_state(error))
            self._fail(batch, state_lost(batch.time, batch.repairs, gone, "no written state has all plans after it in memory"), job_set)
            return False
        batch.repairs += 1
        logger.warning(
            "batch %s: blocks or files of a state are gone, so it is generated again from the state that was written last (%d of %d): %s",
            batch.time,
            batch.repairs,
            MOST_REPAIRS,
            "; ".join(in_a_line(e) for e in job_set.all_errors),
        )
        return True

    def _go_back(self) -> bool:
        """Let the next batches be generated from the written states; see `DStreamGraph.go_back`."""
        has_gone = self._graph.go_back()
        self._went_back += has_gone
        return has_gone

    def _is_in_memory(self, batch: Batch) -> bool:
        """Return whether the plan of a batch is kept by its inputs. Without it a retry would make no job, and end without its outputs."""
        if all(stream.has_batch(batch.time) for stream in self._inputs() if stream.id in batch.inputs):
            return True
        self._lifecycle.forget(batch.time)
        logger.error("batch %s is not tried again, its plan is not in memory any more: the next start runs it", batch.time)
        return False

    def clear_metadata(self) -> Time | None:
        """Forget the RDDs, plans and counts that no batch needs any more. Keep those of failed batches that are tried again.

        Returns:
            The time up to which batches have ended; None before the first end.
        """
        up_to = self._lifecycle.clean_up_to()
        if up_to is not None:
            kept = self._lifecycle.in_memory()
            self._graph.clear_metadata(up_to, kept)
            self._input_info.cleanup(up_to - self._graph.longest_remember(), kept)
        return up_to


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

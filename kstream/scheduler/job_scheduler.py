"""JobScheduler: runs the jobs of submitted batches on a fixed pool of threads, and records how the batches end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from kstream import crash_point
from kstream.batch import Batch, BatchInfo, BatchState, Job, JobSet
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog
from kstream.clock import Clock
from kstream.dstream import DStreamGraph
from kstream.errors import ConfigurationError, FencedError, JvmLostError, add_note, in_a_line, is_of_a_task, with_record
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerBus,
    StreamingListenerDataLost,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from kstream.loop import EventLoop, Runtime, WorkerPool
from kstream.scheduler.completions import Completion, Completions, Failure, UnfinishedBatches
from kstream.scheduler.failed_batches import FailedTry
from kstream.scheduler.input_lags import InputLags
from kstream.scheduler.retry_policy import RetryPolicy
from kstream.scheduler.state_checkpointer import StateCheckpointer, is_lost_state, state_lost
from kstream.secret import without_secrets

logger = logging.getLogger(__name__)
MOST_REPAIRS = 3
"""How often a batch is generated again because blocks or files of a state are gone. Then it fails."""


class JobEnvironment(Protocol):
    """Prepares threads for Spark jobs. Implemented by `SparkJobEnvironment` of `kstream.spark`, and by the simulator."""

    def for_job(self, job: Job) -> AbstractContextManager[None]:
        """Return a context manager around one job, for the job's thread.

        It sets the local properties that were captured at the start and the job's description, and no job group. It raises JvmLostError
        for an error that comes of the end of Spark's JVM.
        """
        ...

    def for_generation(self, time: Time) -> AbstractContextManager[None]:
        """Return a context manager around the generation of a batch's jobs, for the JobGenerator's thread."""
        ...

    def cancel_all(self) -> None:
        """Cancel the Spark jobs that job threads are running. Any thread."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerParts:
    """The parts that the JobScheduler and the JobGenerator of one driver share."""

    graph: DStreamGraph
    clock: Clock
    log: BatchLog
    environment: JobEnvironment
    states: StateCheckpointer
    unfinished: UnfinishedBatches
    lags: InputLags
    runtime: Runtime
    retry: RetryPolicy
    concurrent_jobs: int
    """The number of job threads."""
    unreachable_timeout_ms: int
    """How long brokers or the store may be away before that is an error; 0: no time, as in Spark."""
    skip_empty_batches: bool
    """Whether batches without data end without the user's functions."""


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job starts. `at_ms`: milliseconds since the Unix epoch."""

    job: Job
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobCompleted:
    """A job has ended, in success or failure. `at_ms`: milliseconds since the Unix epoch."""

    job: Job
    at_ms: int


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """An error for `on_error`, with a message that names the failed step."""

    message: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class TryEnd:
    """What follows from the end of a try of a batch.

    Attributes:
        is_end: whether listeners hear of the end of the batch.
        is_over: whether the batch has ended, in success or failure.
        failed: the try, if it has failed.
        lost: the try, if the batch is generated again, because blocks or files of a state are gone.
    """

    is_end: bool
    is_over: bool = False
    failed: FailedTry | None = None
    lost: FailedTry | None = None


JobSchedulerEvent: TypeAlias = JobStarted | JobCompleted | ErrorReported


class JobScheduler:
    """Runs jobs on job threads, and handles their events on one event thread.

    The jobs of a batch start in the order of their outputs. With one job thread, a batch runs all its jobs before the next batch starts.

    A batch ends on the event thread: its completion is stored before listeners hear of the end. Its state is written in the thread of the
    job that ended last.

    A job that starts later than a batch interval after the last probe for a newer epoch probes again. So a driver that was suspended for a
    while and has been fenced runs no job.

    Args:
        parts: the parts that the JobGenerator has, too.
        bus: gets the events of batches and jobs.
        on_error: on_error(message, error) gets each error that is reported, once, on the event thread: of a failed batch that of the try
            that uses up its retries.
        on_batch_end: on_batch_end(time) is called when a batch has ended, in success or failure, by the thread that ended it. Must return
            at once.
        on_failed_try: on_failed_try(failed) is called after each failed try of a batch, unless a stop ended it. Must return at once.
        on_lost: on_lost(failed) is called in place of that if the batch is to be generated again, because blocks or files of a state are
            gone. Must return at once.
        on_measured: on_measured(info) is called when a batch that was submitted has ended, before `on_batch_end`. So the next plan knows
            how fast the job was. Must return at once.
    """

    def __init__(
        self,
        parts: SchedulerParts,
        bus: StreamingListenerBus,
        on_error: Callable[[str, BaseException], None],
        on_batch_end: Callable[[Time], None],
        on_failed_try: Callable[[FailedTry], None],
        on_lost: Callable[[FailedTry], None],
        on_measured: Callable[[BatchInfo], None],
    ) -> None:
        self._clock = parts.clock
        self._log = parts.log
        self._states = parts.states
        self._environment = parts.environment
        self._bus = bus
        waits = parts.unreachable_timeout_ms > 0
        self.completions = Completions(parts.log, parts.states, parts.unfinished, parts.graph.active_inputs, on_batch_end, waits)
        self._unfinished = parts.unfinished
        self._retry = parts.retry
        self._on_error = on_error
        self._on_batch_end = on_batch_end
        self._on_failed_try = on_failed_try
        self._on_lost = on_lost
        self._on_measured = on_measured
        self._max_wait = parts.graph.batch_duration.milliseconds
        self._submitted: dict[Time, tuple[Batch, JobSet]] = {}
        self._to_repair: set[Time] = set()
        """The batches that `repair` of the BatchPlanner is to generate again."""
        self._can_repair = True
        """Whether the JobGenerator lives, which repairs batches."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._cuts_short = False
        self._pool = WorkerPool(parts.concurrent_jobs, "streaming-job-executor", parts.runtime)
        self._loop: EventLoop[JobSchedulerEvent] = EventLoop(
            "JobScheduler", self._process, lambda e: self._on_error("Error in job scheduler", e), parts.runtime
        )

    def start(self) -> None:
        """Start the event thread and the job threads. Call once."""
        self._loop.start()
        self._pool.start()

    def submit_job_set(self, batch: Batch, job_set: JobSet, probed_ms: int) -> None:
        """Queue the jobs of a batch whose plan is durable, and post the event to listeners. Returns at once.

        Of a retry, only the jobs that have not succeeded are queued. The event is posted for the first set of jobs of a batch.

        Args:
            batch: the batch.
            job_set: its jobs.
            probed_ms: when the probe for a newer epoch began, in milliseconds of the monotonic clock.

        Raises:
            IllegalStateError: the batch is in a state from which it cannot be submitted.
        """
        batch.become(BatchState.SUBMITTED)
        with self._lock:
            self._submitted[batch.time] = (batch, job_set)
        if job_set.tries == 1:
            self._bus.post(StreamingListenerBatchSubmitted(job_set.to_batch_info()))
        for job in job_set.waiting_jobs():
            self._pool.submit(partial(self._run, batch, job_set, job, probed_ms))
        logger.debug("added jobs for time %s", job_set.time)

    def submitted(self) -> list[Time]:
        """Return the batches whose jobs are submitted and have not all ended. Any thread."""
        with self._lock:
            return list(self._submitted)

    @property
    def awaits_repair(self) -> bool:
        """Whether batches wait for a repair. No other one may be generated before: it would be made from what is gone. Any thread."""
        with self._lock:
            return bool(self._to_repair)

    def begin_repair(self, batches: Iterable[Time]) -> None:
        """Note that the JobGenerator's thread is about to submit these batches again."""
        with self._lock:
            self._to_repair.difference_update(batches)

    def _withdraw(self) -> list[tuple[Batch, JobSet]]:
        """Take back the batches of which no job has started, oldest first. Their jobs never run, and they wait for a repair. Any thread."""
        with self._lock:
            taken = {time: known for time, known in self._submitted.items() if known[1].withdraw()}
            for time in taken:
                del self._submitted[time]
            self._to_repair.update(taken)
        for batch, _ in taken.values():
            batch.become(BatchState.DURABLE)
        return [taken[time] for time in sorted(taken)]

    def report_error(self, message: str, error: BaseException) -> None:
        """Pass an error to `on_error`, on the event thread. Any thread; returns at once."""
        self._loop.post(ErrorReported(message, error))

    def drain(self, timeout: float) -> bool:
        """Block until every event posted so far is handled, here and by the listeners.

        Args:
            timeout: seconds, for each of the two.

        Returns:
            False if a timeout passed first.
        """
        return self._loop.drain(timeout) and self._bus.drain(timeout)

    @property
    def refuses_jobs(self) -> bool:
        """Whether queued jobs never start: after `refuse_jobs` or `stop`. Any thread."""
        return self._closed.is_set()

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a job or on the event thread."""
        return self._loop.is_own_thread() or self._pool.is_own_thread()

    def refuse_jobs(self, cut_short: bool = False) -> None:
        """Start no queued job from now on. Running jobs may finish. Any thread.

        Args:
            cut_short: a stop waits only shortly for running jobs. The errors of jobs that end from now on are not reported: most are of the
                stop itself, and the next start from a checkpoint runs their batches again.
        """
        self._cuts_short = self._cuts_short or cut_short
        self._closed.set()

    def stop(self, graceful: bool, timeout: float) -> None:
        """End the job threads and the event thread, and wait for them. The JobGenerator has ended: no batch is repaired from now on.

        Args:
            graceful: run all queued jobs first, and wait for them without a limit. Otherwise no queued job starts, and running jobs are
                cancelled in Spark after the timeout.
            timeout: seconds for running jobs, if not graceful.
        """
        self._can_repair = False
        if not graceful:
            self.refuse_jobs(cut_short=True)
        if not self._pool.stop(None if graceful else timeout):
            self.refuse_jobs(cut_short=True)
            self._environment.cancel_all()
        self._loop.stop(drain=True)
        self._closed.set()

    # -- in a job thread

    def _run(self, batch: Batch, job_set: JobSet, job: Job, probed_ms: int) -> None:
        """Run one job. After the last job of the batch its state is computed or written. An error is set as `job.error` and not raised.

        A refused or fenced job does not start and posts no end, so its batch does not end.
        """
        if self._closed.is_set() or not job_set.begin():
            return
        try:
            if self._clock.monotonic_ms() - probed_ms > self._max_wait:
                self._log.probe()
        except FencedError as e:
            self.refuse_jobs()
            batch.become(BatchState.FENCED)
            self._loop.post(ErrorReported(f"job {job.id} was not started", e))
            return
        except Exception as e:
            logger.warning("%s: the probe for a newer epoch failed, the job starts nevertheless: %s", job.id, e)
        self._loop.post(JobStarted(job, self._clock.time_ms()))
        at_ms: int | None = None
        try:
            with self._environment.for_job(job):
                crash_point.reach(crash_point.RUNNING)
                job.run()
                at_ms = self._clock.time_ms()
                self._end_states(batch, job_set, job)  # in this thread, because Spark jobs compute and write the state
        except BaseException as e:
            self._set_error(batch, job, e)
            if at_ms is None and isinstance(e, Exception) and not isinstance(e, JvmLostError):
                self._end_states_after_error(batch, job_set, job)
        crash_point.reach(crash_point.JOB_DONE)
        self._loop.post(JobCompleted(job, self._clock.time_ms() if at_ms is None else at_ms))

    def _set_error(self, batch: Batch, job: Job, error: BaseException) -> None:
        """Set the error of a job, with a note that names the output."""
        if isinstance(error, JvmLostError):  # the batch has not failed, and no other one can run
            self.refuse_jobs()
        elif self._states.has_states and batch.repairs >= MOST_REPAIRS and is_lost_state(error):
            error = state_lost(batch.time, batch.repairs, error)
        add_note(error, f"in output operation {job.output_op_id}, {job.name}, of batch {job.time}")
        job.error = error

    def _end_states_after_error(self, batch: Batch, job_set: JobSet, job: Job) -> None:
        """Do as `_end_states`, after the error of a job has ended its environment."""
        if not self._states.has_states:
            job_set.has_ended(job)
            return
        try:
            with self._environment.for_job(job):
                self._end_states(batch, job_set, job)
        except BaseException as e:
            self._set_error(batch, job, e)

    def _end_states(self, batch: Batch, job_set: JobSet, job: Job) -> None:
        """Note the end of a job. After the last one, write the states of its batch that are due. If an output failed, compute them first.

        An output that fails before it reads the state computes nothing. Without this the lineage of the states would grow with each batch,
        until the JVM overflows its stack. States are written only for a record that can name them.
        """
        if not job_set.has_ended(job):
            return
        if job_set.errors:
            if self._closed.is_set():
                return
            if not _is_lost(job_set):  # else computing the states would fail as the job has
                job_set.state_error = self._states.compute(job_set.time)
            if self._is_to_repair(batch, job_set):
                job_set.withdrawn = self._withdraw()
            if _is_lost(job_set) or job_set.state_error is not None or not self.reports_failure_of(batch):
                return
        job_set.states = self._states.save(job_set.time)

    # -- on the event thread

    def _process(self, event: JobSchedulerEvent) -> None:
        """Handle one event."""
        match event:
            case JobStarted(job, at_ms):
                self._handle_start(job, at_ms)
            case JobCompleted(job, at_ms):
                self._handle_completion(job, at_ms)
            case ErrorReported(message, error):
                self._on_error(message, error)

    def _handle_start(self, job: Job, at_ms: int) -> None:
        """Note the start of a job, and with the first job that of its batch; post both to listeners."""
        batch, job_set = self._submitted[job.time]
        is_first = job_set.handle_start(at_ms)
        if batch.state is BatchState.SUBMITTED:
            batch.become(BatchState.RUNNING)
        if is_first:
            self._bus.post(StreamingListenerBatchStarted(job_set.to_batch_info()))  # as in Spark, before an output has started
        job.start_ms = at_ms
        self._bus.post(StreamingListenerOutputOperationStarted(job.to_info()))

    def _handle_completion(self, job: Job, at_ms: int) -> None:
        """Note the end of a job, and end the batch with its last job. Report the job's error."""
        job.end_ms = at_ms
        batch, job_set = self._submitted[job.time]
        reported = job.error is not None and self.reports_failure_of(batch) and not self._is_to_repair(batch, job_set)
        last = job_set.handle_completion(job, at_ms)
        self._bus.post(StreamingListenerOutputOperationCompleted(job.to_info()))
        if last:
            self._end(batch, job_set, at_ms)
        if job.error is not None and self._is_of_the_stop(job.error):
            logger.info("%s was cut short by the stop: %s", job.id, in_a_line(job.error))
        elif job.error is not None and reported:
            self._on_error(f"Error running job {job.id}", job.error)

    def _is_of_the_stop(self, error: BaseException) -> bool:
        """Return whether a job was cut short by a stop. The end of the JVM is an error also then: it may be the reason of the stop."""
        return self._cuts_short and not isinstance(error, JvmLostError)

    def _is_to_repair(self, batch: Batch, job_set: JobSet) -> bool:
        """Return whether a failed try is no failure, because the batch is generated again from the state that was written last."""
        can_repair = self._can_repair and self._states.has_states and not self._closed.is_set()
        return can_repair and batch.repairs < MOST_REPAIRS and _is_lost(job_set)

    def _end(self, batch: Batch, job_set: JobSet, at_ms: int) -> None:
        """End a batch, or a try of it, whose jobs have all ended. Unless it is tried again, listeners hear of it. Blocks on the store.

        The batch counts as submitted until its end is stored: only then may a batch be generated that continues from its state.
        """
        completion, ended = None, TryEnd(is_end=False)
        try:
            if self._is_to_repair(batch, job_set):
                ended = TryEnd(is_end=False, lost=FailedTry(batch, job_set))
            elif job_set.errors:
                reason = "; ".join(with_record(e) if is_of_a_task(e) else str(e) for e in job_set.errors)
                ended = self._end_failed(batch, at_ms, reason, job_set)
            else:
                ended = TryEnd(is_end=True, is_over=True)
                completion = self._complete(batch, job_set, at_ms)
                if completion is not None:
                    job_set.note_outcomes(completion.outcomes)
            if ended.is_end:
                self.tell_ended(job_set)
            if completion is not None:
                self.tell_lost(completion)
        finally:
            with self._lock:
                del self._submitted[batch.time]
                if ended.lost is not None:
                    self._to_repair.add(batch.time)
            self._notify(batch, ended)

    def _notify(self, batch: Batch, ended: TryEnd) -> None:
        """Call the callbacks that follow from the end of a try."""
        if ended.is_over:
            self._on_batch_end(batch.time)
        if ended.failed is not None:
            self._on_failed_try(ended.failed)
        if ended.lost is not None:
            self._on_lost(ended.lost)

    def tell_ended(self, job_set: JobSet) -> None:
        """Call `on_measured`, and post the end of a batch to listeners. Any thread.

        Args:
            job_set: the jobs of its last try that was submitted.
        """
        info = job_set.to_batch_info()
        logger.debug("total delay: %s ms for time %s (execution: %s ms)", info.total_delay_ms, info.batch_time, info.processing_delay_ms)
        self._on_measured(info)
        self._bus.post(StreamingListenerBatchCompleted(info))

    def end_without_jobs(self, batch: Batch, at_ms: int) -> None:
        """Store the completion of a batch for which no output has a job, or which is skipped. The JobGenerator's thread.

        Args:
            batch: the batch. Its plan is durable.
            at_ms: the time now, in milliseconds since the Unix epoch.
        """
        ended = self.completions.end(batch, at_ms, self._states.unnamed())
        if ended.trouble is not None:
            self.report_error(*ended.trouble)
        if ended.completion is not None:
            self.tell_lost(ended.completion)
        self._on_batch_end(batch.time)

    def _complete(self, batch: Batch, job_set: JobSet, at_ms: int) -> Completion | None:
        """Store the completion of a batch whose jobs have all succeeded. Return it if it is durable. Blocks on the store."""
        ended = self.completions.end(batch, at_ms, job_set.states, delays=job_set.delays)
        if ended.trouble is not None:
            self._on_error(*ended.trouble)
        if batch.failures and ended.completion is not None:
            logger.warning("batch %s has succeeded after %d failed tries", batch.time, batch.failures)
        return ended.completion

    # -- failures; the event thread, or the JobGenerator's thread for a batch that was not submitted

    def reports_failure_of(self, batch: Batch) -> bool:
        """Return whether a failure of the try that a batch is in goes to `on_error`: the first without retries left, or one at a stop."""
        return self._closed.is_set() or batch.failures == self._retry.retries

    def fail(self, batch: Batch, at_ms: int, reason: str, job_set: JobSet | None = None) -> bool:
        """End a try of a batch that failed, and call `on_failed_try`. Blocks on the store.

        While retries are left, the batch waits and nothing is stored. The first failure without retries left is recorded.

        Args:
            batch: the batch.
            at_ms: when the try ended, in milliseconds since the Unix epoch.
            reason: the errors, for people.
            job_set: the jobs of the try; None if they could not be generated.

        Returns:
            Whether this is the end of the batch for listeners: its failure is recorded, or a stop ended it.
        """
        ended = self._end_failed(batch, at_ms, reason, job_set)
        self._notify(batch, ended)
        return ended.is_end

    def _end_failed(self, batch: Batch, at_ms: int, reason: str, job_set: JobSet | None) -> TryEnd:
        """End a try as `fail`, without the callbacks. The record and the log have the reason without secrets: others may read them."""
        reason = without_secrets(reason)
        line = " ".join(reason.split())
        if self._closed.is_set():
            self.completions.end(batch, at_ms, failure=Failure(reason, is_recorded=False))
            return TryEnd(is_end=True, is_over=True)
        is_end = self.reports_failure_of(batch)
        tries, delay_s = batch.failures + 1, self._retry.delay_ms(batch.failures + 1) / 1000
        is_over = self._retry.is_used_up(tries)
        if is_over:
            states = None if job_set is None else job_set.states
            ended = self.completions.end(batch, at_ms, states, Failure(reason, is_recorded=is_end))
            if ended.trouble is not None:  # the batch is pending also without the record
                logger.warning("%s: %s", *ended.trouble)
            if not is_end:
                logger.warning("batch %s failed again, try %d; the driver tries it again in %g s: %s", batch.time, tries, delay_s, line)
        else:
            self.completions.wait_for_retry(batch)
            logger.warning(
                "batch %s failed, try %d of %d; the driver tries it again in %g s: %s",
                batch.time,
                tries,
                self._retry.retries + 1,
                delay_s,
                line,
            )
        if not is_end:  # else who reports the error logs it
            for error in () if job_set is None else job_set.errors:
                logger.debug("batch %s, the whole error:", batch.time, exc_info=error)
        return TryEnd(is_end, is_over, FailedTry(batch, job_set))

    # -- losses

    def tell_lost(self, completion: Completion) -> None:
        """Post the data losses of a batch whose completion is durable to listeners, for inputs that report them. Any thread."""
        lost = {stream: outcome.lost for stream, outcome in completion.outcomes.items() if outcome.report and outcome.lost}
        if lost:
            self._bus.post(StreamingListenerDataLost(completion.time, lost))

    def __repr__(self) -> str:
        return f"<JobScheduler {len(self._submitted)} batches in hand>"


def _is_lost(job_set: JobSet) -> bool:
    """Return whether a job of the set, or the computing of a state, has failed because blocks or files of a state are gone. Pure."""
    return any(is_lost_state(error) for error in job_set.all_errors)


def check_concurrent_jobs(concurrent_jobs: int) -> int:
    """Return `concurrent_jobs`, if it can work.

    Raises:
        ConfigurationError: it is below 1, or above 1 while all Python threads share one JVM thread.
    """
    if concurrent_jobs < 1:
        raise ConfigurationError(
            f"spark.streaming.concurrentJobs is {concurrent_jobs}; it must be at least 1",
            key="spark.streaming.concurrentJobs",
            value=concurrent_jobs,
        )
    if concurrent_jobs > 1 and os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise ConfigurationError(
            f"spark.streaming.concurrentJobs is {concurrent_jobs}, but PYSPARK_PIN_THREAD=false lets all Python threads share one "
            "JVM thread, so that jobs would mix up their properties: unset PYSPARK_PIN_THREAD or set concurrentJobs to 1",
            key="spark.streaming.concurrentJobs",
            value=concurrent_jobs,
        )
    return concurrent_jobs

"""JobScheduler: runs the jobs of submitted batches on a fixed pool of threads, and ends the batches."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from kstream import crash_point
from kstream.batch import Batch, BatchInfo, BatchOutcome, Job, JobSet, OutputFigures
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog
from kstream.clock import Clock
from kstream.dstream import DStreamGraph
from kstream.errors import ConfigurationError, FencedError, JvmLostError, add_note, in_a_line
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
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from kstream.scheduler.completions import CompletedBatch, Completions, reason_of
from kstream.scheduler.input_lags import InputLags
from kstream.scheduler.retry_policy import RetryPolicy
from kstream.scheduler.settings import CONCURRENT_JOBS
from kstream.scheduler.state_checkpointer import StateCheckpointer, is_lost_state, state_lost

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
    lifecycle: BatchLifecycle
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
        on_failed_try: called in place of that after a failed try of a batch that is tried again. Must return at once.
        on_lost: on_lost(time) is called in place of both if the batch is to be generated again, because blocks or files of a state are
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
        on_failed_try: Callable[[], None],
        on_lost: Callable[[Time], None],
        on_measured: Callable[[BatchInfo], None],
    ) -> None:
        self._clock = parts.clock
        self._log = parts.log
        self._states = parts.states
        self._environment = parts.environment
        self._bus = bus
        waits = parts.unreachable_timeout_ms > 0
        self._lifecycle = parts.lifecycle
        self.completions = Completions(parts.log, parts.states, parts.lifecycle, parts.graph, parts.retry, on_batch_end, waits)
        self._on_error = on_error
        self._on_batch_end = on_batch_end
        self._on_failed_try = on_failed_try
        self._on_lost = on_lost
        self._on_measured = on_measured
        self._max_wait = parts.graph.batch_duration.milliseconds
        self._can_repair = True
        """Whether the JobGenerator lives, which repairs batches."""
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
        """
        self._lifecycle.submitted(batch.time, job_set)
        if job_set.tries == 1:
            self._bus.post(StreamingListenerBatchSubmitted(job_set.to_batch_info()))
        for job in job_set.waiting_jobs():
            self._pool.submit(partial(self._run, batch, job_set, job, probed_ms))
        logger.debug("added jobs for time %s", job_set.time)

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
        if self._closed.is_set() or not self._lifecycle.begin(job_set):
            return
        try:
            if self._clock.monotonic_ms() - probed_ms > self._max_wait:
                self._log.probe()
        except FencedError as e:
            self.refuse_jobs()
            self._lifecycle.fence(batch.time)
            self._loop.post(ErrorReported(f"job {job.id} was not started", e))
            return
        except Exception as e:
            logger.warning("%s: the probe for a newer epoch failed, the job starts nevertheless: %s", job.id, e)
        self._loop.post(JobStarted(job, self._clock.time_ms()))
        at_ms: int | None = None
        try:
            with self._environment.for_job(job):
                crash_point.reach(crash_point.RUNNING)
                job.figures = job.run() or OutputFigures()
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
                self._lifecycle.withdraw(by=batch.time)
            if _is_lost(job_set) or job_set.state_error is not None or not self.reports_failure_of(batch):
                return
        job_set.states, job_set.state_figures = self._states.save(job_set.time)

    # -- on the event thread

    def _process(self, event: JobSchedulerEvent) -> None:
        match event:
            case JobStarted(job, at_ms):
                self._handle_start(job, at_ms)
            case JobCompleted(job, at_ms):
                self._handle_completion(job, at_ms)
            case ErrorReported(message, error):
                self._on_error(message, error)

    def _handle_start(self, job: Job, at_ms: int) -> None:
        """Note the start of a job, and with the first job that of its batch; post both to listeners."""
        job_set = self._jobs_of(job.time)
        if job_set.handle_start(at_ms):
            self._bus.post(StreamingListenerBatchStarted(job_set.to_batch_info()))  # as in Spark, before an output has started
        job.start_ms = at_ms
        self._bus.post(StreamingListenerOutputOperationStarted(job.to_info()))

    def _handle_completion(self, job: Job, at_ms: int) -> None:
        """Note the end of a job, and end the batch with its last job. Report the job's error."""
        job.end_ms = at_ms
        batch, job_set = self._lifecycle.try_of(job.time).batch, self._jobs_of(job.time)
        reported = job.error is not None and self.reports_failure_of(batch) and not self._is_to_repair(batch, job_set)
        last = job_set.handle_completion(job, at_ms)
        self._bus.post(StreamingListenerOutputOperationCompleted(job.to_info()))
        if last:
            self._end(batch, job_set, at_ms)
        if job.error is not None and self._is_of_the_stop(job.error):
            logger.info("%s was cut short by the stop: %s", job.id, in_a_line(job.error))
        elif job.error is not None and reported:
            self._on_error(f"Error running job {job.id}", job.error)

    def _jobs_of(self, time: Time) -> JobSet:
        """Return the jobs of a batch that runs."""
        job_set = self._lifecycle.try_of(time).job_set
        assert job_set is not None
        return job_set

    def _is_of_the_stop(self, error: BaseException) -> bool:
        """Return whether a job was cut short by a stop. The end of the JVM is an error also then: it may be the reason of the stop."""
        return self._cuts_short and not isinstance(error, JvmLostError)

    def _is_to_repair(self, batch: Batch, job_set: JobSet) -> bool:
        """Return whether a failed try is no failure, because the batch is generated again from the state that was written last."""
        can_repair = self._can_repair and self._states.has_states and not self._closed.is_set()
        return can_repair and batch.repairs < MOST_REPAIRS and _is_lost(job_set)

    def _end(self, batch: Batch, job_set: JobSet, at_ms: int) -> None:
        """End a batch, or a try of it, whose jobs have all ended. Unless it is tried again, listeners hear of it. Blocks on the store.

        The batch counts as running until its end is stored: only then may a batch be generated that continues from its state.
        """
        if self._is_to_repair(batch, job_set):
            self._lifecycle.lose(batch.time)
            self._on_lost(batch.time)
        elif job_set.errors:
            self.fail(batch, at_ms, reason_of(job_set), job_set)
        else:
            self._end_completed(batch, job_set, at_ms)

    def _end_completed(self, batch: Batch, job_set: JobSet, at_ms: int) -> None:
        """End a batch whose jobs have all succeeded, and tell listeners. Blocks on the store."""
        failures = self._lifecycle.failures(batch.time)
        try:
            completed = self._complete(batch, BatchOutcome(at_ms, states=job_set.states, delays=job_set.delays, figures=job_set.figures))
            if completed is not None:
                job_set.note_outcomes(completed.outcome.inputs)
                if failures:
                    logger.warning("batch %s has succeeded after %d failed tries", batch.time, failures)
            self.tell_ended(job_set)
            if completed is not None:
                self.tell_lost(completed)
        finally:
            self._on_batch_end(batch.time)

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
        completed = self._complete(batch, BatchOutcome(at_ms, states=self._states.unnamed()))
        if completed is not None:
            self.tell_lost(completed)
        self._on_batch_end(batch.time)

    def _complete(self, batch: Batch, outcome: BatchOutcome) -> CompletedBatch | None:
        """Store the completion of a batch. Return the batch if it is durable; else report why not."""
        ended = self.completions.complete(batch, outcome)
        if ended.trouble is not None:
            self.report_error(*ended.trouble)
        return ended.completed

    # -- failures; the event thread, or the JobGenerator's thread for a batch that was not submitted

    def reports_failure_of(self, batch: Batch) -> bool:
        """Return whether a failure of the try that a batch is in goes to `on_error`: the first without retries left, or one at a stop."""
        return self._closed.is_set() or self.completions.reports_failure_of(batch.time)

    def fail(self, batch: Batch, at_ms: int, reason: str, job_set: JobSet | None) -> None:
        """End a try of a batch that failed; see `Completions.fail`. Blocks on the store.

        At the end of the batch listeners hear of it, if they have heard of it before, in a try that was submitted.
        """
        failed = self.completions.fail(batch, at_ms, reason, job_set, self._closed.is_set())
        if failed.is_end and job_set is not None:
            self.tell_ended(job_set)
        if failed.is_over:
            self._on_batch_end(batch.time)
        else:
            self._on_failed_try()

    # -- losses

    def tell_lost(self, completed: CompletedBatch) -> None:
        """Post the data losses of a batch whose completion is durable to listeners, for inputs that report them. Any thread."""
        lost = {stream: outcome.lost for stream, outcome in completed.outcome.inputs.items() if outcome.report and outcome.lost}
        if lost:
            self._bus.post(StreamingListenerDataLost(completed.time, lost))

    def __repr__(self) -> str:
        return f"<JobScheduler {len(self._lifecycle.in_hand())} batches in hand>"


def _is_lost(job_set: JobSet) -> bool:
    """Return whether a job of the set, or the computing of a state, has failed because blocks or files of a state are gone. Pure."""
    return any(is_lost_state(error) for error in job_set.all_errors)


def check_concurrent_jobs(concurrent_jobs: int) -> int:
    """Return `concurrent_jobs`, if it can work.

    Raises:
        ConfigurationError: it is above 1 while all Python threads share one JVM thread.
    """
    if concurrent_jobs > 1 and os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise ConfigurationError(
            f"spark.streaming.concurrentJobs is {concurrent_jobs}, but PYSPARK_PIN_THREAD=false lets all Python threads share one "
            "JVM thread, so that jobs would mix up their properties: unset PYSPARK_PIN_THREAD or set concurrentJobs to 1",
            key=CONCURRENT_JOBS.key,
            value=concurrent_jobs,
        )
    return concurrent_jobs

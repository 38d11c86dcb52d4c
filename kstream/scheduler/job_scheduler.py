"""JobScheduler: runs the jobs of submitted batches on a fixed pool of threads and notes how they end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kstream import crash_point
from kstream.batch import InputOutcome, Job, JobSet, events
from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.errors import FencedError, add_note
from kstream.loop import THREADS, EventLoop, Runtime, WorkerPool
from kstream.scheduler.completions import Completion, Completions, not_noted
from kstream.scheduler.listener_bus import StreamingListenerBus
from kstream.scheduler.ports import BatchLog, JobEnvironment
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobStarted:
    job: Job
    at_ms: int


@dataclass(frozen=True, slots=True)
class JobCompleted:
    job: Job
    at_ms: int


@dataclass(frozen=True, slots=True)
class ErrorReported:
    message: str
    error: BaseException


JobSchedulerEvent: TypeAlias = JobStarted | JobCompleted | ErrorReported


class JobScheduler:
    """Jobs of one batch start in order of their output; with `concurrent_jobs` 1 a batch ends before the next begins.

    `on_batch_end(time, succeeded)` is called on the event thread after the completion is stored and before listeners hear of it.
    `outcomes(time)` tells, when all jobs of a batch have succeeded, what its inputs found; that is stored with the end of the batch, and so
    is what `states` has written of its state, in the thread of the job that ended last.
    `on_error` gets every failure, once. A job that waited longer than `max_wait_ms` after the last look is checked for a newer
    writer before it starts: a driver that was stopped and comes back runs nothing.
    """

    def __init__(
        self,
        clock: Clock,
        log: BatchLog,
        environment: JobEnvironment,
        listener_bus: StreamingListenerBus,
        unfinished: UnfinishedBatches,
        concurrent_jobs: int,
        on_batch_end: Callable[[Time, bool], None],
        on_error: Callable[[str, BaseException], None],
        max_wait_ms: int = 1000,
        outcomes: Callable[[Time], Mapping[int, InputOutcome]] = lambda _time: {},
        runtime: Runtime = THREADS,
        *,
        states: StateCheckpointer,
    ) -> None:
        self._clock = clock
        self._log = log
        self._states = states
        self._environment = environment
        self._bus = listener_bus
        self._unfinished = unfinished
        self.completions = Completions(log, states, unfinished)
        self._on_batch_end = on_batch_end
        self._on_error = on_error
        self._max_wait = max_wait_ms
        self._outcomes = outcomes
        self._job_sets: dict[Time, tuple[JobSet, int]] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pool = WorkerPool(concurrent_jobs, "streaming-job-executor", runtime)
        self._loop: EventLoop[JobSchedulerEvent] = EventLoop(
            "JobScheduler", self._process, lambda e: self._on_error("Error in job scheduler", e), runtime
        )

    def start(self) -> None:
        self._loop.start()
        self._pool.start()

    def submit_job_set(self, job_set: JobSet, plan_epoch: int) -> None:
        """Queues the jobs of a batch whose plan is durable. Returns at once."""
        with self._lock:
            self._job_sets[job_set.time] = (job_set, plan_epoch)
        self._bus.post(events.StreamingListenerBatchSubmitted(job_set.to_batch_info()))
        submitted = self._clock.monotonic_ms()
        for job in job_set.jobs:
            self._pool.submit(partial(self._run, job_set, job, submitted))
        logger.info("added jobs for time %s", job_set.time)

    def report_error(self, message: str, error: BaseException) -> None:
        self._loop.post(ErrorReported(message, error))

    def drain(self, timeout: float) -> bool:
        """Blocks until what has been posted so far is handled, and the listeners have heard of it; False after `timeout` seconds."""
        return self._loop.drain(timeout) and self._bus.drain(timeout)

    @property
    def refuses_jobs(self) -> bool:
        """Whether jobs that have not started never will."""
        return self._closed.is_set()

    def is_own_thread(self) -> bool:
        """Whether the caller runs in a job, or on the event thread."""
        return self._loop.is_own_thread() or self._pool.is_own_thread()

    def refuse_jobs(self) -> None:
        """Jobs that have not started never will; those running may finish."""
        self._closed.set()

    def stop(self, graceful: bool, timeout: float) -> None:
        """Ends the pool and the event loop. Graceful: waits for queued jobs; else only `timeout` seconds, then cancels."""
        if not graceful:
            self.refuse_jobs()
        if not self._pool.stop(None if graceful else timeout):
            self.refuse_jobs()
            self._environment.cancel_all()
        self._loop.stop(drain=True)
        self._closed.set()

    # -- in a job thread

    def _run(self, job_set: JobSet, job: Job, submitted_ms: int) -> None:
        if self._closed.is_set():
            return
        try:
            if self._clock.monotonic_ms() - submitted_ms > self._max_wait:
                self._log.probe()
        except FencedError as e:
            self.refuse_jobs()
            self._loop.post(ErrorReported(f"job {job.id} was not started", e))
            return
        except Exception as e:
            logger.warning("could not look for a newer writer before %s, starting it: %s", job.id, e)
        self._loop.post(JobStarted(job, self._clock.time_ms()))
        at_ms: int | None = None
        try:
            with self._environment.for_job(job):
                crash_point.reach(crash_point.RUNNING)
                job.run()
                at_ms = self._clock.time_ms()
                if job_set.has_run(job):  # here, for the state is written by Spark jobs
                    job_set.states = self._states.save(job.time)
        except BaseException as e:
            add_note(e, f"in output operation {job.output_op_id}, {job.name}, of batch {job.time}")
            job.error = e
        crash_point.reach(crash_point.JOB_DONE)
        self._loop.post(JobCompleted(job, self._clock.time_ms() if at_ms is None else at_ms))

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
        job_set, _ = self._job_sets[job.time]
        if job_set.handle_start(at_ms):
            self._bus.post(events.StreamingListenerBatchStarted(job_set.to_batch_info()))  # of which, as in Spark, no output has started
        job.start_ms = at_ms
        self._bus.post(events.StreamingListenerOutputOperationStarted(job.to_info()))

    def _handle_completion(self, job: Job, at_ms: int) -> None:
        job.end_ms = at_ms
        job_set, plan_epoch = self._job_sets[job.time]
        last = job_set.handle_completion(job, at_ms)
        self._bus.post(events.StreamingListenerOutputOperationCompleted(job.to_info()))
        if last:
            self._end_batch(job_set, plan_epoch, at_ms)
        if job.error is not None:
            self._states.failed(job.error)
            self._on_error(f"Error running job {job.id}", job.error)

    def _end_batch(self, job_set: JobSet, plan_epoch: int, at_ms: int) -> None:
        with self._lock:
            del self._job_sets[job_set.time]
        noted = None if job_set.errors else self._note_end(job_set, plan_epoch, at_ms)
        if job_set.errors:
            self._note_failure(job_set, plan_epoch, at_ms)
        self._on_batch_end(job_set.time, noted is not None)
        info = job_set.to_batch_info()
        logger.info("total delay: %s ms for time %s (execution: %s ms)", info.total_delay_ms, job_set.time, info.processing_delay_ms)
        self._bus.post(events.StreamingListenerBatchCompleted(info))
        if noted is not None:
            self.tell_lost(noted)

    def _note_end(self, job_set: JobSet, plan_epoch: int, at_ms: int) -> Completion | None:
        """Store the end of a batch whose jobs have all succeeded. None: it is not durable, which has been reported."""
        time = job_set.time
        try:
            outcomes = self._outcomes(time)
        except Exception as e:
            self._unfinished.ended(time, succeeded=False)
            self._on_error(f"the outcome of batch {time} is not known: a restart runs the batch again", e)
            return None
        completion = Completion(time, plan_epoch, at_ms, outcomes, job_set.states)
        try:
            self.completions.note(completion)
        except Exception as e:
            self._on_error(not_noted(time, e), e)
            return None
        return completion

    def _note_failure(self, job_set: JobSet, plan_epoch: int, at_ms: int) -> None:
        """Store that the batch failed. It stays pending in the log, also where that could not be stored."""
        try:
            if not self._closed.is_set():  # a job that a stop cut short has not failed
                self._log.fail(job_set.time, plan_epoch, at_ms, "; ".join(map(str, job_set.errors)))
        except Exception as e:
            self._on_error(f"could not note that batch {job_set.time} failed: a restart runs it again", e)
        self._unfinished.ended(job_set.time, succeeded=False)

    def tell_lost(self, completion: Completion) -> None:
        """Tell listeners of the losses that a durable completion names. Any thread."""
        lost = {stream: outcome.lost for stream, outcome in completion.outcomes.items() if outcome.report and outcome.lost}
        if lost:
            self._bus.post(events.StreamingListenerDataLost(completion.time, lost))

    def __repr__(self) -> str:
        return f"<JobScheduler {len(self._job_sets)} batches in hand>"

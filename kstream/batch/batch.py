"""Batch, Job, JobSet: a batch in the driver that runs it, its jobs and their times.

PendingBatches: which batches are in each state. RDDScope: the box in which Spark's pages draw the RDDs of an
operator, or of an operator in one batch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kstream.batch.batch_info import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch.figures import OutputFigures, StateFigures
from kstream.batch.plan import BatchDelays, BatchPlan, InputOutcome, OutcomeFigures, PlannedInput, StateCheckpoint
from kstream.batch_time import Duration, Time, format_batch_time
from kstream.errors import traceback_of, with_record

_LONG_NAME = 10


@dataclass(slots=True, eq=False)
class Batch:
    """A batch with its plan. Where it stands is known by `BatchLifecycle`. Only the JobGenerator's thread sets attributes.

    Attributes:
        plan: the plan as the log stores it.
        inputs: the same plan of each input as an object, by stream id.
        submission_ms: since when the batch has waited only for its turn, in ms since the Unix epoch.
        repairs: how often the batch was generated again because blocks or files of a state were gone.
        generated_after: how often the driver had gone back to written states when the batch was generated.
    """

    plan: BatchPlan
    inputs: Mapping[int, PlannedInput]
    submission_ms: int | None = None
    repairs: int = 0
    generated_after: int = 0

    @property
    def time(self) -> Time:
        return self.plan.time

    def __repr__(self) -> str:
        return f"<batch {self.time}>"


@dataclass(frozen=True, slots=True)
class RDDScope:
    """A box in Spark's pages. `id` identifies the box, and `name` is its label: the name of the operator."""

    id: str
    name: str

    def of_batch(self, time: Time, interval: Duration) -> RDDScope:
        """Return this operator's box in one batch, as Spark's DStream.makeScope does.

        Its id is `<id>_<batch time in ms>`, its name `<name> @ <batch time>`, in two lines if the name is long.
        """
        gap = "\n" if len(self.name) > _LONG_NAME else " "
        return RDDScope(f"{self.id}_{time.milliseconds}", f"{self.name}{gap}@ {format_batch_time(time, interval)}")

    def to_json(self) -> str:
        """Return the JSON text that Spark reads from the local property `spark.rdd.scope`."""
        return json.dumps({"id": self.id, "name": self.name}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class SucceededOutput:
    """An output operation that succeeded in a try of its batch that failed.

    Attributes:
        number: the number of the operation in the graph.
        name: its name, for people.
        outputs: the names of what it writes exactly once. That stays as it is, whichever driver runs the batch.
    """

    number: int
    name: str
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.outputs:
            return f"output operation {self.number}, {self.name}"
        return f"output {', '.join(map(repr, self.outputs))}, {self.name}"


@dataclass(slots=True, eq=False)
class Job:
    """One output operation of one batch. Times are milliseconds since the Unix epoch, None before they come.

    Attributes:
        time: the batch time.
        output_op_id: the number of the output in the graph.
        run: runs the output operation. Blocks until its Spark jobs have ended. Their error is raised. Returns what was measured.
        name: the name of the operation, for people.
        call_site: the place of the operation in the user's code, for people.
        scope: the box in which Spark's pages draw the RDDs that the job makes.
        outputs: the names of what the operation writes exactly once.
        error: the error with which the job ended, if any.
        figures: what `run` has measured.
    """

    time: Time
    output_op_id: int
    run: Callable[[], OutputFigures | None]
    name: str = ""
    call_site: str = ""
    scope: RDDScope | None = None
    outputs: tuple[str, ...] = ()
    start_ms: int | None = None
    end_ms: int | None = None
    error: BaseException | None = None
    figures: OutputFigures = field(default_factory=OutputFigures)

    @property
    def id(self) -> str:
        """The name of the job in logs."""
        return f"streaming job {self.time} ({self.output_op_id})"

    def to_info(self) -> OutputOperationInfo:
        """Return the facts about this job for listeners."""
        reason = None if self.error is None else traceback_of(self.error)
        line = None if self.error is None else with_record(self.error)
        return OutputOperationInfo(
            self.time, self.output_op_id, self.name, self.call_site, self.start_ms, self.end_ms, reason, line, self.figures
        )


@dataclass(slots=True, eq=False)
class JobSet:
    """The jobs of a batch and their progress. Only the JobScheduler changes it. Times are milliseconds since the Unix epoch.

    The methods take this set's lock: `has_ended` is called in job threads, the others on the JobScheduler's event thread.
    """

    time: Time
    jobs: list[Job]
    inputs: Mapping[int, StreamInputInfo]
    submission_ms: int
    tries: int = 1
    """How often the jobs have been submitted, with this time."""
    processing_start_ms: int | None = None
    processing_end_ms: int | None = None
    states: Mapping[str, StateCheckpoint] = field(default_factory=dict[str, StateCheckpoint])
    """The checkpoints of state that the batch's completion, or the record of its failure, is to name. Set in a job thread, before the last
    JobCompleted is posted."""
    state_figures: StateFigures = field(default_factory=StateFigures)
    """What was measured of the states. Set in a job thread, before the last JobCompleted is posted."""
    state_error: BaseException | None = None
    """The error with which the batch's state could not be computed. Set in a job thread, before the last JobCompleted is posted."""
    was_started: bool = False
    """Whether a job of this set, or of an earlier try, has started."""
    _incomplete: set[int] = field(default_factory=set[int])
    _not_ended: set[int] = field(default_factory=set[int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._incomplete = {job.output_op_id for job in self.jobs}
        self._not_ended = set(self._incomplete)

    def handle_start(self, at_ms: int) -> bool:
        """Note the start of a job; return whether it is the first start of the batch in this driver."""
        with self._lock:
            if self.processing_start_ms is None:
                self.processing_start_ms = at_ms
            is_first, self.was_started = not self.was_started, True
            return is_first

    def has_ended(self, job: Job) -> bool:
        """Note that a job has ended, in success or failure; return whether it was the last of the set.

        Called in the thread of the job, before the event thread hears of the end (`handle_completion`). The thread of the last job then
        writes the states of the batch.
        """
        with self._lock:
            self._not_ended.discard(job.output_op_id)
            return not self._not_ended

    def handle_completion(self, job: Job, at_ms: int) -> bool:
        """Note the end of a job, in success or failure; with the last job also that of the batch. Return whether it was the last."""
        with self._lock:
            self._incomplete.discard(job.output_op_id)
            if self._incomplete:
                return False
            self.processing_end_ms = at_ms
            return True

    def waiting_jobs(self) -> list[Job]:
        """Return the jobs that have not ended: at a submission all, or in a retry those that had not succeeded."""
        with self._lock:
            return [job for job in self.jobs if job.output_op_id in self._incomplete]

    def for_retry(self, jobs: Sequence[Job]) -> JobSet:
        """Return the set of the next try: jobs that have succeeded are kept, and the others are replaced by these.

        Args:
            jobs: the jobs of the same outputs, generated again.
        """
        kept = {job.output_op_id: job for job in self.jobs if job.error is None and job.output_op_id not in self._incomplete}
        retry = JobSet(self.time, [kept.get(job.output_op_id, job) for job in jobs], self.inputs, self.submission_ms, self.tries + 1)
        retry.was_started = self.was_started
        retry._incomplete -= kept.keys()
        retry._not_ended -= kept.keys()
        return retry

    @property
    def errors(self) -> list[BaseException]:
        """The errors of the jobs that failed, in the order of the outputs."""
        return [job.error for job in self.jobs if job.error is not None]

    @property
    def succeeded(self) -> tuple[SucceededOutput, ...]:
        """The output operations whose jobs ended without an error, by their numbers. Only after all jobs have ended."""
        done = sorted((job for job in self.jobs if job.error is None), key=lambda job: job.output_op_id)
        return tuple(SucceededOutput(job.output_op_id, job.name, job.outputs) for job in done)

    @property
    def all_errors(self) -> list[BaseException]:
        """The errors of the jobs that failed, and that of the batch's state if it could not be computed."""
        return self.errors if self.state_error is None else [*self.errors, self.state_error]

    @property
    def delays(self) -> BatchDelays | None:
        """The delays of the batch; None before its last job has ended."""
        start, end = self.processing_start_ms, self.processing_end_ms
        return None if start is None or end is None else BatchDelays(start - self.submission_ms, end - start, self.tries)

    @property
    def figures(self) -> OutcomeFigures:
        """What was measured of the states, and of the jobs that have figures."""
        return OutcomeFigures(self.state_figures, tuple(job.to_info() for job in self.jobs if job.figures.known()))

    def note_outcomes(self, outcomes: Mapping[int, InputOutcome]) -> None:
        """Note what the tasks have found of each input, by stream id. Called on the JobScheduler's event thread."""
        known = {number: (info, outcomes.get(number, InputOutcome())) for number, info in self.inputs.items()}
        self.inputs = {
            number: replace(info, figures=found.figures(self.processing_end_ms), skipped=found.skipped, record_errors=found.errors)
            for number, (info, found) in known.items()
        }

    def to_batch_info(self) -> BatchInfo:
        """Return the facts about the batch for listeners."""
        outputs = {job.output_op_id: job.to_info() for job in self.jobs}
        return BatchInfo(
            self.time,
            self.inputs,
            self.submission_ms,
            self.processing_start_ms,
            self.processing_end_ms,
            outputs,
            self.tries,
            self.state_figures,
        )


@dataclass(frozen=True, slots=True)
class PendingBatches:
    """The batches that have not succeeded, at one moment.

    Attributes:
        running: those that run, or wait for their turn only.
        retrying: those between two tries.
        held: those that wait for an earlier batch that has failed.
        failed: those that have no retry left, or whose completion the store refused.
    """

    running: frozenset[Time] = frozenset()
    retrying: frozenset[Time] = frozenset()
    held: frozenset[Time] = frozenset()
    failed: frozenset[Time] = frozenset()

    def all(self) -> frozenset[Time]:
        """Return all of them."""
        return self.running | self.retrying | self.held | self.failed

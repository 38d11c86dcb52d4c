"""Job (one output operation of one batch) and JobSet (all jobs of a batch), with their times."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kstream.batch.batch_info import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch.rdd_scope import RDDScope
from kstream.batch.state import StateCheckpoint
from kstream.batch_time import Time


@dataclass(slots=True, eq=False)
class Job:
    """One output operation of one batch. Times are milliseconds since the Unix epoch, None before they come.

    Attributes:
        time: the batch time.
        output_op_id: the number of the output in the graph.
        run: runs the output operation. Blocks until its Spark jobs have ended. Their error is raised.
        name: the name of the operation, for people.
        call_site: the place of the operation in the user's code, for people.
        scope: the box in which Spark's pages draw the RDDs that the job makes.
        error: the error with which the job ended, if any.
    """

    time: Time
    output_op_id: int
    run: Callable[[], None]
    name: str = ""
    call_site: str = ""
    scope: RDDScope | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    error: BaseException | None = None

    @property
    def id(self) -> str:
        """The name of the job in logs."""
        return f"streaming job {self.time} ({self.output_op_id})"

    def to_info(self) -> OutputOperationInfo:
        """Return the facts about this job for listeners."""
        reason = None if self.error is None else "".join(traceback.format_exception(self.error)).rstrip()
        return OutputOperationInfo(self.time, self.output_op_id, self.name, self.call_site, self.start_ms, self.end_ms, reason)


@dataclass(slots=True, eq=False)
class JobSet:
    """The jobs of a batch and their progress. Only the JobScheduler changes it. Times are milliseconds since the Unix epoch.

    The methods take this set's lock: `has_run` is called in job threads, the others on the JobScheduler's event thread.
    """

    time: Time
    jobs: list[Job]
    inputs: Mapping[int, StreamInputInfo]
    submission_ms: int
    processing_start_ms: int | None = None
    processing_end_ms: int | None = None
    states: Mapping[str, StateCheckpoint] = field(default_factory=dict[str, StateCheckpoint])
    """The checkpoints of state that the batch's completion is to name. Set in a job thread, before the last JobCompleted is posted."""
    _incomplete: set[int] = field(default_factory=set[int])
    _not_run: set[int] = field(default_factory=set[int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._incomplete = {job.output_op_id for job in self.jobs}
        self._not_run = set(self._incomplete)

    def handle_start(self, at_ms: int) -> bool:
        """Note the start of a job; return whether it is the first start in the set."""
        with self._lock:
            if self.processing_start_ms is not None:
                return False
            self.processing_start_ms = at_ms
            return True

    def has_run(self, job: Job) -> bool:
        """Note in the job's thread that the job has succeeded; return whether all jobs of the set have succeeded now."""
        with self._lock:
            self._not_run.discard(job.output_op_id)
            return not self._not_run

    def handle_completion(self, job: Job, at_ms: int) -> bool:
        """Note the end of a job, in success or failure; return whether all jobs of the set have ended now."""
        with self._lock:
            self._incomplete.discard(job.output_op_id)
            if self._incomplete:
                return False
            self.processing_end_ms = at_ms
            return True

    @property
    def has_completed(self) -> bool:
        """Whether all jobs have ended."""
        with self._lock:
            return not self._incomplete

    @property
    def errors(self) -> list[BaseException]:
        """The errors of the jobs that failed, in the order of the outputs."""
        return [job.error for job in self.jobs if job.error is not None]

    def to_batch_info(self) -> BatchInfo:
        """Return the facts about the batch for listeners."""
        outputs = {job.output_op_id: job.to_info() for job in self.jobs}
        return BatchInfo(self.time, self.inputs, self.submission_ms, self.processing_start_ms, self.processing_end_ms, outputs)

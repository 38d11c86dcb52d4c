"""Job (one output operation of one batch) and JobSet (all of a batch), with their times."""

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
    """One output operation of one batch: `run()` blocks until its Spark jobs are done and raises what they raise.

    Times are ms since the epoch, None until they happen. `name` and `call_site` are for people, and so is
    `scope`, in which Spark's pages draw the RDDs that the job makes.
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
        return f"streaming job {self.time} ({self.output_op_id})"

    def to_info(self) -> OutputOperationInfo:
        reason = None if self.error is None else "".join(traceback.format_exception(self.error)).rstrip()
        return OutputOperationInfo(self.time, self.output_op_id, self.name, self.call_site, self.start_ms, self.end_ms, reason)


@dataclass(slots=True, eq=False)
class JobSet:
    """The jobs of a batch and how far they are. Changed only by the JobScheduler, under this set's lock."""

    time: Time
    jobs: list[Job]
    inputs: Mapping[int, StreamInputInfo]
    submission_ms: int
    processing_start_ms: int | None = None
    processing_end_ms: int | None = None
    states: Mapping[str, StateCheckpoint] = field(default_factory=dict[str, StateCheckpoint])
    """What of the batch's state was written: set in a job's thread, before the last of the jobs is told as completed."""
    _incomplete: set[int] = field(default_factory=set[int])
    _not_run: set[int] = field(default_factory=set[int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._incomplete = {job.output_op_id for job in self.jobs}
        self._not_run = set(self._incomplete)

    def handle_start(self, at_ms: int) -> bool:
        """Notes the start of a job; returns whether it is the first of the set."""
        with self._lock:
            if self.processing_start_ms is not None:
                return False
            self.processing_start_ms = at_ms
            return True

    def has_run(self, job: Job) -> bool:
        """Notes in a job's own thread that it has run well; returns whether all jobs of the set have now."""
        with self._lock:
            self._not_run.discard(job.output_op_id)
            return not self._not_run

    def handle_completion(self, job: Job, at_ms: int) -> bool:
        """Notes the end of a job, good or bad; returns whether it was the last one."""
        with self._lock:
            self._incomplete.discard(job.output_op_id)
            if self._incomplete:
                return False
            self.processing_end_ms = at_ms
            return True

    @property
    def has_completed(self) -> bool:
        with self._lock:
            return not self._incomplete

    @property
    def errors(self) -> list[BaseException]:
        return [job.error for job in self.jobs if job.error is not None]

    def to_batch_info(self) -> BatchInfo:
        outputs = {job.output_op_id: job.to_info() for job in self.jobs}
        return BatchInfo(self.time, self.inputs, self.submission_ms, self.processing_start_ms, self.processing_end_ms, outputs)

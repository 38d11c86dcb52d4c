"""What the scheduler asks of Spark and of the plan log; filled by `kstream.spark` and `kstream.context`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from kstream.batch import BatchPlan, InputOutcome, Job, KeyHash, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint.state_log import States
from kstream.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import RDD


class JobEnvironment(Protocol):
    """Sets the Spark side of a job thread."""

    def for_job(self, job: Job) -> AbstractContextManager[None]:
        """Around one job, in its thread: the local properties captured at start, the job's description, no job group."""
        ...

    def for_generation(self, time: Time) -> AbstractContextManager[None]:
        """Around the generation of a batch, in the generator's thread."""
        ...

    def cancel_all(self) -> None:
        """Cancels the Spark jobs that job threads are running."""
        ...


class StatePort(Protocol):
    """Turns the RDDs of states into files and back (`kstream.dstream.state_rdd.StateFiles`)."""

    def write(self, time: Time, states: Mapping[str, RDD[Any]]) -> States:
        """Writes a batch's states, by stream, in one job; blocks until they are durable."""
        ...

    def read(self, checkpoint: StateCheckpoint, placed: KeyHash) -> RDD[Any]: ...

    def hashing(self) -> int: ...


class BatchLog(Protocol):
    """The durable side of a batch (`kstream.checkpoint.PlanLog`, or nothing without a checkpoint directory)."""

    epoch: int

    def write_plan(self, plan: BatchPlan) -> None: ...

    def resolve_in_doubt_plan(self) -> BatchPlan | None: ...

    def probe(self) -> None: ...

    def complete(
        self, time: Time, plan_epoch: int, at_ms: int, outcomes: Mapping[int, InputOutcome] = ..., states: States | None = ...
    ) -> States: ...

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None: ...

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str: ...

    def clean(self, up_to: Time) -> None: ...


def check_concurrent_jobs(concurrent_jobs: int) -> int:
    """Returns it; ConfigurationError if it is below 1, or above 1 where Python threads share one JVM thread."""
    if concurrent_jobs < 1:
        raise ConfigurationError(
            f"spark.streaming.concurrentJobs is {concurrent_jobs}; it must be at least 1",
            key="spark.streaming.concurrentJobs", value=concurrent_jobs,
        )  # fmt: skip
    if concurrent_jobs > 1 and os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise ConfigurationError(
            f"spark.streaming.concurrentJobs is {concurrent_jobs}, but PYSPARK_PIN_THREAD=false lets all Python threads share one "
            "JVM thread, so that jobs would mix up their properties: unset PYSPARK_PIN_THREAD or set concurrentJobs to 1",
            key="spark.streaming.concurrentJobs", value=concurrent_jobs,
        )  # fmt: skip
    return concurrent_jobs

"""The ports of the scheduler to Spark and to the plan log. `kstream.spark` and `kstream.context` fill them."""

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
    """Prepares threads for Spark jobs."""

    def for_job(self, job: Job) -> AbstractContextManager[None]:
        """Return a context manager around one job, for the job's thread.

        It sets the local properties that were captured at the start and the job's description, and no job group.
        """
        ...

    def for_generation(self, time: Time) -> AbstractContextManager[None]:
        """Return a context manager around the generation of a batch's jobs, for the JobGenerator's thread."""
        ...

    def cancel_all(self) -> None:
        """Cancel the Spark jobs that job threads are running. Any thread."""
        ...


class StatePort(Protocol):
    """Writes the RDDs of states to files and reads them back (`kstream.dstream.state_rdd.StateFiles`)."""

    def write(self, time: Time, states: Mapping[str, RDD[Any]]) -> States:
        """Write the states of a batch in one Spark job. Blocks until they are durable. An error of the job is raised.

        Args:
            time: the batch.
            states: the RDD of each stream's state, by the id of the state stream.

        Returns:
            The files of each stream's state.
        """
        ...

    def read(self, checkpoint: StateCheckpoint, placed: KeyHash) -> RDD[Any]:
        """Make an RDD of a stored state, in the partitions in which it was written.

        Args:
            checkpoint: the files of the state.
            placed: the hash that placed the keys; Spark takes the partitions as placed by it.
        """
        ...

    def hashing(self) -> int:
        """Return the workers' `portable_hash` of a fixed word. Blocks: one task."""
        ...


class BatchLog(Protocol):
    """Stores plans and completions: `kstream.checkpoint.PlanLog`, or `NoLog` without a checkpoint directory.

    All methods block on the store and raise StorageError if it fails. PlanLog describes each of them fully.
    """

    epoch: int
    """The epoch of this driver."""

    def write_plan(self, plan: BatchPlan) -> None:
        """Make a plan durable. PlanFailedError: it is not stored, or in doubt."""
        ...

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        """Resolve an in-doubt write. Return the plan if it was stored; None if it was not, or if no plan is in doubt."""
        ...

    def probe(self) -> None:
        """Raise FencedError if another driver has taken over."""
        ...

    def complete(
        self, time: Time, plan_epoch: int, at_ms: int, outcomes: Mapping[int, InputOutcome] = ..., states: States | None = ...
    ) -> States:
        """Record that all jobs of a batch have succeeded. Return the states that the durable completion names."""
        ...

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None:
        """Record that a batch failed. It stays pending."""
        ...

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Put a batch into the ledger. Return the command that runs it again."""
        ...

    def clean(self, up_to: Time) -> None:
        """Delete the plans of this time and older that no batch needs."""
        ...


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

"""Completions: stores how the batches of a driver end, and writes what the store refused again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from kstream.batch import Batch, BatchOutcome, InputOutcome, JobSet
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog
from kstream.dstream.graph import DStreamGraph
from kstream.errors import StorageError, is_of_a_task, with_record
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from kstream.scheduler.batch_steps import Retry
from kstream.scheduler.retry_policy import RetryPolicy
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.secret import without_secrets

logger = logging.getLogger(__name__)
OUTCOME_TRIES = 5
"""How often the inputs of a batch are asked for its outcome before the batch is left to a restart."""


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """A batch whose completion is durable, and what it has found."""

    time: Time
    outcome: BatchOutcome


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The result of ending a batch whose jobs have all succeeded.

    Attributes:
        completed: the batch, if its completion is durable; else None.
        trouble: a message and an error for the caller to report; None if there was no error.
    """

    completed: CompletedBatch | None = None
    trouble: tuple[str, Exception] | None = None


@dataclass(frozen=True, slots=True)
class FailedTry:
    """The result of ending a try that failed.

    Attributes:
        is_end: whether listeners hear of the end of the batch: it is the first failure without a retry left, or a stop ended the try.
        is_over: whether this driver does not try the batch again by itself: no retry is left, or a stop ended the try.
    """

    is_end: bool
    is_over: bool


class Completions:
    """Ends the batches of one driver: stores the end, then tells the lifecycle.

    A batch is unfinished until its completion is durable: no commit and no clean-up passes it. A completion that the store refused is
    kept, and the batch stays unfinished. So does a batch whose outcome an input could not report: it is asked again.

    Thread-safe, except `retry`: only one thread at a time may call it, the JobGenerator's or, after its end, the thread that stops.
    """

    def __init__(
        self,
        log: BatchLog,
        states: StateCheckpointer,
        lifecycle: BatchLifecycle,
        graph: DStreamGraph,
        policy: RetryPolicy,
        on_end: Callable[[Time], None],
        waits: bool,
    ) -> None:
        """
        Args:
            log: stores completions and failures.
            states: gets the states that a durable record names.
            lifecycle: knows where each batch stands.
            graph: the streams. Each input and each output is asked for the outcome of a batch when all its jobs have succeeded, and again
                after an error.
            policy: when a failed batch is tried again.
            on_end: on_end(time) is called when `retry` has ended a batch. Must return at once.
            waits: whether a store that is away is waited for. Then a refused completion is a warning and no error: the next plan is an
                error if the store stays away.
        """
        self._log = log
        self._states = states
        self._lifecycle = lifecycle
        self._graph = graph
        self._policy = policy
        self._on_end = on_end
        self._waits = waits

    # -- success

    def complete(self, batch: Batch, outcome: BatchOutcome) -> BatchEnd:
        """End a batch whose jobs have all succeeded. Any thread; blocks on the store.

        Args:
            batch: the batch.
            outcome: without the reports of the inputs and the outputs. They are asked here.

        Returns:
            The result. An error is returned as its `trouble`, and not raised: without a record a restart runs the batch again.
        """
        time = batch.time
        outcome, error = self._ask(time, outcome)
        if error is not None:
            self._lifecycle.not_known(time, outcome)
            return BatchEnd(
                trouble=(f"the outcome of batch {time} is not known: the next batch asks again; a restart before that runs it again", error)
            )
        try:
            self._write(batch, outcome)
        except StorageError as e:
            self._lifecycle.refuse(time, outcome)
            message = f"could not note the end of batch {time}: the next batch tries it again; a restart before that runs the batch again"
            if self._waits and e.outage:
                logger.warning("%s: %s", message, e)
                return BatchEnd()
            return BatchEnd(trouble=(message, e))
        except Exception as e:  # for example CorruptRecordError: a retry would fail as well
            self._lifecycle.leave(time)
            return BatchEnd(trouble=(f"could not note the end of batch {time}: a restart runs the batch again", e))
        return BatchEnd(CompletedBatch(time, outcome))

    def _ask(self, time: Time, outcome: BatchOutcome) -> tuple[BatchOutcome, Exception | None]:
        """Ask the inputs and outputs that have not reported on a batch. Return the outcome with all reports, and an error of one of them.

        An input that has reported is not asked again: it may give a loss only once.
        """
        reports, stored, error = dict(outcome.inputs), dict(outcome.outputs), None
        try:
            for stream in self._graph.active_inputs():
                if stream.id not in reports:
                    reports[stream.id] = stream.outcome_of(time) or InputOutcome()
            for output in self._graph.outputs():
                if output.name not in stored and (found := output.outcome(time)) is not None:
                    stored[output.name] = found
        except Exception as e:
            error = e
        return replace(outcome, inputs=reports, outputs=stored), error

    def _write(self, batch: Batch, outcome: BatchOutcome) -> None:
        """Store a completion. When it is durable, the batch has ended and its states are named. Blocks; the log's error is raised."""
        self._states.named(self._log.complete(batch.time, batch.plan.epoch, outcome))
        for output in self._graph.outputs():  # before the next batch of an ordered output may begin
            try:
                output.committed(batch.time)
            except Exception:
                logger.exception("output %s failed when it was told that the completion of batch %s is stored", output.name, batch.time)
        self._lifecycle.complete(batch.time)

    def retry(self) -> list[CompletedBatch]:
        """Store the kept completions. Blocks on the store; without a kept completion there is no request.

        A StorageError ends this retry and is not raised; the completions that are left are kept. A batch whose outcome stays unknown is
        left to a restart after some tries.

        Returns:
            The batches whose completions are durable now.

        Raises:
            FencedError: another driver has taken over. It runs these batches again, so nothing is written.
        """
        kept = self._lifecycle.kept()
        written: list[CompletedBatch] = []
        if not kept:
            return written
        ended: list[Time] = []
        try:
            self._log.probe()
            for batch, outcome in kept:
                self._try_again(batch, outcome, written, ended)
        except StorageError as e:  # the store is still down: one request is enough; the next retry begins with another completion
            logger.info("completions of batches still cannot be stored, the next batch tries again: %s", e)
        for time in ended:
            self._on_end(time)
        return written

    def _try_again(self, batch: Batch, outcome: BatchOutcome, written: list[CompletedBatch], ended: list[Time]) -> None:
        """Store a kept completion. After a StorageError, which is raised, it is kept.

        Args:
            batch: the batch.
            outcome: what is known of its outcome.
            written: gets the batch if its completion is durable now.
            ended: gets the batch if it has ended: its completion is durable, or it is left to a restart.
        """
        time = batch.time
        outcome, error = self._ask(time, outcome)
        if error is not None:
            tries = self._lifecycle.not_known(time, outcome)
            if tries < OUTCOME_TRIES:
                logger.info("the outcome of batch %s is still not known, the next batch asks again: %s", time, error)
                return
            logger.error("batch %s: its outcome is not known after %d tries, so a restart runs it again: %s", time, tries, error)
            self._lifecycle.leave(time)
            ended.append(time)
            return
        try:
            self._write(batch, outcome)
        except StorageError:
            self._lifecycle.refuse(time, outcome)
            raise
        except Exception as e:  # for example CorruptRecordError: a retry would fail as well
            logger.error("batch %s: its completion could not be stored, so a restart runs it again: %s", time, e)
            self._lifecycle.leave(time)
        else:
            logger.warning("batch %s: its completion is now stored, after a delay: no restart runs it again", time)
            written.append(CompletedBatch(time, outcome))
        ended.append(time)

    # -- failure

    def reports_failure_of(self, time: Time) -> bool:
        """Return whether a failure of the current try of a batch is reported: if it is the first without a retry left."""
        return self._lifecycle.failures(time) == self._policy.retries

    def fail(self, batch: Batch, at_ms: int, reason: str, job_set: JobSet | None, stopped: bool) -> FailedTry:
        """End a try that failed. The batch stays pending in the log, also if the store refuses the record. Any thread; blocks on the store.

        While retries are left, nothing is stored. The first failure without a retry left is recorded, with the states that were written
        nevertheless. The record and the log have the reason without secrets: others may read them.

        Args:
            batch: the batch.
            at_ms: when the try ended, in milliseconds since the Unix epoch.
            reason: the errors, for people.
            job_set: the jobs of the try; None if they could not be generated.
            stopped: whether a stop has ended the jobs: that is no failure of the batch.
        """
        time, is_first = batch.time, self.reports_failure_of(batch.time)
        tries = self._lifecycle.failures(time) + 1
        is_over = stopped or self._policy.is_used_up(tries)
        if is_over and is_first and not stopped:
            self._record(batch, at_ms, without_secrets(reason), job_set)
        state_failed = job_set is not None and job_set.state_error is not None
        # Without a retry left, the states before the batch stay in memory only if later batches wait for it.
        retry = self._lifecycle.fail(time, state_failed, self._policy.hold or not self._states.has_states, stopped)
        if not stopped:
            self._log_failure(batch, tries, retry, reason, job_set, is_first)
        return FailedTry(is_first or stopped, is_over)

    def _record(self, batch: Batch, at_ms: int, reason: str, job_set: JobSet | None) -> None:
        """Store that a batch has failed. Without the record the batch is pending, too."""
        states = None if job_set is None else job_set.states
        succeeded = () if job_set is None else job_set.succeeded
        try:
            self._states.named(self._log.fail(batch.time, batch.plan.epoch, at_ms, reason, states, succeeded))
        except Exception as e:
            logger.warning("could not note that batch %s failed: a restart runs it again: %s", batch.time, e)

    def _log_failure(self, batch: Batch, tries: int, retry: Retry, reason: str, job_set: JobSet | None, is_first: bool) -> None:
        """Log a failed try. `is_first`: it is the first without a retry left; who reports its error logs it, too."""
        line, delay_s = " ".join(without_secrets(reason).split()), self._policy.delay_ms(tries) / 1000
        if retry is Retry.BACK_OFF:
            text = "batch %s failed, try %d of %d; the driver tries it again in %g s: %s"
            logger.warning(text, batch.time, tries, self._policy.retries + 1, delay_s, line)
        elif not is_first:
            logger.warning("batch %s failed again, try %d; the driver tries it again in %g s: %s", batch.time, tries, delay_s, line)
        if retry is Retry.EXHAUSTED:
            logger.warning("batch %s has no retry left: the next start runs it again", batch.time)
        for error in () if job_set is None or is_first else job_set.errors:
            logger.debug("batch %s, the whole error:", batch.time, exc_info=error)


def reason_of(job_set: JobSet) -> str:
    """Return the errors of the jobs that failed, for people."""
    return "; ".join(with_record(e) if is_of_a_task(e) else str(e) for e in job_set.errors)

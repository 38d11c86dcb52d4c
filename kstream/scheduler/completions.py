"""Completions: records how batches end, and keeps the completions that the store refused until it accepts them.

UnfinishedBatches: the batches that have not succeeded, and the time up to which clean-up may go.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kstream.batch import Batch, BatchCounts, BatchDelays, BatchState, InputOutcome, PendingBatches, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog
from kstream.checkpoint.state_log import States
from kstream.errors import StorageError
from kstream.loop import THREADS, Runtime
from kstream.scheduler.state_checkpointer import StateCheckpointer

logger = logging.getLogger(__name__)


class UnfinishedBatches:
    """The planned batches that have not succeeded: running, waiting or failed. Thread-safe.

    A batch waits while an earlier one holds it, and between two tries. A failed batch has no retry left; it stays in here until a later
    try succeeds, or its completion is stored later.
    """

    def __init__(self, runtime: Runtime = THREADS) -> None:
        self._running: set[Time] = set()
        self._waiting: set[Time] = set()
        self._between_tries: set[Time] = set()
        """Those of the waiting batches that have failed and are tried again."""
        self._failed: set[Time] = set()
        self._retries = 0
        self._newest_ended: Time | None = None
        self._newest_planned: Time | None = None
        self._starts = 0
        self._lock = threading.Lock()
        self._none_running = runtime.event()
        self._none_running.set()
        self._none_open = runtime.event()
        self._none_open.set()

    def planned(self, time: Time) -> None:
        """Add a batch whose plan is durable, or one that is tried again. It counts as running."""
        with self._lock:
            self._starts += 1
            self._retries += time in self._between_tries or time in self._failed
            self._running.add(time)
            self._waiting.discard(time)
            self._between_tries.discard(time)
            self._failed.discard(time)
            self._newest_planned = time if self._newest_planned is None else max(time, self._newest_planned)
            self._tell()

    def waits(self, time: Time, between_tries: bool = False) -> None:
        """Mark a batch as waiting: an earlier batch holds it; or its last try failed and retries are left (`between_tries`)."""
        with self._lock:
            self._running.discard(time)
            self._waiting.add(time)
            if between_tries:
                self._between_tries.add(time)
            self._tell()

    def _tell(self) -> None:
        """Set the events to what holds now. Call this under the lock."""
        for event, batches in (self._none_running, self._running), (self._none_open, self._running | self._waiting):
            if batches:
                event.clear()
            else:
                event.set()

    def ended(self, time: Time, succeeded: bool) -> None:
        """Mark a batch as ended: remove it if it succeeded, else keep it as failed. May be called again, with another result."""
        with self._lock:
            self._running.discard(time)
            self._waiting.discard(time)
            self._between_tries.discard(time)
            if succeeded:
                self._failed.discard(time)
            else:
                self._failed.add(time)
            if self._newest_ended is None or time > self._newest_ended:
                self._newest_ended = time
            self._tell()

    def clean_up_to(self) -> Time | None:
        """Return the time T up to which batches may be forgotten in memory, except the remember duration before T.

        T is the newest batch that has ended, or the oldest running or waiting batch if that is older. None before the first end.
        """
        with self._lock:
            if self._newest_ended is None:
                return None
            return min({self._newest_ended, *self._running, *self._waiting})

    def all(self) -> set[Time]:
        """Return all batches that have not succeeded. Their plans must be kept."""
        with self._lock:
            return self._running | self._waiting | self._failed

    def newest_planned(self) -> Time | None:
        """Return the newest batch that this driver has planned or run again; None before the first."""
        with self._lock:
            return self._newest_planned

    def counts(self) -> BatchCounts:
        """Return how many batches are in each state at this moment."""
        with self._lock:
            held = self._waiting - self._between_tries
            oldest = min(self._running | self._waiting | self._failed, default=None)
            return BatchCounts(len(self._running), len(self._between_tries), len(held), len(self._failed), oldest)

    def pending(self) -> PendingBatches:
        """Return which batches are in each state at this moment."""
        with self._lock:
            retrying = frozenset(self._between_tries)
            return PendingBatches(frozenset(self._running), retrying, frozenset(self._waiting - retrying), frozenset(self._failed))

    def failed(self) -> set[Time]:
        """Return the batches that have failed and have no retry left, and those whose completion the store refused."""
        with self._lock:
            return set(self._failed)

    @property
    def retries(self) -> int:
        """How often a batch that had failed was tried again, so far."""
        with self._lock:
            return self._retries

    @property
    def starts(self) -> int:
        """How often a batch began to run, so far."""
        with self._lock:
            return self._starts

    def in_line(self) -> set[Time]:
        """Return the batches that run, or wait for an earlier one. A batch between two tries is not among them: no batch waits for it."""
        with self._lock:
            return self._running | (self._waiting - self._between_tries)

    def open(self) -> set[Time]:
        """Return the batches that run or wait."""
        with self._lock:
            return self._running | self._waiting

    def wait_none_running(self, timeout: float) -> bool:
        """Block until no batch runs; return False if `timeout` seconds passed first. A batch that waits does not run."""
        return self._none_running.wait(timeout)

    def wait_none_open(self, timeout: float) -> bool:
        """Block until no batch runs or waits; return False if `timeout` seconds passed first."""
        return self._none_open.wait(timeout)


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of a batch whose jobs have all succeeded.

    Attributes:
        batch: the batch.
        at_ms: when its last job ended, in milliseconds since the Unix epoch.
        outcomes: the report of each input about the batch, by stream id.
        states: the checkpoints of state that the completion record is to name.
        delays: of the batch; None if it had no jobs.
    """

    batch: Batch
    at_ms: int
    outcomes: Mapping[int, InputOutcome] = field(default_factory=dict[int, InputOutcome])
    states: States = field(default_factory=dict[str, StateCheckpoint])
    delays: BatchDelays | None = None

    @property
    def time(self) -> Time:
        """The batch time."""
        return self.batch.time


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a batch. `is_recorded`: False if a stop ended its jobs, or if an earlier failure is recorded."""

    reason: str
    is_recorded: bool = True


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The result of ending a batch.

    Attributes:
        completion: the completion, if it is durable; else None.
        trouble: a message and an error for the caller to report; None if there was no error.
    """

    completion: Completion | None = None
    trouble: tuple[str, Exception] | None = None


class Completions:
    """Ends the batches of one driver.

    A batch is unfinished until its completion is durable: no commit and no clean-up passes it. A completion that the store refused is
    kept, and the batch stays unfinished. So there are never more kept completions than unfinished batches.

    Thread-safe, except `retry`: only one thread at a time may call it, the JobGenerator's or, after its end, the thread that stops.
    """

    def __init__(
        self,
        log: BatchLog,
        states: StateCheckpointer,
        unfinished: UnfinishedBatches,
        outcomes: Callable[[Time], Mapping[int, InputOutcome]],
        on_end: Callable[[Time], None],
        waits: bool,
    ) -> None:
        """
        Args:
            log: stores completions and failures.
            states: gets the states that a durable completion names.
            unfinished: the batches that have not succeeded.
            outcomes: outcomes(time) returns the reports of a batch's inputs. Called once per batch, when all its jobs have succeeded.
            on_end: on_end(time) is called when a batch has ended, in success or failure, by the thread that ended it. Must return at once.
            waits: whether a store that is away is waited for. Then a refused completion is a warning and no error: the next plan is an
                error if the store stays away.
        """
        self._log = log
        self._waits = waits
        self._states = states
        self._unfinished = unfinished
        self._outcomes = outcomes
        self._on_end = on_end
        self._kept: deque[Completion] = deque()
        self._lock = threading.Lock()

    def end(
        self,
        batch: Batch,
        at_ms: int,
        states: States | None = None,
        failure: Failure | None = None,
        delays: BatchDelays | None = None,
    ) -> BatchEnd:
        """End a batch that no longer runs. Any thread, once for each try without retries left; blocks on the store.

        Args:
            batch: its plan is durable.
            at_ms: when its last job ended, in milliseconds since the Unix epoch.
            states: the checkpoints of state that its completion, or the record of its failure, is to name.
            failure: the reason for which the batch stays pending; None if all its jobs have succeeded.
            delays: of the batch; None if it had no jobs, or has failed.

        Returns:
            The result. An error is returned as its `trouble`, and not raised: without a record a restart runs the batch again.
        """
        try:
            if failure is not None:
                return self._fail(batch, at_ms, states or {}, failure)
            return self._complete(batch, at_ms, states or {}, delays)
        finally:
            self._on_end(batch.time)

    def _fail(self, batch: Batch, at_ms: int, states: States, failure: Failure) -> BatchEnd:
        """Record a failure with its states. The batch stays pending in the log, also if the store refuses the record."""
        trouble = None
        try:
            if failure.is_recorded:
                self._states.named(self._log.fail(batch.time, batch.plan.epoch, at_ms, failure.reason, states))
        except Exception as e:
            trouble = f"could not note that batch {batch.time} failed: a restart runs it again", e
        self._pending(batch)
        return BatchEnd(trouble=trouble)

    def _complete(self, batch: Batch, at_ms: int, states: States, delays: BatchDelays | None) -> BatchEnd:
        """Store the completion of a batch. If the store refuses it, keep it for `retry`; the batch stays pending until then."""
        try:
            completion = Completion(batch, at_ms, self._outcomes(batch.time), states, delays)
        except Exception as e:
            self._pending(batch)
            return BatchEnd(trouble=(f"the outcome of batch {batch.time} is not known: a restart runs the batch again", e))
        try:
            self._write(completion)
        except Exception as e:
            self._pending(batch)  # before `_keep`: a retry on another thread marks the batch as succeeded, and that must come last
            if isinstance(e, StorageError):
                self._keep(completion)
                if self._waits and e.outage:
                    logger.warning("%s: %s", _not_noted(batch.time, e), e)
                    return BatchEnd()
            return BatchEnd(trouble=(_not_noted(batch.time, e), e))
        return BatchEnd(completion)

    def wait_for_retry(self, batch: Batch) -> None:
        """Mark a batch as failed in this try and waiting for the next one. Any thread."""
        batch.become(BatchState.FAILED)
        self._unfinished.waits(batch.time, between_tries=True)

    def _pending(self, batch: Batch) -> None:
        """Mark a batch as failed. It stays unfinished."""
        batch.become(BatchState.FAILED)
        self._unfinished.ended(batch.time, succeeded=False)

    def retry(self) -> list[Completion]:
        """Store the kept completions. Blocks on the store; without a kept completion there is no request.

        A StorageError ends this retry and is not raised; the completions that are left are kept.

        Returns:
            The completions that are durable now.

        Raises:
            FencedError: another driver has taken over. It runs these batches again, so nothing is written.
        """
        written: list[Completion] = []
        try:
            if not self._has_kept():
                return written
            self._log.probe()
            while (completion := self._next()) is not None:
                if self._written_late(completion):
                    written.append(completion)
        except StorageError as e:  # the store is still down: one request is enough; the next retry begins with another completion
            logger.info("completions of batches still cannot be stored, the next batch tries again: %s", e)
        for completion in written:
            self._on_end(completion.time)
        return written

    def _written_late(self, completion: Completion) -> bool:
        """Store one completion that was refused before; return whether it is durable. After a StorageError it is kept."""
        try:
            self._write(completion)
        except StorageError:
            self._keep(completion)
            raise
        except Exception as e:  # for example CorruptRecordError: a retry would fail as well
            logger.error("batch %s: its completion could not be stored, so a restart runs it again: %s", completion.time, e)
            return False
        logger.warning("batch %s: its completion is now stored, after a delay: no restart runs it again", completion.time)
        return True

    def _has_kept(self) -> bool:
        """Return whether any completion is kept."""
        with self._lock:
            return bool(self._kept)

    def _next(self) -> Completion | None:
        """Remove and return the oldest kept completion; None if there is none."""
        with self._lock:
            return self._kept.popleft() if self._kept else None

    def _keep(self, completion: Completion) -> None:
        """Keep a completion for `retry`."""
        with self._lock:
            self._kept.append(completion)

    def _write(self, completion: Completion) -> None:
        """Store a completion. When it is durable, mark its batch as ended and its states as named. Blocks; the log's error is raised."""
        batch, c = completion.batch, completion
        self._states.named(self._log.complete(batch.time, batch.plan.epoch, c.at_ms, c.outcomes, c.states, c.delays))
        batch.become(BatchState.ENDED)
        self._unfinished.ended(batch.time, succeeded=True)


def _not_noted(time: Time, error: Exception) -> str:
    """Return the message about a batch whose completion could not be stored."""
    if isinstance(error, StorageError):
        return f"could not note the end of batch {time}: the next batch tries it again; a restart before that runs the batch again"
    return f"could not note the end of batch {time}: a restart runs the batch again"

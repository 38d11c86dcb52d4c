"""Completions: records how batches end. Keeps what could not be stored until it can: refused completions, and unknown outcomes.

UnfinishedBatches: the batches that have not succeeded, and the time up to which clean-up may go.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from kstream.batch import Batch, BatchCounts, BatchDelays, BatchState, InputOutcome, PendingBatches, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog
from kstream.checkpoint.state_log import States
from kstream.errors import StorageError
from kstream.loop import THREADS, Runtime
from kstream.scheduler.state_checkpointer import StateCheckpointer

logger = logging.getLogger(__name__)
OUTCOME_TRIES = 5
"""How often the inputs of a batch are asked for its outcome before the batch is left to a restart."""


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
        self._are_held = False
        """Whether the waiting batches that are not between two tries wait for one that has failed; else they wait for their turn."""
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

    def are_held(self, by_failed: bool) -> None:
        """Note whether the batches that have not run yet wait for one that has failed. Else they only wait for their turn."""
        with self._lock:
            self._are_held = by_failed

    def _not_tried_yet(self) -> tuple[set[Time], set[Time]]:
        """Return the batches that run or are about to, and those that a failed one holds. Call this under the lock."""
        waiting = self._waiting - self._between_tries
        return (set(self._running), waiting) if self._are_held else (self._running | waiting, set())

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
            running, held = self._not_tried_yet()
            oldest = min(self._running | self._waiting | self._failed, default=None)
            return BatchCounts(len(running), len(self._between_tries), len(held), len(self._failed), oldest)

    def pending(self) -> PendingBatches:
        """Return which batches are in each state at this moment."""
        with self._lock:
            running, held = self._not_tried_yet()
            return PendingBatches(frozenset(running), frozenset(self._between_tries), frozenset(held), frozenset(self._failed))

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

    def num_in_line(self) -> int:
        """Return the number of batches that run, or wait for an earlier one."""
        with self._lock:
            return len(self._running) + len(self._waiting) - len(self._between_tries)

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

    def __contains__(self, time: Time) -> bool:
        """Return whether a batch has not succeeded. Costs the same whatever the number of batches."""
        with self._lock:
            return time in self._running or time in self._waiting or time in self._failed

    def not_tried(self, time: Time, between_tries: bool) -> None:
        """Take back that a failed batch was `planned` again: it could not start, and waits as before (`between_tries`: it has retries)."""
        with self._lock:
            self._retries -= 1
        if between_tries:
            self.waits(time, between_tries=True)
        else:
            self.ended(time, succeeded=False)


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


class ReportsOutcome(Protocol):
    """An input stream that reports what the jobs of a batch have found. Implemented by `InputDStream`."""

    @property
    def id(self) -> int:
        """The stream id."""
        ...

    def outcome_of(self, time: Time) -> InputOutcome | None:
        """Return the outcome of a batch; None if its plan is not kept. Called again only after an error. Any thread."""
        ...


@dataclass(slots=True, eq=False)
class _Success:
    """A batch whose jobs have all succeeded and whose completion is not durable yet. Only one thread at a time has it.

    Attributes:
        batch, at_ms, states, delays: as of Completion.
        outcomes: what its inputs have reported so far. An input that has reported is not asked again: it may give a loss only once.
        tries: how often an input could not report.
    """

    batch: Batch
    at_ms: int
    states: States
    delays: BatchDelays | None
    outcomes: dict[int, InputOutcome | None] = field(default_factory=dict[int, InputOutcome | None])
    tries: int = 0


class Completions:
    """Ends the batches of one driver.

    A batch is unfinished until its completion is durable: no commit and no clean-up passes it. A completion that the store refused is
    kept, and the batch stays unfinished. So does a batch whose outcome an input could not report: it is asked again. So there are never
    more kept ones than unfinished batches.

    Thread-safe, except `retry`: only one thread at a time may call it, the JobGenerator's or, after its end, the thread that stops.
    """

    def __init__(
        self,
        log: BatchLog,
        states: StateCheckpointer,
        unfinished: UnfinishedBatches,
        inputs: Callable[[], Iterable[ReportsOutcome]],
        on_end: Callable[[Time], None],
        waits: bool,
    ) -> None:
        """
        Args:
            log: stores completions and failures.
            states: gets the states that a durable completion names.
            unfinished: the batches that have not succeeded.
            inputs: returns the inputs. Each is asked for the outcome of a batch when all its jobs have succeeded, and again after an error.
            on_end: on_end(time) is called when `retry` has ended a batch. Must return at once.
            waits: whether a store that is away is waited for. Then a refused completion is a warning and no error: the next plan is an
                error if the store stays away.
        """
        self._log = log
        self._waits = waits
        self._states = states
        self._unfinished = unfinished
        self._inputs = inputs
        self._on_end = on_end
        self._kept: deque[_Success] = deque()
        self._left: frozenset[Time] = frozenset()
        self._lock = threading.Lock()

    @property
    def left_to_a_restart(self) -> Set[Time]:
        """The batches that have run, and whose completion this driver cannot store. No batch waits for them. Any thread."""
        with self._lock:
            return self._left

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
        if failure is not None:
            return self._fail(batch, at_ms, states or {}, failure)
        return self._complete(batch, at_ms, states or {}, delays)

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
        """Store the completion of a batch. If that fails for now, keep it for `retry`; the batch stays pending until then."""
        time, success = batch.time, _Success(batch, at_ms, states, delays)
        try:
            completion = self._completion(success)
        except Exception as e:
            self._pending(batch)  # before `_keep`: a retry on another thread marks the batch as succeeded, and that must come last
            self._keep(success)
            return BatchEnd(
                trouble=(f"the outcome of batch {time} is not known: the next batch asks again; a restart before that runs it again", e)
            )
        try:
            self._write(completion)
        except StorageError as e:
            self._pending(batch)
            self._keep(success)
            message = f"could not note the end of batch {time}: the next batch tries it again; a restart before that runs the batch again"
            if self._waits and e.outage:
                logger.warning("%s: %s", message, e)
                return BatchEnd()
            return BatchEnd(trouble=(message, e))
        except Exception as e:  # for example CorruptRecordError: a retry would fail as well
            self._pending(batch)
            self._leave(time)
            return BatchEnd(trouble=(f"could not note the end of batch {time}: a restart runs the batch again", e))
        return BatchEnd(completion)

    def _completion(self, success: _Success) -> Completion:
        """Return the completion of a batch. Ask the inputs that have not reported on it; an error of an input is raised, and counted."""
        try:
            for stream in self._inputs():
                if stream.id not in success.outcomes:
                    success.outcomes[stream.id] = stream.outcome_of(success.batch.time)
        except Exception:
            success.tries += 1
            raise
        known = {number: outcome for number, outcome in success.outcomes.items() if outcome is not None}
        return Completion(success.batch, success.at_ms, known, success.states, success.delays)

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

        A StorageError ends this retry and is not raised; the completions that are left are kept. A batch whose outcome stays unknown is
        left to a restart after some tries.

        Returns:
            The completions that are durable now.

        Raises:
            FencedError: another driver has taken over. It runs these batches again, so nothing is written.
        """
        written: list[Completion] = []
        ended: list[Time] = []
        try:
            count = self._count()
            if not count:
                return written
            self._log.probe()
            for _ in range(count):
                self._try_again(written, ended)
        except StorageError as e:  # the store is still down: one request is enough; the next retry begins with another completion
            logger.info("completions of batches still cannot be stored, the next batch tries again: %s", e)
        for time in ended:
            self._on_end(time)
        return written

    def _try_again(self, written: list[Completion], ended: list[Time]) -> None:
        """Store the oldest kept completion. After a StorageError, which is raised, it is kept.

        Args:
            written: gets the completion if it is durable now.
            ended: gets the batch if it has ended: its completion is durable, or it is left to a restart.
        """
        success = self._next()
        time = success.batch.time
        try:
            completion = self._completion(success)
        except Exception as e:
            if success.tries < OUTCOME_TRIES:
                self._keep(success)
                logger.info("the outcome of batch %s is still not known, the next batch asks again: %s", time, e)
                return
            logger.error("batch %s: its outcome is not known after %d tries, so a restart runs it again: %s", time, success.tries, e)
            self._leave(time)
            ended.append(time)
            return
        try:
            self._write(completion)
        except StorageError:
            self._keep(success)
            raise
        except Exception as e:  # for example CorruptRecordError: a retry would fail as well
            logger.error("batch %s: its completion could not be stored, so a restart runs it again: %s", time, e)
            self._leave(time)
        else:
            logger.warning("batch %s: its completion is now stored, after a delay: no restart runs it again", time)
            written.append(completion)
        ended.append(time)

    def _count(self) -> int:
        """Return the number of kept completions."""
        with self._lock:
            return len(self._kept)

    def _next(self) -> _Success:
        """Remove and return the kept completion that was kept first. There must be one."""
        with self._lock:
            return self._kept.popleft()

    def _keep(self, success: _Success) -> None:
        """Keep what a completion needs for `retry`."""
        with self._lock:
            self._kept.append(success)

    def _leave(self, time: Time) -> None:
        """Leave a batch to a restart. It stays unfinished in the log."""
        with self._lock:
            self._left |= {time}

    def _write(self, completion: Completion) -> None:
        """Store a completion. When it is durable, mark its batch as ended and its states as named. Blocks; the log's error is raised."""
        batch, c = completion.batch, completion
        self._states.named(self._log.complete(batch.time, batch.plan.epoch, c.at_ms, c.outcomes, c.states, c.delays))
        batch.become(BatchState.ENDED)
        self._unfinished.ended(batch.time, succeeded=True)

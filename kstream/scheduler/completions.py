"""Completions: the one way in which batches end. Stores how, and keeps what the store refused until it can be stored."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kstream.batch import Batch, BatchState, InputOutcome, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint.state_log import States
from kstream.errors import StorageError
from kstream.scheduler.ports import BatchLog
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of a batch whose jobs have all succeeded. `at_ms`: when they had, milliseconds since the Unix epoch."""

    batch: Batch
    at_ms: int
    outcomes: Mapping[int, InputOutcome] = field(default_factory=dict[int, InputOutcome])
    states: States = field(default_factory=dict[str, StateCheckpoint])

    @property
    def time(self) -> Time:
        return self.batch.time


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch that failed. `cut_short`: by a stop, which is no failure to note."""

    reason: str
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """How a batch ended. `completion` is there if a durable record says that it succeeded; `trouble` is to be reported."""

    completion: Completion | None = None
    trouble: tuple[str, Exception] | None = None


class Completions:
    """For one driver. Thread-safe, but for `retry`, which one thread calls: the JobGenerator's.

    A batch counts as unfinished until its completion is durable: no commit and no clean-up passes it. A completion that the store refused
    is kept, so there are never more of them than unfinished batches.
    """

    def __init__(
        self,
        log: BatchLog,
        states: StateCheckpointer,
        unfinished: UnfinishedBatches,
        outcomes: Callable[[Time], Mapping[int, InputOutcome]],
        on_end: Callable[[Time], None],
    ) -> None:
        """
        Args:
            outcomes: what the inputs of a batch found. Asked once a batch, when all its jobs have succeeded.
            on_end: called when a batch has ended, well or not, by the thread that ended it. Must return at once.
        """
        self._log = log
        self._states = states
        self._unfinished = unfinished
        self._outcomes = outcomes
        self._on_end = on_end
        self._kept: deque[Completion] = deque()
        self._lock = threading.Lock()

    def end(self, batch: Batch, at_ms: int, states: States | None = None, failure: Failure | None = None) -> BatchEnd:
        """End a batch that runs no more. Any thread, once a batch; blocks on the store.

        Args:
            batch: one whose plan is durable.
            at_ms: when it was over, milliseconds since the Unix epoch.
            states: what of its state was written.
            failure: why it stays pending; None if its jobs have all succeeded.

        Returns:
            How it ended. Trouble, too, is returned and not raised: without a record a restart runs the batch again.
        """
        try:
            return self._complete(batch, at_ms, states or {}) if failure is None else self._fail(batch, at_ms, failure)
        finally:
            self._on_end(batch.time)

    def _fail(self, batch: Batch, at_ms: int, failure: Failure) -> BatchEnd:
        """Note a failure. The batch stays pending in the log, also where that could not be stored."""
        trouble = None
        try:
            if not failure.cut_short:
                self._log.fail(batch.time, batch.plan.epoch, at_ms, failure.reason)
        except Exception as e:
            trouble = f"could not note that batch {batch.time} failed: a restart runs it again", e
        self._pending(batch)
        return BatchEnd(trouble=trouble)

    def _complete(self, batch: Batch, at_ms: int, states: States) -> BatchEnd:
        try:
            completion = Completion(batch, at_ms, self._outcomes(batch.time), states)
        except Exception as e:
            self._pending(batch)
            return BatchEnd(trouble=(f"the outcome of batch {batch.time} is not known: a restart runs the batch again", e))
        try:
            self._write(completion)
        except Exception as e:
            self._pending(batch)  # before it can be retried, which says the opposite
            if isinstance(e, StorageError):
                self._keep(completion)
            return BatchEnd(trouble=(_not_noted(batch.time, e), e))
        return BatchEnd(completion)

    def _pending(self, batch: Batch) -> None:
        batch.become(BatchState.FAILED)
        self._unfinished.ended(batch.time, succeeded=False)

    def retry(self) -> list[Completion]:
        """Store what was refused before. Without a kept completion this asks the store nothing.

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
        except StorageError as e:  # the store is still down: one request is enough; next time another completion is the first
            logger.info("completions of batches still cannot be stored, they are tried again: %s", e)
        for completion in written:
            self._on_end(completion.time)
        return written

    def _written_late(self, completion: Completion) -> bool:
        """Store one completion that was refused before; returns whether it is durable. StorageError: it is kept for the next time."""
        try:
            self._write(completion)
        except StorageError:
            self._keep(completion)
            raise
        except Exception as e:  # CorruptRecordError, say: no later try would do better
            logger.error("could not note the end of batch %s, a restart runs it again: %s", completion.time, e)
            return False
        logger.warning("noted the end of batch %s late: no restart runs it again", completion.time)
        return True

    def _has_kept(self) -> bool:
        with self._lock:
            return bool(self._kept)

    def _next(self) -> Completion | None:
        with self._lock:
            return self._kept.popleft() if self._kept else None

    def _keep(self, completion: Completion) -> None:
        with self._lock:
            self._kept.append(completion)

    def _write(self, completion: Completion) -> None:
        batch, c = completion.batch, completion
        self._states.named(self._log.complete(batch.time, batch.plan.epoch, c.at_ms, c.outcomes, c.states))
        batch.become(BatchState.ENDED)
        self._unfinished.ended(batch.time, succeeded=True)


def _not_noted(time: Time, error: Exception) -> str:
    """The message about a batch whose end could not be stored."""
    if isinstance(error, StorageError):
        return f"could not note the end of batch {time}: the next batch tries it again; a restart before that runs the batch again"
    return f"could not note the end of batch {time}: a restart runs the batch again"

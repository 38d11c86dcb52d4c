"""Completions: stores the ends of batches, and keeps those that the store refused until they can be stored."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from kstream.batch import InputOutcome, StateCheckpoint
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

    time: Time
    plan_epoch: int
    at_ms: int
    outcomes: Mapping[int, InputOutcome] = field(default_factory=dict[int, InputOutcome])
    states: States = field(default_factory=dict[str, StateCheckpoint])


class Completions:
    """For one driver. Thread-safe, but for `retry`, which one thread calls: the JobGenerator's.

    A batch counts as unfinished until its completion is durable: no commit and no clean-up passes it. A completion that the store refused
    is kept, so there are never more of them than unfinished batches.
    """

    def __init__(self, log: BatchLog, states: StateCheckpointer, unfinished: UnfinishedBatches) -> None:
        self._log = log
        self._states = states
        self._unfinished = unfinished
        self._kept: deque[Completion] = deque()
        self._lock = threading.Lock()

    def note(self, completion: Completion) -> None:
        """Store the end of a batch; from then on the batch counts as ended.

        Raises:
            StorageError: the store refused it. The completion is kept for `retry`; the batch runs no more, but is unfinished.
        """
        try:
            self._write(completion)
        except Exception as e:
            self._unfinished.ended(completion.time, succeeded=False)  # before it can be retried, which says the opposite
            if isinstance(e, StorageError):
                self._keep(completion)
            raise

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
        c = completion
        self._states.named(self._log.complete(c.time, c.plan_epoch, c.at_ms, c.outcomes, c.states))
        self._unfinished.ended(c.time, succeeded=True)


def not_noted(time: Time, error: Exception) -> str:
    """The message about a batch whose end could not be stored."""
    if isinstance(error, StorageError):
        return f"could not note the end of batch {time}: the next batch tries it again; a restart before that runs the batch again"
    return f"could not note the end of batch {time}: a restart runs the batch again"

"""FailedBatches: the failed batches that this driver tries again. HeldBatches: the planned batches that are not generated yet.

Only the JobGenerator's thread uses these classes.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass

from kstream.batch import Batch, JobSet
from kstream.batch_time import Time
from kstream.scheduler.retry_policy import LONGEST_MS, RetryPolicy


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A try of a batch that failed.

    Attributes:
        batch: the batch. Its `failures` count this try.
        job_set: the jobs of the try. None if the jobs could not be generated.
    """

    batch: Batch
    job_set: JobSet | None

    @property
    def holds(self) -> bool:
        """Whether later batches wait for this one whatever the policy: a state could not be computed, and they continue from it."""
        return self.job_set is not None and self.job_set.state_error is not None


class FailedBatches:
    """The batches between two tries, each with the time of its next try.

    A batch with retries left has a back-off of its own. Batches whose retries are used up share one time, once a minute, and are tried one
    after another, oldest first: after a success the next one follows at once, and after a failure all of them wait again. So a sink that
    is away meets one try a minute, whatever the number of failed batches. Times are milliseconds of the monotonic clock.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._backing_off: dict[Time, tuple[int, FailedTry]] = {}
        self._used_up: dict[Time, FailedTry] = {}
        self._used_up_due = 0
        self._trying: Time | None = None
        """The batch without retries left that is being tried."""
        self._admitted: set[Time] = set()
        """The batches without retries left that are tried again until they succeed."""
        self._left_to_restart: set[Time] = set()
        self._holding: set[Time] = set()

    def add(self, failed: FailedTry, now_ms: int, is_kept: bool) -> bool:
        """Add a batch after a failed try. Its next try is due after the back-off.

        Args:
            failed: the failed try.
            now_ms: the time now.
            is_kept: whether the batch's RDDs and plan may stay in memory, however long it fails.

        Returns:
            False if the batch is left to a restart: it has no retry left, and it may not be kept, or `max_held` batches are kept already.
            A batch that later ones wait for is always kept.
        """
        batch = failed.batch
        if failed.holds:
            self._holding.add(batch.time)
        else:  # this try has computed the state
            self._holding.discard(batch.time)
        due = now_ms + self._policy.delay_ms(batch.failures)
        if not self._policy.is_used_up(batch.failures):
            self._backing_off[batch.time] = due, failed
            return True
        if batch.time not in self._admitted and not failed.holds and not (is_kept and len(self._admitted) < self._policy.max_held):
            self._left_to_restart.add(batch.time)
            return False
        self._admitted.add(batch.time)
        if not self._used_up or batch.time == self._trying:
            self._used_up_due = due
        self._used_up[batch.time] = failed
        if batch.time == self._trying:
            self._trying = None
        return True

    def put_back(self, failed: FailedTry, due_ms: int) -> None:
        """Add a batch that `take_due` returned again: it could not start. That is no failed try.

        Args:
            failed: its last failed try.
            due_ms: when it is due again.
        """
        time = failed.batch.time
        if not self._policy.is_used_up(failed.batch.failures):
            self._backing_off[time] = due_ms, failed
            return
        self._used_up[time] = failed
        self._trying, self._used_up_due = None, due_ms

    def ended(self, unfinished: Collection[Time], open_batches: Collection[Time], now_ms: int) -> None:
        """Note which batches have ended. If the one that was tried last has succeeded, the next one is due at once.

        Args:
            unfinished: the batches that have not succeeded.
            open_batches: those of them that run or wait.
            now_ms: the time now.
        """
        for batches in self._holding, self._admitted:  # nothing tries a batch that is left to a restart, so it does not end
            batches.intersection_update(unfinished)
        if self._trying is None:
            return
        if self._trying not in unfinished:
            self._trying, self._used_up_due = None, 0
        elif self._trying not in open_batches:  # it has ended, and no failed try was added: its completion was refused, for example
            self._trying, self._used_up_due = None, now_ms + LONGEST_MS

    def take_due(self, now_ms: int) -> list[FailedTry]:
        """Remove and return the batches whose next try is due, oldest first."""
        due = [time for time, (at_ms, _) in self._backing_off.items() if at_ms <= now_ms]
        taken = {time: self._backing_off.pop(time)[1] for time in due}
        if self._trying is None and self._used_up and self._used_up_due <= now_ms:
            self._trying = min(self._used_up)
            taken[self._trying] = self._used_up.pop(self._trying)
        return [taken[time] for time in sorted(taken)]

    def next_due_ms(self) -> int | None:
        """Return when the next try is due; None if no batch waits for one."""
        times = [at_ms for at_ms, _ in self._backing_off.values()]
        if self._used_up and self._trying is None:
            times.append(self._used_up_due)
        return min(times, default=None)

    @property
    def left_to_a_restart(self) -> Set[Time]:
        """The failed batches that this driver does not try again. They need no RDD and no plan in memory."""
        return self._left_to_restart

    @property
    def holding(self) -> frozenset[Time]:
        """The failed batches that later batches wait for whatever the policy."""
        return frozenset(self._holding)


class HeldBatches:
    """The planned batches that are not generated yet, in their order. They are data: they have no RDD and no job.

    A batch waits for an earlier one that has failed, or for its turn: few batches are generated at a time.
    """

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._held: list[Batch] = []

    def add(self, batch: Batch) -> None:
        """Add a planned batch, or add one again that `take` returned and that could not start."""
        insort(self._held, batch, key=lambda held: held.time)

    def must_wait(self, time: Time, unfinished: Callable[[], Collection[Time]], holding: Collection[Time]) -> bool:
        """Return whether a batch may not start yet, whatever its turn. Under hold, a batch starts once all older ones have succeeded.

        Args:
            time: the batch.
            unfinished: returns the batches that have not succeeded. Called only under hold, as an outage may leave many.
            holding: those of them that later batches wait for whatever the policy.
        """
        ahead = unfinished() if self._policy.hold else holding
        return min(ahead, default=time) < time

    def take(self) -> Batch:
        """Remove and return the oldest batch. There must be one."""
        return self._held.pop(0)

    @property
    def oldest(self) -> Time | None:
        """The oldest batch that waits; None without any."""
        return self._held[0].time if self._held else None

    def is_full(self, failed: Callable[[], Collection[Time]]) -> bool:
        """Return whether no further batch may be planned, because too many wait for a failed one. A queue alone is no reason.

        Args:
            failed: returns the batches that have failed and that later ones wait for.
        """
        return len(self._held) >= self._policy.max_held and min(failed(), default=self._held[0].time) < self._held[0].time

    def __len__(self) -> int:
        return len(self._held)

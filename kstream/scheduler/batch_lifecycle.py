"""BatchLifecycle: where each planned batch of a driver stands. One record a batch, one lock, one function that changes a record."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kstream.batch import Batch, BatchOutcome, JobSet, PendingBatches
from kstream.batch_time import Time
from kstream.errors import IllegalStateError
from kstream.loop import THREADS, Runtime
from kstream.scheduler.batch_steps import TABLE, End, Execution, Retry, Standing, Step
from kstream.scheduler.retry_policy import LONGEST_MS, RetryPolicy


@dataclass(frozen=True, slots=True)
class Try:
    """A try of a batch. `job_set`: its jobs; None if none were generated yet."""

    batch: Batch
    job_set: JobSet | None

    @property
    def time(self) -> Time:
        return self.batch.time


@dataclass(slots=True, eq=False)
class _Record:
    """What the lifecycle knows of a batch that has not succeeded.

    Attributes:
        batch: the batch.
        standing: where it stands. Only `BatchLifecycle._move` sets it.
        begun_by: the step that began the current try.
        job_set: the jobs that were generated last.
        failures: how many tries of this driver have failed.
        due_ms: when the next try is due, under BACK_OFF; in milliseconds of the monotonic clock.
        outcome: what is known of its outcome, while that is unknown or refused.
        asked: how often an input could not say what the batch has found.
        kept_as: the number of the outcome, in the order in which outcomes were kept.
        withdrawn_by: the batch whose loss has taken this one back from the queue.
    """

    batch: Batch
    standing: Standing
    begun_by: Step = Step.PLAN
    job_set: JobSet | None = None
    failures: int = 0
    due_ms: int = 0
    outcome: BatchOutcome | None = None
    asked: int = 0
    kept_as: int = 0
    withdrawn_by: Time | None = None


class BatchLifecycle:
    """Where each batch of one driver stands, from its durable plan until its completion is stored. Thread-safe.

    A batch whose completion is stored has no record any more. All other batches are *unfinished*: their plans must be kept.

    Each method takes the lock, and calls nothing under it but the clock. It returns at once.

    Args:
        policy: when a batch is tried again, and whether later ones wait for it.
        monotonic_ms: a monotonic clock in milliseconds.
        runtime: makes the events that `wait_none_running` and `wait_none_open` wait for.
    """

    def __init__(self, policy: RetryPolicy, monotonic_ms: Callable[[], int], runtime: Runtime = THREADS) -> None:
        self._policy = policy
        self._monotonic_ms = monotonic_ms
        self._records: dict[Time, _Record] = {}
        self._by: dict[Enum, set[Time]] = {value: set() for values in (Execution, End, Retry) for value in values}
        """The batches that have this value in their standing. Only `_move` changes it."""
        self._held: list[Time] = []
        """The batches that wait for an older one or for their turn, oldest first. Only `_move` changes it."""
        self._holding: set[Time] = set()
        """The batches for which later ones wait whatever the policy: their last failed try could not compute a state."""
        self._failing: set[Time] = set()
        """The batches of which a try has failed."""
        self._in_turn_due_ms = 0
        self._kept = 0
        self._retries = 0
        self._starts = 0
        self._newest_planned: Time | None = None
        self._newest_ended: Time | None = None
        self._lock = threading.Lock()
        self._none_running = runtime.event()
        self._none_running.set()
        self._none_open = runtime.event()
        self._none_open.set()

    # -- the one function that changes where a batch stands

    def _move(self, time: Time, step: Step, target: Standing | None = None) -> _Record | None:
        """Take a step with a batch. Call this under the lock.

        A fenced batch stays where it is, without an error: the driver that has taken over runs it.

        Args:
            time: the batch.
            step: the step.
            target: where it leads; may be left out if it can lead to one place only.

        Returns:
            The record; None if the batch is fenced.

        Raises:
            IllegalStateError: the table has no such step.
        """
        record = self._records[time]
        source = record.standing
        if source.end is End.LEFT and source.execution is not Execution.ENDED:
            return None
        targets = TABLE.get((step, source), ())
        if target is None and len(targets) == 1:
            target = targets[0]
        if target is None or target not in targets:
            raise IllegalStateError(f"batch {time} is {source} and cannot {step.value}", state=str(source))
        self._unindex(time, source)
        record.standing = target
        if step in (Step.TAKE, Step.RETRY, Step.REPAIR):
            self._starts += 1
            record.begun_by = step
        if target.end is End.WRITTEN:
            del self._records[time]
            self._holding.discard(time)
            self._failing.discard(time)
        else:
            self._index(time, target)
        self._note_end(time, source, target)
        self._tell()
        return record

    def _unindex(self, time: Time, standing: Standing) -> None:
        for value in (standing.execution, standing.end, standing.retry):
            self._by[value].discard(time)
        if _is_in_the_queue(standing):
            del self._held[bisect_left(self._held, time)]

    def _index(self, time: Time, standing: Standing) -> None:
        for value in (standing.execution, standing.end, standing.retry):
            self._by[value].add(time)
        if _is_in_the_queue(standing):
            insort(self._held, time)

    def _note_end(self, time: Time, source: Standing, target: Standing) -> None:
        """Note the newest batch that has ended, and when the next one in turn is due after one that was tried in turn."""
        if target.execution is not Execution.ENDED or target.retry is Retry.BACK_OFF:
            return
        if self._newest_ended is None or time > self._newest_ended:
            self._newest_ended = time
        if source.retry is Retry.IN_TURN and target.retry is Retry.NONE:  # after a success the next one follows at once
            stored = target.end in (End.WRITTEN, End.LEFT)
            self._in_turn_due_ms = 0 if stored else self._monotonic_ms() + LONGEST_MS

    def _tell(self) -> None:
        """Set the events to what holds now."""
        none_runs = self._num_running() == 0
        none_waits = not self._by[Execution.HELD] and not self._by[Retry.BACK_OFF]
        for event, holds in (self._none_running, none_runs), (self._none_open, none_runs and none_waits):
            if holds:
                event.set()
            else:
                event.clear()

    # -- before and between tries; the JobGenerator's thread

    def plan(self, batch: Batch) -> None:
        """Add a batch whose plan is durable: a new one, or a pending one of an earlier driver."""
        time, standing = batch.time, Standing(Execution.PLANNED)
        with self._lock:
            if time in self._records:
                raise IllegalStateError(f"batch {time} is planned already", state=str(self._records[time].standing))
            self._records[time] = _Record(batch, standing)
            self._index(time, standing)
            self._starts += 1
            self._newest_planned = time if self._newest_planned is None else max(time, self._newest_planned)
            self._tell()

    def hold(self, time: Time) -> None:
        """Let a planned batch wait for an older one, or for its turn."""
        with self._lock:
            self._move(time, Step.HOLD)

    def take_held(self) -> Batch:
        """Begin a try of the oldest batch that is held, and return it. There must be one."""
        with self._lock:
            record = self._records[self._held[0]]
            self._move(record.batch.time, Step.TAKE)
            return record.batch

    def generated(self, time: Time) -> None:
        with self._lock:
            self._move(time, Step.GENERATE)

    def submitted(self, time: Time, job_set: JobSet) -> None:
        """Note that the jobs of a batch are about to be queued."""
        with self._lock:
            record = self._move(time, Step.SUBMIT)
            if record is not None:
                record.job_set, record.withdrawn_by = job_set, None

    def put_back(self, time: Time, due_ms: int) -> None:
        """Let a batch wait as before its try, which could not begin because the store is away. That is no failed try.

        Args:
            time: a planned batch.
            due_ms: when it is due again. A batch that was held comes when it is the oldest.
        """
        with self._lock:
            record = self._records[time]
            in_turn = record.standing.retry is Retry.IN_TURN
            if in_turn:
                self._in_turn_due_ms = due_ms
                target = Standing(Execution.ENDED, retry=Retry.IN_TURN)
            elif record.failures:
                target = Standing(Execution.ENDED, retry=Retry.BACK_OFF)
            elif record.job_set is not None:  # it was to be repaired
                target = Standing(Execution.HELD, retry=Retry.BACK_OFF)
            else:
                target = Standing(Execution.HELD)
            record.due_ms = due_ms
            self._retries -= record.failures > 0 and record.begun_by is Step.RETRY
            self._move(time, Step.PUT_BACK, target)

    def take_due(self) -> list[Try]:
        """Begin a try of each batch that is due now. Return them, oldest first."""
        with self._lock:
            now = self._monotonic_ms()
            due = [time for time in self._by[Retry.BACK_OFF] if self._records[time].due_ms <= now]
            in_turn = self._waiting_in_turn()
            if in_turn and self._in_turn_due_ms <= now:
                due.append(min(in_turn))
            return [self._begin_again(time) for time in sorted(due)]

    def _begin_again(self, time: Time) -> Try:
        """Begin a try of a batch that waits between two. Call this under the lock."""
        record = self._records[time]
        self._move(time, Step.RETRY)
        self._retries += record.failures > 0
        return Try(record.batch, record.job_set)

    def forget(self, time: Time) -> None:
        """Leave a planned batch to a restart: its plan is not in memory any more, or the store refuses to give it up."""
        with self._lock:
            self._move(time, Step.FORGET)

    def fence(self, time: Time) -> None:
        """Leave a batch to the driver that has taken over. Any thread."""
        with self._lock:
            self._move(time, Step.FENCE)

    # -- jobs; a job's thread or the JobScheduler's

    def begin(self, job_set: JobSet) -> bool:
        """Note in a job's thread that a job is to start. Return whether it may: not if its batch was withdrawn or is fenced."""
        with self._lock:
            record = self._records.get(job_set.time)
            if record is None or record.job_set is not job_set or record.standing.execution not in _IN_HAND:
                return False
            return self._move(job_set.time, Step.BEGIN) is not None

    def withdraw(self, by: Time) -> None:
        """Take back the batches of which no job has started: they need the blocks or files of a state that this batch has found gone."""
        with self._lock:
            for time in list(self._by[Execution.SUBMITTED]):
                record = self._move(time, Step.WITHDRAW)
                if record is not None:
                    record.withdrawn_by = by

    def lose(self, time: Time) -> None:
        """Note that the try of a batch has ended, because blocks or files of a state are gone: it is to be generated again."""
        with self._lock:
            self._move(time, Step.LOSE)

    def repair(self, time: Time) -> list[Try]:
        """Begin a try of a batch that was lost, and of those that were withdrawn with it. Return them, oldest first."""
        with self._lock:
            lost = [t for t in self._by[Execution.LOST] if t == time or self._records[t].withdrawn_by == time]
            moved = [self._move(t, Step.REPAIR) for t in sorted(lost)]
            return [Try(record.batch, record.job_set) for record in moved if record is not None]

    # -- the end of a try; any thread

    def fail(self, time: Time, state_failed: bool, may_stay: bool, stopped: bool = False) -> Retry:
        """End a try that failed, and decide when the batch is tried again.

        Args:
            time: the batch.
            state_failed: whether a state could not be computed. Later batches continue from it, so they wait whatever the policy.
            may_stay: whether the batch's RDDs and plan may stay in memory, however long it fails.
            stopped: whether a stop has ended the try: then a restart runs the batch.

        Returns:
            What becomes of it. A batch without a retry left is EXHAUSTED if it may not stay in memory, or if `max_held` batches are IN_TURN
            already. A batch that was tried in turn, or whose state failed, is never EXHAUSTED but by a stop.
        """
        with self._lock:
            record = self._records[time]
            failures = record.failures + 1
            retry, due_ms = Retry.EXHAUSTED, self._monotonic_ms() + self._policy.delay_ms(failures)
            was_in_turn = record.standing.retry is Retry.IN_TURN
            if not stopped and not self._policy.is_used_up(failures):
                retry = Retry.BACK_OFF
            elif not stopped and (was_in_turn or state_failed or (may_stay and len(self._by[Retry.IN_TURN]) < self._policy.max_held)):
                retry = Retry.IN_TURN
                if was_in_turn or not self._by[Retry.IN_TURN] & self._by[Execution.ENDED]:
                    self._in_turn_due_ms = due_ms
            if self._move(time, Step.FAIL, Standing(Execution.ENDED, retry=retry)) is not None:
                record.failures, record.due_ms = failures, due_ms
                self._failing.add(time)
                (self._holding.add if state_failed else self._holding.discard)(time)
            return retry

    def complete(self, time: Time) -> None:
        """Forget a batch: its completion is stored, or it is given up and the ledger has it."""
        with self._lock:
            self._move(time, Step.COMPLETE)

    def refuse(self, time: Time, outcome: BatchOutcome) -> None:
        """Keep the outcome of a batch, because the store has refused its completion."""
        with self._lock:
            self._keep(time, Step.REFUSE, outcome)

    def not_known(self, time: Time, outcome: BatchOutcome) -> int:
        """Keep what is known of the outcome of a batch, because an input could not say what the batch has found.

        Returns:
            How often that has happened to this batch.
        """
        with self._lock:
            record = self._keep(time, Step.NOT_KNOWN, outcome)
            record.asked += 1
            return record.asked

    def _keep(self, time: Time, step: Step, outcome: BatchOutcome) -> _Record:
        """Keep an outcome, behind those that are kept already. Call this under the lock."""
        self._move(time, step)
        record = self._records[time]
        self._kept += 1
        record.outcome, record.kept_as = outcome, self._kept
        return record

    def leave(self, time: Time) -> None:
        """Leave a batch to a restart: its jobs have all succeeded, and this driver cannot store its completion."""
        with self._lock:
            self._move(time, Step.LEAVE)
            self._holding.discard(time)

    # -- views; any thread

    def __contains__(self, time: Time) -> bool:
        """Return whether a batch has not succeeded. Costs the same whatever the number of batches."""
        with self._lock:
            return time in self._records

    def standing(self, time: Time) -> Standing | None:
        """Return where a batch stands; None if it has no record."""
        with self._lock:
            record = self._records.get(time)
            return None if record is None else record.standing

    def unfinished(self) -> set[Time]:
        """Return all batches that have not succeeded. Their plans must be kept."""
        with self._lock:
            return set(self._records)

    def to_come(self) -> set[Time]:
        """Return the batches that have not succeeded, without those that are left: their jobs are done, or a successor has them."""
        with self._lock:
            return self._records.keys() - self._by[End.LEFT]

    def in_memory(self) -> set[Time]:
        """Return the batches that have not succeeded and that this driver may run again or end: their plans stay in memory.

        Costs nothing for those that are left to a restart: an outage of a day leaves 86,400 of them.
        """
        with self._lock:
            kept = (Execution.HELD, Retry.BACK_OFF, Retry.IN_TURN, End.UNKNOWN, End.REFUSED)
            return self._running().union(*(self._by[value] for value in kept))

    def open(self) -> set[Time]:
        """Return the batches that run, or that wait for their turn, for an older batch or for a retry."""
        with self._lock:
            return self._running() | self._by[Execution.HELD] | self._between_tries()

    def in_line(self) -> set[Time]:
        """Return the batches that run, or wait for an earlier one. A batch between two tries is not among them."""
        with self._lock:
            return self._running() | self._by[Execution.HELD]

    def num_in_line(self) -> int:
        """Return the number of batches that run, or wait for an earlier one."""
        with self._lock:
            return self._num_running() + len(self._by[Execution.HELD])

    def failed(self) -> set[Time]:
        """Return the batches that have failed and have no retry left, and those whose completion is not stored."""
        with self._lock:
            return self._by[Execution.ENDED] - self._by[Retry.BACK_OFF]

    def is_behind_failed(self, time: Time) -> bool:
        """Return whether this batch waits for a failed batch."""
        with self._lock:
            return min(self._failed_ahead(), default=time) < time

    def must_wait(self, time: Time) -> bool:
        """Return whether a batch may not start yet, whatever its turn. Under hold it waits for all older ones that are not left."""
        with self._lock:
            ahead = self._records.keys() - self._by[End.LEFT] if self._policy.hold else self._holding
            return min(ahead, default=time) < time

    def is_full(self) -> bool:
        """Return whether no further batch may be planned, because too many wait for a failed one. A queue alone is no reason."""
        with self._lock:
            return len(self._held) >= self._policy.max_held and self._is_held_by_failed()

    @property
    def oldest_held(self) -> Time | None:
        """The oldest batch that waits for an older one or for its turn; None without any."""
        with self._lock:
            return self._held[0] if self._held else None

    @property
    def num_held(self) -> int:
        """How many batches wait for an older one or for their turn."""
        with self._lock:
            return len(self._held)

    def in_hand(self) -> list[Time]:
        """Return the batches whose jobs are submitted and whose end is not stored."""
        with self._lock:
            return [time for execution in _IN_HAND for time in self._by[execution]]

    def try_of(self, time: Time) -> Try:
        """Return the current try of a batch that has not succeeded."""
        with self._lock:
            record = self._records[time]
            return Try(record.batch, record.job_set)

    def failures(self, time: Time) -> int:
        """Return how many tries of a batch have failed in this driver."""
        with self._lock:
            record = self._records.get(time)
            return 0 if record is None else record.failures

    @property
    def awaits_repair(self) -> bool:
        """Whether batches are about to be generated again. No other one may be generated before: it would be made from what is gone."""
        with self._lock:
            return bool(self._by[Execution.LOST])

    def kept(self) -> list[tuple[Batch, BatchOutcome]]:
        """Return the batches whose completion is not stored yet, in the order in which the driver asks for them and writes them."""
        with self._lock:
            times = self._by[End.UNKNOWN] | self._by[End.REFUSED]
            records = sorted((self._records[time] for time in times), key=lambda record: record.kept_as)
            return [(record.batch, record.outcome) for record in records if record.outcome is not None]

    def next_due_ms(self) -> int | None:
        """Return when the next try is due, in milliseconds of the monotonic clock; None if no batch waits for one."""
        with self._lock:
            times = [self._records[time].due_ms for time in self._by[Retry.BACK_OFF]]
            if self._waiting_in_turn():
                times.append(self._in_turn_due_ms)
            return min(times, default=None)

    def newest_planned(self) -> Time | None:
        """Return the newest batch that this driver has planned or run again; None before the first."""
        with self._lock:
            return self._newest_planned

    def clean_up_to(self) -> Time | None:
        """Return the time T up to which batches may be forgotten in memory, except the remember duration before T.

        T is the newest batch that has ended, or the oldest running or waiting batch if that is older. None before the first end.
        """
        with self._lock:
            if self._newest_ended is None:
                return None
            return min({self._newest_ended}.union(self._running(), self._by[Execution.HELD], self._between_tries()))

    def pending(self) -> PendingBatches:
        """Return which batches are in each state at this moment."""
        with self._lock:
            return self._pending()

    @property
    def retries(self) -> int:
        """How often a batch that had failed was tried again, so far."""
        with self._lock:
            return self._retries

    @property
    def starts(self) -> int:
        """How often a try of a batch began, so far."""
        with self._lock:
            return self._starts

    def wait_none_running(self, timeout: float) -> bool:
        """Block until no batch runs; return False if `timeout` seconds passed first. A batch that waits does not run."""
        return self._none_running.wait(timeout)

    def wait_none_open(self, timeout: float) -> bool:
        """Block until no batch runs or is held; return False if `timeout` seconds passed first."""
        return self._none_open.wait(timeout)

    # -- under the lock

    def _running(self) -> set[Time]:
        return set[Time]().union(*(self._by[execution] for execution in _RUNS))

    def _num_running(self) -> int:
        return sum(len(self._by[execution]) for execution in _RUNS)

    def _between_tries(self) -> set[Time]:
        return self._by[Retry.BACK_OFF] & self._by[Execution.ENDED]

    def _waiting_in_turn(self) -> set[Time]:
        """Return the batches that wait to be tried in turn; none while one of them is tried."""
        in_turn = self._by[Retry.IN_TURN]
        return in_turn if in_turn <= self._by[Execution.ENDED] else set()

    def _failed_ahead(self) -> set[Time]:
        """Return the failed batches for which others wait, also while one of them is tried again."""
        if not self._policy.hold:
            return set(self._holding)
        return (self._by[Execution.ENDED] | self._failing) - self._by[End.LEFT]

    def _is_held_by_failed(self) -> bool:
        """Return whether the batches that are held wait for one that has failed. Else they only wait for their turn."""
        return bool(self._held) and min(self._failed_ahead(), default=self._held[0]) < self._held[0]

    def _pending(self) -> PendingBatches:
        running, held = self._running(), frozenset(self._by[Execution.HELD])
        if not self._is_held_by_failed():
            running, held = running | held, frozenset[Time]()
        between = self._between_tries()
        return PendingBatches(frozenset(running), frozenset(between), held, frozenset(self._by[Execution.ENDED] - between))


_RUNS = (Execution.PLANNED, Execution.GENERATED, Execution.SUBMITTED, Execution.RUNNING, Execution.LOST)
"""A batch that is about to start counts as running."""
_IN_HAND = (Execution.SUBMITTED, Execution.RUNNING)


def _is_in_the_queue(standing: Standing) -> bool:
    """Return whether a batch waits for an older one or for its turn."""
    return standing.execution is Execution.HELD and standing.retry is Retry.NONE

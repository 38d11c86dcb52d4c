"""PlanLog: the writing side of the log, for the driver of one epoch. NoLog: the same without a checkpoint directory.

Also: how a driver takes its epoch, and which plans may be deleted.

There is one writer. A driver that starts takes the next epoch by create-if-absent. An older driver notices it by a probe before it submits.

The generator's thread writes plans, and the scheduler's threads write completions. Each record is created once, by create-if-absent.
So the writes need no lock. One lock guards the in-doubt plan (its write failed, and may have been stored nevertheless) and the lists of
written plans.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import takewhile
from typing import Any, TypeAlias

from kstream import crash_point
from kstream.batch import BatchPlan, InputOutcome
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, history, names
from kstream.checkpoint.format import encode_plan, read_plan
from kstream.checkpoint.history import replay_command
from kstream.checkpoint.reader import LogContents
from kstream.checkpoint.state_log import States, states_fields, stored_states
from kstream.errors import AlreadyExistsError, FencedError, MissingFileError, PlanFailedError, StorageError
from kstream.storage import FileStore

_NEWEST_KEPT = 2
_NOTHING = Duration(0)
_MOMENT = Duration(1)


# -- epochs


def newest_epoch(store: FileStore) -> int:
    """Return the highest epoch taken so far; 0 before the first. Blocks: one listing. StorageError."""
    numbers = (names.parse_epoch(name) for name in store.list())
    return max((number for number in numbers if number is not None), default=0)


def take_epoch(store: FileStore, at_ms: int) -> int:
    """Take and return the next epoch. From then on every driver of a lower epoch is fenced. Called once at each start; blocks.

    The records are never deleted (there is one per start): without epoch N + 1, a driver of epoch N would not notice its successor.

    Args:
        store: the checkpoint.
        at_ms: now, in milliseconds since the Unix epoch.

    Raises:
        StorageError: the store failed.
    """
    number = newest_epoch(store) + 1
    while True:
        try:
            store.create(names.epoch(number), format.encode("epoch", {"epoch": number, "at": at_ms, "nonce": uuid.uuid4().hex}))
            return number
        except AlreadyExistsError:
            number += 1


def _newest_or(store: FileStore, known: int) -> int:
    """Return the newest epoch, for a message; `known` if the store fails now."""
    try:
        return newest_epoch(store)
    except StorageError:
        return known


def probe(store: FileStore, epoch: int) -> None:
    """Raise FencedError if another driver has taken over from the one of `epoch`. Blocks: one small request. StorageError."""
    if store.exists(names.epoch(epoch + 1)):
        newer = _newest_or(store, epoch + 1)
        raise FencedError(
            f"another driver has taken {store.url} (epoch {newer}, this one has {epoch}): this driver submits nothing more. "
            "Stop one of the two.",
            path=store.url,
            epoch=epoch,
            newer_epoch=newer,
        )


# -- plans and completions


class PlanLog:
    """Writes the plans and completions of one driver. All calls block on the store (0.4 ms on a local disk) and may raise StorageError.

    Threads: the generator's thread calls `write_plan` and `resolve_in_doubt_plan`; the cleaner's thread calls `clean`; the other methods
    may be called from any thread.

    Args:
        store: the checkpoint.
        epoch: this driver's.
        contents: the contents of the log at the start; None for an empty log.
        lock: held while an in-doubt plan is resolved in the store.
        keep_history: how long plans that no batch needs are kept in the history; 0 keeps none.
    """

    def __init__(
        self,
        store: FileStore,
        epoch: int,
        contents: LogContents | None = None,
        lock: AbstractContextManager[Any] | None = None,
        keep_history: Duration = _NOTHING,
    ) -> None:
        plans = [] if contents is None else [contents.plans[time] for time in sorted(contents.plans)]
        self._store = store
        self._keep_history = keep_history
        self.epoch = epoch
        self._written = deque((plan.time, plan.epoch) for plan in plans)
        self._low_watermark = plans[-1].floor if plans else Time(0)
        self._newest = deque((plan.time for plan in plans if not plan.void), maxlen=_NEWEST_KEPT)
        self._in_doubt: BatchPlan | None = None
        self._lock = threading.Lock() if lock is None else lock

    def write_plan(self, plan: BatchPlan) -> None:
        """Make the plan durable. Call `resolve_in_doubt_plan` before the next plan.

        Raises:
            PlanFailedError: the plan is not stored, or in doubt.
        """
        with self._lock:
            self._written.append((plan.time, self.epoch))
        try:
            self._store.create(names.plan(plan.time, self.epoch), encode_plan(plan))
        except StorageError as e:
            with self._lock:
                self._in_doubt = plan
            try:
                stored = self.resolve_in_doubt_plan()
            except StorageError:
                stored = None  # still in doubt
            if stored is None:
                raise PlanFailedError(
                    f"the plan of batch {plan.time} could not be stored: {e}. Its records go to the next batch.",
                    time=plan.time.milliseconds,
                ) from e
        else:
            with self._lock:
                self._mark_durable(plan)

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        """Find out whether the plan of a failed write was stored after all.

        If it was not, a tombstone takes its name, so that a late write cannot store it any more.

        Returns:
            The plan if it was stored; None if not, or if no plan is in doubt.

        Raises:
            StorageError: the plan is still in doubt, and no other batch may be planned.
        """
        with self._lock:
            plan = self._in_doubt
            if plan is None:
                return None
            stored = self._stored_or_tombstone(plan)
            self._in_doubt = None
            if stored:
                self._mark_durable(plan)
            return plan if stored else None

    def _mark_durable(self, plan: BatchPlan) -> None:
        """Note that a plan is durable, for `clean`. The caller holds the lock."""
        self._low_watermark = plan.floor
        self._newest.append(plan.time)

    def _stored_or_tombstone(self, plan: BatchPlan) -> bool:
        """Try to create a tombstone under the plan's name. Return whether the plan itself is stored there already."""
        name = names.plan(plan.time, self.epoch)
        tombstone = replace(plan, inputs={}, num_records={}, names={}, void=True)
        try:
            self._store.create(name, encode_plan(tombstone))
            return False
        except AlreadyExistsError:
            found = read_plan(self._store, plan.time, self.epoch)
            return found.nonce == plan.nonce and not found.void

    def probe(self) -> None:
        """Raise FencedError if another driver has taken over. Called when a plan is durable, before its jobs are submitted."""
        probe(self._store, self.epoch)

    def complete(
        self,
        time: Time,
        plan_epoch: int,
        at_ms: int,
        outcomes: Mapping[int, InputOutcome] | None = None,
        states: States | None = None,
    ) -> States:
        """Record that every job of the batch has succeeded. Idempotent. Any thread.

        Losses go to the ledger first, because a batch with a completion is never examined again.

        Args:
            time: the batch.
            plan_epoch: the epoch of its plan.
            at_ms: now, in milliseconds since the Unix epoch.
            outcomes: the report of each input about the batch, by stream number.
            states: the checkpoints of state that the completion is to name.

        Returns:
            The states that the completion names. They are others than `states` if another driver has created the completion first.

        Raises:
            StorageError: the store failed; the completion may be stored or not.
        """
        fields: dict[str, object] = {"time": time.milliseconds, "at": at_ms, "epoch": self.epoch}
        found = outcomes or {}
        lost = {str(stream): list(outcome.lost) for stream, outcome in found.items() if outcome.lost}
        if lost:
            self._create(names.lost(time, plan_epoch, self.epoch), "lost", {**fields, "lost": lost})
        counts = {str(stream): list(outcome.counts) for stream, outcome in found.items() if outcome.counts}
        if counts:
            fields["counts"] = counts
        if states:
            fields["states"] = states_fields(states)
        created = self._create(names.done(time, plan_epoch), "done", fields)
        return (states or {}) if created or not states else stored_states(self._store, time, plan_epoch)

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None:
        """Record that the batch failed under this driver. It stays pending. At most one record per batch and driver.

        Args:
            time: the batch.
            plan_epoch: the epoch of its plan.
            at_ms: now, in milliseconds since the Unix epoch.
            reason: the error; the first 2000 characters are stored.
        """
        fields = {"time": time.milliseconds, "at": at_ms, "epoch": self.epoch, "reason": reason[:2000]}
        self._create(names.failed(time, plan_epoch, self.epoch), "failed", fields)

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Put the batch into the ledger, with the data it should have read. No restart runs it again.

        Args:
            plan: the plan of the batch.
            at_ms: now, in milliseconds since the Unix epoch.
            failures: how often the batch has failed.

        Returns:
            The command that runs the batch again.
        """
        inputs = {str(stream): dict(data) for stream, data in plan.inputs.items()}
        fields = {"time": plan.time.milliseconds, "at": at_ms, "epoch": self.epoch, "failures": failures, "inputs": inputs}
        self._create(names.given_up(plan.time, plan.epoch), "given-up", fields)
        return replay_command(self._store, plan.time)

    def clean(self, up_to: Time) -> None:
        """Delete the plans of this time and older that no batch needs. Called on the cleaner's thread.

        A plan is deleted before its completion: a completion alone means nothing, but a plan alone would run again. Only plans below the
        low watermark of the newest durable plan are deleted. A stray plan of the same time is then recognised by that watermark. The newest
        two plans always stay: a restart continues from the newest, or from the other one if the newest is damaged and given up. With a
        history, plans are first packed into it, `history.SEGMENT` at a time. Fewer plans than that stay until there are enough.

        Args:
            up_to: the result of `removable_up_to`.
        """
        removable = self._removable(up_to)
        if self._keep_history == _NOTHING:
            self._remove(removable)
            return
        while len(removable) >= history.SEGMENT:
            segment, removable = removable[: history.SEGMENT], removable[history.SEGMENT :]
            self._pack(segment)
            self._remove(segment)
            history.drop_before(self._store, segment[-1][0] - self._keep_history)

    def _remove(self, plans: Collection[tuple[Time, int]]) -> None:
        """Delete plans with their completions. They are the oldest ones of `_written`, in order."""
        for time, epoch in plans:
            self._store.delete(names.plan(time, epoch))
            crash_point.reach(crash_point.CLEANING)
            self._store.delete(names.done(time, epoch))
            with self._lock:
                self._written.popleft()

    def _pack(self, plans: Collection[tuple[Time, int]]) -> None:
        """Pack plans into the history. A fenced driver that still cleans up may have deleted a plan; that plan is left out."""
        batches: list[history.PastBatch] = []
        for time, epoch in plans:
            try:
                plan = read_plan(self._store, time, epoch)
            except MissingFileError:
                continue
            if not plan.void:
                batches.append(history.read_past(self._store, plan))
        if batches:
            try:
                history.write_segment(self._store, self.epoch, batches)
            except AlreadyExistsError:  # written before a clean-up that failed half-way
                pass

    def _removable(self, limit: Time) -> list[tuple[Time, int]]:
        """Return the oldest plans that may be deleted, in order, none of them newer than `limit`."""
        with self._lock:
            if len(self._newest) < _NEWEST_KEPT:
                return []
            end = min(self._low_watermark, self._newest[0])
            return list(takewhile(lambda key: key[0] <= limit and key[0] < end, self._written))

    def _create(self, name: str, kind: str, fields: Mapping[str, object]) -> bool:
        """Create a record; return False if its name is taken."""
        try:
            self._store.create(name, format.encode(kind, dict(fields)))
        except AlreadyExistsError:
            return False
        return True


class NoLog:
    """The log of a stream without a checkpoint directory. It stores nothing: no restart can recover from it, and no other driver take over.

    No method blocks or raises.
    """

    epoch = 0

    def write_plan(self, plan: BatchPlan) -> None:
        pass

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        """Return None: no plan is ever in doubt."""
        return None

    def probe(self) -> None:
        pass

    def complete(
        self,
        time: Time,
        plan_epoch: int,
        at_ms: int,
        outcomes: Mapping[int, InputOutcome] | None = None,
        states: States | None = None,
    ) -> States:
        """Return no states: none is ever stored."""
        return {}

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None:
        pass

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Return an empty text: no command can run a batch again that was not stored."""
        return ""

    def clean(self, up_to: Time) -> None:
        pass


BatchLog: TypeAlias = PlanLog | NoLog
"""The log of a driver, with or without a checkpoint directory."""


# -- which plans may be deleted


def removable_up_to(unfinished: Iterable[Time], done_up_to: Time, remember: Duration, needed_from: Time | None = None) -> Time:
    """Return the time up to which plans may be deleted. Pure.

    A batch T that still has to run, now or after a restart, needs the plans of (T − remember, T] for its windows. Plans newer than that of
    the oldest unfinished batch stay, too. A fenced driver may create a stray plan for the same batch time, and it is recognised as
    superseded only while the plan that replaced it exists. `PlanLog.clean` keeps the newest plans in any case.

    Args:
        unfinished: batches that have been planned and have not ended.
        done_up_to: the newest batch that has ended.
        remember: how far back the longest window reaches.
        needed_from: with state, the batch that wrote the checkpoint from which a restart would continue: its completion names the files.
    """
    limit = min([*unfinished, done_up_to]) - remember
    return limit if needed_from is None else min(limit, needed_from - _MOMENT)

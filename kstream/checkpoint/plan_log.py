"""PlanLog: the writing side of the log, for the driver of one epoch.

The generator's thread writes plans, the scheduler's threads write completions; each record is created once, under a name nobody
else uses, so the calls need no lock but the one around an unsettled plan.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import takewhile
from typing import Any

from kstream import crash_point
from kstream.batch import BatchPlan, InputOutcome
from kstream.batch_time import Duration, Time
from kstream.checkpoint import epoch as epochs
from kstream.checkpoint import format, history, names
from kstream.checkpoint.ledger import replay_command
from kstream.checkpoint.plan_record import encode_plan, read_plan
from kstream.checkpoint.reader import LogContents
from kstream.checkpoint.state_log import States, states_fields, stored_states
from kstream.errors import AlreadyExistsError, MissingFileError, PlanFailedError, StorageError
from kstream.storage import FileStore

_NEWEST_KEPT = 2
_NOTHING = Duration(0)


class PlanLog:
    """Writes what this driver plans and finishes. All calls block on the store (0.4 ms on a local disk)."""

    def __init__(
        self, store: FileStore, epoch: int, contents: LogContents | None = None, lock: AbstractContextManager[Any] | None = None,
        keep: Duration = _NOTHING,
    ) -> None:  # fmt: skip
        """`contents`: what lies in the store already. `lock` is held while the store is asked about an unsettled plan. `keep`: how long
        plans are kept that no batch needs."""
        plans = [] if contents is None else [contents.plans[time] for time in sorted(contents.plans)]
        self._store = store
        self._keep = keep
        self.epoch = epoch
        self._kept = deque((plan.time, plan.epoch) for plan in plans)
        self._floor = plans[-1].floor if plans else Time(0)
        self._newest = deque((plan.time for plan in plans if not plan.void), maxlen=_NEWEST_KEPT)
        self._unsettled: BatchPlan | None = None
        self._lock = threading.Lock() if lock is None else lock

    def write_plan(self, plan: BatchPlan) -> None:
        """Makes the plan durable. PlanFailedError: it is certain that it is not stored, or `settle` must say.

        Call `settle` before the next plan.
        """
        with self._lock:
            self._kept.append((plan.time, self.epoch))
        try:
            self._store.create(names.plan(plan.time, self.epoch), encode_plan(plan))
        except StorageError as e:
            with self._lock:
                self._unsettled = plan
            try:
                stored = self.settle()
            except StorageError:
                stored = None  # still unknown: the next settle says
            if stored is None:
                raise PlanFailedError(
                    f"the plan of batch {plan.time} could not be stored: {e}. Its records go to the next batch.",
                    time=plan.time.milliseconds,
                ) from e
        else:
            with self._lock:
                self._stands(plan)

    def settle(self) -> BatchPlan | None:
        """Finds out what became of a plan whose write failed; returns it if it was stored after all.

        Where it was not, its name is taken by a void record, so that a late write cannot bring it back. StorageError: still
        unknown, and nothing else may be planned.
        """
        with self._lock:
            plan = self._unsettled
            if plan is None:
                return None
            stored = self._claim(plan)
            self._unsettled = None
            if stored:
                self._stands(plan)
            return plan if stored else None

    def _stands(self, plan: BatchPlan) -> None:
        self._floor = plan.floor
        self._newest.append(plan.time)

    def _claim(self, plan: BatchPlan) -> bool:
        """Whether the name of `plan` holds it, after trying to take the name with a void record."""
        name = names.plan(plan.time, self.epoch)
        void = replace(plan, inputs={}, num_records={}, names={}, void=True)
        try:
            self._store.create(name, encode_plan(void))
            return False
        except AlreadyExistsError:
            found = read_plan(self._store, plan.time, self.epoch)
            return found.nonce == plan.nonce and not found.void

    def probe(self) -> None:
        """FencedError if another driver has taken over. Called after the plan is durable and before jobs are submitted."""
        epochs.probe(self._store, self.epoch)

    def complete(
        self, time: Time, plan_epoch: int, at_ms: int, outcomes: Mapping[int, InputOutcome] | None = None,
        states: States | None = None,
    ) -> States:  # fmt: skip
        """Notes that every job of the batch has succeeded, and with it what was found. Twice is fine.

        What was lost goes to the ledger first: a batch that is noted as done is never looked at again. Returns the states that the
        record names: not those given, if another driver (fenced, or our successor) has noted the end of the batch before.
        """
        fields: dict[str, object] = {"time": time.milliseconds, "at": at_ms, "epoch": self.epoch}
        found = outcomes or {}
        lost = {str(stream): list(outcome.lost) for stream, outcome in found.items() if outcome.lost}
        if lost:
            self._note(names.lost(time, plan_epoch, self.epoch), "lost", {**fields, "lost": lost})
        counts = {str(stream): list(outcome.counts) for stream, outcome in found.items() if outcome.counts}
        if counts:
            fields["counts"] = counts
        if states:
            fields["states"] = states_fields(states)
        noted = self._note(names.done(time, plan_epoch), "done", fields)
        return (states or {}) if noted or not states else stored_states(self._store, time, plan_epoch)

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None:
        """Notes that the batch failed in this driver's life; it stays pending."""
        fields = {"time": time.milliseconds, "at": at_ms, "epoch": self.epoch, "reason": reason[:2000]}
        self._note(names.failed(time, plan_epoch, self.epoch), "failed", fields)

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Put the batch into the ledger, with the data it should have read. No restart runs it again.

        Returns:
            The command that runs the batch again.
        """
        inputs = {str(stream): dict(data) for stream, data in plan.inputs.items()}
        fields = {"time": plan.time.milliseconds, "at": at_ms, "epoch": self.epoch, "failures": failures, "inputs": inputs}
        self._note(names.given_up(plan.time, plan.epoch), "given-up", fields)
        return replay_command(self._store, plan.time)

    def clean(self, up_to: Time) -> None:
        """Removes plans at this time and older, which no batch needs any more; see `retention`. Called in the background, at any pace.

        The plan goes before its completion: a completion alone means nothing, a plan alone would run again. Only plans older than
        the floor of the newest durable plan go: a stray plan for the same time is then known by that floor. The newest two always
        stay: a restart goes on from the newest, or from the other if that is damaged and given up. To be kept, plans are first put into
        the history, `history.SEGMENT` at a time; fewer wait.
        """
        removable = self._removable(up_to)
        if self._keep == _NOTHING:
            self._remove(removable)
            return
        while len(removable) >= history.SEGMENT:
            segment, removable = removable[: history.SEGMENT], removable[history.SEGMENT :]
            self._pack(segment)
            self._remove(segment)
            history.drop_before(self._store, segment[-1][0] - self._keep)

    def _remove(self, plans: Collection[tuple[Time, int]]) -> None:
        for time, epoch in plans:
            self._store.delete(names.plan(time, epoch))
            crash_point.reach(crash_point.CLEANING)
            self._store.delete(names.done(time, epoch))
            with self._lock:
                self._kept.popleft()

    def _pack(self, plans: Collection[tuple[Time, int]]) -> None:
        """Puts plans into the history. One that is gone was removed by a fenced driver that still cleans up."""
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
            except AlreadyExistsError:  # written before a removal that failed half-way
                pass

    def _removable(self, limit: Time) -> list[tuple[Time, int]]:
        """The oldest plans that may go, in order."""
        with self._lock:
            if len(self._newest) < _NEWEST_KEPT:
                return []
            end = min(self._floor, self._newest[0])
            return list(takewhile(lambda kept: kept[0] <= limit and kept[0] < end, self._kept))

    def _note(self, name: str, kind: str, fields: Mapping[str, object]) -> bool:
        """Whether the name was free."""
        try:
            self._store.create(name, format.encode(kind, dict(fields)))
        except AlreadyExistsError:
            return False
        return True

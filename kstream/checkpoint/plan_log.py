"""PlanLog: the writing side of the log, for the driver of one epoch. NoLog: the same without a checkpoint directory.

Also: how a driver takes its epoch.

There is one writer. A driver that starts takes the next epoch by create-if-absent. An older driver notices it by a probe before it submits.

The generator's thread writes plans, and the scheduler's threads write completions. Each record is created once, by create-if-absent.
So the writes need no lock. One lock guards the in-doubt plan (its write failed, and may have been stored nevertheless) and the lists of
written plans.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias, TypeVar

from kstream import crash_point
from kstream.batch import BatchOutcome, BatchPlan, SkippedRecord, SucceededOutput
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, history, names, settled
from kstream.checkpoint.declared_types import moment
from kstream.checkpoint.format import encode_plan, read_plan
from kstream.checkpoint.history import replay_command
from kstream.checkpoint.outcomes import found_fields, losses_of, skipped_fields
from kstream.checkpoint.reader import LogContents, PlanKey
from kstream.checkpoint.settled import Settled, in_settled, thinned, write_settled
from kstream.checkpoint.skip_request import by_stream, read_requests
from kstream.checkpoint.state_log import States, states_fields, states_in
from kstream.errors import AlreadyExistsError, FencedError, MissingFileError, PlanFailedError, StorageError
from kstream.storage import FileStore

T = TypeVar("T")
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


def epoch_taken_ms(store: FileStore, epoch: int) -> int:
    """Return when a driver has taken an epoch, in milliseconds since the Unix epoch. Blocks: one read. CorruptRecordError, StorageError."""
    return _read_epoch(store, epoch, lambda fields: moment(fields["at"]))


def nonce_of_epoch(store: FileStore, epoch: int) -> str:
    """Return the random text with which a driver has taken an epoch. That of the first epoch identifies the checkpoint.

    Blocks: one read. CorruptRecordError, StorageError.
    """
    return _read_epoch(store, epoch, lambda fields: str(fields["nonce"]))


def _read_epoch(store: FileStore, epoch: int, make: Callable[[format.Fields], T]) -> T:
    """Return what is made of the record of an epoch. Blocks: one read. CorruptRecordError, StorageError."""
    name = names.epoch(epoch)
    return format.decode("epoch", store.read(name), store.path(name), make, {"epoch": epoch})


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
        keep_history: how long plans that no batch needs are kept in the history; 0 keeps none.
    """

    def __init__(
        self,
        store: FileStore,
        epoch: int,
        contents: LogContents | None = None,
        keep_history: Duration = _NOTHING,
    ) -> None:
        plans = [] if contents is None else [contents.plans[time] for time in sorted(contents.plans)]
        self._store = store
        self.url = store.url
        self._keep_history = keep_history
        self.epoch = epoch
        self._written: list[PlanKey] = [(plan.time, plan.epoch) for plan in plans]
        """The plans in the store, oldest first, one of them perhaps in doubt."""
        self._newest = deque(((plan.time, plan.floor) for plan in plans if not plan.void), maxlen=_NEWEST_KEPT)
        """Batch times and low watermarks of the newest plans that a successor of this driver certainly finds."""
        self._unprobed: list[tuple[Time, Time]] = []
        """The same of newer plans: a driver may have taken over before they were durable, and have other plans in their place."""
        self._settled = [] if contents is None else list(contents.settled)
        """The settled intervals in the store. Only the cleaner's thread uses them."""
        self._skips: dict[PlanKey, set[SkippedRecord]] = {}
        """Plans of unfinished batches → the records that they shall leave out. Only the generator's thread uses it."""
        self._numbers: Mapping[int, Mapping[int, int]] = {}
        if contents is not None:
            self._numbers = contents.numbers
            asked = [contents.plans[time] for time in contents.pending if time in contents.skipped]
            self._skips = {(plan.time, plan.epoch): set(contents.skipped[plan.time]) for plan in asked}
        self._failed: dict[PlanKey, str] = {}
        """Plans of batches that failed under this driver → the name of the record. It goes with the plan."""
        self._in_doubt: BatchPlan | None = None
        """The plan whose write has failed, and which may be stored nevertheless. Only the generator's thread uses it."""
        self._void: Time | None = None
        """The newest batch of which this driver has stored a tombstone. Only the generator's thread uses it."""
        self._lock = threading.Lock()
        """Never held during I/O."""

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
            self._mark_durable(plan)

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        """Find out whether the plan of a failed write was stored after all.

        If it was not, a tombstone takes its name, so that a late write cannot store it any more.

        Returns:
            The plan if it was stored; None if not, or if no plan is in doubt.

        Raises:
            StorageError: the plan is still in doubt, and no other batch may be planned.
        """
        plan = self._in_doubt
        if plan is None:
            return None
        stored = self._stored_or_tombstone(plan)
        self._in_doubt = None
        if not stored:
            self._void = plan.time
            return None
        self._mark_durable(plan)
        return plan

    def is_void(self, time: Time) -> bool:
        """Return whether a tombstone has the name of this batch's plan: this driver can plan it no more.

        Args:
            time: a batch that is no older than those that were planned before.
        """
        return time == self._void

    def _mark_durable(self, plan: BatchPlan) -> None:
        with self._lock:
            self._unprobed.append((plan.time, plan.floor))

    def _mark_probed(self, plans: Collection[tuple[Time, Time]]) -> None:
        """Note that no driver had taken over when these plans were durable, for `clean`."""
        with self._lock:
            fresh = [plan for plan in self._unprobed if plan in plans]
            self._newest.extend(fresh)
            self._unprobed = [plan for plan in self._unprobed if plan not in fresh]

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
        with self._lock:
            durable = list(self._unprobed)
        probe(self._store, self.epoch)
        self._mark_probed(durable)

    def read_skips(self, batches: Collection[Time]) -> None:
        """Read the requests of `kstream skip` for these batches. Blocks: one listing, and one read for each request.

        Raises:
            CorruptRecordError: a request is damaged.
            StorageError: the store failed.
        """
        chosen = set(batches)
        self._skips = {key: records for key, records in self._skips.items() if key[0] in chosen}
        for request in read_requests(self._store, lambda time, _epoch: time in chosen):
            self._skips.setdefault((request.time, request.epoch), set()).add(request.record)

    def skips_of(self, time: Time, plan_epoch: int) -> dict[int, list[SkippedRecord]]:
        """Return the records that a batch shall leave out, by the number that their stream has now. Asks nobody.

        Known are the requests that were found at the start and by `read_skips`.
        """
        found = self._skips.get((time, plan_epoch))
        return {} if not found else by_stream(sorted(found), None if plan_epoch == self.epoch else self._numbers.get(plan_epoch))

    def complete(self, time: Time, plan_epoch: int, outcome: BatchOutcome) -> States:
        """Record that every job of the batch has succeeded, if it had any. Idempotent. Any thread.

        Losses and records that were left out go to the ledger first, because a batch with a completion is never examined again.

        Args:
            time: the batch.
            plan_epoch: the epoch of its plan.
            outcome: what is stored of the batch: its losses, skipped records, states and figures.

        Returns:
            The states that the completion names. They are others than those of the outcome if another driver has created it first.

        Raises:
            StorageError: the store failed; the completion may be stored or not.
        """
        fields: dict[str, object] = {"time": time.milliseconds, "at": outcome.at_ms, "epoch": self.epoch, **skipped_fields(outcome)}
        lost = losses_of(outcome)
        if lost or "skipped" in fields:
            self._create(names.lost(time, plan_epoch, self.epoch), "lost", {**fields, "lost": lost})
        created = self._create(names.done(time, plan_epoch), "done", {**fields, **found_fields(outcome)})
        with self._lock:  # jobs run only after `probe`, so a successor finds these plans, and `clean` may rely on them
            self._newest.extend(plan for plan in self._unprobed if plan[0] <= time)
            self._unprobed = [plan for plan in self._unprobed if plan[0] > time]
        if created or not outcome.states:
            return dict(outcome.states)
        return states_in(self._store, names.done(time, plan_epoch), time)

    def fail(
        self,
        time: Time,
        plan_epoch: int,
        at_ms: int,
        reason: str,
        states: States | None = None,
        succeeded: Sequence[SucceededOutput] = (),
    ) -> States:
        """Record that the batch failed under this driver. It stays pending. At most one record per batch and driver.

        Args:
            time: the batch.
            plan_epoch: the epoch of its plan.
            at_ms: now, in milliseconds since the Unix epoch.
            reason: the error; the first 2000 characters are stored. It may say what no rule for secrets finds, so the record is private.
            states: the checkpoints of state that the record is to name. They were computed although an output failed.
            succeeded: the output operations that have succeeded in this try.

        Returns:
            The states that the record names.

        Raises:
            StorageError: the store failed; the record may be stored or not.
        """
        fields: dict[str, object] = {"time": time.milliseconds, "at": at_ms, "epoch": self.epoch, "reason": reason[:2000]}
        if states:
            fields["states"] = states_fields(states)
        if succeeded:
            fields["succeeded"] = [[one.number, one.name, list(one.outputs)] for one in succeeded]
        name = names.failed(time, plan_epoch, self.epoch)
        created = self._create(name, "failed", fields, private=True)
        with self._lock:
            self._failed[time, plan_epoch] = name
        return (states or {}) if created or not states else states_in(self._store, name, time)

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

    def clean(self, required: RequiredBatches) -> None:
        """Delete the plans that no batch needs. Called on the cleaner's thread.

        A plan is deleted before its completion: a completion alone means nothing, but a plan alone would run again. The newest two plans
        always stay: a restart continues from the newest, or from the other one if the newest is damaged and given up. With a history,
        plans are first packed into it, `history.SEGMENT` at a time. Fewer plans than that stay until there are enough.

        Below the low watermark of the newest plans a plan just goes: a stray plan of its time is recognised by that watermark. Above the
        oldest unfinished batch plans go `settled.AT_ONCE` at a time, after a settled interval is stored for them.

        Args:
            required: the batches whose plans stay.

        Raises:
            FencedError: another driver has taken over; nothing more was deleted.
            StorageError: the store failed. The next call continues.
        """
        self._drop_settled()
        below, above = self._removable(required)
        if self._keep_history == _NOTHING:
            self._remove(below)
            if len(above) >= settled.AT_ONCE:
                self._settle(above)
                self._remove(above)
            return
        removable = below + above
        while len(removable) >= history.SEGMENT:
            segment, removable = removable[: history.SEGMENT], removable[history.SEGMENT :]
            self._pack(segment)
            self._settle([key for key in segment if key in above])
            self._remove(segment)
            history.drop_before(self._store, segment[-1][0] - self._keep_history)

    def _remove(self, plans: Collection[PlanKey]) -> None:
        """Delete plans with their completions, oldest first."""
        for time, epoch in plans:
            self._store.delete(names.plan(time, epoch))
            crash_point.reach(crash_point.CLEANING)
            self._store.delete(names.done(time, epoch))
            with self._lock:
                self._written.remove((time, epoch))
                failed = self._failed.pop((time, epoch), None)
            if failed is not None:
                self._store.delete(failed)

    def _settle(self, plans: Collection[PlanKey]) -> None:
        """Store settled intervals for plans above an unfinished batch, before they are removed. Then probe for a newer epoch.

        A driver that has taken over by then may have read the log without these intervals, so its predecessor must not remove the plans.
        A driver that takes over later finds the intervals. An interval that is adjacent to a new one becomes a part of it.
        """
        replaced: list[Settled] = []
        fresh = [key for key in plans if not in_settled(key[0], self._settled)]
        for before, run, behind in self._runs(fresh):
            joined = [interval for interval in self._settled if before <= interval.until < behind]
            marks = [*(plan for interval in joined for plan in interval.plans), *self._marks(run)]
            interval = Settled(
                after=min([before, *(interval.after for interval in joined)]),
                until=max([run[-1][0], *(interval.until for interval in joined)]),
                plans=thinned(marks),
                epoch=self.epoch,
            )
            write_settled(self._store, interval)
            self._settled.append(interval)
            replaced += joined
            crash_point.reach(crash_point.CLEANING)
        if plans:
            self.probe()
        self._delete_settled(replaced)

    def _runs(self, plans: Collection[PlanKey]) -> Iterator[tuple[Time, list[PlanKey], Time]]:
        """Yield the plans in runs without another plan of this log in between: (time of the plan before, run, time of the plan behind)."""
        chosen = set(plans)
        with self._lock:
            written = list(self._written)
        end = 0
        for going, group in groupby(written, key=lambda key: key in chosen):
            run = list(group)
            begin, end = end, end + len(run)
            if going:
                before = written[begin - 1][0] if begin else run[0][0] - _MOMENT
                yield before, run, written[end][0]

    def _marks(self, run: Sequence[PlanKey]) -> Iterator[BatchPlan]:
        """Yield the first and the last plan of each epoch in the run, without tombstones. Blocks: two reads per epoch."""
        for _, group in groupby(run, key=lambda key: key[1]):
            keys = list(group)
            for order in (keys, keys[::-1]):
                plans = (read_plan(self._store, *key) for key in order)
                first = next((plan for plan in plans if not plan.void), None)
                if first is not None:
                    yield first

    def _drop_settled(self) -> None:
        """Delete the settled intervals that others contain, and those below the low watermark, which then finds stray plans alone.

        Without an interval there is no request. A driver that has taken over has perhaps not read the newest plan, so this probes first.
        """
        with self._lock:
            low_watermark = min((floor for _, floor in self._newest), default=Time(0))
        over = [
            interval
            for interval in self._settled
            if interval.until < low_watermark or any(other.supersedes(interval) for other in self._settled)
        ]
        if over:
            self.probe()
        self._delete_settled(over)

    def _delete_settled(self, intervals: Collection[Settled]) -> None:
        """Delete the records of intervals that no reader needs any more."""
        for interval in intervals:
            self._store.delete(interval.name)
            self._settled.remove(interval)

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

    def _removable(self, required: RequiredBatches) -> tuple[list[PlanKey], list[PlanKey]]:
        """Return the plans that may be deleted, oldest first: those below the low watermark, and those above the oldest unfinished batch.

        If every batch has succeeded since the newest plan was made, there may be others; they wait for the next plan and its watermark.
        """
        with self._lock:
            if len(self._newest) < _NEWEST_KEPT:
                return [], []
            low_watermark, end = self._newest[-1][1], self._newest[0][0]
            over = [key for key in self._written if key[0] < end and key[0] not in required]
        below = [key for key in over if key[0] < low_watermark]
        oldest = required.oldest_unfinished
        above = [] if oldest is None else [key for key in over if key[0] > oldest and key[0] >= low_watermark]
        return below, above

    def _create(self, name: str, kind: str, fields: Mapping[str, object], *, private: bool = False) -> bool:
        """Create a record; return False if its name is taken. A private one is readable for its owner only, where the store can."""
        try:
            self._store.create(name, format.encode(kind, dict(fields)), private=private)
        except AlreadyExistsError:
            return False
        return True


class NoLog:
    """The log of a stream without a checkpoint directory. It stores nothing: no restart can recover from it, and no other driver take over.

    No method blocks or raises.
    """

    epoch = 0
    url = ""

    def write_plan(self, plan: BatchPlan) -> None:
        pass

    def read_skips(self, batches: Collection[Time]) -> None:
        pass

    def skips_of(self, time: Time, plan_epoch: int) -> dict[int, list[SkippedRecord]]:
        """Return nothing: without a checkpoint nobody can ask for it."""
        return {}

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        return None

    def is_void(self, time: Time) -> bool:
        """Return False: a plan that is not stored needs no tombstone."""
        return False

    def probe(self) -> None:
        pass

    def complete(self, time: Time, plan_epoch: int, outcome: BatchOutcome) -> States:
        """Return no states: none is ever stored."""
        return {}

    def fail(
        self,
        time: Time,
        plan_epoch: int,
        at_ms: int,
        reason: str,
        states: States | None = None,
        succeeded: Sequence[SucceededOutput] = (),
    ) -> States:
        """Return no states: none is ever stored."""
        return {}

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Return an empty text: no command can run a batch again that was not stored."""
        return ""

    def clean(self, required: RequiredBatches) -> None:
        pass


BatchLog: TypeAlias = PlanLog | NoLog
"""The log of a driver, with or without a checkpoint directory."""

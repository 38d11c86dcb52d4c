"""read_log: the contents of a log, for a driver that starts and for people; and how a driver takes a log over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream.batch import BatchPlan, Json
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names
from kstream.checkpoint.format import read_plan
from kstream.checkpoint.input_records import KeptOffsets, read_kept
from kstream.errors import AlreadyExistsError, CorruptRecordError, MissingFileError
from kstream.storage import FileStore

PlanKey: TypeAlias = tuple[Time, int]
"""Batch time and epoch, as the name of a plan says them."""


@dataclass(frozen=True, slots=True)
class Meta:
    """Facts that hold for the whole life of a checkpoint."""

    zero_time: Time
    interval: Duration


@dataclass(frozen=True, slots=True)
class LogContents:
    """The current plans of a log, oldest first, and what became of their batches."""

    meta: Meta | None
    plans: dict[Time, BatchPlan]
    done: frozenset[Time]
    given_up: frozenset[Time]
    failures: dict[Time, int]
    superseded: tuple[PlanKey, ...]
    """Plans whose batches were never submitted: delete them."""
    kept_offsets: KeptOffsets | None = None
    """Offsets of partitions that the streams no longer read."""

    @property
    def has_begun(self) -> bool:
        """Whether any plan has positions of the inputs. Tombstones have none: their drivers never began."""
        return any(not plan.void for plan in self.plans.values())

    @property
    def last_planned(self) -> Time | None:
        """The newest batch time; None without a plan."""
        return max(self.plans, default=None)

    @property
    def pending(self) -> list[Time]:
        """Planned batches that have not ended, oldest first: they run again with their plans."""
        finished = self.done | self.given_up
        return [t for t in sorted(self.plans) if t not in finished and not self.plans[t].void]

    def newest_data(self, stream_id: int) -> tuple[Time, dict[str, object]] | None:
        """The newest plan data of a stream, with its batch time."""
        for time in sorted(self.plans, reverse=True):
            if stream_id in self.plans[time].inputs:
                return time, dict(self.plans[time].inputs[stream_id])
        return None

    def kept_data(self, stream_id: int) -> Mapping[str, Json] | None:
        """The kept offsets of a stream. The newest plan wins for partitions that both have."""
        return None if self.kept_offsets is None else self.kept_offsets.inputs.get(stream_id)


@dataclass(frozen=True, slots=True)
class Takeover:
    """The record `adopted/<epoch>`: the plans that a driver found at its start."""

    epoch: int = 0
    found: frozenset[PlanKey] = field(default_factory=frozenset[PlanKey])


# -- reading a log


def read_log(store: FileStore) -> LogContents:
    """Read the whole log. Blocks: one listing per folder, one read per plan that is kept, one of the kept offsets.

    A plan in the store is current unless one of these rules supersedes it, in this order: `not_taken_over`, `replaced`,
    `planned_when_fenced`, `unknown_to_a_successor`, `below_low_watermark`.

    Raises:
        CorruptRecordError: names the first damaged plan that is not superseded.
    """
    takeover = _newest_takeover(store)
    keys = [(time, epochs[0]) for time, epochs in _keys(store, names.PLANS)]
    ignored = not_taken_over(keys, takeover)
    current, superseded = select_current_plans(key for key in keys if key not in ignored)
    done = {(time, epochs[0]) for time, epochs in _keys(store, names.DONE)}
    given_up = {(time, epochs[0]) for time, epochs in _keys(store, names.GIVEN_UP)}
    failures = Counter((time, epochs[0]) for time, epochs in _keys(store, names.FAILED))
    read, unknown = _read_plans(store, current)
    left = below_low_watermark(read, done | given_up)
    plans = {time: plan for time, plan in read.items() if (time, plan.epoch) not in left}
    return LogContents(
        meta=read_meta(store),
        plans=plans,
        done=frozenset(time for time, plan in plans.items() if (time, plan.epoch) in done),
        given_up=frozenset(time for time, plan in plans.items() if (time, plan.epoch) in given_up),
        failures={time: failures[time, plan.epoch] for time, plan in plans.items() if (time, plan.epoch) in failures},
        superseded=(*superseded, *ignored, *unknown, *left),
        kept_offsets=read_kept(store),
    )


def select_current_plans(keys: Iterable[PlanKey]) -> tuple[dict[Time, int], list[PlanKey]]:
    """Select at most one plan per batch time by `replaced` and `planned_when_fenced`. Pure.

    Returns:
        Batch time → epoch of the current plans; and the superseded plans.
    """
    keys = sorted(keys, key=lambda key: (key[0], -key[1]))
    older = replaced(keys)
    newest = [key for key in keys if key not in older]
    late = planned_when_fenced(newest)
    current = dict(key for key in newest if key not in late)
    return current, [key for key in keys if current.get(key[0]) != key[1]]


def newest_plan(store: FileStore) -> BatchPlan | None:
    """Read the plan of the newest batch time, with one listing and one read. It may be a stray, or a tombstone."""
    current, _ = select_current_plans((time, epochs[0]) for time, epochs in _keys(store, names.PLANS))
    if not current:
        return None
    try:
        return read_plan(store, max(current), current[max(current)])
    except MissingFileError:
        return None


def _read_plans(store: FileStore, current: Mapping[Time, int]) -> tuple[dict[Time, BatchPlan], list[PlanKey]]:
    """Read the plans, oldest first in the result; the second value are those that `unknown_to_a_successor` supersedes.

    Newer plans are read first, and a superseded plan is never read: damage in it does not matter. A plan that is gone since the listing
    was deleted by a fenced driver that still cleans up: no driver needs it.
    """
    plans: dict[Time, BatchPlan] = {}
    unknown: list[PlanKey] = []
    predecessors: dict[int, Time] = {}
    for time in sorted(current, reverse=True):
        key = (time, current[time])
        if unknown_to_a_successor(key, predecessors):
            unknown.append(key)
            continue
        try:
            plans[time] = read_plan(store, *key)
        except MissingFileError:
            continue
        predecessors[key[1]] = plans[time].after
    return dict(sorted(plans.items())), unknown


# -- the rules by which a plan is superseded (pure)


def not_taken_over(keys: Iterable[PlanKey], takeover: Takeover) -> list[PlanKey]:
    """The plans of epochs before a takeover that its driver did not find.

    Their writers were fenced when they were written, so they were never submitted. The driver that took over has run other plans in
    their place.
    """
    return [key for key in keys if key[1] < takeover.epoch and key not in takeover.found]


def replaced(keys: Iterable[PlanKey]) -> set[PlanKey]:
    """All plans of a batch time but the one of the highest epoch.

    A driver plans a time again only if it has not found the plan of an older epoch; so that plan came too late, and its writer was fenced
    before it could submit the batch.
    """
    keys = set(keys)
    highest: dict[Time, int] = {}
    for time, epoch in keys:
        highest[time] = max(epoch, highest.get(time, epoch))
    return {(time, epoch) for time, epoch in keys if epoch < highest[time]}


def planned_when_fenced(keys: Iterable[PlanKey]) -> set[PlanKey]:
    """The plans whose epoch is lower than that of an *earlier* batch time.

    A driver only plans times after all that it found. So when such a plan was written, the driver of the higher epoch had already
    planned; the writer was fenced, and never submitted the batch.
    """
    highest = 0
    found: set[PlanKey] = set()
    for time, epoch in sorted(keys):
        if epoch < highest:
            found.add((time, epoch))
        highest = max(highest, epoch)
    return found


def unknown_to_a_successor(key: PlanKey, predecessors: Mapping[int, Time]) -> bool:
    """Whether a later driver planned as if this plan did not exist.

    Each plan says which batch time was the newest before it. A plan of an older epoch and a later time was written after that driver had
    read the log, by a fenced writer: it was never submitted.

    Args:
        key: the plan in question.
        predecessors: epoch → the predecessor time that the oldest plan of that epoch, among the newer plans, names.
    """
    time, epoch = key
    return any(epoch < later and time > predecessor for later, predecessor in predecessors.items())


def below_low_watermark(plans: Mapping[Time, BatchPlan], ended: Collection[PlanKey]) -> list[PlanKey]:
    """The plans that are older than the low watermark of the newest plan, and whose batches have not ended.

    Everything below the low watermark had ended when the newest plan was made. So such a plan is a stray of a fenced driver, and the plan
    that replaced it is deleted already. Tombstones have no batch and stay.
    """
    low_watermark = plans[max(plans)].floor if plans else Time(0)
    return [
        (time, plan.epoch) for time, plan in plans.items() if time < low_watermark and (time, plan.epoch) not in ended and not plan.void
    ]


# -- taking a log over


def record_takeover(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Store which plans the driver of `epoch` found, if the plans alone do not tell. Called before it submits anything.

    A plan of an older epoch that this driver did not find is never submitted, because its writer is fenced. But it may still be written,
    now or later, and its epoch may be higher than that of a pending plan that runs now; so what was found is recorded. If each pending
    plan is of the epoch just before, no other epoch can be in between, and nothing is recorded.
    """
    if all(contents.plans[time].epoch >= epoch - 1 for time in contents.pending):
        return
    found = [[time.milliseconds, plan.epoch] for time, plan in contents.plans.items()]
    try:
        store.create(names.adopted(epoch), format.encode("adopted", {"epoch": epoch, "plans": found}))
    except AlreadyExistsError:  # a retry of the store's client: no other driver has this epoch
        pass
    for older in _takeovers(store):
        if older < epoch:
            store.delete(names.adopted(older))


def delete_superseded(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Delete the records that no restart uses: superseded plans, and failures and old completions without a plan. The ledger stays.

    A completion that is newer than the oldest plan stays, also without its plan: it tells that a plan which was deleted by hand lost
    nothing.

    Args:
        store: the checkpoint.
        contents: of the log, as the caller found it.
        epoch: the caller's. Records of this epoch and of later ones are left alone: they are newer than `contents`.
    """
    for time, plan_epoch in contents.superseded:
        store.delete(names.plan(time, plan_epoch))
    known = {(time, plan.epoch) for time, plan in contents.plans.items()}
    oldest = min(contents.plans, default=None)
    for folder in (names.DONE, names.FAILED):
        for time, epochs in _keys(store, folder):
            explains = folder == names.DONE and oldest is not None and time > oldest
            if epochs[0] < epoch and (time, epochs[0]) not in known and not explains:
                store.delete(f"{folder}/{names.key(time, *epochs)}")


def _takeovers(store: FileStore) -> list[int]:
    """The epochs of the takeover records, sorted."""
    numbers = (names.parse_adopted(name) for name in store.list(names.ADOPTED))
    return sorted(number for number in numbers if number is not None)


def _newest_takeover(store: FileStore) -> Takeover:
    for number in reversed(_takeovers(store)):
        name = names.adopted(number)
        try:
            fields = format.decode("adopted", store.read(name), store.path(name))
            format.check_name(store.path(name), fields, {"epoch": number})
        except MissingFileError:  # deleted since the listing: there is a newer one
            return _newest_takeover(store)
        return Takeover(number, frozenset((Time(time), epoch) for time, epoch in fields["plans"]))
    return Takeover()


# -- the meta record


def write_meta(store: FileStore, meta: Meta) -> None:
    """Create the meta record; AlreadyExistsError if there is one."""
    fields = {"zero_time": meta.zero_time.milliseconds, "interval": meta.interval.milliseconds}
    store.create(names.META, format.encode("meta", fields))


def read_meta(store: FileStore) -> Meta | None:
    """Read the meta record; None if there is none."""
    if not store.exists(names.META):
        return None
    fields = format.decode("meta", store.read(names.META), store.path(names.META))
    return Meta(Time(fields["zero_time"]), Duration(fields["interval"]))


def check_meta(store: FileStore, meta: Meta | None, planned: Time | None) -> None:
    """Refuse plans without a meta record. A meta record without plans is fine: a driver died before its first plan.

    Args:
        meta: the meta record, read after `planned` was found: the first driver stores it before its first plan.
        planned: the newest batch time that has a plan; None if there is no plan.

    Raises:
        CorruptRecordError: names the missing file.
    """
    if meta is not None or planned is None:
        return
    place = store.path(names.META)
    raise CorruptRecordError(
        f"{place} is missing, but there are plans up to batch {planned}. A start without it would be a first start: its streams would read "
        "records again, or skip those that came since that batch. Restore the file from a copy (it holds the zero time and the batch "
        "interval, and never changes), or start with a new checkpoint directory.",
        path=place,
        reason="missing",
    )


def has_checkpoint(store: FileStore) -> bool:
    """Whether a stream has ever started with this checkpoint."""
    return store.exists(names.META)


def _keys(store: FileStore, folder: str) -> list[tuple[Time, tuple[int, ...]]]:
    parsed = (names.parse_key(name) for name in store.list(folder))
    return [key for key in parsed if key is not None]

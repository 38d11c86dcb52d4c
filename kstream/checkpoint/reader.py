"""read_log: reads the contents of a log, for a driver that starts and for commands; and the takeover of a log by a driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kstream.batch import BatchPlan, SkippedRecord
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import positive
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.checkpoint.format import read_plan
from kstream.checkpoint.input_records import KeptOffsets, read_kept
from kstream.checkpoint.interval_change import IntervalChange, read_change
from kstream.checkpoint.settled import Settled, in_settled, read_settled
from kstream.checkpoint.skip_request import by_stream, read_requests
from kstream.errors import CorruptRecordError, MissingFileError
from kstream.storage import FileStore

PlanKey: TypeAlias = tuple[Time, int]
"""Batch time and epoch: the two parts of a plan's name."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The zero time and the batch interval of a checkpoint. A changed interval has its own record, `interval-changes/<epoch>`.

    Attributes:
        zero_time: one interval before the first batch, or a whole number of intervals before the first batch since the change.
        interval: the batch interval.
        after: the last batch of the former interval; None if the interval has never changed.
    """

    zero_time: Time
    interval: Duration
    after: Time | None = None

    @property
    def change(self) -> IntervalChange | None:
        """The newest change of the interval, which each driver records again; None if the interval has never changed."""
        return None if self.after is None else IntervalChange(self.after, self.zero_time, self.interval)

    def next_batch(self, time: Time) -> Time:
        """Return the first batch time after `time`, which may be of the former interval."""
        return time.floor(self.interval, self.zero_time) + self.interval


@dataclass(frozen=True, slots=True)
class LogContents:
    """The current plans of a log, oldest first, and the results of their batches.

    Attributes:
        meta: the meta record; None if there is none.
        plans: batch time → its current plan.
        done: the batches that have a completion.
        given_up: the batches that were given up.
        failures: batch time → how often the batch has failed; only batches that have failed.
    """

    meta: Meta | None
    plans: dict[Time, BatchPlan]
    done: frozenset[Time]
    given_up: frozenset[Time]
    failures: dict[Time, int]
    superseded: tuple[PlanKey, ...]
    """The superseded plans, to be deleted. Their batches were never submitted under these plans."""
    kept_offsets: KeptOffsets | None = None
    """Offsets of partitions that the streams no longer read."""
    settled: tuple[Settled, ...] = ()
    """The intervals whose plans were removed above an unfinished batch."""
    skipped: Mapping[Time, Sequence[SkippedRecord]] = field(default_factory=dict[Time, Sequence[SkippedRecord]])
    """Batch time → the records that the batch leaves out: by its completion; without a completion, by the requests of `kstream skip`."""
    numbers: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    """Epoch → number of a stream in the plans of that epoch → number now. Empty if the plans have not been renumbered."""
    unread: tuple[Time, ...] = ()
    """Older batches whose plans were not read, and which have not ended as far as names of records tell. Tombstones may be among them."""

    @property
    def known_plans(self) -> list[BatchPlan]:
        """All plans of which something is known: the current ones, and those in the settled intervals."""
        return [*self.plans.values(), *(plan for interval in self.settled for plan in interval.plans)]

    @property
    def has_begun(self) -> bool:
        """Whether any plan is not a tombstone, and so has positions of the inputs."""
        return any(not plan.void for plan in self.plans.values())

    @property
    def last_planned(self) -> Time | None:
        """The newest batch time; None without a plan."""
        return max(self.plans, default=None)

    @property
    def pending(self) -> list[Time]:
        """The pending batches, oldest first: they have a plan and have not ended. A restart runs them again with their plans."""
        finished = self.done | self.given_up
        return [t for t in sorted(self.plans) if t not in finished and not self.plans[t].void]

    def skipped_of(self, time: Time, stream_id: int) -> Sequence[SkippedRecord]:
        """Return the records of a stream that a batch leaves out. Numbers of streams are those of now."""
        records = self.skipped.get(time, ())
        return by_stream(records, self.numbers.get(self.plans[time].epoch)).get(stream_id, ()) if records else ()

    def newest_data(self, stream_id: int) -> tuple[Time, dict[str, object]] | None:
        """Return the newest plan data of a stream, with its batch time; None if no plan has data of the stream."""
        for time in sorted(self.plans, reverse=True):
            if stream_id in self.plans[time].inputs:
                return time, dict(self.plans[time].inputs[stream_id])
        return None


@dataclass(frozen=True, slots=True)
class StartedLog:
    """The log of a checkpoint with which a stream has started: it has a meta record."""

    meta: Meta
    contents: LogContents


@dataclass(frozen=True, slots=True)
class Takeover:
    """The record `adopted/<epoch>`: the adopted plans, which the driver of `epoch` found at its start."""

    epoch: int = 0
    found: frozenset[PlanKey] = field(default_factory=frozenset[PlanKey])


def _takeover_of(fields: format.Fields) -> Takeover:
    return Takeover(fields["epoch"], frozenset((Time(time), epoch) for time, epoch in fields["plans"]))


_TAKEOVERS = EpochRecords(names.ADOPTED, "adopted", _takeover_of)


# -- reading a log


def read_log(store: FileStore, newest: int | None = None, known: Mapping[PlanKey, BatchPlan] | None = None) -> LogContents:
    """Read the log. Blocks: one listing per folder, one read per plan that is kept and per settled interval, one of the kept offsets.

    Requests to leave a record out cost a read each, and one for their batch, as long as its plan is kept.

    A plan in the store is current unless one of these rules supersedes it, in this order: `not_taken_over`, `unknown_to_settled`,
    `replaced`, `planned_when_fenced`, `unknown_to_a_successor`, `below_low_watermark`.

    Args:
        store: the checkpoint.
        newest: read only so many plans, the newest; None for all. A driver needs all.
        known: plans that were read before and are not read again, because no plan ever changes.

    Raises:
        CorruptRecordError: a record is damaged. The error names the newest damaged plan that is not superseded.
        StorageError: the store failed.
    """
    takeover = _newest_takeover(store)
    keys = [(time, epochs[0]) for time, epochs in _keys(store, names.PLANS)]
    done = {(time, epochs[0]) for time, epochs in _keys(store, names.DONE)}
    given_up = {(time, epochs[0]) for time, epochs in _keys(store, names.GIVEN_UP)}
    failures = Counter((time, epochs[0]) for time, epochs in _keys(store, names.FAILED))
    settled = read_settled(store)
    ignored = {*not_taken_over(keys, takeover), *unknown_to_settled(keys, settled, done | given_up)}
    current, superseded = select_current_plans(key for key in keys if key not in ignored)
    read, unknown, unread = _read_plans(store, current, newest, known or {})
    if len(read) + len(unknown) + len(unread) < len(current):  # plans were removed since the listing: their interval is in the store by now
        settled = read_settled(store)
    ended = done | given_up
    left = below_low_watermark(read, ended)
    floor = read[max(read)].floor if read else Time(0)
    plans = {time: plan for time, plan in read.items() if (time, plan.epoch) not in left}
    return LogContents(
        meta=read_meta(store),
        plans=plans,
        done=frozenset(time for time, plan in plans.items() if (time, plan.epoch) in done),
        given_up=frozenset(time for time, plan in plans.items() if (time, plan.epoch) in given_up),
        failures={time: failures[time, plan.epoch] for time, plan in plans.items() if (time, plan.epoch) in failures},
        superseded=(*superseded, *sorted(ignored), *unknown, *left),
        kept_offsets=read_kept(store),
        settled=settled,
        skipped=_read_skipped(store, plans, done),
        unread=tuple(time for time, epoch in unread if time >= floor and (time, epoch) not in ended),
    )


def _read_skipped(store: FileStore, plans: Mapping[Time, BatchPlan], done: Collection[PlanKey]) -> dict[Time, list[SkippedRecord]]:
    """Return the records that the batches of these plans leave out. The requests are listed after `done`: a completion has known them."""
    found: dict[Time, list[SkippedRecord]] = {}
    for request in read_requests(store, lambda time, epoch: time in plans and plans[time].epoch == epoch):
        found.setdefault(request.time, []).append(request.record)
    for time in [time for time in found if (time, plans[time].epoch) in done]:
        found[time] = read_left_out(store, time, plans[time].epoch)
    return found


def has_ended(store: FileStore, time: Time, plan_epoch: int) -> bool:
    """Return whether a batch has a completion, or had one and clean-up has removed its plan. Blocks: two small requests at most."""
    return store.exists(names.done(time, plan_epoch)) or not store.exists(names.plan(time, plan_epoch))


def read_left_out(store: FileStore, time: Time, plan_epoch: int) -> list[SkippedRecord]:
    """Return the records that a batch has left out, by its completion; none if clean-up has removed that. Blocks: one read."""
    name = names.done(time, plan_epoch)
    try:
        data = store.read(name)
    except MissingFileError:
        return []
    return format.decode("done", data, store.path(name), _left_out_of, {"time": time.milliseconds})


def _left_out_of(fields: format.Fields) -> list[SkippedRecord]:
    """Return the records that a completion names as left out."""
    return [SkippedRecord.from_json(row) for row in fields.get("skipped", ())]


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
    """Read the plan of the newest batch time; None without a plan. It may be a stray plan or a tombstone. Blocks: one listing, one read."""
    current, _ = select_current_plans((time, epochs[0]) for time, epochs in _keys(store, names.PLANS))
    if not current:
        return None
    try:
        return read_plan(store, max(current), current[max(current)])
    except MissingFileError:
        return None


def _read_plans(
    store: FileStore, current: Mapping[Time, int], newest: int | None, known: Mapping[PlanKey, BatchPlan]
) -> tuple[dict[Time, BatchPlan], list[PlanKey], list[PlanKey]]:
    """Read the plans. Newer plans are read first, and superseded ones are not read, so damage in them does not matter.

    If a plan is gone since the listing, a fenced driver that still cleans up has deleted it, and no driver needs it.

    Args:
        store: the checkpoint.
        current: batch time → epoch of the plans.
        newest: read only so many; None for all.
        known: plans that are not read again.

    Returns:
        The plans, oldest first; the plans that `unknown_to_a_successor` supersedes; and the older ones that were not read.
    """
    plans: dict[Time, BatchPlan] = {}
    unknown: list[PlanKey] = []
    unread: list[PlanKey] = []
    predecessors: dict[int, Time] = {}
    for time in sorted(current, reverse=True):
        key = (time, current[time])
        if unknown_to_a_successor(key, predecessors):
            unknown.append(key)
            continue
        if newest is not None and len(plans) >= newest:
            unread.append(key)
            continue
        try:
            plans[time] = known[key] if key in known else read_plan(store, *key)
        except MissingFileError:
            continue
        predecessors[key[1]] = plans[time].after
    return dict(sorted(plans.items())), unknown, unread


# -- the rules by which a plan is superseded (pure)


def not_taken_over(keys: Iterable[PlanKey], takeover: Takeover) -> list[PlanKey]:
    """Return the plans of epochs before a takeover that are not among its adopted plans.

    Their writers were fenced when they wrote these plans, so they never submitted them. The driver that took over has run other plans in
    their place.
    """
    return [key for key in keys if key[1] < takeover.epoch and key not in takeover.found]


def unknown_to_settled(keys: Iterable[PlanKey], settled: Collection[Settled], ended: Collection[PlanKey]) -> list[PlanKey]:
    """Return the plans in a settled interval whose batches have not ended.

    All batches in the interval had ended when its record was written. So such a plan is a stray plan of a fenced driver, or the late write
    of a plan that was removed. The plans that replaced it are removed, so no other rule need find it.
    """
    return [key for key in keys if key not in ended and in_settled(key[0], settled)]


def replaced(keys: Iterable[PlanKey]) -> set[PlanKey]:
    """Return all plans except that of the highest epoch for each batch time.

    A driver plans a time again only if it has not found the plan of an older epoch. So that plan was written too late: its writer was
    fenced before it could submit the batch.
    """
    keys = set(keys)
    highest: dict[Time, int] = {}
    for time, epoch in keys:
        highest[time] = max(epoch, highest.get(time, epoch))
    return {(time, epoch) for time, epoch in keys if epoch < highest[time]}


def planned_when_fenced(keys: Iterable[PlanKey]) -> set[PlanKey]:
    """Return the plans whose epoch is lower than that of an *earlier* batch time.

    A driver only plans times after those of all plans that it found. So the driver of the higher epoch had already planned when such a
    plan was written. The writer was fenced, and never submitted the batch.
    """
    highest = 0
    found: set[PlanKey] = set()
    for time, epoch in sorted(keys):
        if epoch < highest:
            found.add((time, epoch))
        highest = max(highest, epoch)
    return found


def unknown_to_a_successor(key: PlanKey, predecessors: Mapping[int, Time]) -> bool:
    """Return whether a later driver did not find this plan when it read the log.

    Each plan names the newest planned batch that its driver found (`BatchPlan.after`). A plan of an older epoch for a later time than that
    was written after the driver had read the log. Its writer was fenced, and never submitted it.

    Args:
        key: the plan to check.
        predecessors: epoch → the `after` of that epoch's plans; of the newer plans only.
    """
    time, epoch = key
    return any(epoch < later and time > predecessor for later, predecessor in predecessors.items())


def below_low_watermark(plans: Mapping[Time, BatchPlan], ended: Collection[PlanKey]) -> list[PlanKey]:
    """Return the plans that are older than the low watermark of the newest plan, and whose batches have not ended.

    All batches below the low watermark had ended when the newest plan was made. So such a plan is a stray plan of a fenced driver, and the
    plan that replaced it is deleted already. Tombstones have no batch and stay.

    Args:
        plans: the current plans.
        ended: the plans whose batches have a completion or were given up.
    """
    low_watermark = plans[max(plans)].floor if plans else Time(0)
    return [
        (time, plan.epoch) for time, plan in plans.items() if time < low_watermark and (time, plan.epoch) not in ended and not plan.void
    ]


# -- taking a log over


def record_takeover(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Record the adopted plans of a starting driver, if later drivers could not recognise them otherwise. Blocks; StorageError.

    Called before the driver submits anything. A plan of an older epoch that this driver did not find is never submitted, because its
    writer is fenced. But the writer may still store it, and its epoch may be higher than that of a pending plan which runs now. So the
    driver records the plans that it found. If each pending plan is of the epoch just before, no other epoch can be in between, and
    nothing is recorded.

    Args:
        store: the checkpoint.
        contents: the contents of the log, as the driver found it.
        epoch: the epoch of the driver.
    """
    if all(contents.plans[time].epoch >= epoch - 1 for time in contents.pending):
        return
    found = [[time.milliseconds, plan.epoch] for time, plan in contents.plans.items()]
    _TAKEOVERS.create(store, epoch, {"plans": found})
    _TAKEOVERS.delete_before(store, epoch)


def delete_superseded(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Delete the records that no restart uses: superseded plans, and failures and old completions without a plan. The ledger stays.

    A completion that is newer than the oldest plan stays, also without its plan: it shows that a plan which was deleted by hand lost
    no data. In a settled interval that is known. Blocks on the store; StorageError.

    Args:
        store: the checkpoint.
        contents: the contents of the log, as the caller found it.
        epoch: the caller's. Completions and failures of plans of this epoch or a later one stay: they are newer than `contents`.
    """
    for time, plan_epoch in contents.superseded:
        store.delete(names.plan(time, plan_epoch))
    known = {(time, plan.epoch) for time, plan in contents.plans.items()}
    oldest = min(contents.plans, default=None)
    for folder in (names.DONE, names.FAILED):
        for time, epochs in _keys(store, folder):
            explains = folder == names.DONE and oldest is not None and time > oldest and not in_settled(time, contents.settled)
            if epochs[0] < epoch and (time, epochs[0]) not in known and not explains:
                store.delete(f"{folder}/{names.key(time, *epochs)}")


def _newest_takeover(store: FileStore) -> Takeover:
    """Read the takeover record of the highest epoch; an empty one if there is none. One listing, one read."""
    return _TAKEOVERS.newest(store) or Takeover()


# -- the meta record


def write_meta(store: FileStore, meta: Meta) -> None:
    """Create the meta record. Blocks: one create. AlreadyExistsError if there is one; StorageError."""
    fields = {"zero_time": meta.zero_time.milliseconds, "interval": meta.interval.milliseconds}
    store.create(names.META, format.encode("meta", fields))


def read_started_log(store: FileStore) -> StartedLog:
    """As `read_log`, for a checkpoint that `has_checkpoint`. MissingFileError for another one."""
    contents = read_log(store)
    return StartedLog(contents.meta or existing_meta(store), contents)


def read_meta(store: FileStore) -> Meta | None:
    """Read the meta record and the newest change of the interval; None without a meta record. Blocks; CorruptRecordError, StorageError."""
    return existing_meta(store) if store.exists(names.META) else None


def existing_meta(store: FileStore) -> Meta:
    """As `read_meta`. MissingFileError without a meta record."""
    first = format.decode("meta", store.read(names.META), store.path(names.META), _meta_of)
    change = read_change(store)
    return first if change is None else Meta(change.zero_time, change.interval, change.after)


def _meta_of(fields: format.Fields) -> Meta:
    return Meta(Time(fields["zero_time"]), positive(fields["interval"]))


def check_meta(store: FileStore, meta: Meta | None, planned: Time | None) -> None:
    """Refuse plans without a meta record. A meta record without plans is fine: a driver died before its first plan.

    Args:
        store: the checkpoint, for the message.
        meta: the meta record. Read it after the plans: the first driver stores it before its first plan.
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
    """Return whether a stream has ever started with this checkpoint: whether there is a meta record. Blocks; StorageError."""
    return store.exists(names.META)


def _keys(store: FileStore, folder: str) -> list[tuple[Time, tuple[int, ...]]]:
    """Return time and epochs of every record in a folder. One listing."""
    parsed = (names.parse_key(name) for name in store.list(folder))
    return [key for key in parsed if key is not None]

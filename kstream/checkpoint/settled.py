"""Settled intervals: plans that were removed above an unfinished batch, and what a reader must still know of them.

    settled/<after>-<until>-<epoch>     no plan of a time in (after, until] is pending; the oldest and the newest of the removed plans

While every plan above the oldest unfinished batch is kept, a stray plan is found by the plans that replaced it. These plans go when their
batches have ended, though an older batch is unfinished. The record is written before they are removed. Then any plan in the interval
without a completion is a stray plan, or the late write of a removed one. The two plans at the ends show that no plan is missing before
and after the interval. A plan between them is in the record only if the streams of its graph differ from those of the plan before:
`binding` follows a stream from graph to graph.

An interval that begins where another one ends replaces it, so the number of records is that of the unfinished batches, not that of
the removed plans. A record goes when no unfinished batch is older than its interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.format import plan_fields, plan_of
from kstream.errors import AlreadyExistsError, MissingFileError
from kstream.storage import FileStore

AT_ONCE = 10
"""Without a history, so many plans above an unfinished batch are removed at once: one record, one probe and one delete for all of them."""


@dataclass(frozen=True, slots=True)
class Settled:
    """An interval of batch times in which every batch has ended, and whose plans are removed.

    Attributes:
        after: the interval begins after this batch time.
        until: the newest removed plan, included.
        plans: removed plans, oldest first: the first and the last one that is no tombstone, and each whose streams differ from those of
            the plan before. Empty if there were only tombstones.
        epoch: the epoch of the driver that wrote the record.
    """

    after: Time
    until: Time
    plans: tuple[BatchPlan, ...]
    epoch: int

    @property
    def name(self) -> str:
        return names.settled(self.after, self.until, self.epoch)

    def covers(self, time: Time) -> bool:
        """Return whether a batch time is in the interval."""
        return self.after < time <= self.until

    def supersedes(self, other: Settled) -> bool:
        """Return whether a reader needs the other one no more. Of two with the same ends, the one of the newer epoch stays."""
        return self.contains(other) and (not other.contains(self) or self.epoch > other.epoch)

    def contains(self, other: Settled) -> bool:
        """Return whether the interval of another record is a part of this one."""
        return self.after <= other.after and other.until <= self.until


def thinned(plans: Iterable[BatchPlan]) -> tuple[BatchPlan, ...]:
    """Return the first and the last plan, and each whose streams differ from those of the plan before. Tombstones do not count. Pure."""
    whole = sorted((plan for plan in plans if not plan.void), key=lambda plan: plan.time)
    changed = [plan for before, plan in pairwise(whole) if plan.streams != before.streams]
    kept = {plan.time: plan for plan in [*whole[:1], *changed, *whole[-1:]]}
    return tuple(kept.values())


def in_settled(time: Time, settled: Iterable[Settled]) -> bool:
    return any(interval.covers(time) for interval in settled)


def united(settled: Iterable[Settled]) -> list[Settled]:
    """Return the intervals, oldest first, with those that overlap made one. A crash can leave a record and the one that replaces it."""
    found: list[Settled] = []
    for interval in sorted(settled, key=lambda s: (s.after, s.until)):
        if found and interval.after < found[-1].until:
            last = found.pop()
            plans = thinned([*last.plans, *interval.plans])
            interval = replace(last, until=max(last.until, interval.until), plans=plans, epoch=max(last.epoch, interval.epoch))
        found.append(interval)
    return found


def write_settled(store: FileStore, settled: Settled) -> None:
    """Store an interval. Blocks: one create; StorageError. A record that exists already is the same: a client tried twice."""
    fields = {
        "after": settled.after.milliseconds,
        "until": settled.until.milliseconds,
        "epoch": settled.epoch,
        "plans": [plan_fields(plan) for plan in settled.plans],
    }
    try:
        store.create(settled.name, format.encode("settled", fields))
    except AlreadyExistsError:
        pass


def read_settled(store: FileStore) -> tuple[Settled, ...]:
    """Read all intervals, oldest first. Blocks: one listing, one read per record. CorruptRecordError, StorageError."""
    found: list[Settled] = []
    for name in store.list(names.SETTLED):
        key = names.parse_key(name)
        if key is None or len(key[1]) != 2:
            continue
        place = f"{names.SETTLED}/{name}"
        try:
            data = store.read(place)
        except MissingFileError:  # its driver has replaced it since the listing
            return read_settled(store)
        named = {"after": key[0].milliseconds, "until": key[1][0], "epoch": key[1][1]}
        found.append(format.decode("settled", data, store.path(place), _settled_of, named))
    return tuple(sorted(found, key=lambda s: (s.after, s.until)))


def _settled_of(fields: format.Fields) -> Settled:
    """Make an interval from the fields of its record."""
    plans = tuple(plan_of(plan) for plan in fields["plans"])
    return Settled(Time(fields["after"]), Time(fields["until"]), plans, fields["epoch"])

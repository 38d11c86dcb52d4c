"""read_log: what a log says, for a driver that starts and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kstream.batch import BatchPlan, Json
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names
from kstream.checkpoint.kept_offsets import KeptOffsets, read_kept
from kstream.checkpoint.plan_record import read_plan
from kstream.errors import AlreadyExistsError, CorruptRecordError, MissingFileError
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class Meta:
    """What holds for the whole life of a checkpoint."""

    zero_time: Time
    interval: Duration


@dataclass(frozen=True, slots=True)
class LogContents:
    """The plans that stand, oldest first, and which of them need no run. `superseded` were never submitted: delete them.

    `kept`: offsets of partitions that the streams no longer read; see `kept_offsets`.
    """

    meta: Meta | None
    plans: dict[Time, BatchPlan]
    done: frozenset[Time]
    given_up: frozenset[Time]
    failures: dict[Time, int]
    superseded: tuple[tuple[Time, int], ...]
    kept: KeptOffsets | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any plan says where the inputs stand. Void ones do not: the drivers that left them never began."""
        return any(not plan.void for plan in self.plans.values())

    @property
    def last_planned(self) -> Time | None:
        return max(self.plans, default=None)

    @property
    def pending(self) -> list[Time]:
        """Planned batches without completion, oldest first: they run again with their plans."""
        finished = self.done | self.given_up
        return [t for t in sorted(self.plans) if t not in finished and not self.plans[t].void]

    def newest_data(self, stream_id: int) -> tuple[Time, dict[str, object]] | None:
        """The newest plan data of a stream."""
        for time in sorted(self.plans, reverse=True):
            if stream_id in self.plans[time].inputs:
                return time, dict(self.plans[time].inputs[stream_id])
        return None

    def kept_data(self, stream_id: int) -> Mapping[str, Json] | None:
        """What is kept for a stream besides its plans. The newest plan wins for partitions that both have."""
        return None if self.kept is None else self.kept.inputs.get(stream_id)


def write_meta(store: FileStore, meta: Meta) -> None:
    """Creates the meta record; AlreadyExistsError if there is one."""
    fields = {"zero_time": meta.zero_time.milliseconds, "interval": meta.interval.milliseconds}
    store.create(names.META, format.encode("meta", fields))


def read_meta(store: FileStore) -> Meta | None:
    if not store.exists(names.META):
        return None
    fields = format.decode("meta", store.read(names.META), store.path(names.META))
    return Meta(Time(fields["zero_time"]), Duration(fields["interval"]))


def standing(keys: Iterable[tuple[Time, int]]) -> tuple[dict[Time, int], list[tuple[Time, int]]]:
    """Which plan of each batch time stands (its epoch), and the superseded ones. Pure.

    Per time the highest epoch stands. A plan whose epoch is lower than that of an *earlier* batch time was created after its
    writer had been fenced and was never submitted: later epochs only plan later times.
    """
    best: dict[Time, int] = {}
    superseded: list[tuple[Time, int]] = []
    highest = 0
    for time, epoch in sorted(keys, key=lambda k: (k[0], -k[1])):
        if time in best or epoch < highest:
            superseded.append((time, epoch))
            continue
        best[time] = epoch
        highest = epoch
    return best, superseded


def read_log(store: FileStore) -> LogContents:
    """Reads the whole log: one listing a folder, one read a plan that is still kept, and one of the kept offsets. Blocks.

    CorruptRecordError names the first damaged plan that matters. A plan older than the newest one's `floor` that has no
    completion is a stray of a fenced driver, whose own successor has been removed already: superseded.
    """
    adopter, adopted = _newest_adopted(store)
    keys = [(t, e[0]) for t, e in _keys(store, names.PLANS)]
    strays = [key for key in keys if key[1] < adopter and key not in adopted]
    best, superseded = standing(key for key in keys if key not in strays)
    superseded += strays
    done = {(t, e[0]) for t, e in _keys(store, names.DONE)}
    given_up = {(t, e[0]) for t, e in _keys(store, names.GIVEN_UP)}
    failures = Counter((t, e[0]) for t, e in _keys(store, names.FAILED))
    plans = _read_plans(store, best, superseded)
    floor = plans[max(plans)].floor if plans else Time(0)
    for time in [t for t in plans if t < floor and (t, best[t]) not in done | given_up and not plans[t].void]:
        superseded.append((time, best[time]))
        del plans[time]
    return LogContents(
        meta=read_meta(store),
        plans=plans,
        done=frozenset(t for t in plans if (t, best[t]) in done),
        given_up=frozenset(t for t in plans if (t, best[t]) in given_up),
        failures={t: failures[(t, best[t])] for t in plans if (t, best[t]) in failures},
        superseded=tuple(superseded),
        kept=read_kept(store),
    )


def _read_plans(
    store: FileStore, best: dict[Time, int], superseded: list[tuple[Time, int]]
) -> dict[Time, BatchPlan]:  # fmt: skip
    """The plans of `best`, oldest first, less those that a later driver did not know (its plans' `after`): they are superseded.

    A plan that is gone since the listing was removed by a fenced driver that still cleans up: nobody needs it.
    """
    plans: dict[Time, BatchPlan] = {}
    after: dict[int, Time] = {}
    for time in sorted(best, reverse=True):
        epoch = best[time]
        if any(epoch < later and time > after[later] for later in after):
            superseded.append((time, epoch))
            continue
        try:
            plans[time] = read_plan(store, time, epoch)
        except MissingFileError:
            continue
        after[epoch] = plans[time].after
    return dict(sorted(plans.items()))


def newest_plan(store: FileStore) -> BatchPlan | None:
    """The plan of the newest batch time, quickly: one listing and one read. It may be a stray, or void."""
    best, _ = standing((time, epoch[0]) for time, epoch in _keys(store, names.PLANS))
    if not best:
        return None
    try:
        return read_plan(store, max(best), best[max(best)])
    except MissingFileError:
        return None


def adopt(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Stores which plans the driver of `epoch` found, where that is not plain from the plans. Before it submits anything.

    A plan that this driver did not find, of an epoch older than its own, is never submitted: its writer is fenced. It may still be
    written, now or later, and its epoch may be higher than that of a pending plan that is run now. So what was found is said aloud, unless
    each pending plan is of the epoch just before: then nobody's can be in between.
    """
    if all(contents.plans[time].epoch >= epoch - 1 for time in contents.pending):
        return
    found = [[time.milliseconds, plan.epoch] for time, plan in contents.plans.items()]
    try:
        store.create(names.adopted(epoch), format.encode("adopted", {"epoch": epoch, "plans": found}))
    except AlreadyExistsError:  # the store's client tried twice: nobody else has this epoch
        pass
    for older in _adopters(store):
        if older < epoch:
            store.delete(names.adopted(older))


def _adopters(store: FileStore) -> list[int]:
    numbers = (names.parse_adopted(name) for name in store.list(names.ADOPTED))
    return sorted(number for number in numbers if number is not None)


def _newest_adopted(store: FileStore) -> tuple[int, set[tuple[Time, int]]]:
    """The highest epoch that stored what it found, and that; 0 and nothing if none did."""
    for number in reversed(_adopters(store)):
        name = names.adopted(number)
        try:
            fields = format.decode("adopted", store.read(name), store.path(name))
            format.check_name(store.path(name), fields, {"epoch": number})
        except MissingFileError:  # removed since the listing: a newer one is there
            return _newest_adopted(store)
        return number, {(Time(time), epoch) for time, epoch in fields["plans"]}
    return 0, set()


def tidy(store: FileStore, contents: LogContents, epoch: int) -> None:
    """Removes what a restart has no use for: superseded plans, and failures and old completions without a plan. The ledger stays.

    A completion that is not older than every plan stays: it tells that nothing is lost with a plan that was removed by hand.

    `epoch` is the caller's: what a driver that has taken over since then writes is newer than `contents` and left alone.
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
    """Whether a stream has ever started here."""
    return store.exists(names.META)


def forget_batch(store: FileStore, time: Time) -> list[str]:
    """Sets every plan of a batch aside (to `forgotten/`), damaged or not; returns their places. The only way past damage."""
    moved: list[str] = []
    for plan_time, plan_epochs in _keys(store, names.PLANS):
        if plan_time == time:
            name = names.plan(time, plan_epochs[0])
            store.replace(f"{names.FORGOTTEN}/{names.key(time, plan_epochs[0])}", store.read(name))
            store.delete(name)
            moved.append(store.path(name))
    return moved


def _keys(store: FileStore, folder: str) -> list[tuple[Time, tuple[int, ...]]]:
    parsed = (names.parse_key(name) for name in store.list(folder))
    return [key for key in parsed if key is not None]

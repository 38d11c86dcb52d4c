"""The history: plans that no restart needs any more, kept for people and for replays, many to a file.

    history/<first time>-<last time>-<epoch>      SEGMENT plans with their counts, oldest first

Nothing that recovers a stream reads them. A segment is created before its plans are deleted one by one, so that a plan may for a moment,
or after a crash, be in both; plans are told apart by time and epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.plan_record import plan_fields, plan_of
from kstream.errors import MissingFileError
from kstream.storage import FileStore

SEGMENT = 50
"""Plans a segment: one create, and one listing of the segments, for so many batches."""


@dataclass(frozen=True, slots=True)
class PastBatch:
    """A batch and what became of it. `counts`: per stream the records in each part of its plan; None: the batch has not succeeded."""

    plan: BatchPlan
    counts: Mapping[int, Sequence[int | None]] | None


def read_past(store: FileStore, plan: BatchPlan) -> PastBatch:
    """A plan of the log with the counts of its completion. One read."""
    name = names.done(plan.time, plan.epoch)
    try:
        fields = format.decode("done", store.read(name), store.path(name))
    except MissingFileError:
        return PastBatch(plan, None)
    format.check_name(store.path(name), fields, {"time": plan.time.milliseconds})
    return PastBatch(plan, _counts(fields.get("counts", {})))


def write_segment(store: FileStore, epoch: int, batches: Sequence[PastBatch]) -> None:
    """One create. AlreadyExistsError if this driver has written it before."""
    rows = [{"plan": plan_fields(b.plan), "counts": None if b.counts is None else _stored(b.counts)} for b in batches]
    name = names.history(batches[0].plan.time, batches[-1].plan.time, epoch)
    store.create(name, format.encode("history", {"batches": rows}))


def drop_before(store: FileStore, oldest: Time) -> None:
    """Deletes the segments that hold nothing as new as `oldest`. One listing."""
    for name in store.list(names.HISTORY):
        key = names.parse_key(name)
        if key is not None and len(key[1]) == 2 and key[1][0] < oldest.milliseconds:
            store.delete(f"{names.HISTORY}/{name}")


def read_history(store: FileStore, begin: Time | None = None, end: Time | None = None) -> list[PastBatch]:
    """The batches of [begin, end] that are in the history, oldest first. One listing, and a read a segment that overlaps."""
    found: dict[tuple[Time, int], PastBatch] = {}
    for name in store.list(names.HISTORY):
        key = names.parse_key(name)
        if key is None or len(key[1]) != 2:
            continue
        first, last = key[0], Time(key[1][0])
        if (begin is not None and last < begin) or (end is not None and first > end):
            continue
        place = f"{names.HISTORY}/{name}"
        found.update(_batches(format.decode("history", store.read(place), store.path(place))["batches"]))
    return [b for _, b in sorted(found.items()) if (begin is None or b.plan.time >= begin) and (end is None or b.plan.time <= end)]


def _batches(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Time, int], PastBatch]:
    batches = (PastBatch(plan_of(row["plan"]), None if row["counts"] is None else _counts(row["counts"])) for row in rows)
    return {(b.plan.time, b.plan.epoch): b for b in batches}


def _stored(counts: Mapping[int, Sequence[int | None]]) -> dict[str, list[int | None]]:
    return {str(stream): list(found) for stream, found in counts.items()}


def _counts(stored: Mapping[str, Sequence[int | None]]) -> dict[int, Sequence[int | None]]:
    return {int(stream): counts for stream, counts in stored.items()}

"""History and ledger: records for people and for replays. No recovery reads them.

    history/<first time>-<last time>-<epoch>      SEGMENT plans with their counts, oldest first
    lost/…, given-up/…                            the ledger: data that a stream continued without; never run, never deleted

A segment of the history is created first; then its plans are deleted from the log one by one. So a plan may be in both places for a
moment, or after a crash. Its time and epoch identify it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.format import plan_fields, plan_of
from kstream.errors import MissingFileError
from kstream.storage import FileStore

SEGMENT = 50
"""The number of plans in a segment. Clean-up costs one create and one listing of the segments for that many batches."""


@dataclass(frozen=True, slots=True)
class PastBatch:
    """The plan of a past batch, and its record counts."""

    plan: BatchPlan
    counts: Mapping[int, Sequence[int | None]] | None
    """Stream number → record count of each part of its plan; None if the batch has not succeeded."""


def read_past(store: FileStore, plan: BatchPlan) -> PastBatch:
    """Return a plan of the log with the record counts of its completion. Blocks: one read. CorruptRecordError."""
    name = names.done(plan.time, plan.epoch)
    try:
        fields = format.decode("done", store.read(name), store.path(name))
    except MissingFileError:
        return PastBatch(plan, None)
    format.check_name(store.path(name), fields, {"time": plan.time.milliseconds})
    return PastBatch(plan, _counts(fields.get("counts", {})))


def write_segment(store: FileStore, epoch: int, batches: Sequence[PastBatch]) -> None:
    """Store a segment of the history. Blocks: one create.

    Args:
        store: the checkpoint.
        epoch: this driver's; part of the segment's name.
        batches: oldest first, at least one.

    Raises:
        AlreadyExistsError: this driver has written the segment before.
    """
    rows = [{"plan": plan_fields(b.plan), "counts": None if b.counts is None else _stored(b.counts)} for b in batches]
    name = names.history(batches[0].plan.time, batches[-1].plan.time, epoch)
    store.create(name, format.encode("history", {"batches": rows}))


def drop_before(store: FileStore, oldest: Time) -> None:
    """Delete the segments whose plans are all older than `oldest`. Blocks: one listing, and one delete per segment."""
    for name in store.list(names.HISTORY):
        key = names.parse_key(name)
        if key is not None and len(key[1]) == 2 and key[1][0] < oldest.milliseconds:
            store.delete(f"{names.HISTORY}/{name}")


def read_history(store: FileStore, begin: Time | None = None, end: Time | None = None) -> list[PastBatch]:
    """Read the batches of [begin, end] in the history, oldest first. Blocks: one listing, and one read per segment that overlaps.

    Args:
        store: the checkpoint.
        begin: the first batch time; None is no limit.
        end: the last batch time, included; None is no limit.

    Raises:
        CorruptRecordError: a segment is damaged.
    """
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
    """Make the batches of a segment, by batch time and epoch."""
    batches = (PastBatch(plan_of(row["plan"]), None if row["counts"] is None else _counts(row["counts"])) for row in rows)
    return {(b.plan.time, b.plan.epoch): b for b in batches}


def _stored(counts: Mapping[int, Sequence[int | None]]) -> dict[str, list[int | None]]:
    """Return record counts as JSON values."""
    return {str(stream): list(found) for stream, found in counts.items()}


def _counts(stored: Mapping[str, Sequence[int | None]]) -> dict[int, Sequence[int | None]]:
    """Make record counts from JSON values: the inverse of `_stored`."""
    return {int(stream): counts for stream, counts in stored.items()}


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A record of the ledger."""

    kind: str
    """"lost" or "given-up"."""
    time: Time
    at_ms: int
    """When the driver of `epoch` wrote the record."""
    epoch: int
    streams: Mapping[int, Any]
    """Stream number → a list of the stream's losses ("lost"), or the plan data that the batch should have read ("given-up")."""
    failures: int = 0
    """How often a batch that was given up had failed."""


def replay_command(store: FileStore, time: Time) -> str:
    """Return the command that runs a batch again with its ranges. The user replaces MODULE:SETUP by the job."""
    at, path = time.milliseconds, shlex.quote(store.url)
    return f"kstream replay MODULE:SETUP --checkpoint {path} --from {at} --to {at} --sink same"


def read_ledger(store: FileStore) -> list[LedgerEntry]:
    """Read every entry, by batch time. Blocks: two listings and one read per entry. CorruptRecordError names a damaged entry."""
    entries: list[LedgerEntry] = []
    for folder, kind, part in ((names.LOST, "lost", "lost"), (names.GIVEN_UP, "given-up", "inputs")):
        for name in store.list(folder):
            key = names.parse_key(name)
            if key is None:
                continue
            place = f"{folder}/{name}"
            fields = format.decode(kind, store.read(place), store.path(place))
            format.check_name(store.path(place), fields, {"time": key[0].milliseconds})
            streams = {int(stream): found for stream, found in fields.get(part, {}).items()}
            entry = LedgerEntry(kind, Time(fields["time"]), fields["at"], fields["epoch"], streams, fields.get("failures", 0))
            entries.append(entry)
    return sorted(entries, key=lambda e: (e.time, e.epoch, e.kind))

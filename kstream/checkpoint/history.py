"""History and ledger: records for people and for replays. No recovery reads them.

    history/<first time>-<last time>-<epoch>      SEGMENT plans with their counts, oldest first
    lost/…, given-up/…                            the ledger: data that a stream continued without; never run, never deleted
    acknowledged/<folder>-<name of the entry>     a person has seen that entry; commands then hide it

A segment of the history is created first; then its plans are deleted from the log one by one. So a plan may be in both places for a
moment, or after a crash. Its time and epoch identify it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import UnionType
from typing import Any, NamedTuple, TypeAlias

from kstream.batch import BatchDelays, BatchPlan, OutcomeFigures, SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.checkpoint.declared_types import moment
from kstream.checkpoint.format import plan_fields, plan_of, read_plan
from kstream.checkpoint.outcomes import delays_fields, delays_of, figures_fields, figures_of, read_completion
from kstream.checkpoint.reader import has_ended
from kstream.checkpoint.skip_request import read_requests
from kstream.errors import AlreadyExistsError, MissingFileError
from kstream.storage import FileStore

SEGMENT = 50
"""The number of plans in a segment. Clean-up costs one create and one listing of the segments for that many batches."""


@dataclass(frozen=True, slots=True)
class PastBatch:
    """The plan of a past batch, its record counts and its delays."""

    plan: BatchPlan
    counts: Mapping[int, Sequence[int | None]] | None
    """Stream number → record count of each part of its plan; None if the batch has not succeeded."""
    skipped: Sequence[SkippedRecord] = ()
    """The records that the batch has left out; that it shall leave out, if it has not succeeded."""
    delays: BatchDelays | None = None
    """None if it has not succeeded or had no jobs, and in records of an older kstream."""
    figures: OutcomeFigures = field(default_factory=OutcomeFigures)
    """What was measured of its states and output operations; nothing as for the delays."""


def read_past(store: FileStore, plan: BatchPlan) -> PastBatch:
    """Return a plan of the log with the record counts of its completion. Blocks: one read; without a completion also a listing.

    Raises:
        CorruptRecordError: a record is damaged.
    """
    found = read_completion(store, plan.time, plan.epoch)
    if found is None:
        requests = read_requests(store, lambda time, epoch: (time, epoch) == (plan.time, plan.epoch))
        return PastBatch(plan, None, tuple(request.record for request in requests))
    return PastBatch(plan, found.counts, found.skipped, found.delays, found.figures)


def write_segment(store: FileStore, epoch: int, batches: Sequence[PastBatch]) -> None:
    """Store a segment of the history. Blocks: one create.

    Args:
        store: the checkpoint.
        epoch: this driver's; part of the segment's name.
        batches: oldest first, at least one.

    Raises:
        AlreadyExistsError: this driver has written the segment before.
    """
    rows = [
        {
            "plan": plan_fields(b.plan),
            "counts": None if b.counts is None else _stored(b.counts),
            **({"skipped": [record.to_json() for record in b.skipped]} if b.skipped else {}),
            **({} if b.delays is None else {"delays": delays_fields(b.delays)}),
            **({"figures": figures} if (figures := figures_fields(b.figures)) else {}),
        }
        for b in batches
    ]
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
    for name in segments(store):
        first, last = _span(name)
        if (begin is None or last >= begin) and (end is None or first <= end):
            found.update({(b.plan.time, b.plan.epoch): b for b in read_segment(store, name)})
    return [b for _, b in sorted(found.items()) if (begin is None or b.plan.time >= begin) and (end is None or b.plan.time <= end)]


def find_past(store: FileStore, time: Time) -> PastBatch | None:
    """Return the batch of a batch time, from the log or from the history; None if neither has it. Blocks: a few small requests.

    Of several plans the one of the highest epoch counts. A tombstone is no batch.

    Raises:
        CorruptRecordError: a record is damaged.
        StorageError: the store failed.
    """
    keys = map(names.parse_key, store.list(names.PLANS))
    epochs = [key[1][0] for key in keys if key is not None and key[0] == time]
    if epochs:
        try:
            plan = read_plan(store, time, max(epochs))
        except MissingFileError:  # clean-up has put it into the history since the listing
            pass
        else:
            return None if plan.void else read_past(store, plan)
    return next(reversed(read_history(store, time, time)), None)


def segments(store: FileStore) -> list[str]:
    """Return the names of the segments of the history, oldest first. Blocks: one listing."""
    return [f"{names.HISTORY}/{name}" for name in store.list(names.HISTORY) if len((names.parse_key(name) or (0, ()))[1]) == 2]


def read_segment(store: FileStore, name: str) -> list[PastBatch]:
    """Read a segment of the history. Segments do not change. Blocks: one read.

    Args:
        store: the checkpoint.
        name: from `segments`.

    Raises:
        CorruptRecordError: the segment is damaged.
        MissingFileError: clean-up has removed it.
    """
    return format.decode("history", store.read(name), store.path(name), lambda fields: _batches(fields["batches"]))


def _span(name: str) -> tuple[Time, Time]:
    """Return the batch times of the first and the last plan of a segment, by its name."""
    first, others = names.key_of(name)
    return first, Time(others[0])


def _batches(rows: Iterable[Mapping[str, Any]]) -> list[PastBatch]:
    found: list[PastBatch] = []
    for row in rows:
        plan, counts = plan_of(row["plan"]), None if row["counts"] is None else _counts(row["counts"])
        found.append(PastBatch(plan, counts, _skipped(row), delays_of(row), figures_of(row, plan.time)))
    return found


def _skipped(fields: Mapping[str, Any]) -> tuple[SkippedRecord, ...]:
    """Return the records that a completion or a row of the history names as left out."""
    return tuple(SkippedRecord.from_json(row) for row in fields.get("skipped", ()))


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
    """"lost", "given-up", "skipped" (a record that the batch has left out), "to-skip" (it shall, and has not ended) or "not-skipped" (it
    has ended with the record)."""
    time: Time
    at_ms: int
    """When the driver of `epoch` wrote the record."""
    epoch: int
    streams: Mapping[int, Any]
    """Stream number → a list of the stream's losses ("lost"), the plan data that the batch should have read ("given-up"), or a list of
    SkippedRecords."""
    failures: int = 0
    """How often a batch that was given up had failed."""
    name: str = field(default="", compare=False)
    """The name of the record in the checkpoint."""
    is_acknowledged: bool = False
    """Whether a person has seen it, and commands hide it."""
    note: str = ""
    """For skipped records: who has asked for it, and why."""

    @property
    def is_asked_for(self) -> bool:
        """Whether a person has asked for it: then no person must be told."""
        return self.kind in ("skipped", "to-skip", "not-skipped")


def replay_command(store: FileStore, time: Time) -> str:
    """Return the command that runs a batch again with its ranges. The user replaces MODULE:SETUP by the job."""
    at, path = time.milliseconds, shlex.quote(store.url)
    return f"kstream replay MODULE:SETUP --checkpoint {path} --from {at} --to {at} --sink same"


def read_ledger(store: FileStore) -> list[LedgerEntry]:
    """Read every entry, by batch time. Blocks: four listings and one read per entry, and two small requests for each record that was to
    be skipped and was not. CorruptRecordError names a damaged entry.
    """
    return _entries(store, _places(store), _acknowledgements(store))


def read_newest_entries(store: FileStore, most: int) -> tuple[list[LedgerEntry], int]:
    """Read the newest entries of the ledger, by batch time. Blocks as `read_ledger`, but for so many entries at most.

    Args:
        store: the checkpoint.
        most: the most records of batches that are read. Requests of `kstream skip` for older batches are left out, too.

    Returns:
        The entries, and the number of older ones that nobody has acknowledged. Those may be of skipped records only.

    Raises:
        CorruptRecordError: names a damaged entry.
    """
    seen = _acknowledgements(store)
    places = sorted(_places(store), key=lambda place: place.key)
    older, kept = (places[:-most], places[-most:]) if len(places) > most else ([], places)
    since = kept[0].key[0] if older else None
    new = sum(names.acknowledged(place.name) not in seen for place in older)
    return _entries(store, kept, seen, since), new


def count_new_entries(store: FileStore) -> int:
    """Count the entries that a person must be told: nobody has acknowledged them or asked for them.

    Blocks: three listings, and one read per entry that is not acknowledged. CorruptRecordError names a damaged entry among these.
    """
    seen = _acknowledgements(store)
    found = _of_batches(store, [place for place in _places(store) if names.acknowledged(place.name) not in seen], seen)
    return sum(bool(entry.streams) or not skipped for entry, _, skipped in found)


def _entries(store: FileStore, places: Iterable[_Place], seen: Collection[str], since: Time | None = None) -> list[LedgerEntry]:
    """Read the entries at these places, and the requests of `kstream skip` for batches from `since` on, by batch time."""
    entries: list[LedgerEntry] = []
    left_out: list[_LeftOut] = []
    for entry, epoch, skipped in _of_batches(store, places, seen):
        if entry.streams or not skipped:
            entries.append(entry)
        left_out += [(entry.time, epoch, entry.at_ms, entry.epoch, entry.name, record) for record in skipped]
    entries += _of_requests(store, left_out, seen, since)
    return sorted(entries, key=lambda e: (e.time, e.epoch, e.kind))


def _acknowledgements(store: FileStore) -> set[str]:
    """Return the names of all acknowledgements. Blocks: one listing."""
    return {f"{names.ACKNOWLEDGED}/{name}" for name in store.list(names.ACKNOWLEDGED)}


class _Place(NamedTuple):
    """The place of an entry that a batch has written: its kind, the name of the record, and batch time and epochs in that name."""

    kind: str
    name: str
    key: tuple[Time, tuple[int, ...]]


def _places(store: FileStore) -> list[_Place]:
    """Return the places of all entries that batches have written. Blocks: two listings."""
    return [
        _Place(kind, f"{folder}/{name}", key)
        for folder, kind in ((names.LOST, "lost"), (names.GIVEN_UP, "given-up"))
        for name in store.list(folder)
        if (key := names.parse_key(name)) is not None
    ]


_PARTS = {"lost": "lost", "given-up": "inputs"}
"""The field of a record that has its streams, by the kind of the record."""


def _of_batches(
    store: FileStore, places: Iterable[_Place], seen: Collection[str]
) -> Iterator[tuple[LedgerEntry, int, tuple[SkippedRecord, ...]]]:
    """Yield the entries that batches have written, each with the epoch of its plan and the records that the batch has left out.

    Blocks: one read per entry.

    Args:
        store: the checkpoint.
        places: the places of the entries.
        seen: the names of the acknowledgements.

    Raises:
        CorruptRecordError: an entry is damaged.
    """
    for kind, name, key in places:
        named = {"time": key[0].milliseconds}
        entry, skipped = format.decode(kind, store.read(name), store.path(name), partial(_entry_of, kind, name, key[0]), named)
        yield replace(entry, is_acknowledged=names.acknowledged(name) in seen), key[1][0], skipped


def _entry_of(kind: str, name: str, time: Time, fields: format.Fields) -> tuple[LedgerEntry, tuple[SkippedRecord, ...]]:
    """Return the entry that a batch has written, and the records that the batch has left out."""
    streams = {int(stream): found for stream, found in fields.get(_PARTS[kind], {}).items()}
    if kind == "lost":
        streams = {stream: [_loss_of(loss) for loss in losses] for stream, losses in streams.items()}
    elif kind == "given-up":
        streams = {stream: dict(data) for stream, data in streams.items()}
    failures = fields.get("failures", 0)
    return LedgerEntry(kind, time, moment(fields["at"]), fields["epoch"], streams, failures, name), _skipped(fields)


def _loss_of(fields: format.Fields) -> dict[str, Any]:
    """Return a loss, in the input's own form. One whose fields have the names of a loss of offsets, and other types, is told as JSON."""
    if all(isinstance(fields[name], kinds) for name, kinds in _OF_A_LOSS.items() if name in fields):
        return dict(fields)
    return {"cause": str(fields.get("cause", "")), "detail": json.dumps(fields, sort_keys=True)}


_OF_A_LOSS: Mapping[str, type | UnionType] = {
    "topic": str,
    "partition": int,
    "from": int,
    "until": int | None,
    "cause": str,
    "detail": str,
}
"""The fields of a loss of offsets, with their types. Losses of an input of another kind have others."""

_LeftOut: TypeAlias = tuple[Time, int, int, int, str, SkippedRecord]
"""Batch time, epoch of its plan, when and by the driver of which epoch the record was left out, name of the entry, record."""


def _of_requests(store: FileStore, left_out: Iterable[_LeftOut], seen: Collection[str], since: Time | None) -> Iterator[LedgerEntry]:
    """Yield an entry for each request of `kstream skip`, with what became of it.

    Args:
        store: the checkpoint.
        left_out: what batches have left out. A batch that ran under two drivers may have done so twice; the newer one counts.
        seen: the names of the acknowledgements.
        since: only requests for this batch and later ones; None for all.
    """
    done = {(time, epoch, record.place): (at, by, name, record) for time, epoch, at, by, name, record in sorted(left_out)}
    for request in read_requests(store, lambda time, _epoch: since is None or time >= since):
        said = f"by {request.asked_by}" + (f": {request.reason}" if request.reason else "")
        at, by, name, record = done.get(
            (request.time, request.epoch, request.record.place), (request.at_ms, request.epoch, request.name, request.record)
        )
        kind = "skipped"
        if name == request.name:
            kind = "not-skipped" if has_ended(store, request.time, request.epoch) else "to-skip"
        streams = {record.stream: [record]}
        yield LedgerEntry(kind, request.time, at, by, streams, 0, name, names.acknowledged(name) in seen, said)


def acknowledge(store: FileStore, entry: LedgerEntry, at_ms: int, by: str) -> bool:
    """Note that a person has seen an entry. Idempotent: the first note stays. Blocks: one create.

    Args:
        store: the checkpoint.
        entry: an entry of its ledger.
        at_ms: now, in milliseconds since the Unix epoch.
        by: who it was, for people.

    Returns:
        Whether the note is new.

    Raises:
        StorageError: the store failed; the note may be stored or not.
    """
    return write_acknowledgement(store, names.acknowledged(entry.name), entry.name, at_ms, by)


def write_acknowledgement(store: FileStore, name: str, entry: str, at_ms: int, by: str) -> bool:
    """Write the note that a person has seen an entry, of a stream or of a query; as `acknowledge`.

    Args:
        store: the checkpoint.
        name: the name of the note.
        entry: the name of the entry.
        at_ms: now, in milliseconds since the Unix epoch.
        by: who it was, for people.
    """
    try:
        store.create(name, format.encode("acknowledged", {"entry": entry, "at": at_ms, "by": by}))
    except AlreadyExistsError:
        return False
    return True

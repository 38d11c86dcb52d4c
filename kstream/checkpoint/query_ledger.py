"""The ledger of a query of Structured Streaming: records that no batch of it will read. It is a folder in the checkpoint of the query.

An entry belongs to one batch, or to one change of the offsets. Its name says which, so that a batch that is planned again has no second
entry. A person acknowledges what an entry says at that time: the name of the acknowledgement has a digest of it. So an entry that grows is
new again. Spark looks at no folder that it does not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kstream.checkpoint import format
from kstream.checkpoint.declared_types import moment
from kstream.checkpoint.history import write_acknowledgement
from kstream.errors import MissingFileError
from kstream.offsets.offset_range import LostRange
from kstream.storage import FileStore

FOLDER = "kstream-ledger"
ACKNOWLEDGED = "kstream-acknowledged"
KIND = "query-loss"
RETENTION = "retention"
"""The cause of losses that grow while a batch waits."""


@dataclass(frozen=True, slots=True)
class QueryLoss:
    """An entry of the ledger.

    Attributes:
        at_ms: when it was first written, in milliseconds since the Unix epoch.
        lost: the lost records, sorted.
        name: its name in the folder.
        digest: of what it says.
        is_acknowledged: whether a person has seen it, and commands hide it.
    """

    at_ms: int
    lost: tuple[LostRange, ...]
    name: str = field(default="", compare=False)
    digest: str = field(default="", compare=False)
    is_acknowledged: bool = False


def add_losses(store: FileStore, name: str, at_ms: int, lost: Iterable[LostRange]) -> None:
    """Add the losses of a batch to its entry, or make one. A second time changes nothing. Blocks. One process at a time adds to an entry.

    Args:
        store: the checkpoint of the query.
        name: names the batch, the same at each try.
        at_ms: the time, in milliseconds since the Unix epoch.
        lost: the losses; at least one.

    Raises:
        CorruptRecordError: the entry is damaged.
        StorageError: the store failed.
    """
    before = _read(store, name)
    known = before.lost if before is not None else ()
    entry = QueryLoss(at_ms if before is None else before.at_ms, _united(known, lost))
    if entry != before:
        _write(store, name, entry)


def set_losses(store: FileStore, name: str, at_ms: int, lost: Iterable[LostRange]) -> None:
    """Make the entry of a change of offsets say what it skips, whatever an earlier try has left there. Blocks.

    Args:
        store: the checkpoint of the query.
        name: names the change, the same at each try.
        at_ms: the time, in milliseconds since the Unix epoch.
        lost: what it skips; without any there is no entry.

    Raises:
        StorageError: the store failed.
    """
    if found := _united((), lost):
        _write(store, name, QueryLoss(at_ms, found))
    else:
        store.delete(f"{FOLDER}/{name}")


def read_query_ledger(store: FileStore) -> list[QueryLoss]:
    """Return the entries of a query, oldest first. Lists a folder, with entries a second one, and reads a file for each entry. Blocks.

    Raises:
        CorruptRecordError: an entry is damaged.
        StorageError: the store failed.
    """
    read = (_read(store, name) for name in store.list(FOLDER) if not name.startswith("."))
    found = [entry for entry in read if entry is not None]
    seen = {f"{ACKNOWLEDGED}/{name}" for name in store.list(ACKNOWLEDGED)} if found else set[str]()
    entries = (replace(entry, is_acknowledged=_acknowledgement(entry) in seen) for entry in found)
    return sorted(entries, key=lambda entry: (entry.at_ms, entry.lost[0].topic, entry.lost[0].lost_from))


def acknowledge_loss(store: FileStore, entry: QueryLoss, at_ms: int, by: str) -> bool:
    """Note that a person has seen what an entry says; as `history.acknowledge`. `entry`: as the ledger was read."""
    return write_acknowledgement(store, _acknowledgement(entry), f"{FOLDER}/{entry.name}", at_ms, by)


def _acknowledgement(entry: QueryLoss) -> str:
    """Return the name of the acknowledgement of an entry."""
    return f"{ACKNOWLEDGED}/{entry.name}-{entry.digest}"


def _read(store: FileStore, name: str) -> QueryLoss | None:
    """Return an entry; None if there is none."""
    path = f"{FOLDER}/{name}"
    try:
        data = store.read(path)
    except MissingFileError:
        return None
    entry = format.decode(KIND, data, store.path(path), _entry_of)
    return replace(entry, name=name, digest=hashlib.sha256(data).hexdigest()[:12])


def _write(store: FileStore, name: str, entry: QueryLoss) -> None:
    """Write an entry. One that is there is replaced."""
    fields = {"at": entry.at_ms, "lost": [each.to_json() for each in entry.lost]}
    store.replace(f"{FOLDER}/{name}", format.encode(KIND, fields))


def _entry_of(fields: format.Fields) -> QueryLoss:
    """Make an entry from its fields."""
    return QueryLoss(moment(fields["at"]), tuple(LostRange.from_json(each) for each in fields["lost"]))


def _united(known: Iterable[LostRange], lost: Iterable[LostRange]) -> tuple[LostRange, ...]:
    """Return the losses of all tries of a batch, sorted. Pure.

    Retention may have removed more until a later try: the longer range stays. Of what became of a topic a later try knows less, because the
    checkpoint has no topic ids: what is known of a partition stays.
    """
    explained = {(each.topic, each.partition) for each in known if each.cause != RETENTION}
    new = (each for each in lost if each.cause == RETENTION or (each.topic, each.partition) not in explained)
    found: dict[tuple[str, int, int, str], LostRange] = {}
    for each in (*known, *new):
        key = each.topic, each.partition, each.lost_from, each.cause
        if key not in found or _is_longer(each, found[key]):
            found[key] = each
    return tuple(found[key] for key in sorted(found))


def _is_longer(one: LostRange, other: LostRange) -> bool:
    """Return whether `one` ends behind `other`, which begins at the same offset."""
    return other.lost_until is not None and (one.lost_until is None or one.lost_until > other.lost_until)

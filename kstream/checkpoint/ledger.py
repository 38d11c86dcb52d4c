"""The ledger: what a stream went on without. Read for people; nothing in it is ever run or removed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream.batch_time import Time
from kstream.checkpoint import format, names
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One record. `kind`: "lost" (`streams[id]` is a list of the stream's entries) or "given-up" (`streams[id]` is the plan data of
    what the batch should have read). `at_ms`: when it was written, by the driver of `epoch`."""

    kind: str
    time: Time
    at_ms: int
    epoch: int
    streams: Mapping[int, Any]
    failures: int = 0


def replay_command(store: FileStore, time: Time) -> str:
    """The command that runs a batch of this checkpoint again, with the ranges it had. The user puts the job's name into it."""
    at, path = time.milliseconds, shlex.quote(store.url)
    return f"kstream replay MODULE:SETUP --checkpoint {path} --from {at} --to {at} --sink same"


def read_ledger(store: FileStore) -> list[LedgerEntry]:
    """Every entry, by batch time. Blocks: two listings and a read an entry. CorruptRecordError names a damaged one."""
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

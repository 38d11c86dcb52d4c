"""Records of the input streams besides their plans: kept offsets, and connections.

    kept-offsets/<epoch>      positions in partitions that the job no longer reads; written by the driver of `epoch` at its start
    connections               kind and parameters of the inputs, for commands that ask their brokers

Kept offsets: the newest plan wins. The record only counts for partitions that the newest plan of their stream does not have. So it may
be written before the plan that leaves them out, and stay until the plan that has them again is durable. A driver that dies in between
loses nothing and reads nothing twice. Each record is complete: the highest epoch counts, and its writer deletes the older ones.

Connections: data only, no function, and no parameter that may hold a secret. A driver writes the record at each start and never reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.batch import Json
from kstream.checkpoint import format, names
from kstream.checkpoint.epoch_records import EpochRecords
from kstream.errors import CheckpointError, CorruptRecordError, StorageError
from kstream.storage import FileStore


@dataclass(frozen=True, slots=True)
class KeptOffsets:
    """Positions of the streams in partitions that their job no longer reads, until it reads them again."""

    epoch: int
    streams: Mapping[int, str | None]
    """Stream number → name in the graph of the record's driver; None without a name."""
    inputs: Mapping[int, Mapping[str, Json]] = field(default_factory=dict[int, Mapping[str, Json]])
    """Stream number → plan data in the stream's own form: the kept partitions, and the positions in them."""


def kept_fields(kept: KeptOffsets) -> dict[str, Any]:
    """Return the record as JSON values."""
    return {
        "epoch": kept.epoch,
        "streams": {str(number): name for number, name in kept.streams.items()},
        "inputs": {str(number): dict(data) for number, data in kept.inputs.items()},
    }


def kept_of(fields: format.Fields) -> KeptOffsets:
    """Make the record from its fields: the inverse of `kept_fields`."""
    inputs = {int(number): data for number, data in fields["inputs"].items()}
    return KeptOffsets(fields["epoch"], {int(number): name for number, name in fields["streams"].items()}, inputs)


_RECORDS = EpochRecords(names.KEPT_OFFSETS, "kept-offsets", kept_of)


def read_kept(store: FileStore) -> KeptOffsets | None:
    """Read the record of the highest epoch; None if there is none. Blocks: one listing, and one read if there is a record.

    Raises:
        CorruptRecordError: the record is damaged. The message has the remedy.
        StorageError: the store failed.
    """
    try:
        return _RECORDS.newest(store)
    except CorruptRecordError as e:
        path, reason = e.facts["path"], e.facts["reason"]
        raise CorruptRecordError(
            f"{path} is damaged ({reason}). It has the offsets of topics that the job no longer reads. Restore the file from "
            "a copy. Or delete it: such a topic is then read from its beginning when the job reads it again.",
            path=path,
            reason=reason,
        ) from e


def write_kept(store: FileStore, kept: KeptOffsets) -> None:
    """Store the record, if it has any offsets; then delete the records of lower epochs. Blocks on the store; StorageError.

    The driver of `kept.epoch` calls this at its start. A driver that has been fenced meanwhile only deletes records of epochs below its
    own, and its successor relies on none of them.
    """
    if kept.inputs:
        _RECORDS.create(store, kept.epoch, kept_fields(kept))
    _RECORDS.delete_before(store, kept.epoch)


_CONNECTIONS = "connections"


def write_connections(store: FileStore, streams: Mapping[int, tuple[str, Mapping[str, Any]]]) -> None:
    """Store the connections record in place of an older one. Blocks: one write.

    Args:
        store: the checkpoint.
        streams: stream number → kind of the input (such as `kafka-direct`) and its parameters, without secrets.

    Raises:
        StorageError: the store failed.
    """
    stored = {str(number): {"input": kind, "params": dict(params)} for number, (kind, params) in streams.items()}
    store.replace(names.CONNECTIONS, format.encode(_CONNECTIONS, {"streams": stored}))


def read_connections(store: FileStore, kind: str) -> dict[int, dict[str, Any]]:
    """Read the parameters of the inputs of a kind: stream number → parameters. Empty if the record is missing, damaged or unreadable."""
    try:
        found = format.decode(_CONNECTIONS, store.read(names.CONNECTIONS), store.path(names.CONNECTIONS), _connections_of)
    except (CheckpointError, StorageError):
        return {}
    return {number: params for number, (input_kind, params) in found.items() if input_kind == kind}


def _connections_of(fields: format.Fields) -> dict[int, tuple[str, dict[str, Any]]]:
    """Make the kinds and the parameters of the inputs, by stream number, from the fields of their record."""
    return {int(number): (stream["input"], dict(stream["params"])) for number, stream in fields["streams"].items()}

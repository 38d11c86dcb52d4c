"""Handles of records: the handle of a file-based log, reading by it, and handles as JSON, in plans and in the driver's log."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any, cast

from kstream.errors import ConfigurationError, CorruptRecordError, NotRecoverableError
from kstream.storage import AppendingStore, FileStore
from kstream.wal.file_format import HEADER
from kstream.wal.write_ahead_log import WriteAheadLogRecordHandle


@dataclass(frozen=True, slots=True)
class FileBasedWriteAheadLogSegment(WriteAheadLogRecordHandle):
    """The place of a record in a file-based log."""

    path: str
    """The file's name in its store. It is not the full path, so that a checkpoint can be moved."""
    offset: int
    """The offset of the record's length field in the file, in bytes."""
    length: int
    """The size of the record in bytes, without the 4 bytes of its length field."""


def read_segment(store: FileStore, segment: WriteAheadLogRecordHandle) -> bytes:
    """Read the record of a handle. One request to the store; blocks.

    Raises:
        ConfigurationError: the handle belongs to another kind of log.
        MissingFileError: the file is gone.
        StorageError: the request failed.
        CorruptRecordError: the file has other bytes at that place.
    """
    if not isinstance(segment, FileBasedWriteAheadLogSegment):
        raise ConfigurationError(
            f"{segment!r} is no handle of a file-based write-ahead log: read it by the log that has written it", key="handle", value=segment
        )
    wanted = HEADER.size + segment.length
    if isinstance(store, AppendingStore):
        found = store.read_at(segment.path, segment.offset, wanted)
    else:
        found = store.read(segment.path)[segment.offset : segment.offset + wanted]
    if len(found) >= HEADER.size and (length := HEADER.unpack_from(found)[0]) != segment.length:
        raise _corrupt(store, segment, f"its length there is {length}")
    if len(found) < wanted:
        raise _corrupt(store, segment, f"the file ends {wanted - len(found)} bytes before it does")
    return found[HEADER.size :]


def handle_to_json(handle: WriteAheadLogRecordHandle | None) -> Any:
    """Return a handle as JSON values.

    Returns:
        `[path, offset, length]` for a file-based log; None for None. For any other dataclass of JSON values, `{"class": …, "fields": {…}}`.

    Raises:
        ConfigurationError: the handle is no dataclass, so it cannot be stored.
    """
    if handle is None:
        return None
    if isinstance(handle, FileBasedWriteAheadLogSegment):
        return [handle.path, handle.offset, handle.length]
    if not dataclasses.is_dataclass(handle):
        raise ConfigurationError(
            f"the write-ahead log's handle {handle!r} is no dataclass, so it cannot be stored: make {type(handle).__name__} a frozen "
            "dataclass of JSON values",
            key="handle",
            value=handle,
        )
    fields = {field.name: getattr(handle, field.name) for field in dataclasses.fields(handle)}
    return {"class": f"{type(handle).__module__}.{type(handle).__qualname__}", "fields": fields}


def handle_of_json(stored: Any) -> WriteAheadLogRecordHandle | None:
    """Return the handle of JSON values: the inverse of `handle_to_json`.

    Raises:
        NotRecoverableError: the class of the handle cannot be imported, or does not take the stored fields.
    """
    if stored is None:
        return None
    if isinstance(stored, list):
        return FileBasedWriteAheadLogSegment(*cast("list[Any]", stored))
    module, _, name = stored["class"].rpartition(".")
    try:
        cls: Any = getattr(importlib.import_module(module), name)
        return cls(**stored["fields"])
    except (ImportError, AttributeError, TypeError) as e:
        raise NotRecoverableError(
            f"a received block in a write-ahead log has a handle of class {stored['class']}, and the class cannot be used: "
            f"{type(e).__name__}: {e}. Make the class importable again under this name.",
            time=None,
        ) from e


def _corrupt(store: FileStore, segment: FileBasedWriteAheadLogSegment, reason: str) -> CorruptRecordError:
    place = store.path(segment.path)
    return CorruptRecordError(
        f"{place} does not hold the {segment.length} bytes written at byte {segment.offset} any more: {reason}. "
        "Restore the file from a copy, or let its batch go.",
        path=place,
        reason=reason,
    )

"""A record by its handle, and a file's records in a row; from any store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from kstream.errors import ConfigurationError, CorruptRecordError, MissingFileError
from kstream.storage import AppendingStore, FileStore
from kstream.wal.framing import HEADER, FrameReader, ReadAt
from kstream.wal.write_ahead_log import WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileBasedWriteAheadLogSegment(WriteAheadLogRecordHandle):
    """Where a record lies. `path` is the file's name in its store, so that a checkpoint can be moved; `offset` is that of the record's
    length field, `length` the bytes of the record itself (4 fewer than it takes)."""

    path: str
    offset: int
    length: int


def read_segment(store: FileStore, segment: WriteAheadLogRecordHandle) -> bytes:
    """The record. MissingFileError if its file is gone, CorruptRecordError if something else lies there. One request."""
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


def read_records(store: FileStore, path: str) -> Iterator[bytes]:
    """The whole records at the beginning of a file, in order; none of a file that is gone. What follows them is left out with a warning.

    On an AppendingStore a chunk of the file is in memory at a time, else all of it.
    """
    try:
        read_at, size = _opened(store, path)
        reader = FrameReader(read_at, size)
        yield from reader
    except MissingFileError:  # cleaned since it was listed
        return
    if not reader.is_whole:
        logger.warning(
            "%s: %d bytes from byte %d on are no record and left out: a write that was cut off, or damage",
            store.path(path), size - reader.end, reader.end,
        )  # fmt: skip


def _opened(store: FileStore, path: str) -> tuple[ReadAt, int]:
    if isinstance(store, AppendingStore):
        return (lambda offset, length: store.read_at(path, offset, length)), store.size(path)
    data = store.read(path)
    return (lambda offset, length: data[offset : offset + length]), len(data)


def _corrupt(store: FileStore, segment: FileBasedWriteAheadLogSegment, reason: str) -> CorruptRecordError:
    place = store.path(segment.path)
    return CorruptRecordError(
        f"{place} does not hold the {segment.length} bytes written at byte {segment.offset} any more: {reason}. "
        "Restore the file from a copy, or let its batch go.",
        path=place, reason=reason,
    )  # fmt: skip

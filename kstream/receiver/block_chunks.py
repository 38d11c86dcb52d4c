"""The chunks of a block: records become chunks, chunks become one piece of bytes, and back. Pure.

A chunk is one or more pickled lists of records. Records that are stored together are pickled at once, so that they wait for their block as
bytes: pickled while they are fresh they cost a third of what they cost later, and what comes in does not compete with what goes out.

The stored form of a block, on the disk of a store and as a record of a receiver's write-ahead log: `KBLK` and the version (1 byte); then
each chunk, as its length (8 bytes, big-endian) and its bytes. A block without records has no chunks.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kstream.errors import CorruptRecordError, FormatVersionError
from kstream.worker.pickled_chunks import CHUNK_BYTES, pickled_chunks

VERSION = 1
_MAGIC = b"KBLK"
_HEAD = len(_MAGIC) + 1
_LENGTH = struct.Struct(">Q")

Dumps = Callable[[Any], bytes]
"""Pickles a list of records, or an object that unpickles to one."""


# -- the stored form


def encode_block(chunks: Iterable[bytes]) -> bytes:
    """The stored form of a block with these chunks."""
    return b"".join([_MAGIC, bytes([VERSION]), *(part for chunk in chunks for part in (_LENGTH.pack(len(chunk)), chunk))])


def decode_block(data: bytes, where: str) -> Sequence[bytes]:
    """The chunks of a block in its stored form.

    Raises:
        CorruptRecordError, FormatVersionError: `encode_block` has not made these bytes; the message names `where`.
    """
    if not data.startswith(_MAGIC) or len(data) < _HEAD:
        raise _corrupt(where, "it begins otherwise")
    if (version := data[len(_MAGIC)]) != VERSION:
        raise FormatVersionError(
            f"the received block at {where} has format version {version}, this kstream reads {VERSION}: upgrade kstream to read it",
            path=where,
            version=version,
            supported=VERSION,
        )
    found: list[bytes] = []
    at = _HEAD
    while at < len(data):
        until = at + _LENGTH.size
        if until > len(data) or (end := until + _LENGTH.unpack_from(data, at)[0]) > len(data):
            raise _corrupt(where, f"a chunk that begins at byte {at} goes beyond the {len(data)} bytes there are")
        found.append(data[until:end])
        at = end
    return found


def _corrupt(where: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"{where} does not hold a received block: {reason}", path=where, reason=reason)


# -- records and chunks


def dumps_plain(records: Any) -> bytes:
    return pickle.dumps(records, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class PackedRecords:
    """`pickled` is a list of `count` records."""

    count: int
    pickled: bytes


class TextLines:
    """Lines that came together, as one text: the reading task splits them. Unpickles to their list."""

    def __init__(self, text: str) -> None:
        """`text` has LF between the lines, and none after the last one."""
        self.text = text

    def __len__(self) -> int:
        return self.text.count("\n") + 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.split("\n"))

    def __reduce__(self) -> tuple[Any, ...]:
        return str.split, (self.text, "\n")


class RecordPacker:
    """Pickles records in packs that are neither tiny, as far as the calls allow, nor huge. Any thread."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._at_once = 1000  # a guess at the records of one chunk; threads may disagree about it

    def pack(self, records: Iterable[Any]) -> list[PackedRecords]:
        """Pickle all records. What the pickling of a record raises is raised, and none is packed."""
        if isinstance(records, TextLines):
            return [PackedRecords(len(records), self._dumps(records))]
        at_hand = records if isinstance(records, list) else list(records)
        packs: list[PackedRecords] = []
        at = 0
        while at < len(at_hand):
            some = at_hand[at : at + self._at_once]
            packs.append(PackedRecords(len(some), self._dumps(some)))
            at += len(some)
            self._learn(len(some), len(packs[-1].pickled))
        return packs

    def _learn(self, count: int, size: int) -> None:
        if size > 2 * CHUNK_BYTES and count > 1:
            self._at_once = max(1, count // 2)
        elif size < CHUNK_BYTES // 2 and count == self._at_once:
            self._at_once = count * 2


def chunks_of(records: Iterable[Any], dumps: Dumps) -> tuple[int, list[bytes]]:
    """The number of records, and their chunks in order. Some of the records may be packs."""
    chunks = list(counted_chunks(records, dumps))
    return sum(chunk.count for chunk in chunks), [chunk.pickled for chunk in chunks]


def counted_chunks(records: Iterable[Any], dumps: Dumps) -> Iterator[PackedRecords]:
    """The chunks of the records, each with its count: `pickled` is one or more lists. Some of the records may be packs."""
    for packed, group in groupby(records, lambda record: isinstance(record, PackedRecords)):
        if packed:
            yield from _joined(group)
        else:
            counts: list[int] = []
            for chunk in pickled_chunks(group, lambda some, counts=counts: (counts.append(len(some)), dumps(some))[1]):
                yield PackedRecords(counts[-1], chunk)


def portions(chunks: Iterable[PackedRecords], most_bytes: int) -> Iterator[list[PackedRecords]]:
    """Group the chunks in portions of at most so many bytes. A single larger chunk is a portion of its own."""
    some, size = list[PackedRecords](), 0
    for chunk in chunks:
        if some and size + len(chunk.pickled) > most_bytes:
            yield some
            some, size = [], 0
        some.append(chunk)
        size += len(chunk.pickled)
    if some:
        yield some


def records_of(chunks: Iterable[bytes]) -> Iterator[Any]:
    """The records of a block."""
    for chunk in chunks:
        file = io.BytesIO(chunk)
        while file.tell() < len(chunk):
            yield from pickle.load(file)


def _joined(packs: Iterable[PackedRecords]) -> Iterator[PackedRecords]:
    """Join small packs to chunks."""
    for some in portions(packs, CHUNK_BYTES):
        yield some[0] if len(some) == 1 else PackedRecords(sum(pack.count for pack in some), b"".join(pack.pickled for pack in some))

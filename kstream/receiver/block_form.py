"""A block's chunks as one piece of bytes: on the disk of a store, and as a record of a receiver's write-ahead log.

`KBLK` and the version (1 byte); then each chunk, as its length (8 bytes, big-endian) and its bytes. What the chunks hold – pickled lists
of records – is not looked at. A block without records has no chunks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kstream.errors import CorruptRecordError, FormatVersionError

VERSION = 1
_MAGIC = b"KBLK"
_HEAD = len(_MAGIC) + 1
_LENGTH = struct.Struct(">Q")


def joined(chunks: Iterable[bytes]) -> bytes:
    return b"".join([_MAGIC, bytes([VERSION]), *(part for chunk in chunks for part in (_LENGTH.pack(len(chunk)), chunk))])


def split(data: bytes, where: str) -> Sequence[bytes]:
    """CorruptRecordError or FormatVersionError, which say `where`, if that is not what `joined` has made."""
    if not data.startswith(_MAGIC) or len(data) < _HEAD:
        raise _corrupt(where, "it begins otherwise")
    if (version := data[len(_MAGIC)]) != VERSION:
        raise FormatVersionError(
            f"the received block at {where} has format version {version}, this kstream reads {VERSION}: upgrade kstream to read it",
            path=where, version=version, supported=VERSION,
        )  # fmt: skip
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

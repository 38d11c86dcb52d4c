"""The stored form of a log file: records one after the other, each a 4-byte big-endian length and so many bytes. Pure.

The form is Spark's and has no checksum. What it cannot tell from a record, nobody can: a tail is left out when its length is not
positive or goes past the end of the file. A length of zero is no record (disks that lose power leave zeros), so none is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from kstream.errors import ConfigurationError

HEADER = struct.Struct(">i")
LONGEST = 2**31 - 1
CHUNK = 1 << 20
"""Bytes that are read at once."""

ReadAt = Callable[[int, int], bytes]
"""(offset, length) → so many bytes of a file, fewer at its end."""


def frame(record: bytes) -> bytes:
    """A record as it is stored. ConfigurationError for one without a byte, or with more than a length can say."""
    if not 0 < len(record) <= LONGEST:
        raise ConfigurationError(
            f"a record of a write-ahead log has 1 to {LONGEST} bytes, this one {len(record)}: store what has more in several",
            key="record", value=len(record),
        )  # fmt: skip
    return HEADER.pack(len(record)) + record


class FrameReader:
    """Iterates over the records of a file of `size` bytes; once.

    `end` is the offset behind the last whole record given so far. When the iteration is over, it is `size` unless something follows that
    is no record: a torn tail, or garbage.
    """

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        self._size = size
        self._chunk = b""
        self._chunk_at = 0
        self.end = 0

    def __iter__(self) -> Iterator[bytes]:
        while self.end + HEADER.size <= self._size:
            head = self._bytes(self.end, HEADER.size)
            if len(head) < HEADER.size:  # the file was cut since
                return
            length: int = HEADER.unpack(head)[0]
            if length <= 0 or self.end + HEADER.size + length > self._size:
                return
            record = self._bytes(self.end + HEADER.size, length)
            if len(record) < length:
                return
            self.end += HEADER.size + length
            yield record

    @property
    def is_whole(self) -> bool:
        """After the iteration: whether all of the file was records."""
        return self.end == self._size

    def _bytes(self, offset: int, length: int) -> bytes:
        begin = offset - self._chunk_at
        if begin + length > len(self._chunk):
            self._chunk, self._chunk_at = self._read_at(offset, max(length, min(CHUNK, self._size - offset))), offset
            begin = 0
        return self._chunk[begin : begin + length]

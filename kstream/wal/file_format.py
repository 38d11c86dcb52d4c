"""The stored form of a log: the names of its files, and the records in them. Pure.

A file's name is `log-<start>-<stop>`, in milliseconds. Its content is records one after the other, each a 4-byte big-endian length and
as many bytes. The name and the content have Spark's form. The form has no checksum: a reader leaves out a tail whose length field is not
positive or points past the end of the file. A length of zero is no record, because a disk that loses power can leave zeros. So no empty
record is written.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kstream.errors import ConfigurationError

HEADER = struct.Struct(">i")
LONGEST = 2**31 - 1
CHUNK = 1 << 20
"""The bytes that one read asks for. A longer record is read at once."""

_NAME = re.compile(r"log-(\d+)-(\d+)")

ReadAt = Callable[[int, int], bytes]
"""(offset, length) → so many bytes of a file from this offset, fewer at the file's end."""


@dataclass(frozen=True, order=True, slots=True)
class LogFile:
    """A file of a log. It takes records up to and including its stop time (ms). Files are ordered by their start times, as numbers."""

    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"log-{self.start}-{self.stop}"

    def is_older_than(self, threshold_ms: int) -> bool:
        """Return whether every record of the file is older than the threshold. A file that stops at it may have a record of that time."""
        return self.stop < threshold_ms


def log_files(names: Iterable[str]) -> list[LogFile]:
    """Return the log files among the names, sorted. Other names are ignored."""
    return sorted(LogFile(int(match[1]), int(match[2])) for name in names if (match := _NAME.fullmatch(name)))


def first_free(start: int, taken: Iterable[LogFile]) -> int:
    """Return the first start time after `start` that no file has."""
    starts = {file.start for file in taken}
    start += 1
    while start in starts:
        start += 1
    return start


def frame(record: bytes) -> bytes:
    """Return the stored bytes of a record.

    Raises:
        ConfigurationError: the record is empty, or longer than a length field can state.
    """
    if not 0 < len(record) <= LONGEST:
        raise ConfigurationError(
            f"a record of a write-ahead log has 1 to {LONGEST} bytes, this one {len(record)}: split a longer one into several records",
            key="record",
            value=len(record),
        )
    return HEADER.pack(len(record)) + record


class FrameReader:
    """An iterable over the records of a file of `size` bytes. Iterate over it only once.

    `end` is the offset after the last whole record so far. If `end` is less than `size` after the iteration, the rest of the file is a
    torn tail or damage.
    """

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        self._size = size
        self._chunk = b""
        self._chunk_at = 0
        self.end = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the records up to the end of the file, or up to the first bytes that are no whole record."""
        while self.end + HEADER.size <= self._size:
            head = self._bytes(self.end, HEADER.size)
            if len(head) < HEADER.size:  # the file has been truncated since its size was asked
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
        """Whether the file has nothing but whole records. Known only after the iteration."""
        return self.end == self._size

    def _bytes(self, offset: int, length: int) -> bytes:
        """Return bytes of the file, and read the next chunk for them if needed. Offsets must not decrease from call to call."""
        begin = offset - self._chunk_at
        if begin + length > len(self._chunk):
            self._chunk, self._chunk_at = self._read_at(offset, max(length, min(CHUNK, self._size - offset))), offset
            begin = 0
        return self._chunk[begin : begin + length]

"""The records in the bytes of a file: lines, records of a fixed length, or whatever a function of the user's reads.

Lines are those of Hadoop's TextInputFormat: ended by LF, CR or CRLF, not by form feeds and the like. A file may be read in several
splits. A line belongs to the split [start, end) if it begins in (start, end], or at 0. So the reader of a split skips the line that it
starts in, and reads past its end until the last line that belongs to it is whole.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from kstream.errors import FileLostError, RecordLengthError, UnreadableFileError
from kstream.files.directory import Split

Reader = Callable[[BinaryIO, str], Iterable[Any]]
_UNREADABLE = (".lz4", ".snappy", ".zst", ".lzo")
BLOCK = 1 << 20


class FileFormat(Protocol):
    """How a file is cut and read. Made on the driver, pickled into the workers."""

    @property
    def unit(self) -> int:
        """Splits begin at multiples of this number of bytes."""
        ...

    def can_cut(self, path: str) -> bool:
        """Whether several tasks may read parts of the file."""
        ...

    def read(self, file: BinaryIO, split: Split) -> Iterable[Any]:
        """Yield the records of a split, in the order of the file. `file` is positioned at the beginning of the split."""
        ...


@dataclass(frozen=True)
class TextLines:
    """Lines of UTF-8, as those of `sc.textFile`. `.gz`, `.bz2` and `.deflate` are decompressed; one task reads such a file."""

    unit: int = 1

    def can_cut(self, path: str) -> bool:
        return not path.endswith((".gz", ".bz2", ".deflate", *_UNREADABLE))

    def read(self, file: BinaryIO, split: Split) -> Iterator[str]:
        path = split.file.path
        if path.endswith(_UNREADABLE):
            raise UnreadableFileError(
                f"{path} is compressed in a way that is not read here: use .gz, .bz2 or .deflate, or a `reader` of your own", path=path
            )
        if not self.can_cut(path):
            return lines(_decompressed(file, path))
        return lines(_bounded(file, split), split.start, split.end)


@dataclass(frozen=True)
class FixedRecords:
    """Records of `length` bytes each, as bytes. RecordLengthError for a file that does not hold a whole number of them."""

    length: int

    @property
    def unit(self) -> int:
        return self.length

    def can_cut(self, path: str) -> bool:
        return True

    def read(self, file: BinaryIO, split: Split) -> Iterator[bytes]:
        size, length = split.file.size, self.length
        if size % length:
            raise RecordLengthError(
                f"{split.file.path} has {size} bytes, which is no whole number of records of {length} bytes",
                path=split.file.path,
                size=size,
                record_length=length,
            )
        read, left = _bounded(file, split), split.end - split.start
        while left:
            data = _exactly(read, min(left, max(1, BLOCK // length) * length))
            left -= len(data)
            yield from [data[at : at + length] for at in range(0, len(data), length)]


@dataclass(frozen=True)
class WholeFile:
    """What `reader(file, path)` gives, `file` being the open file, bytes as they are stored."""

    reader: Reader
    unit: int = 1

    def can_cut(self, path: str) -> bool:
        return False

    def read(self, file: BinaryIO, split: Split) -> Iterable[Any]:
        return self.reader(file, split.file.path)


def _bounded(file: BinaryIO, split: Split) -> Callable[[int], bytes]:
    """Return a read that stops at the size which the file had when it was planned, so that a re-run reads the same bytes."""
    at = split.start

    def read(count: int) -> bytes:
        nonlocal at
        count = min(count, split.file.size - at)
        data = file.read(count) if count > 0 else b""
        if count > 0 and not data:
            raise FileLostError(
                f"{split.file.path} had {split.file.size} bytes when its batch was planned and has {at} now: the rest is gone. Files must "
                "be moved into the directory whole, and left alone.",
                path=split.file.path,
                size=split.file.size,
                found=at,
            )
        at += len(data)
        return data

    return read


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = read(count)
    while len(data) < count:
        data += read(count - len(data))
    return data


def _decompressed(file: BinaryIO, path: str) -> Callable[[int], bytes]:
    if path.endswith(".gz"):
        return gzip.GzipFile(fileobj=file).read
    if path.endswith(".bz2"):
        return bz2.BZ2File(file).read
    inflate = zlib.decompressobj()

    def read(count: int) -> bytes:
        while not inflate.eof:
            packed = inflate.unconsumed_tail or file.read(BLOCK)
            data = inflate.decompress(packed, count)
            if data:
                return data
            if not packed:
                raise EOFError(f"{path} ends before its last block")
        return b""

    return read


_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = b"\r\n"


def lines(read: Callable[[int], bytes], start: int = 0, end: int | None = None, block: int = BLOCK) -> Iterator[str]:
    """Yield the lines of a split. Bytes that are no UTF-8 become U+FFFD; a byte order mark at the beginning of a file is dropped.

    Args:
        read: `read(n)` returns the next bytes from `start` on, at most n, none at the end of the file.
        start: of the split, in bytes.
        end: of the split; None is the end of the file.
        block: bytes of one read.
    """
    skip_first = start > 0
    for begin, found in _whole_lines(read, start, block):
        if skip_first and found:
            begin, found, skip_first = begin + len(found[0]), found[1:], False
        ends = end is not None and begin + sum(map(len, found)) > end
        mine = _beginning_up_to(end, begin, found) if end is not None and ends else found
        yield from [line.rstrip(_LINE_ENDS).decode("utf-8", "replace") for line in mine]
        if ends:
            return


def _whole_lines(read: Callable[[int], bytes], offset: int, block: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the lines with their ends, block by block, each block with the offset of its first line."""
    rest, over = b"", False
    while not over:
        data = read(max(block, len(rest)))  # a very long line is not copied again for each block
        over = not data
        data = rest + data
        if offset == 0 and data.startswith(_BOM):
            data, offset = data[len(_BOM) :], len(_BOM)
        found = data.splitlines(keepends=True)
        # A CR that ends a block may be half of a CRLF.
        rest = found.pop() if not over and found and not found[-1].endswith(b"\n") else b""
        yield offset, found
        offset += sum(map(len, found))


def _beginning_up_to(end: int, begin: int, found: list[bytes]) -> list[bytes]:
    """The lines that begin at `end` or before; the first one begins at `begin`."""
    taken: list[bytes] = []
    for line in found:
        if begin > end:
            break
        begin += len(line)
        taken.append(line)
    return taken

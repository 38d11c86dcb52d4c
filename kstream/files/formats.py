"""File formats: cutting files into splits, and reading lines, records of a fixed length, or records of a user's function from them.

Lines are those of Hadoop's TextInputFormat: they end with LF, CR or CRLF, not with other separators such as form feeds. A file may be read
in several splits. A line belongs to the split [start, end) if it begins in (start, end], or at 0. So the reader of a split skips its first
line (unless the split starts at 0), and reads past the end of the split until its last line is complete.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

from kstream.errors import FileLostError, RecordLengthError, UnreadableFileError
from kstream.files.file_systems import FileStatus

Reader = Callable[[BinaryIO, str], Iterable[Any]]
_UNREADABLE = (".lz4", ".snappy", ".zst", ".lzo")
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """The part of a file that one task reads: the bytes [start, end). `file` is the file as it was when its batch was planned."""

    file: FileStatus
    start: int
    end: int


def cut(files: Iterable[FileStatus], most_bytes: int, unit: int, can_cut: Callable[[str], bool]) -> list[Split]:
    """Cut files into splits of about `most_bytes`, in the order of the files. Pure.

    The last split of a file may be a tenth larger, because a small rest is not worth another task (Hadoop's SPLIT_SLOP).

    Args:
        files: the files of a batch.
        most_bytes: the size of a split.
        unit: splits begin at multiples of this number of bytes.
        can_cut: returns whether the file at a path may be cut; other files get one split.
    """
    step = max(unit, most_bytes // unit * unit)
    splits: list[Split] = []
    for file in files:
        at = 0
        while can_cut(file.path) and file.size - at > step * 1.1:
            splits.append(Split(file, at, at + step))
            at += step
        splits.append(Split(file, at, file.size))
    return splits


@dataclass(frozen=True)
class TextLines:
    """The FileFormat of lines of UTF-8 text, as those of `sc.textFile`.

    Files that end in `.gz`, `.bz2` or `.deflate` are decompressed, each by one task.

    Reading a file that ends in `.lz4`, `.snappy`, `.zst` or `.lzo` raises UnreadableFileError.
    """

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
    """The FileFormat of records of `length` bytes each. `read` raises RecordLengthError if the file's size is no multiple of `length`."""

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
    """The FileFormat of the records that the user's `reader(file, path)` returns. `file` has the bytes as they are stored."""

    reader: Reader
    unit: int = 1

    def can_cut(self, path: str) -> bool:
        return False

    def read(self, file: BinaryIO, split: Split) -> Iterable[Any]:
        return self.reader(file, split.file.path)


FileFormat: TypeAlias = TextLines | FixedRecords | WholeFile
"""How a file is cut into splits, and how its records are read. Made on the driver, pickled into the workers.

Splits begin at multiples of `unit` bytes. `can_cut` tells whether several tasks may read parts of the file at a path. `read` runs in a
worker: it gets the open file, positioned at the beginning of the split, and returns the records of the split in the order of the file. It
raises FileLostError if the file is shorter than it was when its batch was planned.
"""


def _bounded(file: BinaryIO, split: Split) -> Callable[[int], bytes]:
    """Return a `read(n)` that stops at the size which the file had when it was planned. So a repeated batch reads the same bytes.

    `read` raises FileLostError if the file is shorter now.
    """
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
    """Return exactly `count` bytes, by as many reads as needed."""
    data = read(count)
    while len(data) < count:
        data += read(count - len(data))
    return data


def _decompressed(file: BinaryIO, path: str) -> Callable[[int], bytes]:
    """Return a `read(n)` of the decompressed bytes. It raises EOFError if the file is cut."""
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
    """Yield the lines of a split, without their ends. Invalid UTF-8 becomes U+FFFD. A byte order mark at the start of a file is dropped.

    Args:
        read: `read(n)` returns the next bytes from `start` on, at most n; b"" at the end of the file.
        start: the first byte of the split.
        end: the end of the split in bytes; None for the end of the file.
        block: the number of bytes of one read.
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
    """Yield (offset of the first line, lines with their ends) for each block that is read."""
    rest, over = b"", False
    while not over:
        data = read(max(block, len(rest)))  # reads grow with a very long line, so that it is not copied for each block
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
    """Return those of consecutive lines that begin at the offset `end` or before. The first of them begins at `begin`."""
    taken: list[bytes] = []
    for line in found:
        if begin > end:
            break
        begin += len(line)
        taken.append(line)
    return taken

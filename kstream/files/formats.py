"""How the bytes of a file become records: lines, records of a fixed length, or whatever a function of the user's makes of the file."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from kstream.errors import FileLostError, RecordLengthError, UnreadableFileError
from kstream.files.lines import lines
from kstream.files.splits import Split

Reader = Callable[[BinaryIO, str], Iterable[Any]]
_UNREADABLE = (".lz4", ".snappy", ".zst", ".lzo")
_BLOCK = 1 << 20


class FileFormat(Protocol):
    """Made on the driver, pickled into the workers."""

    @property
    def unit(self) -> int:
        """Files are cut at multiples of so many bytes."""
        ...

    def can_cut(self, path: str) -> bool:
        """Whether several tasks may read parts of the file."""
        ...

    def read(self, file: BinaryIO, split: Split) -> Iterable[Any]:
        """The records of a part, in the order of the file. `file` stands at the part's beginning."""
        ...


@dataclass(frozen=True)
class TextLines:
    """Lines of UTF-8, as `sc.textFile` has them. `.gz`, `.bz2` and `.deflate` are decompressed; such a file is one task's."""

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
                path=split.file.path, size=size, record_length=length,
            )  # fmt: skip
        read, left = _bounded(file, split), split.end - split.start
        while left:
            data = _exactly(read, min(left, max(1, _BLOCK // length) * length))
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
    """Reads from the split's start to the end that the file had when it was planned, and no further: a re-run reads the same."""
    at = split.start

    def read(count: int) -> bytes:
        nonlocal at
        count = min(count, split.file.size - at)
        data = file.read(count) if count > 0 else b""
        if count > 0 and not data:
            raise FileLostError(
                f"{split.file.path} had {split.file.size} bytes when its batch was planned and has {at} now: the rest is gone. Files must "
                "be moved into the directory whole, and left alone.",
                path=split.file.path, size=split.file.size, found=at,
            )  # fmt: skip
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
            packed = inflate.unconsumed_tail or file.read(_BLOCK)
            data = inflate.decompress(packed, count)
            if data:
                return data
            if not packed:
                raise EOFError(f"{path} ends before its last block")
        return b""

    return read

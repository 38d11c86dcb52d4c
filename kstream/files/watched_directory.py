"""WatchedDirectory: a directory on a file system that Python can read. The driver lists it, and the workers read its files.

A path may have Hadoop's wild cards: `*`, `?`, `[abc]`, `[^a-c]`, `{a,b}`. They match directories; only files directly inside a matching
directory count. The cost is one listing for each matching directory, and one for each directory on the way to it that must be searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from io import BytesIO
from typing import Any, BinaryIO, Protocol

from kstream.errors import FileLostError
from kstream.files.file_systems import Entry, FileStatus, file_system
from kstream.files.formats import FileFormat, Split, cut
from kstream.storage.open import scheme_of

MakeRDD = Callable[[int, Callable[[int], Iterable[Any]]], Any]
"""(number of partitions, function that returns the records of partition i, in a worker) → RDD. In practice
`kstream.spark.worker_rdd.WorkerRDD` with its SparkContext bound."""


class FileSource(Protocol):
    """A directory from which a file stream takes its files. Used on the driver, by one thread at a time."""

    @property
    def directory(self) -> str:
        """The path or URL as the user gave it."""
        ...

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """Return the files in the directory now. Blocks.

        Args:
            newer_than_ms: files modified at this time (ms) or before may be left out.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such directory.
            KStreamError: the directory can never be watched. Errors of the file system's client are raised, too.
        """
        ...

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        """Return an RDD of the files' records, in the order of `files`. A partition has records of one file; its task reads them.

        Args:
            files: the files of a plan.
            format: how their records are read.
        """
        ...


class WatchedDirectory:
    """The FileSource for file systems that Python can read. A small file is read by one task, a large one by several.

    Files on `memory://` exist only in the driver's process. So `rdd` reads them on the driver, and the bytes are sent with the tasks.

    Args:
        directory: a path or URL, with wild cards or without.
        split_bytes: the size in bytes of the part of a file that one task reads.
        make_rdd: makes an RDD.
    """

    def __init__(self, directory: str, split_bytes: int, make_rdd: MakeRDD) -> None:
        self.directory = directory
        self._split_bytes = split_bytes
        self._make_rdd = make_rdd

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """Return all files in the directory now, the old ones too. Blocks. See `FileSource.list`."""
        files = file_system(self.directory)
        return files_in(files.list, files.qualified(self.directory))

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        """Return an RDD with one partition a split. On `memory://` it reads the files now; FileLostError if one no longer exists."""
        splits = cut(files, self._split_bytes, format.unit, format.can_cut)
        contents = {f.path: _content(self.directory, f) for f in files} if scheme_of(self.directory) == "memory" else {}
        return self._make_rdd(len(splits), ReadTask(self.directory, splits, format, contents))


class ReadTask:
    """The function of the tasks: called with i, it yields the records of split i. FileLostError if the file no longer exists."""

    def __init__(self, url: str, splits: Sequence[Split], format: FileFormat, contents: Mapping[str, bytes]) -> None:
        self._url = url
        self._splits = splits
        self._format = format
        self._contents = contents

    def __call__(self, index: int) -> Iterator[Any]:
        split = self._splits[index]
        with closing(self._open(split.file)) as file:
            file.seek(split.start)
            yield from self._format.read(file, split)

    def _open(self, status: FileStatus) -> BinaryIO:
        """Open a file, or the bytes of it that came with the task. FileLostError if the file no longer exists."""
        if status.path in self._contents:
            return BytesIO(self._contents[status.path])
        try:
            return file_system(self._url).open(status.path)
        except FileNotFoundError as e:
            raise _gone(status) from e


def _content(url: str, status: FileStatus) -> bytes:
    """Return all bytes of a file. FileLostError if the file no longer exists."""
    try:
        with closing(file_system(url).open(status.path)) as file:
            return file.read()
    except FileNotFoundError as e:
        raise _gone(status) from e


def _gone(status: FileStatus) -> FileLostError:
    """Return the error for a planned file that no longer exists."""
    return FileLostError(
        f"{status.path} ({status.size} bytes) is gone since its batch was planned. A file must stay until no batch or window needs it, or "
        "a restart cannot run its batch again.",
        path=status.path,
        size=status.size,
        found=None,
    )


# -- paths with wild cards

List = Callable[[str], list[Entry]]
"""A function that lists a directory. It raises FileNotFoundError or NotADirectoryError if there is no such directory."""
_WILD = re.compile(r"[*?\[{]")


def files_in(ls: List, pattern: str) -> list[FileStatus]:
    """Return the files in every directory that matches a path. Blocks for the listings.

    Args:
        ls: lists a directory.
        pattern: the path, with wild cards or without.

    Returns:
        The files. With wild cards, a directory that is deleted meanwhile counts as empty.

    Raises:
        FileNotFoundError, NotADirectoryError: the path has no wild cards, and there is no such directory.
    """
    parts = (pattern.rstrip("/") or "/").split("/")
    wild = next((index for index, part in enumerate(parts) if _WILD.search(part)), None)
    if wild is None:
        return list(_files(ls(pattern.rstrip("/") or "/")))
    found = ["/".join(parts[:wild]) or "/"]
    for part in parts[wild:]:
        found = [path for directory in found for path in _matching(ls, directory, part)]
    return [file for directory in found for file in _files(_present(ls, directory))]


def _matching(ls: List, directory: str, part: str) -> list[str]:
    """Return the paths in a directory that match one component. A component without wild cards is not looked up."""
    if not _WILD.search(part):
        return [f"{directory.rstrip('/')}/{part}"]
    matches = re.compile(_translated(part), re.DOTALL).fullmatch
    return sorted(entry.path for entry in _present(ls, directory) if entry.is_directory and matches(entry.name))


def _present(ls: List, directory: str) -> list[Entry]:
    """List a directory; a missing directory is empty."""
    try:
        return ls(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(entries: list[Entry]) -> Iterator[FileStatus]:
    return (FileStatus(e.path, e.mtime_ms, e.size) for e in entries if not e.is_directory)


def _translated(part: str) -> str:
    """Return the regular expression of one component of a path with Hadoop's wild cards."""
    out, at, depth = "", 0, 0
    while at < len(part):
        char, rest = part[at], part[at + 1 :]
        at += 1
        if char == "\\" and rest:
            out += re.escape(rest[0])
            at += 1
        elif char in "*?":
            out += ".*" if char == "*" else "."
        elif char == "[" and "]" in rest[1:]:
            inner = rest[: rest.index("]", 1)]
            at += len(inner) + 1
            negated = inner[0] in "^!"
            out += "[" + "^" * negated + re.sub(r"([\\\[&~|])", r"\\\1", inner[negated:]) + "]"
        elif char == "{" or (depth and char in ",}"):
            depth += {"{": 1, "}": -1}.get(char, 0)
            out += {"{": "(?:", ",": "|", "}": ")"}[char]
        else:
            out += re.escape(char)
    return out + ")" * depth

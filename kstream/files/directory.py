"""The files of a directory (FileStatus, `files_in`), and the splits of files (Split, `cut`).

A path may have Hadoop's wild cards: `*`, `?`, `[abc]`, `[^a-c]`, `{a,b}`. They match directories; only files directly inside a matching
directory count. The cost is one listing for each matching directory, and one for each directory on the way to it that must be searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class FileStatus:
    """A file in a listing, and in a stored plan. Sorted by path.

    Attributes:
        path: the absolute path; a full URL unless the file is on the local disk.
        mtime_ms: the modification time in ms, by the clock of the file system.
        size: in bytes.
    """

    path: str
    mtime_ms: int
    size: int

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]

    def to_json(self) -> list[Any]:
        """Return the stored form: `[path, mtime_ms, size]`."""
        return [self.path, self.mtime_ms, self.size]

    @staticmethod
    def from_json(row: Sequence[Any]) -> FileStatus:
        """Return the file status whose `to_json` gave this row."""
        return FileStatus(row[0], row[1], row[2])


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory: a file or a directory. The time (ms) and size (bytes) of a directory have no meaning."""

    path: str
    is_directory: bool
    mtime_ms: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]


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

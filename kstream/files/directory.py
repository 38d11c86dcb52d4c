"""From a directory's path to its files, and from files to splits: FileStatus, `files_in`, Split, `cut`.

A path may have Hadoop's wild cards: `*`, `?`, `[abc]`, `[^a-c]`, `{a,b}`. They stand for directories; only files directly inside a
matching directory count. The cost is one listing per directory that matches, and one per directory that is walked through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class FileStatus:
    """`path` is absolute, with its scheme unless it lies on the local disk. `mtime_ms` is by the clock of the file system."""

    path: str
    mtime_ms: int
    size: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def to_json(self) -> list[Any]:
        """`[path, mtime_ms, size]`."""
        return [self.path, self.mtime_ms, self.size]

    @staticmethod
    def from_json(row: Sequence[Any]) -> FileStatus:
        """The inverse of `to_json`."""
        return FileStatus(row[0], row[1], row[2])


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. Time and size of a directory mean nothing."""

    path: str
    is_directory: bool
    mtime_ms: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Split:
    """The part of a file that one task reads: bytes [start, end) of the file as it was planned."""

    file: FileStatus
    start: int
    end: int


def cut(files: Iterable[FileStatus], most_bytes: int, unit: int, can_cut: Callable[[str], bool]) -> list[Split]:
    """Cut files into splits of about `most_bytes`, in the order of the files.

    A last split may be a tenth larger, because so little is not worth another task (Hadoop's SPLIT_SLOP).

    Args:
        files: what a batch reads.
        most_bytes: size of a split.
        unit: splits begin at multiples of this number of bytes.
        can_cut: whether the file of a path may be cut.
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
"""Lists a directory; FileNotFoundError or NotADirectoryError if it is none."""
_WILD = re.compile(r"[*?\[{]")


def files_in(ls: List, pattern: str) -> list[FileStatus]:
    """List the files in every directory that matches. A directory that is deleted meanwhile has no files.

    Raises:
        FileNotFoundError: a path without wild cards is no directory.
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
    if not _WILD.search(part):
        return [f"{directory.rstrip('/')}/{part}"]
    matches = re.compile(_translated(part), re.DOTALL).fullmatch
    return sorted(entry.path for entry in _present(ls, directory) if entry.is_directory and matches(entry.name))


def _present(ls: List, directory: str) -> list[Entry]:
    try:
        return ls(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _files(entries: list[Entry]) -> Iterator[FileStatus]:
    return (FileStatus(e.path, e.mtime_ms, e.size) for e in entries if not e.is_directory)


def _translated(part: str) -> str:
    """The regular expression of one component."""
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

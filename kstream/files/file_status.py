"""FileStatus: a file as a listing shows it, and its stored form."""

from __future__ import annotations

from collections.abc import Sequence
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
    """One name in a directory. Of a directory only the path is meant."""

    path: str
    is_directory: bool
    mtime_ms: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

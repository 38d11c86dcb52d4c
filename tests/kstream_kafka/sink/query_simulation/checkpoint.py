"""QueryCheckpoint: what a checkpoint of Spark has of a query: offsets, commits, and a file of the sink. A copy of it goes its own way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from kstream.errors import MissingFileError

SOURCE = "numbers"
"""The topic that the query reads. The record at an offset is the offset."""


@dataclass
class QueryCheckpoint:
    """A checkpoint. It is also the store that the sink opens.

    Attributes:
        name: for the trace.
        numbers: how many numbers there are to write.
        ends: batch → the offset behind its last number.
        commits: the batches that Spark knows to be committed.
        files: name → content, of what the sink has stored.
    """

    name: str
    numbers: int
    ends: dict[int, int] = field(default_factory=dict[int, int])
    commits: set[int] = field(default_factory=set[int])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def copy(self, name: str) -> QueryCheckpoint:
        return QueryCheckpoint(name, self.numbers, dict(self.ends), set(self.commits), dict(self.files))

    def add(self, batch: int, end: int) -> bool:
        """Store where a batch ends. Return whether it was not stored before."""
        if batch in self.ends:
            return False
        self.ends[batch] = end
        return True

    def range_of(self, batch: int) -> range:
        """The numbers of a batch."""
        return range(self.ends.get(batch - 1, 0), self.ends[batch])

    @property
    def newest(self) -> int:
        """The newest batch that has begun; -1 without one."""
        return max(self.ends, default=-1)

    @property
    def has_begun(self) -> bool:
        return bool(self.ends)

    @property
    def is_complete(self) -> bool:
        """Whether all numbers are in batches that are committed."""
        return self.ends.keys() <= self.commits and max(self.ends.values(), default=0) >= self.numbers

    # -- as a store

    def path(self, name: str) -> str:
        return f"{self.name}/{name}"

    def read(self, name: str) -> bytes:
        kind, _, batch = name.partition("/")
        if kind == "offsets" and batch.isdecimal() and int(batch) in self.ends:
            return b"v1\n{}\n" + json.dumps({SOURCE: {"0": self.ends[int(batch)]}}).encode()
        if name in self.files:
            return self.files[name]
        raise MissingFileError(f"there is no {name}", path=name)

    def replace(self, name: str, data: bytes) -> None:
        self.files[name] = data


@dataclass(frozen=True)
class QueryPlace:
    """Stands for a StorePlace: a folder of a checkpoint."""

    checkpoint: QueryCheckpoint = field(compare=False)
    url: str

    def open(self) -> QueryCheckpoint:
        return self.checkpoint

    def write(self, name: str, data: bytes) -> None:
        self.checkpoint.replace(name, data)

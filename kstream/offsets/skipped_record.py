"""SkippedRecord: a record that a batch leaves out, because a person has asked for it (`kstream skip`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class SkippedRecord:
    """A record that a batch leaves out. The ranges of its plan do not change. Immutable.

    Attributes:
        stream: the number of its stream in the stored plan of the batch.
        topic, partition, offset: its place.
        read_by: the outputs of the batch that had succeeded with the record before it was left out. They do not run again.
    """

    stream: int
    topic: str
    partition: int
    offset: int
    read_by: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def place(self) -> tuple[int, str, int, int]:
        """The record without what became of it: stream, topic, partition, offset."""
        return self.stream, self.topic, self.partition, self.offset

    def to_json(self) -> dict[str, Any]:
        """Return the stored form: a JSON object, with `read_by` only if an output had read the record."""
        fields: dict[str, Any] = {"stream": self.stream, "topic": self.topic, "partition": self.partition, "offset": self.offset}
        return {**fields, "read_by": list(self.read_by)} if self.read_by else fields

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> SkippedRecord:
        """Return the record of a stored form."""
        place = fields["stream"], fields["topic"], fields["partition"], fields["offset"]
        return SkippedRecord(*place, tuple(fields.get("read_by", ())))

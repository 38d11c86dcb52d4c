"""Positions: the places in a log where reading starts or stops, as users write them. Pure.

    "earliest"  "latest"             either end of the log
    "committed"                      the committed offset of the consumer group `group.id`
    1234                             that offset (for one partition only)
    "-1000"                          1,000 records before the end (never before the beginning)
    "-10m"                           the records of the last ten minutes: s, m, h, d
    "2026-11-21T10:00:00+01:00"      the first record with that timestamp or a later one; also a datetime. Without a zone: local time

A negative *number* is refused: −1 and −2 mean latest and earliest in Spark's JSON, and would mean something else here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from kstream.errors import ConfigurationError
from kstream.offsets.offset_range import Partition, TopicAndPartition

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BACK = re.compile(r"-\s*(\d+)\s*([smhd]?)")
_NAMES = {"smallest": "earliest", "largest": "latest"}
Kind: TypeAlias = Literal["earliest", "latest", "committed", "offset", "back", "ago", "time"]
HINT = "Give 'earliest', 'latest', 'committed', an offset, '-1000' (records before the end), '-10m', a datetime or ISO time."


@dataclass(frozen=True, slots=True)
class Position:
    """One position. Immutable.

    Attributes:
        kind: the kind of position.
        value: by kind: an offset ("offset"), records before the end ("back"), milliseconds ago ("ago"), or milliseconds since the epoch
            ("time"). 0 for the other kinds.
    """

    kind: Kind
    value: int = 0

    @staticmethod
    def parse(given: Any, key: str) -> Position:
        """Return the position that a user wrote.

        Args:
            given: a Position, an offset, a text or a datetime.
            key: the name of the parameter, for the error.

        Raises:
            ConfigurationError: `given` is no position.
        """
        if isinstance(given, Position):
            return given
        if isinstance(given, datetime):
            return Position("time", round(given.timestamp() * 1000))
        if isinstance(given, int) and not isinstance(given, bool):
            if given < 0:
                raise _refused(key, f"has a negative offset: {given}", HINT)
            return Position("offset", given)
        if isinstance(given, str):
            return _from_text(given.strip(), key)
        raise _refused(key, f"is {given!r}", HINT)

    def to_json(self) -> list[str | int]:
        """Return the stored form, `[kind, value]`."""
        return [self.kind, self.value]

    @staticmethod
    def from_json(values: list[Any]) -> Position:
        """Return the position of a stored form."""
        return Position(values[0], int(values[1]))

    def __str__(self) -> str:
        return self.kind if self.kind in ("earliest", "latest", "committed") else f"{self.kind} {self.value}"


def _from_text(text: str, key: str) -> Position:
    """Return the position of a text in a form of those at the top of this module. ConfigurationError about parameter `key` for another."""
    name = _NAMES.get(text.lower(), text.lower())
    if name in ("earliest", "latest", "committed"):
        return Position(name)
    if text.isdecimal():
        return Position("offset", int(text))
    back = _BACK.fullmatch(text)
    if back:
        number, unit = int(back[1]), back[2]
        return Position("ago", number * _UNITS[unit]) if unit else Position("back", number)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text)
    except ValueError as e:
        raise _refused(key, f"is {text!r}", HINT) from e
    return Position("time", round(moment.timestamp() * 1000))


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a stream's partitions. False in a condition if there is no position at all. Immutable.

    Attributes:
        default: the position of partitions that are not in `each`; None if there is none.
        each: the positions of single partitions.
    """

    default: Position | None = None
    each: Mapping[Partition, Position] = field(default_factory=dict[Partition, Position])

    @staticmethod
    def parse(given: Positions | PositionsLike, key: str) -> Positions:
        """Return the positions that a user wrote.

        Args:
            given: a mapping of partitions to positions, or of topics to positions by the number of a partition, as Structured Streaming
                writes offsets; one position for all partitions; or None for no position.
            key: the name of the parameter, for the error.

        Raises:
            ConfigurationError: a partition or a position is malformed, or one offset is given for all partitions.
        """
        if given is None:
            return Positions()
        if isinstance(given, Positions):
            return given
        if isinstance(given, Mapping):
            return Positions(None, {as_partition(p, key): Position.parse(at, key) for p, at in _by_partition(given)})
        everywhere = Position.parse(given, key)
        if everywhere.kind == "offset":
            raise _refused(key, f"is the one offset {given!r} for all partitions", "Give offsets by partition.")
        return Positions(everywhere)

    def of(self, partition: Partition) -> Position | None:
        """Return the position of a partition; None if there is none."""
        return self.each.get(partition, self.default)

    def __bool__(self) -> bool:
        return self.default is not None or bool(self.each)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, `{"default": …, "each": […]}`."""
        default = None if self.default is None else self.default.to_json()
        return {"default": default, "each": [[*p, *at.to_json()] for p, at in sorted(self.each.items())]}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Positions:
        """Return the positions of a stored form."""
        default = None if values["default"] is None else Position.from_json(values["default"])
        return Positions(default, {(str(t), int(n)): Position.from_json(at) for t, n, *at in values["each"]})


def _by_partition(given: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield partitions and positions, as users write them. A topic with a mapping is taken apart: `{"topic": {"0": 5}}`."""
    for key, at in given.items():
        if isinstance(at, Mapping):
            yield from (((key, number), position) for number, position in at.items())
        else:
            yield key, at


PartitionLike: TypeAlias = "TopicAndPartition | Partition"
"""A partition as users write it: a TopicPartition, or a (topic, partition) pair."""
PositionLike: TypeAlias = "Position | int | str | datetime"
"""A position as users write it."""
PositionsLike: TypeAlias = "PositionLike | Mapping[Any, PositionLike | Mapping[str, PositionLike]] | None"
"""One position for all partitions, or a mapping: of partitions (`PartitionLike`) to positions, or `{"topic": {"0": position}}`."""

NO_POSITIONS = Positions()
"""No position for any partition."""


def as_partition(key: Any, name: str = "fromOffsets") -> Partition:
    """Return a user's partition as a pair.

    Args:
        key: a TopicAndPartition, a (topic, partition) pair, or any object with `topic` and `partition`.
        name: the name of the parameter, for the error.

    Returns:
        (topic, partition number).

    Raises:
        ConfigurationError: `key` is none of these.
    """
    try:
        if isinstance(key, str):  # one of two characters would be taken for a pair
            raise TypeError("a text is no partition")
        topic, number = (key.topic, key.partition) if hasattr(key, "topic") else key
        return str(topic), int(number)
    except (TypeError, ValueError) as e:
        raise _refused(name, f"has the key {key!r}", "Keys are (topic, partition) pairs, or TopicAndPartition(topic, partition).") from e


def _refused(key: str, reason: str, hint: str) -> ConfigurationError:
    """Return the error about the parameter or the option of a command that is named `key`."""
    kind = "Option" if key.startswith("--") else "Parameter"
    return ConfigurationError(f"{kind} {key!r} {reason}. {hint}", key=key, reason=reason, hint=hint)

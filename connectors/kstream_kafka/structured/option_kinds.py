"""The kinds of values that options of a query have: how each is parsed, and what a user must give. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream.conf import parse_bool, parse_bytes, parse_time_ms
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position, Positions
from kstream_kafka.planning.subscription import Partitions, TopicPattern, Topics
from kstream_kafka.structured.places import PLACE

if TYPE_CHECKING:
    from kstream_kafka.reader.value_formats import Mode

Kind: TypeAlias = tuple[Callable[[str], Any], str]
"""A kind of values: its parser, which raises ValueError, and what a user must give."""
EARLIEST, LATEST = -2, -1
"""The numbers of both ends of a log in Spark's JSON of offsets."""
LATE_STARTS = ("error", "latest")
"""What a query does with a starting time after all records of a partition: it fails, or it begins at the end of the log."""


class MalformedError(ValueError):
    """A malformed value, with a reason of its own."""


def _positive(text: str) -> int:
    """Return a whole number above zero. ValueError for any other text."""
    if not text.isdecimal() or int(text) == 0:
        raise ValueError
    return int(text)


def _count(text: str) -> int:
    """Return a whole number, zero included. ValueError for any other text."""
    if not text.isdecimal():
        raise ValueError
    return int(text)


def _topic_names(text: str) -> Topics:
    """Return the subscription to topics. ValueError if the text names none."""
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError
    return Topics(names)


def _pattern(text: str) -> TopicPattern:
    """Return the subscription by a pattern. ValueError if it is empty or does not compile."""
    if not text:
        raise ValueError
    try:
        re.compile(text)
    except re.error as e:
        raise MalformedError(f"is {text!r}, a pattern that Python's re does not compile: {e}") from None
    return TopicPattern(text)


def _partitions(text: str) -> Partitions:
    """Return the subscription to single partitions. ValueError if the JSON is of another form, or names none."""
    found: set[Partition] = set()
    for topic, numbers in _json_object(text).items():
        if not isinstance(numbers, list):
            raise ValueError
        found.update((topic, _whole(number)) for number in numbers)
    if not found:
        raise ValueError
    return Partitions(frozenset(found))


def _offsets(text: str) -> Positions:
    """Return the positions of `earliest`, `latest`, or of offsets as JSON. ValueError for any other text."""
    word = text.lower()
    if word == "earliest" or word == "latest":
        return Positions(Position(word))
    names = {EARLIEST: Position("earliest"), LATEST: Position("latest")}
    return Positions(None, {p: names[at] if at in names else Position("offset", _whole(at)) for p, at in _by_partition(text).items()})


def _timestamp(text: str) -> Positions:
    """Return the position of one time for all partitions. ValueError unless it is a number of ms."""
    return Positions(Position("time", _count(text)))


def _timestamps(text: str) -> Positions:
    """Return the positions of times as JSON. ValueError for any other text."""
    return Positions(None, {p: Position("time", _whole(ms)) for p, ms in _by_partition(text).items()})


def _by_partition(text: str) -> dict[Partition, Any]:
    """Return the values of `{"topic":{"0":…}}`. ValueError if the JSON is of another form, or empty."""
    found: dict[Partition, Any] = {}
    for topic, values in _json_object(text).items():
        if not isinstance(values, dict):
            raise ValueError
        found.update({(topic, _count(number)): value for number, value in values.items()})
    if not found:
        raise ValueError
    return found


def _json_object(text: str) -> dict[str, Any]:
    """Return a JSON object. ValueError for any other text."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError
    return found


def _whole(value: Any) -> int:
    """Return a JSON value that is a whole number, zero included. ValueError for any other."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _late_start(text: str) -> str:
    """Return one of LATE_STARTS. ValueError for any other text."""
    if text.lower() not in LATE_STARTS:
        raise ValueError
    return text.lower()


def _value_format(text: str) -> str:
    """Return the name of a format of values. ValueError for any other text."""
    from kstream_kafka.reader.value_formats import FORMATS  # it loads pyarrow

    if text.lower() not in FORMATS:
        raise MalformedError(f"is {text!r}, one of: {', '.join(FORMATS)}")
    return text.lower()


def _mode(text: str) -> Mode:
    """Return the mode. ValueError for any other text, and for one that a query cannot have."""
    if text.lower() == "dead-letter":
        reason = "is dead-letter: a task of a query has no dead-letter topic, which belongs to a direct stream"
        raise MalformedError(f"{reason}. In the mode permissive, a column _corrupt tells which rows to write to a topic of your own")
    if text.lower() == "fail":
        return "fail"
    if text.lower() != "permissive":
        raise ValueError
    return "permissive"


KINDS: dict[str, Kind] = {
    "topics": (_topic_names, "names of topics, separated by commas"),
    "pattern": (_pattern, "a pattern of names of topics"),
    "partitions": (_partitions, 'partitions as JSON: {"orders":[0,1]}'),
    "offsets": (_offsets, 'earliest, latest, or offsets as JSON: {"orders":{"0":23,"1":-1}}'),
    "timestamp": (_timestamp, "milliseconds since 1970"),
    "timestamps": (_timestamps, 'milliseconds since 1970 as JSON: {"orders":{"0":1700000000000}}'),
    "format": (_value_format, "a format of values"),
    "mode": (_mode, "permissive or fail"),
    "late start": (_late_start, " or ".join(LATE_STARTS)),
    "bool": (parse_bool, "true or false"),
    "number": (_positive, "a whole number above zero"),
    "count": (_count, "a whole number"),
    "milliseconds": (_count, "a whole number of milliseconds"),
    "time": (parse_time_ms, "a time such as 500ms, 10s or 15m"),
    "size": (parse_bytes, "a size such as 1048576, 512k or 64m"),
    "place": PLACE,
}
"""The kinds of values, by name."""

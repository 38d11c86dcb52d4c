"""What a stream reads: topics by name, or by a pattern over whole topic names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kstream_kafka.errors import KafkaConfigError


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics by name; each must exist."""

    names: tuple[str, ...]

    def wants(self, topic: str) -> bool:
        return topic in self.names

    def to_json(self) -> dict[str, Any]:
        return {"topics": list(self.names)}


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose whole name the pattern matches; none need exist yet. Kafka's internal ones (`__…`) never match."""

    pattern: str
    flags: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def wants(self, topic: str) -> bool:
        return not topic.startswith("__") and re.compile(self.pattern, self.flags).fullmatch(topic) is not None

    def to_json(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "flags": self.flags}


Subscribed = Topics | TopicPattern


def subscription(topics: Sequence[str] | re.Pattern[str]) -> Subscribed:
    """From what the user gives: a list of names, a compiled pattern, or a list of one name that starts with `^`.

    TypeError for anything but a list, tuple or pattern (as Spark 2.4), KafkaConfigError for an empty list or a pattern that does
    not compile.
    """
    if isinstance(topics, re.Pattern):
        return TopicPattern(topics.pattern, topics.flags)
    if not isinstance(topics, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("topics should be list")
    if not topics:
        raise KafkaConfigError("topics", "is empty", "Name at least one topic.")
    patterns = [t for t in topics if t.startswith("^")]
    if not patterns:
        return Topics(tuple(dict.fromkeys(topics)))
    if len(topics) > 1:
        raise KafkaConfigError("topics", "mixes a pattern with other topics", "Write one pattern, with | between alternatives.")
    try:
        re.compile(patterns[0])
    except re.error as e:
        raise KafkaConfigError("topics", f"has a pattern that does not compile: {e}") from e
    return TopicPattern(patterns[0])


def from_json(values: dict[str, Any]) -> Subscribed:
    """The inverse of `to_json`."""
    if "topics" in values:
        return Topics(tuple(values["topics"]))
    return TopicPattern(values["pattern"], int(values["flags"]))

"""What a stream reads: topics by name, by a pattern over whole topic names, or single partitions.

ConsumerStrategies: what a stream of the 0-10 form reads and where it begins. Spark's names; nothing here asks a broker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import Partition
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.positions import Position, Positions, as_partition


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics by name; each must exist."""

    names: tuple[str, ...]

    @property
    def fixed(self) -> frozenset[Partition]:
        return frozenset()

    def wants(self, topic: str) -> bool:
        return topic in self.names

    def reads(self, partition: Partition) -> bool:
        return self.wants(partition[0])

    def __str__(self) -> str:
        return f"Subscribe[{', '.join(self.names)}]"

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

    @property
    def fixed(self) -> frozenset[Partition]:
        return frozenset()

    def wants(self, topic: str) -> bool:
        return not topic.startswith("__") and re.compile(self.pattern, self.flags).fullmatch(topic) is not None

    def reads(self, partition: Partition) -> bool:
        return self.wants(partition[0])

    def __str__(self) -> str:
        return f"SubscribePattern[{self.pattern}]"

    def to_json(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "flags": self.flags}


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions named one by one, and no other: Kafka's assign. Each must exist."""

    fixed: frozenset[Partition]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _ in self.fixed}))

    def wants(self, topic: str) -> bool:
        return topic in self.names

    def reads(self, partition: Partition) -> bool:
        return partition in self.fixed

    def __str__(self) -> str:
        return f"Assign[{', '.join(f'{t}-{p}' for t, p in sorted(self.fixed))}]"

    def to_json(self) -> dict[str, Any]:
        return {"partitions": [list(p) for p in sorted(self.fixed)]}


Subscribed = Topics | TopicPattern | Partitions


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
    if "partitions" in values:
        return Partitions(frozenset((str(t), int(p)) for t, p in values["partitions"]))
    return TopicPattern(values["pattern"], int(values["flags"]))


@dataclass(frozen=True)
class ConsumerStrategy:
    """Topics, parameters and starting positions, checked."""

    topics: Subscribed
    params: KafkaParams
    starts: Positions
    given: Mapping[str, Any]
    """The parameters as the user wrote them: deserialisers are looked up there."""

    def __repr__(self) -> str:
        return f"ConsumerStrategy({self.topics}, {self.params})"


class ConsumerStrategies:
    """`offsets` are positions (`kstream_kafka.planning.positions`) by partition, or one for all.

    A partition without one starts where the group of `group.id` has committed, and at `auto.offset.reset` (latest) if it has not.
    Offsets stored in a checkpoint always win.
    """

    @staticmethod
    def Subscribe(topics: Collection[str], kafkaParams: Mapping[str, Any], offsets: Any = None) -> ConsumerStrategy:
        """All partitions of the topics, those added later too."""
        if isinstance(topics, str):
            raise TypeError("topics should be a collection of names")
        if not topics:
            raise KafkaConfigError("topics", "is empty", "Name at least one topic.")
        return _strategy(Topics(tuple(dict.fromkeys(topics))), kafkaParams, offsets)

    @staticmethod
    def SubscribePattern(pattern: str | re.Pattern[str], kafkaParams: Mapping[str, Any], offsets: Any = None) -> ConsumerStrategy:
        """All partitions of the topics whose whole name the pattern matches (Python's `re`), those made later too."""
        try:
            compiled = re.compile(pattern)
        except re.error as e:
            raise KafkaConfigError("pattern", f"does not compile: {e}") from e
        return _strategy(TopicPattern(compiled.pattern, compiled.flags), kafkaParams, offsets)

    @staticmethod
    def Assign(topicPartitions: Collection[Any], kafkaParams: Mapping[str, Any], offsets: Any = None) -> ConsumerStrategy:
        """Just these partitions."""
        if not topicPartitions:
            raise KafkaConfigError("topicPartitions", "is empty", "Name at least one partition.")
        partitions = frozenset(as_partition(p, "topicPartitions") for p in topicPartitions)
        return _strategy(Partitions(partitions), kafkaParams, offsets)


def _strategy(topics: Subscribed, given: Mapping[str, Any], offsets: Any) -> ConsumerStrategy:
    params = KafkaParams.parse(given)
    starts = Positions.parse(offsets, "offsets")
    if starts.default is None and params.group is not None:
        starts = Positions(Position("committed"), starts.each)
    return ConsumerStrategy(topics, params, starts, dict(given))

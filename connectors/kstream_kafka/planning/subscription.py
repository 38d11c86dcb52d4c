"""The subscription of a stream: topics by name, topics by a pattern, or single partitions. ConsumerStrategies create it in the 0-10 form.

No function of this module sends a request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import PartitionLike, Position, Positions, PositionsLike, as_partition
from kstream.public_call import refused
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError


@dataclass(frozen=True, slots=True)
class Topics:
    """A subscription to all partitions of named topics. Each topic must exist. Immutable.

    Attributes:
        names: the topics.
    """

    names: tuple[str, ...]

    @property
    def fixed(self) -> frozenset[Partition]:
        """No partition is named one by one."""
        return frozenset()

    def wants(self, topic: str) -> bool:
        """Return whether the stream reads this topic."""
        return topic in self.names

    def reads(self, partition: Partition) -> bool:
        topic, _ = partition
        return self.wants(topic)

    def __str__(self) -> str:
        return f"Subscribe[{', '.join(self.names)}]"

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"topics": list(self.names)}


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A subscription to all partitions of the topics whose whole name matches a pattern. No topic needs to exist. Immutable.

    Kafka's internal topics (`__…`) never match.

    Attributes:
        pattern: the pattern, of Python's `re`.
        flags: its flags.
    """

    pattern: str
    flags: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that must exist: none."""
        return ()

    @property
    def fixed(self) -> frozenset[Partition]:
        """No partition is named one by one."""
        return frozenset()

    def wants(self, topic: str) -> bool:
        """Return whether the stream reads this topic."""
        return not topic.startswith("__") and re.compile(self.pattern, self.flags).fullmatch(topic) is not None

    def reads(self, partition: Partition) -> bool:
        topic, _ = partition
        return self.wants(topic)

    def __str__(self) -> str:
        return f"SubscribePattern[{self.pattern}]"

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"pattern": self.pattern, "flags": self.flags}


@dataclass(frozen=True, slots=True)
class Partitions:
    """A subscription to single partitions, as by Kafka's assign. Each partition must exist. Immutable.

    Attributes:
        fixed: the partitions.
    """

    fixed: frozenset[Partition]

    @property
    def names(self) -> tuple[str, ...]:
        """The topics of the partitions, sorted. Each must exist."""
        return tuple(sorted({topic for topic, _ in self.fixed}))

    def wants(self, topic: str) -> bool:
        """Return whether the stream reads this topic."""
        return topic in self.names

    def reads(self, partition: Partition) -> bool:
        return partition in self.fixed

    def __str__(self) -> str:
        return f"Assign[{', '.join(f'{t}-{p}' for t, p in sorted(self.fixed))}]"

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {"partitions": [list(p) for p in sorted(self.fixed)]}


Subscribed = Topics | TopicPattern | Partitions
"""A subscription."""


def subscription(topics: Sequence[str] | re.Pattern[str]) -> Subscribed:
    """Return the subscription for the `topics` argument of Spark 2.4's form.

    Args:
        topics: a list of names, a compiled pattern, or a list of one pattern as text, which starts with `^`.

    Returns:
        The subscription.

    Raises:
        TypeError: `topics` is no list, tuple or pattern (as in Spark 2.4).
        KafkaConfigError: the list is empty, has a pattern and other entries, or the pattern does not compile.
    """
    if isinstance(topics, re.Pattern):
        return TopicPattern(topics.pattern, topics.flags)
    if not isinstance(topics, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused(TypeError(f"topics should be list, it is {topics!r}. Give a list of names"))
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
    """Return the subscription of a stored form.

    Args:
        values: the result of `to_json`. Other keys are ignored.
    """
    if "topics" in values:
        return Topics(tuple(values["topics"]))
    if "partitions" in values:
        return Partitions(frozenset((str(t), int(p)) for t, p in values["partitions"]))
    return TopicPattern(values["pattern"], int(values["flags"]))


@dataclass(frozen=True)
class ConsumerStrategy:
    """Topics, parameters and starting positions of the 0-10 form, created by `ConsumerStrategies`. Immutable. `repr` shows no secret.

    Attributes:
        topics: the topics or partitions.
        params: the Kafka parameters.
        starting_offsets: where the stream begins at its first start.
        given: the parameters as the user wrote them. The deserialisers are read from these.
    """

    topics: Subscribed
    params: KafkaParams
    starting_offsets: Positions
    given: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"ConsumerStrategy({self.topics}, {self.params})"


class ConsumerStrategies:
    """Factory of strategies, with Spark's names: the topics that a stream of the 0-10 form reads, and where it starts. Sends no request.

    A partition without a position starts at the committed offset of the group `group.id`. If there is no such offset, or no group,
    `auto.offset.reset` decides (default latest). Offsets in a checkpoint always win.
    """

    @staticmethod
    def Subscribe(topics: Collection[str], kafkaParams: Mapping[str, Any], offsets: PositionsLike = None) -> ConsumerStrategy:
        """Read all partitions of topics by name, partitions added later included.

        Args:
            topics: the names of existing topics.
            kafkaParams: the Kafka parameters, by the Java client's or librdkafka's names.
            offsets: where to start: partition → position, or one position for all partitions. A position is an offset, "earliest",
                "latest", "committed", "-1000" (records before the end), "-10m" (time ago), a datetime or ISO time.

        Returns:
            The strategy for `KafkaUtils.createDirectStream`.

        Raises:
            KafkaConfigError: `topics` is empty, or a parameter or position cannot work.
            TypeError: `topics` is a string.

        Example:
            ConsumerStrategies.Subscribe(["orders"], {"bootstrap.servers": "k:9092", "group.id": "shop"}, {("orders", 0): 1200})
        """
        if isinstance(topics, str):
            raise refused(TypeError(f"topics should be a collection of names, it is {topics!r}. Give a list of names"))
        if not topics:
            raise KafkaConfigError("topics", "is empty", "Name at least one topic.")
        return _strategy(Topics(tuple(dict.fromkeys(topics))), kafkaParams, offsets)

    @staticmethod
    def SubscribePattern(pattern: str | re.Pattern[str], kafkaParams: Mapping[str, Any], offsets: PositionsLike = None) -> ConsumerStrategy:
        """Read all partitions of the topics whose whole name matches a pattern, topics created later included.

        Args:
            pattern: a pattern of Python's `re`.
            kafkaParams: as for `Subscribe`.
            offsets: as for `Subscribe`.

        Returns:
            The strategy for `KafkaUtils.createDirectStream`.

        Raises:
            KafkaConfigError: the pattern does not compile, or a parameter or position cannot work.

        Example:
            ConsumerStrategies.SubscribePattern("orders-.*", kafkaParams, "earliest")
        """
        try:
            compiled = re.compile(pattern)
        except re.error as e:
            raise KafkaConfigError("pattern", f"does not compile: {e}") from e
        return _strategy(TopicPattern(compiled.pattern, compiled.flags), kafkaParams, offsets)

    @staticmethod
    def Assign(
        topicPartitions: Collection[PartitionLike], kafkaParams: Mapping[str, Any], offsets: PositionsLike = None
    ) -> ConsumerStrategy:
        """Read only these partitions.

        Args:
            topicPartitions: existing partitions, each a TopicPartition or a (topic, partition) pair.
            kafkaParams: as for `Subscribe`.
            offsets: as for `Subscribe`.

        Returns:
            The strategy for `KafkaUtils.createDirectStream`.

        Raises:
            KafkaConfigError: `topicPartitions` is empty or has a malformed entry, or a parameter or position cannot work.

        Example:
            ConsumerStrategies.Assign([TopicPartition("orders", 0)], kafkaParams)
        """
        if not topicPartitions:
            raise KafkaConfigError("topicPartitions", "is empty", "Name at least one partition.")
        partitions = frozenset(as_partition(p, "topicPartitions") for p in topicPartitions)
        return _strategy(Partitions(partitions), kafkaParams, offsets)


def _strategy(topics: Subscribed, given: Mapping[str, Any], offsets: PositionsLike) -> ConsumerStrategy:
    """Return the strategy. With a group, partitions without a position start at committed offsets. KafkaConfigError as its callers."""
    params = KafkaParams.parse(given)
    starts = Positions.parse(offsets, "offsets")
    if starts.default is None and params.group is not None:
        starts = Positions(Position("committed"), starts.each)
    return ConsumerStrategy(topics, params, starts, dict(given))

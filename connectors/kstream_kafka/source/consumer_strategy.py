"""ConsumerStrategies: what a stream of the 0-10 form reads and where it begins. Spark's names; nothing here asks a broker."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.positions import Position, Positions, as_partition
from kstream_kafka.source.subscription import Partitions, Subscribed, TopicPattern, Topics


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

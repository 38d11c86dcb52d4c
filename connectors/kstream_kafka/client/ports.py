"""The Protocols of Kafka clients: `KafkaDriverClient`, `KafkaRangeConsumer`, and the clients of the simulator and of tests implement them.

Nothing here knows confluent_kafka. An offset is the next one to read; ends are exclusive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""(topic, partition number): the key of every map of offsets."""

Settings: TypeAlias = Mapping[str, Any]
"""librdkafka properties."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """One end of a partition's log.

    Attributes:
        offset: the first offset of the log, or the offset after the last one.
        leader_epoch: the leader epoch in the broker's answer; None if the answer had none.
    """

    offset: int
    leader_epoch: int | None = None


class Subscription(Protocol):
    """The topics that a stream reads, and the partitions of them."""

    @property
    def names(self) -> Collection[str]:
        """Topics that must exist; empty for a pattern."""
        ...

    @property
    def fixed(self) -> Collection[Partition]:
        """The partitions if they are named one by one (Assign); empty if all partitions of the topics are read."""
        ...

    def wants(self, topic: str) -> bool:
        """Return whether the stream reads this topic."""
        ...

    def reads(self, partition: Partition) -> bool:
        """Return whether the stream reads this partition."""
        ...


class DriverClient(Protocol):
    """The driver's client of the brokers. One thread at a time. All methods may block on the broker, except `commit` and `leader_hosts`."""

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """Return all partitions of the topics of a subscription.

        Raises:
            UnknownTopicError: a named topic is missing.
            BrokerUnreachableError: no broker answered.
        """
        ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of these topics, by one request. Topics without an id, and missing topics, are left out."""
        ...

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the end of each partition's log (last stable offset under read_committed). At most one request a broker."""
        ...

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the begin of each partition's log."""
        ...

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """Return, for each time (ms), the first offset with that timestamp or a later one; None if the log has none so late."""
        ...

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offsets that the consumer group has committed. Partitions without a commit are left out."""
        ...

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        """Send a commit and return at once. Another thread calls `on_done(error or None)` later."""
        ...

    def leader_hosts(self) -> dict[Partition, str]:
        """Return the hosts of the partitions' leaders, from the last metadata. Sends no request."""
        ...

    def close(self) -> None:
        """Close the client."""
        ...


class FetchErrorKind(enum.Enum):
    """The meaning of an error event for the reader of a range."""

    END_OF_PARTITION = "end of partition"
    OUT_OF_RANGE = "offset out of range"
    RETRIABLE = "retriable"
    """Connection lost, or a leader election: the client retries, and the poll timeout limits it."""
    FATAL = "fatal"


class RangeConsumer(Protocol):
    """A worker's consumer, assigned to one partition, or to several small ranges. One thread."""

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        """Fetch each (topic, partition) from an offset. The former assignment ends, and its fetched records are dropped.

        Args:
            begins: (topic, partition, offset, leader epoch of the plan or None), each partition once.
        """
        ...

    def unassign(self) -> None:
        """Stop fetching."""
        ...

    @property
    def consume(self) -> Callable[[int, float], list[Any]]:
        """`consume(n, timeout)`: messages of confluent_kafka. Blocks until there are n, or until `timeout` seconds are over."""
        ...

    def classify_error(self, error: Any) -> FetchErrorKind:
        """Return the kind of an error event among the messages."""
        ...

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """Return the ids of these topics. Missing topics are left out. May block.

        Args:
            topics: the topics.
            fresh: ask the broker now; otherwise an answer of about the last second is enough.
        """
        ...

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """Ask the broker for (earliest, latest). (None, None) if it does not answer. May block."""
        ...

    def last_error(self) -> str:
        """Return the client's last error text about its connections; empty if there was none."""
        ...

    def close(self) -> None:
        """Close the consumer."""
        ...

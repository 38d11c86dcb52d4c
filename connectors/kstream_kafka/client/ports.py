"""The Protocols of Kafka clients: `KafkaDriverClient`, `KafkaRangeConsumer`, and the clients of the simulator and of tests implement them.

This module does not import confluent_kafka. The offset of a partition is the next one to read. Ends are exclusive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from kstream.offsets.offset_range import Partition

Settings: TypeAlias = Mapping[str, Any]
"""librdkafka properties."""
Headers: TypeAlias = Sequence[tuple[str, "bytes | None"]]
Encoded: TypeAlias = tuple[str, "bytes | None", "bytes | None", Headers, "int | None", "int | None"]
"""A record to write: (topic, key, value, headers, partition, timestamp in ms)."""


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
    """The topics and partitions that a stream reads. Immutable; no method sends a request."""

    @property
    def names(self) -> Collection[str]:
        """The topics that must exist; empty for a pattern."""
        ...

    @property
    def fixed(self) -> Collection[Partition]:
        """The partitions if the user named them one by one (Assign); empty if all partitions of the topics are read."""
        ...

    def wants(self, topic: str) -> bool:
        """Return whether the stream reads this topic."""
        ...

    def reads(self, partition: Partition) -> bool: ...


class DriverClient(Protocol):
    """The driver's client of the brokers. Not thread-safe: one thread at a time.

    All methods may block on the brokers, except `commit` and `leader_hosts`. Those that block raise KafkaError if no answer can come.
    """

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """Return all partitions of the topics of a subscription.

        Args:
            subscription: the topics. Those in `names` must exist.

        Returns:
            The partitions. For a subscription of single partitions, all partitions of their topics.

        Raises:
            UnknownTopicError: a named topic is missing.
            TopicNotAvailableError: a named topic is missing just after an outage, or its metadata has an error, as in an election.
            NotAuthorizedError: the brokers do not show a named topic to this client.
            BrokerUnreachableError: no broker answered.
            KafkaError: the brokers refuse this client or the request.
        """
        ...

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        """Ask for topics by name, by one DescribeTopics, which never creates a topic.

        Args:
            topics: the names of the topics.

        Returns:
            topic → its partition numbers; none for a topic that the brokers do not know. Topics without an answer are left out. Just after
            an outage "unknown topic" is no answer.

        Raises:
            NotAuthorizedError: the brokers do not show a topic to this client.
            KafkaError: the brokers refuse this client.
        """
        ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of these topics, by one DescribeTopics.

        Args:
            topics: the names of the topics.

        Returns:
            topic → topic id. Topics without an id, as with brokers before 2.8, and missing topics are left out.

        Raises:
            BrokerUnreachableError: no broker answered.
            KafkaError: the brokers refuse the request.
        """
        ...

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the end of each partition's log: the last stable offset under read_committed, else the high watermark.

        Sends at most one request to each broker, unless a request is retried.

        Args:
            partitions: the partitions.

        Returns:
            partition → end of its log, for every one of `partitions`.

        Raises:
            UnknownTopicError: a topic does not exist.
            TopicNotAvailableError: so it is just after an outage.
            NotAuthorizedError: this client may not see a topic.
            LeaderNotAvailableError: a leader returned no offset.
            BrokerUnreachableError: no broker answered.
        """
        ...

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the begin of each partition's log. Arguments and errors as for `latest`."""
        ...

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """Return, for each time, the first offset with that timestamp or a later one. Errors as for `latest`.

        Args:
            times_ms: the times, in ms since the epoch.
            partitions: the partitions.

        Returns:
            For each of `times_ms`: partition → offset, or None if the log has no such record.
        """
        ...

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offsets that a consumer group has committed.

        Args:
            group: the consumer group.
            partitions: the partitions.

        Returns:
            partition → committed offset. Partitions without a commit are left out.

        Raises:
            NotAuthorizedError: this client may not read the group or a topic.
            BrokerUnreachableError: no broker answered.
            KafkaError: the brokers refuse the request.
        """
        ...

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        """Send a commit. Does not wait for the response.

        Args:
            group: the consumer group. If it has members, the error is GroupNotEmptyError.
            offsets: the offset of each partition.
            on_done: called once with the error, or with None after a successful commit. Usually another thread calls it later.
        """
        ...

    def leader_hosts(self) -> dict[Partition, str]:
        """Return partition → host of its leader, from the last metadata. Sends no request."""
        ...

    def close(self) -> None: ...


class FetchErrorKind(enum.Enum):
    """The meaning of an error event for the reader of a range."""

    END_OF_PARTITION = "end of partition"
    OUT_OF_RANGE = "offset out of range"
    RETRIABLE = "retriable"
    """A lost connection or a leader election. The client retries by itself, and the poll timeout limits the retries."""
    FATAL = "fatal"


class RangeConsumer(Protocol):
    """A worker's consumer, assigned to one range or to several small ones. Not thread-safe: only the task's thread calls it."""

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        """Fetch each (topic, partition) from an offset. The former assignment ends, and its fetched records are dropped. May block.

        Args:
            begins: (topic, partition, offset, leader epoch or None), each partition once. The epoch is the one under which the offset was
                reached; the broker refuses it if it ended before that offset.

        Raises:
            NotAuthorizedError: this client may not see a topic.
        """
        ...

    def reconnect(self) -> None:
        """Replace the client by a new one, with new connections. Nothing is assigned then. May block.

        Raises:
            KafkaError: no new client can be made. The former one stays.
        """
        ...

    def unassign(self) -> None:
        """Stop fetching. The consumer can be assigned again."""
        ...

    @property
    def consume(self) -> Callable[[int, float], list[Any]]:
        """A function (n, timeout) that returns up to n messages of confluent_kafka, error events among them.

        It blocks until there are n messages, or until `timeout` seconds are over. It raises KafkaError if the brokers refuse this client.
        """
        ...

    def classify_error(self, error: Any) -> FetchErrorKind:
        """Return what an error event means for the reader of a range. The client itself retries what can be retried.

        Args:
            error: the result of `error()` of a message.

        Raises:
            NotAuthorizedError: this client may not read the topic.
        """
        ...

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """Return the ids of these topics. May block.

        Args:
            topics: the names of the topics.
            fresh: whether to ask the broker now; otherwise an answer of about the last second is enough.

        Returns:
            topic → topic id. Missing topics are left out.

        Raises:
            BrokerUnreachableError: no broker answered.
            KafkaError: the broker refuses the request.
        """
        ...

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """Ask the broker for both ends of a log. May block.

        Args:
            topic: the topic.
            partition: the partition's number.

        Returns:
            (earliest, latest); (None, None) if the broker does not answer.
        """
        ...

    def last_error(self) -> str:
        """Return the client's last error text about its connections, without secrets; empty if there was none."""
        ...

    def close(self) -> None:
        """Close the consumer. It cannot be used afterwards."""
        ...

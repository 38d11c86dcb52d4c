"""What the connector's rooms ask of a Kafka client: small Protocols, filled by `client.py`, `range_consumer.py` and by fakes in tests.

Nothing here knows confluent_kafka. Offsets are the next to read, ends are exclusive.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""(topic, partition number): the key of every map of offsets."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """One end of a partition's log: the offset, and the leader epoch the broker named with it (None where it did not)."""

    offset: int
    leader_epoch: int | None = None


class Subscription(Protocol):
    """Which topics a stream reads, and which partitions of them."""

    @property
    def names(self) -> Collection[str]:
        """Topics that must exist; empty for a pattern."""
        ...

    @property
    def fixed(self) -> Collection[Partition]:
        """The partitions, where they are named one by one (Assign); empty where all partitions of the topics are read."""
        ...

    def wants(self, topic: str) -> bool: ...

    def reads(self, partition: Partition) -> bool:
        """Whether the stream reads this partition of a topic."""
        ...


class DriverClient(Protocol):
    """The driver's side of Kafka; all but `commit` may block on the broker. Not thread-safe."""

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """All partitions of the topics wanted. UnknownTopicError when a named one is missing, BrokerUnreachableError."""
        ...

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of these topics, in one request; without those that are not there, or whose broker tells none."""
        ...

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Where each partition ends (last stable offset under read_committed); at most one request a broker."""
        ...

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Where each partition begins."""
        ...

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """For each time (ms) the first offset of that timestamp or a later one; None when the log has none so late."""
        ...

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """What the consumer group has committed; partitions without a commit are left out."""
        ...

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        """Sends the offsets and returns; `on_done(error or None)` is called later, by another thread."""
        ...

    def leader_hosts(self) -> dict[Partition, str]:
        """The hosts of the partitions' leaders as last heard of; asks nothing."""
        ...

    def close(self) -> None: ...


class MessageLike(Protocol):
    """confluent_kafka's Message as far as it is used: methods, not attributes. An event (end of partition) has an error."""

    def error(self) -> Any: ...
    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...


class Trouble(enum.Enum):
    """What an error event means to the reader of a range."""

    END_OF_PARTITION = "end of partition"
    OUT_OF_RANGE = "offset out of range"
    PASSING = "may pass by itself"
    """Connection lost, leader moving …: the client goes on trying; the poll timeout bounds it."""
    FATAL = "will not pass"


class RangeConsumer(Protocol):
    """A worker's consumer: assigned to one partition, or to several of which little is read. Not thread-safe."""

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        """Starts to fetch each (topic, partition) from the offset, planned under the leader epoch; no partition twice.

        What was assigned before is not read any more, and what was fetched of it is dropped.
        """
        ...

    def unassign(self) -> None: ...

    @property
    def consume(self) -> Callable[[int, float], list[Any]]:
        """consume(n, timeout) → MessageLikes: blocks until there are n or `timeout` seconds are over, whichever is first."""
        ...

    def trouble(self, error: Any) -> Trouble: ...

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """The ids of these topics, without those that are not there; not older than a second or so, or of just now. May block."""
        ...

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """(earliest, latest) by asking the broker; (None, None) when it does not answer. May block."""
        ...

    def last_error(self) -> str:
        """What the client last said of its connections; empty if nothing."""
        ...

    def close(self) -> None: ...


Settings: TypeAlias = Mapping[str, Any]
"""librdkafka properties."""

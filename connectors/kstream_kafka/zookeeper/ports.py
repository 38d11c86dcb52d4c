"""What the receivers ask of ZooKeeper and of Kafka: small Protocols, filled by `zookeeper_offsets`, `group_reader` and fakes in tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kstream_kafka.client.ports import Partition

if TYPE_CHECKING:
    from kstream.clock import Clock, StopFlag
    from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings

Offsets: TypeAlias = Mapping[Partition, int]
"""The next offset to read of each partition."""


class Membership(Protocol):
    """One consumer of the group, from joining to the end of its session; never revived.

    Any thread. Calls wait while ZooKeeper is away. All but `members` and `leave` raise OwnershipLostError when the membership is over,
    and change nothing then.
    """

    @property
    def consumer(self) -> str:
        """Its id; no two memberships have the same one."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it is over: another may read its partitions, nothing of it can be acknowledged any more."""
        ...

    @property
    def reason(self) -> str:
        """Why it is over."""
        ...

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper answers at the moment."""
        ...

    def take_change(self) -> bool:
        """Whether there is reason to look who is there since this was last asked: somebody came or left, or let go of a claim."""
        ...

    def members(self) -> dict[str, dict[str, int]]:
        """Who is there, with what they subscribe to; from now on told of changes."""
        ...

    def claim(self, wanted: Mapping[Partition, str]) -> dict[Partition, str]:
        """Claims each partition for the thread; returns those that others hold, and who. Told when one of these lets go."""
        ...

    def release(self, partitions: Collection[Partition]) -> None:
        """Lets go of claims."""
        ...

    def offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """How far the group has read; partitions without an offset are left out."""
        ...

    def commit(self, offsets: Offsets) -> None:
        """Writes them, all or none, and only if this consumer is there still and holds the claims."""
        ...

    def hurry(self) -> None:
        """From now on calls wait for ZooKeeper a moment only: the receiver stops. Returns at once."""
        ...

    def leave(self) -> None:
        """Ends it: its claims and its registration are gone when this returns, if ZooKeeper answers. May be called twice."""
        ...


Record: TypeAlias = "tuple[bytes | None, bytes | None]"
"""(key, value) as they are in Kafka."""


@dataclass(slots=True)
class Chunk:
    """What one read gave."""

    records: list[Record] = field(default_factory=list[Record])
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """The next offset of each partition that has records here."""
    out_of_range: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose position the log does not have; not read any more until they are assigned again."""


class Reader(Protocol):
    """Kafka's side. One thread."""

    @property
    def positions(self) -> dict[Partition, int]:
        """The next offset of each partition being read."""
        ...

    def partitions(self) -> set[Partition]:
        """All partitions of the topics, as the brokers have them now. UnknownTopicError, BrokerUnreachableError."""
        ...

    def starts(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Where `auto.offset.reset` begins. KafkaError where it is `none`."""
        ...

    def log_range(self, partition: Partition) -> tuple[int | None, int | None]:
        """(earliest, latest), None where it is not known; for messages."""
        ...

    def assign(self, positions: Offsets) -> None:
        """Reads just these from now on."""
        ...

    def read(self, most: int) -> Chunk:
        """Up to so many records; waits for them a tenth of a second or so. KafkaError when reading on cannot help."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """What a receiver is put together from in the process where it runs. Functions of modules: they are pickled with it."""

    join: Callable[[ReceiverSettings, StopFlag], Membership]
    """Registers a new consumer. Blocks until the flag is set; ZooKeeperUnreachableError."""
    reader: Callable[[ReceiverSettings], Reader]
    clock: Callable[[], Clock]


class Host(Protocol):
    """What the member asks of the receiver it works for (`kstream.Receiver`)."""

    def storeAll(self, dataItems: Any, metadata: Any = None) -> None: ...
    def createBlockGenerator(self, listener: Any) -> Any: ...
    def reportError(self, message: str, throwable: BaseException | None = None) -> None: ...
    def restart(self, message: str, error: BaseException | None = None, millisecond: int | None = None) -> None: ...

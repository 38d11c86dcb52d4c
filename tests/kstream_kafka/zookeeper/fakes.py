"""A group without ZooKeeper, logs without Kafka, and a host that stores in a list: members of a group are tried on them, step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream_kafka.errors import OwnershipLostError
from kstream_kafka.zookeeper.group_member import GroupMember, ReceiverParts
from kstream_kafka.zookeeper.group_reader import GroupChunk
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, AfterStoring
from kstream_kafka.zookeeper.zookeeper_layout import Offsets

from kstream.offsets.offset_range import Partition
from kstream.testing import ManualClock

GIVEN = {"bootstrap.servers": "k:9092", "auto.offset.reset": "smallest"}


def settings(topics: dict[str, int] | None = None, **more: Any) -> ReceiverSettings:
    given = {**GIVEN, **{name.replace("_", "."): value for name, value in more.items()}}
    return ReceiverSettings.parse("z:2181", "g", topics or {"t": 1}, given)


@dataclass
class FakeGroup:
    """What ZooKeeper would hold, and what was done to it, in order."""

    offsets: dict[Partition, int] = field(default_factory=dict)
    owners: dict[Partition, str] = field(default_factory=dict)
    members: dict[str, FakeMembership] = field(default_factory=dict)
    done: list[Any] = field(default_factory=list)
    joined: int = 0

    def join(self, settings: ReceiverSettings, _stop: Any) -> FakeMembership:
        self.joined += 1
        made = FakeMembership(self, f"c{self.joined}", dict(settings.topics))
        self.members[made.consumer] = made
        self.told()
        return made

    def told(self, but: FakeMembership | None = None) -> None:
        for member in self.members.values():
            member.news = member.news or member is not but


@dataclass(eq=False)
class FakeMembership:
    group: FakeGroup
    consumer: str
    topics: dict[str, int]
    connected: bool = True
    lost: bool = False
    news: bool = True
    hurried: bool = False
    reason: str = "it expired"

    def take_change(self) -> bool:
        news, self.news = self.news, False
        return news

    def members(self) -> dict[str, dict[str, int]]:
        return {name: member.topics for name, member in self.group.members.items()}

    def claim(self, wanted: Mapping[Partition, str]) -> dict[Partition, str]:
        self._check()
        others = {p: self.group.owners[p] for p, thread in wanted.items() if self.group.owners.get(p, thread) != thread}
        self.group.owners.update({p: thread for p, thread in wanted.items() if p not in others})
        return others

    def release(self, partitions: Collection[Partition]) -> None:
        self._check()
        for partition in partitions:
            del self.group.owners[partition]
        self.group.done.append(("released", sorted(partitions)))
        self.group.told(but=self)

    def offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        self._check()
        return {p: self.group.offsets[p] for p in partitions if p in self.group.offsets}

    def commit(self, offsets: Offsets) -> None:
        self._check()
        if any(not self.group.owners.get(p, "").startswith(f"{self.consumer}-") for p in offsets):
            self.lost = True
        self._check()
        self.group.offsets.update(offsets)
        self.group.done.append(("committed", dict(offsets)))

    def expire(self) -> None:
        """What the server does when it hears nothing, and its client is told."""
        self.lost = True
        self.group.members.pop(self.consumer, None)
        self.group.owners = {p: o for p, o in self.group.owners.items() if not o.startswith(f"{self.consumer}-")}
        self.group.told()

    def limit_waits(self) -> None:
        self.hurried = True

    def leave(self) -> None:
        self.expire()

    def _check(self) -> None:
        if self.lost:
            raise OwnershipLostError(self.consumer, self.reason)


@dataclass
class FakeReader:
    """Partition `p` has the records [first, end) of `logs[p]`, whose values are their offsets."""

    logs: dict[Partition, tuple[int, int]]
    positions: dict[Partition, int] = field(default_factory=dict)
    reads: int = 0
    closed: bool = False

    def partitions(self) -> set[Partition]:
        return set(self.logs)

    def initial_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return {p: self.logs[p][0] for p in partitions}

    def log_range(self, partition: Partition) -> tuple[int | None, int | None]:
        return self.logs[partition]

    def assign(self, positions: Offsets) -> None:
        self.positions = dict(positions)

    def read(self, most: int) -> GroupChunk:
        self.reads += 1
        places: list[tuple[Partition, int]] = []
        chunk = GroupChunk(places=lambda: places)
        for where, at in sorted(self.positions.items()):
            first, end = self.logs[where]
            if not first <= at <= end:
                chunk.out_of_range.append(where)
            elif at < end:
                until = min(end, at + most)
                chunk.records += [(where[0].encode(), f"{where[1]}:{n}".encode()) for n in range(at, until)]
                places += [(where, n) for n in range(at, until)]
                chunk.offsets[where] = self.positions[where] = until
        return chunk

    def close(self) -> None:
        self.closed = True


class FakeGenerator:
    """A block for each chunk, pushed at once; or, if `held`, by `push`. `permits` are so many at a time; None for all."""

    def __init__(self, listener: Any) -> None:
        self.listener = listener
        self.held = False
        self.limit: int | None = None
        self.permits: int | None = None
        self.open: list[Any] = []
        self.made = 0
        self.stopped = False

    def start(self) -> None: ...

    def getCurrentLimit(self) -> int | None:
        return self.limit

    def take_permits(self, most: int) -> int:
        return most if self.permits is None else min(most, self.permits)

    def add_permitted(self, records: list[Any], metadata: Any) -> None:
        self.open += records
        self.listener.onAddData(records, metadata)
        if not self.held:
            self.push()

    def push(self) -> None:
        if self.open:
            self.made += 1
            records, self.open = self.open, []
            self.listener.onGenerateBlock(f"b{self.made}")
            self.listener.onPushBlock(f"b{self.made}", records)

    def stop(self) -> None:
        self.push()
        self.stopped = True


@dataclass
class FakeHost:
    """The receiver that a member works for. `refuse` says how many times the next blocks are refused."""

    group: FakeGroup
    blocks: list[list[str]] = field(default_factory=list)
    metadata: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    restarts: list[tuple[str, BaseException | None]] = field(default_factory=list)
    refuse: int = 0
    generator: Any = None

    def storeAll(self, dataItems: Any, metadata: Any = None) -> None:
        if self.refuse:
            self.refuse -= 1
            raise OSError("no room")
        self.blocks.append([value.decode() for _, value in dataItems])
        self.metadata.append(metadata)
        self.group.done.append(("stored", len(dataItems)))

    def createBlockGenerator(self, listener: Any) -> Any:
        self.generator = FakeGenerator(listener)
        return self.generator

    def reportError(self, message: str, throwable: BaseException | None = None) -> None:
        self.errors.append(message)

    def restart(self, message: str, error: BaseException | None = None, millisecond: int | None = None) -> None:
        self.restarts.append((message, error))

    @property
    def stored(self) -> list[str]:
        return [value for block in self.blocks for value in block]


class Member:
    """A member with all of its fakes; several of them may share a group and its logs."""

    def __init__(
        self,
        group: FakeGroup,
        logs: dict[Partition, tuple[int, int]],
        acknowledgement: Callable[[int], Acknowledgement] = lambda _now: AfterStoring(),
        clock: ManualClock | None = None,
        **more: Any,
    ) -> None:
        self.group, self.reader, self.host = group, FakeReader(logs), FakeHost(group)
        self.clock = ManualClock(1000) if clock is None else clock
        parts = ReceiverParts(group.join, lambda _settings: self.reader, lambda: self.clock)
        self.member = GroupMember(settings(**more), parts, self.host, acknowledgement)
        self.generator: FakeGenerator = self.host.generator

    def step(self, times: int = 1) -> Member:
        for _ in range(times):
            self.member.step()
        return self

    @property
    def membership(self) -> FakeMembership:
        found: Any = self.member._membership
        return found

    @property
    def owned(self) -> list[int]:
        return sorted(number for (_, number), owner in self.group.owners.items() if owner.startswith(f"{self.membership.consumer}-"))


def log(partitions: int, end: int, topic: str = "t") -> dict[Partition, tuple[int, int]]:
    return {(topic, number): (0, end) for number in range(partitions)}

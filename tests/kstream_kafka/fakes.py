"""Stand-ins for Kafka: a consumer over a list of records, a driver client over a dict of logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kstream_kafka.client.ports import FetchErrorKind, LogEnd, Subscription
from kstream_kafka.errors import BrokerUnreachableError, UnknownTopicError

from kstream.offsets.offset_range import Partition


@dataclass
class Message:
    """A record, or an event when `problem` is set; its offset is then where it happened."""

    at: int
    payload: bytes | None = b"v"
    name: bytes | None = None
    problem: FetchErrorKind | None = None
    epoch: int | None = None
    where: tuple[str, int] = ("t", 0)
    extra: list[tuple[str, bytes | None]] | None = None

    def topic(self) -> str:
        return self.where[0]

    def partition(self) -> int:
        return self.where[1]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.extra

    def error(self) -> FetchErrorKind | None:
        return self.problem

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.payload

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 1000 + self.at)

    def leader_epoch(self) -> int | None:
        return self.epoch


def records(offsets: Iterable[int], epoch: int | None = None, where: tuple[str, int] = ("t", 0)) -> list[Message]:
    return [Message(at, b"%d" % at, epoch=epoch, where=where) for at in offsets]


class FakeConsumer:
    """Gives the scripted answers of `consume` one after the other, then nothing; time passes by what each call waits."""

    def __init__(self, script: Sequence[list[Message]] = (), log_range: tuple[int | None, int | None] = (0, 100)) -> None:
        self.script = list(script)
        self.assigned: list[tuple[str, int, int, int | None]] = []
        self.asked: list[int] = []
        self.assignments = 0
        self.reconnected = 0
        self.unassigned = 0
        self.closed = False
        self.now = 0.0
        self._log_range = log_range
        self.words = ""
        self.ids: dict[str, str] = {}
        self.id_questions: list[bool] = []
        self.unanswered = 0
        """How many questions for topic ids nobody answers. Each takes 15 s."""

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        self.assigned += begins
        self.assignments += 1

    def reconnect(self) -> None:
        self.reconnected += 1

    def unassign(self) -> None:
        self.unassigned += 1

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        self.asked.append(num_messages)
        if self.script:
            answer = self.script.pop(0)
            self.script[:0] = [answer[num_messages:]] if answer[num_messages:] else []
            return answer[:num_messages]
        self.now += timeout
        return []

    def monotonic(self) -> float:
        return self.now

    def classify_error(self, error: Any) -> FetchErrorKind:
        return error

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        self.id_questions.append(fresh)
        if self.unanswered:
            self.unanswered -= 1
            self.now += 15
            raise BrokerUnreachableError("broker:9092", 15_000)
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        return self._log_range

    def last_error(self) -> str:
        return self.words

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeClient:
    """A cluster: the [earliest, latest) of each partition, and what groups have committed. Counts the questions.

    `times[p]`: (timestamp, first offset of that timestamp or later), rising.
    """

    logs: dict[Partition, tuple[int, int]] = field(default_factory=dict)
    times: dict[Partition, list[tuple[int, int]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    groups: dict[str, dict[Partition, int]] = field(default_factory=dict)
    commits: list[tuple[str, dict[Partition, int]]] = field(default_factory=list)
    commit_error: Exception | None = None
    epoch: int | None = 7
    asked: list[str] = field(default_factory=list)
    closed: bool = False
    failure: Exception | None = None
    silent_about: set[str] = field(default_factory=set)
    """Topics about which the brokers do not answer by name."""

    def partitions(self, subscription: Subscription) -> set[Partition]:
        self.asked.append("partitions")
        topics = {topic for topic, _ in self.logs}
        missing = [name for name in subscription.names if name not in topics]
        if missing:
            raise UnknownTopicError(missing, len(topics))
        return {p for p in self.logs if subscription.wants(p[0])}

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        self.asked.append("describe")
        return {topic: frozenset(n for t, n in self.logs if t == topic) for topic in topics if topic not in self.silent_about}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        self.asked.append("ids")
        return {topic: number for topic, number in self.ids.items() if topic in topics}

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        self.asked.append("latest")
        if self.failure is not None:
            raise self.failure
        return {p: LogEnd(self.logs[p][1], self.epoch) for p in partitions if p in self.logs}

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        self.asked.append("earliest")
        return {p: LogEnd(self.logs[p][0], self.epoch) for p in partitions}

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        self.asked.append(f"at {len(times_ms)}")
        return [{p: next((at for stamp, at in self.times.get(p, ()) if stamp >= ms), None) for p in partitions} for ms in times_ms]

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        self.asked.append("committed")
        return {p: at for p, at in self.groups.get(group, {}).items() if p in partitions}

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        self.commits.append((group, dict(offsets)))
        on_done(self.commit_error)

    def leader_hosts(self) -> dict[Partition, str]:
        return {p: f"host{p[1]}" for p in self.logs}

    def close(self) -> None:
        self.closed = True

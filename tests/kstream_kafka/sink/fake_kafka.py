"""FakeKafka: logs with transactions, as brokers keep them, in this process. Its clients stand for those of the sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kstream_kafka.client.ports import Encoded, LogEnd, Subscription
from kstream_kafka.client.topic_reader import ReadLog
from kstream_kafka.continuous import epoch_writer, hand_over
from kstream_kafka.errors import BrokerUnreachableError, KafkaError, ProducerFencedError, UnknownTopicError
from kstream_kafka.sink import (
    audit_topic,
    broker_probe,
    kafka_output,
    partition_writer,
    query_batches,
    receipts,
    receipts_topic,
    transactional_ids,
)


@dataclass
class Open:
    """A transaction. `is_committed`: None while it is open."""

    is_committed: bool | None = None


@dataclass
class Entry:
    """A record of a log, or the control record at the end of a transaction."""

    topic_name: str
    place: int
    at: int
    its_key: bytes | None
    its_value: bytes | None
    of: Open | None = None
    is_control: bool = False

    def topic(self) -> str:
        return self.topic_name

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value


@dataclass
class FakeKafka:
    """The logs and the coordinator.

    Attributes:
        topics: topic → its id and the logs of its partitions.
        epochs: transactional id → how often it was taken.
        open: transactional id → the transaction that is open.
        on: what happens at a step of a client, by its name: a function that may raise or write.
        producing: the properties of the newest producer of a fence.
        loses_connections: whether a producer that is kept cannot go on.
    """

    topics: dict[str, tuple[str, list[list[Entry]]]] = field(default_factory=dict[str, tuple[str, list[list[Entry]]]])
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    open: dict[str, Open] = field(default_factory=dict[str, Open])
    on: dict[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])
    policies: dict[str, str] = field(default_factory=dict[str, str])
    cluster_id: str = "fake"
    begins: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    fences: bool = True
    hides_aborted: bool = True
    made: int = 0
    timeouts: list[int] = field(default_factory=list[int])
    producing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    loses_connections: bool = False

    def create(self, topic: str, partitions: int) -> None:
        self.made += 1
        self.topics[topic] = (f"id {self.made}", [[] for _ in range(partitions)])

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, of: Open | None = None, control: bool = False
    ) -> int:
        log = self.topics[topic][1][partition]
        log.append(Entry(topic, partition, len(log), key, value, of, control))
        return len(log) - 1

    def end(self, transactional_id: str, is_committed: bool) -> None:
        """End the open transaction of an id, if there is one: a control record in each partition that it has written to."""
        ended = self.open.pop(transactional_id, None)
        if ended is None:
            return
        ended.is_committed = is_committed
        for topic, (_, logs) in self.topics.items():
            for partition, log in enumerate(logs):
                if any(entry.of is ended for entry in log):
                    self.append(topic, partition, None, None, ended, control=True)

    def committed(self, topic: str, partition: int, begin: int = 0) -> list[Entry]:
        """The records that a reader of committed records gets."""
        found: list[Entry] = []
        for entry in self.topics[topic][1][partition][begin:]:
            if entry.of is not None and entry.of.is_committed is None:
                break  # the last stable offset
            if not entry.is_control and (entry.of is None or entry.of.is_committed or not self.hides_aborted):
                found.append(entry)
        return found

    def values(self, topic: str) -> list[bytes]:
        """The committed values of a topic, sorted."""
        return sorted(entry.its_value or b"" for p in range(len(self.topics[topic][1])) for entry in self.committed(topic, p))

    def step(self, name: str) -> None:
        if (happens := self.on.pop(name, None)) is not None:
            happens()

    # -- the clients

    def transaction(
        self, _settings: Mapping[str, Any], transactional_id: str, timeout_ms: int, topic: str = "", is_kept: bool = False
    ) -> FakeTransaction:
        self.timeouts.append(timeout_ms)
        return FakeTransaction(self, transactional_id, is_kept=is_kept)

    def reader(self, _settings: Mapping[str, Any]) -> FakeReader:
        return FakeReader(self)

    def client(self, _params: Any) -> FakeClient:
        return FakeClient(self)

    def producer(self, settings: Mapping[str, Any]) -> FakeProducer:
        self.producing = settings
        return FakeProducer(self)


@dataclass
class FakeTransaction:
    kafka: FakeKafka
    id: str
    epoch: int = 0
    mine: Open | None = None
    is_kept: bool = False

    @property
    def can_go_on(self) -> bool:
        return self.is_kept and not self.kafka.loses_connections

    def _step(self, name: str) -> None:
        if not self.id.endswith("-probe"):
            self.kafka.step(name)

    def open(self) -> None:
        self._step("open")
        self.kafka.end(self.id, is_committed=False)
        self.epoch = self.kafka.epochs[self.id] = self.kafka.epochs.get(self.id, 0) + 1

    def _check(self) -> None:
        if self.kafka.epochs[self.id] != self.epoch:
            raise ProducerFencedError(self.id, "epoch")

    def begin(self) -> None:
        self._step("begin")
        self._check()
        self.mine = self.kafka.open[self.id] = Open()

    def send_all(self, records: Iterable[Encoded]) -> None:
        for record in records:
            self.send(record)

    def send(self, record: Encoded, on_stored: Callable[[int, int], None] | None = None) -> None:
        topic, key, value, _, partition, _ = record
        self._check()
        place = (partition or 0) % len(self.kafka.topics[topic][1])
        at = self.kafka.append(topic, place, key, value, self.mine)
        if on_stored is not None:
            on_stored(place, at)

    def flush(self) -> None:
        self._step("flush")
        self._check()

    def commit(self) -> None:
        self._step("commit")
        if self.kafka.fences and self.kafka.epochs[self.id] != self.epoch:
            raise ProducerFencedError(self.id, "epoch")
        self.kafka.end(self.id, is_committed=True)
        self._step("committed")

    def close(self) -> None:
        if self.kafka.epochs.get(self.id) == self.epoch:
            self.kafka.end(self.id, is_committed=False)


@dataclass
class FakeReader:
    kafka: FakeKafka

    def read(
        self,
        topic: str,
        begins: Mapping[int, int],
        _seconds: float,
        wants: Callable[[bytes | None], bool] = lambda _: True,
        until: Mapping[int, int] | None = None,
        waits: bool = True,
        least: Mapping[int, int] | None = None,
    ) -> ReadLog:
        self.kafka.step("read")
        found = ReadLog([], {})
        if topic not in self.kafka.topics:
            raise BrokerUnreachableError("fake", 1, f"topic {topic} is unknown")
        for partition, begin in begins.items():
            log = self.kafka.topics[topic][1][partition]
            end = (until or {}).get(partition, len(log))
            if waits and any(entry.of is not None and entry.of.is_committed is None for entry in log[:end]):
                raise BrokerUnreachableError("fake", 1, "a transaction is open")
            if begin > len(log):
                raise KafkaError(f"{topic}-{partition}: an offset that was there is gone", reason="out of range")
            found.messages.extend(e for e in self.kafka.committed(topic, partition, begin) if wants(e.key()) and e.offset() < end)
            found.ends[partition] = end
        return found

    def end(self, topic: str, partition: int, _seconds: float) -> int | None:
        self.kafka.step("end")
        return len(self.kafka.topics[topic][1][partition])

    def close(self) -> None:
        pass


@dataclass
class FakeClient:
    kafka: FakeKafka

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> bool:
        assert settings["cleanup.policy"] == ("delete" if topic.endswith("-audit") else "compact")
        if topic in self.kafka.topics:
            return False
        self.kafka.create(topic, partitions)
        return True

    def cluster_id(self) -> str:
        return self.kafka.cluster_id

    def latest(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], LogEnd]:
        return {(topic, p): LogEnd(len(self.kafka.topics[topic][1][p])) for topic, p in partitions}

    def earliest(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], LogEnd]:
        return {partition: LogEnd(self.kafka.begins.get(partition, 0)) for partition in partitions}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.kafka.topics[topic][0] for topic in topics if topic in self.kafka.topics}

    def partitions(self, subscription: Subscription) -> set[tuple[str, int]]:
        if missing := [topic for topic in subscription.names if topic not in self.kafka.topics]:
            raise UnknownTopicError(missing, 0)
        return {(topic, p) for topic in subscription.names for p in range(len(self.kafka.topics[topic][1]))}

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        numbers = {topic: range(len(logs)) for topic, (_, logs) in self.kafka.topics.items()}
        return {topic: frozenset(numbers.get(topic, ())) for topic in topics}

    def topic_setting(self, topic: str, name: str) -> str:
        default = "compact" if topic.endswith("-receipts") else "delete"
        return {"cleanup.policy": self.kafka.policies.get(topic, default)}[name]

    def close(self) -> None:
        pass


@dataclass
class FakeProducer:
    kafka: FakeKafka

    def send(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        headers: Any,
        on_failure: Any,
        partition: int,
        on_stored: Callable[[int, int], None] = lambda _place, _at: None,
    ) -> None:
        kind = "audit" if topic.endswith("-audit") else "fence"
        self.kafka.step(kind)
        offset = self.kafka.append(topic, partition, key, value)
        self.kafka.step(f"{kind} stored")
        on_stored(partition, offset)

    def flush(self) -> int:
        return 0


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """A FakeKafka behind the clients of the sink."""
    kafka = FakeKafka()
    for module in (kafka_output, receipts, hand_over):
        monkeypatch.setattr(module, "TopicReader", kafka.reader)
    for module in (transactional_ids, partition_writer, broker_probe, query_batches, epoch_writer):
        monkeypatch.setattr(module, "Transaction", kafka.transaction)
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(partition_writer, "once", lambda key, make: kept.setdefault(key, make()))
    for module in (receipts_topic, audit_topic, hand_over):
        monkeypatch.setattr(module, "RecordProducer", kafka.producer)
    for module in (receipts_topic, audit_topic, query_batches, hand_over):
        monkeypatch.setattr(module, "KafkaDriverClient", kafka.client)
    for module in (receipts, query_batches):
        monkeypatch.setattr(module, "once", lambda _key, make: make())
    return kafka

"""What tests do with a Kafka, be it one node or three: make topics and produce."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
)

from integration.kafka_node import BrokerError

QUIET = {"log_level": 0}
"""Of librdkafka, which would write a line for every attempt to reach a broker that a test has killed."""
Record = tuple[Any, ...]
"""(key, value), and then perhaps the partition, the timestamp in ms and the headers."""


class KafkaHandle(ABC):
    """A Kafka that runs somewhere on loopback, and clients of it."""

    def __init__(self) -> None:
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Where clients begin; the same over restarts."""

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None, replicas: Sequence[int] | None = None
    ) -> None:
        """Returns when the topic is there and every partition has a leader.

        As many replicas as the cluster gives by default (1 on one node, 3 on three), or every partition on the nodes of `replicas`.
        """
        if replicas is None:
            new = NewTopic(name, partitions, config=config or {})
        else:
            new = NewTopic(name, partitions, replica_assignment=[list(replicas)] * partitions, config=config or {})
        self.admin.create_topics([new])[name].result(30)
        self.wait_for_leaders(name, partitions, 30 + partitions / 10)  # a thousand take their time

    def wait_for_leaders(self, name: str, partitions: int, seconds: float = 30) -> None:
        """Returns when the topic has so many partitions and each a leader that answers; BrokerError if that does not come about.

        A leader is told before its broker has made the log. What an idempotent producer sends then is lost without a word: its first batch
        is refused, its second taken, and the first, sent again, taken for a duplicate.
        """
        end = time.monotonic() + seconds
        while True:
            known = self.partitions(name)
            if len(known) == partitions and all(p.leader >= 0 for p in known.values()) and self._answered_for(name, partitions):
                return
            if time.monotonic() > end:
                raise BrokerError(f"topic {name} has no leaders")
            time.sleep(0.05)

    def _answered_for(self, name: str, partitions: int) -> bool:
        asked = self.admin.list_offsets({TopicPartition(name, p): OffsetSpec.latest() for p in range(partitions)})
        try:
            return all(answer.result(30).offset >= 0 for answer in asked.values())
        except KafkaException:
            return False

    def wait_for_groups(self, topic: str, seconds: float = 30) -> None:
        """Returns when groups can commit offsets of this topic; BrokerError if that does not come about.

        A young broker has no topic of offsets yet. To a question for offsets it answers NOT_COORDINATOR, by which librdkafka crashes the
        process of an admin client (its issue 5040). A commit is safe.
        """
        wanted, end = ConsumerGroupTopicPartitions("nobody", [TopicPartition(topic, 0, 0)]), time.monotonic() + seconds
        while True:
            try:
                (answer,) = self.admin.alter_consumer_group_offsets([wanted])["nobody"].result(30).topic_partitions
                if answer.error is None:
                    return
            except KafkaException:
                pass  # nobody coordinates groups yet
            if time.monotonic() > end:
                raise BrokerError("no group can commit offsets")
            time.sleep(0.1)

    def partitions(self, name: str) -> dict[int, PartitionMetadata]:
        """The partitions of the topic, as the cluster tells them now; none if there is no such topic."""
        known = self.admin.list_topics(timeout=10).topics.get(name)
        return {} if known is None else known.partitions

    def add_partitions(self, name: str, partitions: int) -> int:
        """Gives the topic so many partitions, and returns the number when each has a leader that answers and `produce` knows them."""
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)
        self.wait_for_leaders(name, partitions)
        producer: Any = self._producer  # by itself it asks again only when it must
        end = time.monotonic() + 20
        while producer is not None and len(producer.list_topics(name, timeout=10).topics[name].partitions) < partitions:
            if time.monotonic() > end:
                raise BrokerError(f"the producer does not hear of the new partitions of {name}")
            time.sleep(0.1)
        return partitions

    def configure_topic(self, name: str, config: dict[str, str]) -> None:
        """Sets these settings of the topic."""
        entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def log_range(self, topic: str, partition: int = 0, committed: bool = False) -> tuple[int, int]:
        """(earliest, latest) of a partition; `committed`: latest is the last stable offset."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        at, specs = TopicPartition(topic, partition), (OffsetSpec.earliest(), OffsetSpec.latest())
        end = time.monotonic() + 30
        while True:
            try:
                asked = [self.admin.list_offsets({at: spec}, isolation_level=level)[at] for spec in specs]
                first, last = (answer.result(30).offset for answer in asked)
                return first, last
            except KafkaException:  # elections show in many ways
                if time.monotonic() > end:
                    raise
            self.admin.list_topics(timeout=10)  # the client asks the leader it remembers: let it learn the new one
            time.sleep(0.1)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Returns when all records are acknowledged; BrokerError if one was not. Idempotent: no record is there twice."""
        if self._producer is None:
            unknown_topic = {"topic.metadata.propagation.max.ms": 3000}  # create_topic has waited for the leaders
            self._producer = Producer(
                {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5, **unknown_topic, **QUIET}
            )
        produce_all(self._producer, topic, records)


class KafkaAt(KafkaHandle):
    """A Kafka that somebody else has started, by its address."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap


def produce_all(producer: Producer, topic: str, records: Iterable[Record], seconds: float = 60) -> None:
    """Produces them by this producer and waits for the acknowledgements; BrokerError if one does not come."""
    failures: list[Any] = []
    for key, value, *place in records:
        options = dict(zip(("partition", "timestamp", "headers"), place, strict=False))
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=lambda e, _m: failures.append(e) if e else None, **options)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(seconds)
    if left or failures:
        raise BrokerError(f"{left + len(failures)} records were not acknowledged: {failures[:3]}")

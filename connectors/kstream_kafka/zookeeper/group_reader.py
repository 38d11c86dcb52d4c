"""GroupReader: the records of claimed partitions, a chunk at a time. Kafka knows nothing of the group: partitions are assigned by hand.

Of the connector it uses what the direct stream uses, the workers' consumer and the driver's client; it imports no confluent_kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kstream_kafka.client.params import bulk
from kstream_kafka.client.ports import DriverClient, Partition, RangeConsumer, Settings, Trouble
from kstream_kafka.client.redaction import hidden
from kstream_kafka.errors import KafkaConfigError, KafkaError
from kstream_kafka.reader.decoding import key_values
from kstream_kafka.source.subscription import Topics
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.zookeeper_layout import Offsets

logger = logging.getLogger("kstream.kafka")

WAIT_S = 0.1
"""How long a read waits to be full: what comes slowly is in a block that much later."""

Record: TypeAlias = "tuple[bytes | None, bytes | None]"
"""(key, value) as they are in Kafka."""

_raw = key_values(None, None)


@dataclass(slots=True)
class Chunk:
    """The result of one read."""

    records: list[Record] = field(default_factory=list[Record])
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """The next offset of each partition that has records here."""
    out_of_range: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose position the log does not have. They are not read until they are assigned again."""


def open_reader(settings: ReceiverSettings) -> GroupReader:
    """With clients of its own; asks nobody yet."""
    from kstream_kafka.client.driver_client import KafkaDriverClient
    from kstream_kafka.reader.range_consumer import KafkaRangeConsumer

    return GroupReader(settings, KafkaRangeConsumer, lambda: KafkaDriverClient(settings.params))


class GroupReader:
    """See `Reader`. Clients are made when they are needed first."""

    def __init__(
        self, settings: ReceiverSettings, consumer: Callable[[Settings], RangeConsumer], client: Callable[[], DriverClient]
    ) -> None:  # fmt: skip
        self._settings = settings
        self._make_consumer = consumer
        self._make_client = client
        self._made_consumer: RangeConsumer | None = None
        self._made_client: DriverClient | None = None
        self.positions: dict[Partition, int] = {}

    @property
    def _consumer(self) -> RangeConsumer:
        if self._made_consumer is None:
            settings = bulk(self._settings.params.executor())
            settings["enable.partition.eof"] = "false"  # a stream has no ends
            self._made_consumer = self._make_consumer(settings)
        return self._made_consumer

    @property
    def _client(self) -> DriverClient:
        if self._made_client is None:
            self._made_client = self._make_client()
        return self._made_client

    def partitions(self) -> set[Partition]:
        return self._client.partitions(Topics(tuple(sorted(self._settings.topics))))

    def starts(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        reset = self._settings.params.reset
        if not partitions:
            return {}
        if reset == "error":
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
            raise KafkaConfigError(
                "auto.offset.reset", f"is none, and there is no offset to begin {names} at",
                f"Write offsets into ZooKeeper for group {self._settings.group!r}, or set smallest or largest.",
            )  # fmt: skip
        ends = self._client.earliest(partitions) if reset == "earliest" else self._client.latest(partitions)
        return {partition: end.offset for partition, end in ends.items()}

    def log_range(self, partition: Partition) -> tuple[int | None, int | None]:
        return self._consumer.log_range(*partition)

    def assign(self, positions: Offsets) -> None:
        self.positions = dict(positions)
        if positions:
            self._consumer.assign([(*partition, at, None) for partition, at in sorted(positions.items())])
        elif self._made_consumer is not None:
            self._made_consumer.unassign()

    def read(self, most: int) -> Chunk:
        messages = self._consumer.consume(most, WAIT_S)
        chunk = Chunk()
        events = [m for m in messages if m.error() is not None]
        if events:
            for event in events:
                self._hear(event, chunk)
            messages = [m for m in messages if m.error() is None]
        if messages:
            chunk.offsets = self._ends(messages)
            self.positions.update(chunk.offsets)
            chunk.records = _raw(messages)
        return chunk

    def _ends(self, messages: list[Any]) -> dict[Partition, int]:
        """Behind the last record of each partition. One topic is the rule, and spares a quarter of what a record costs here."""
        if len(self._settings.topics) == 1:
            (topic,) = self._settings.topics
            return {(topic, number): at + 1 for number, at in {m.partition(): m.offset() for m in messages}.items()}
        return {where: at + 1 for where, at in {(m.topic(), m.partition()): m.offset() for m in messages}.items()}

    def _hear(self, event: Any, chunk: Chunk) -> None:
        trouble = self._consumer.trouble(event.error())
        where = (str(event.topic()), int(event.partition()))
        if trouble is Trouble.OUT_OF_RANGE and where in self.positions:
            chunk.out_of_range.append(where)
        elif trouble is Trouble.FATAL:
            said = hidden(str(event.error()))
            raise KafkaError(f"{where[0]}-{where[1]} cannot be read any more: {said}", topic=where[0], partition=where[1], reason=said)

    def close(self) -> None:
        if self._made_consumer is not None:
            self._made_consumer.close()
        if self._made_client is not None:
            self._made_client.close()

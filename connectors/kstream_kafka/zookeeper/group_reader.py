"""GroupReader: the records of claimed partitions, one chunk at a time.

Partitions are assigned by hand, so Kafka knows nothing of the group. The reader uses the workers' consumer and the driver's client of the
direct stream, and imports no confluent_kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from kstream.offsets.offset_range import Partition
from kstream_kafka.client.params import bulk
from kstream_kafka.client.ports import DriverClient, RangeConsumer, Settings
from kstream_kafka.client.renewing_client import renewing_driver_client
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.reader.decoding import key_values
from kstream_kafka.reader.position_reader import PositionReader
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.zookeeper_layout import Offsets

WAIT_S = 0.1
"""Seconds for which a read waits for more records. Records that come slowly enter a block later by this time."""

Record: TypeAlias = "tuple[bytes | None, bytes | None]"
"""Key and value in the bytes that Kafka has."""

_raw = key_values(None, None)


@dataclass(slots=True)
class GroupChunk:
    """The result of one read."""

    records: list[Record] = field(default_factory=list[Record])
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """The next offset of each partition that has records here."""
    out_of_range: list[Partition] = field(default_factory=list[Partition])
    """Partitions whose position lies outside of the log. They are not read until they are assigned again."""
    places: Callable[[], Iterable[tuple[Partition, int]]] = tuple
    """Returns the partition and the offset of each record. They are needed, and made, only where a part of the records is handed on."""


def open_reader(settings: ReceiverSettings) -> GroupReader:
    """Create a reader with its own clients. Sends no request."""
    from kstream_kafka.reader.range_consumer import KafkaRangeConsumer

    return GroupReader(settings, KafkaRangeConsumer, lambda: renewing_driver_client(settings.params))


class GroupReader:
    """Reads the partitions that a group member claims. Used by one thread. Clients are created at their first use."""

    def __init__(
        self, settings: ReceiverSettings, consumer: Callable[[Settings], RangeConsumer], client: Callable[[], DriverClient]
    ) -> None:
        """Create a reader of no partition. Sends no request. `consumer` and `client` make the clients, which `close` closes."""
        self._settings = settings
        self._make_consumer = consumer
        self._make_client = client
        self._made_consumer: RangeConsumer | None = None
        self._made_reader: PositionReader | None = None
        self._made_client: DriverClient | None = None

    @property
    def _reader(self) -> PositionReader:
        """The reader of records; created at the first use, with its consumer."""
        if self._made_reader is None:
            settings = bulk(self._settings.params.executor())
            settings["enable.partition.eof"] = "false"  # a stream has no ends
            self._made_consumer = self._make_consumer(settings)
            self._made_reader = PositionReader(self._made_consumer)
        return self._made_reader

    @property
    def _client(self) -> DriverClient:
        """The client that asks for partitions and offsets; created at the first use."""
        if self._made_client is None:
            self._made_client = self._make_client()
        return self._made_client

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The next offset of each partition that is read."""
        return {} if self._made_reader is None else self._made_reader.positions

    def partitions(self) -> set[Partition]:
        """Return all partitions of the topics. Blocks.

        Raises:
            UnknownTopicError: a topic does not exist.
            BrokerUnreachableError: no broker answers.
        """
        return self._client.partitions(Topics(tuple(sorted(self._settings.topics))))

    def initial_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offsets of `auto.offset.reset` for these partitions. Blocks. Sends no request without partitions.

        Raises:
            KafkaConfigError: `auto.offset.reset` is `none`.
            KafkaError: the brokers do not answer.
        """
        reset = self._settings.params.reset
        if not partitions:
            return {}
        if reset == "error":
            names = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
            hint = f"Write offsets into ZooKeeper for group {self._settings.group!r}, or set smallest or largest."
            raise KafkaConfigError("auto.offset.reset", f"is none, and there is no offset to begin {names} at", hint)
        ends = self._client.earliest(partitions) if reset == "earliest" else self._client.latest(partitions)
        return {partition: end.offset for partition, end in ends.items()}

    def log_range(self, partition: Partition) -> tuple[int | None, int | None]:
        """Return the earliest and the latest offset of a partition, for messages; None for an unknown one. Blocks."""
        return self._reader.log_range(partition)

    def assign(self, positions: Offsets) -> None:
        """Read only these partitions from now on, each from its offset. An empty mapping ends reading."""
        if positions or self._made_reader is not None:
            self._reader.assign(positions)

    def read(self, most: int) -> GroupChunk:
        """Read up to `most` records, and move the positions past them. Blocks for WAIT_S at most.

        Raises:
            KafkaError: a partition cannot be read any more, and a retry cannot help.
        """
        polled = self._reader.poll(most, WAIT_S)
        return GroupChunk(_raw(polled.messages), polled.next_offsets, polled.out_of_range, partial(_places, polled.messages))

    def close(self) -> None:
        if self._made_consumer is not None:
            self._made_consumer.close()
        if self._made_client is not None:
            self._made_client.close()


def _places(messages: list[Any]) -> Iterator[tuple[Partition, int]]:
    """Yield the partition and the offset of each message."""
    for message in messages:
        yield (message.topic(), message.partition()), message.offset()

"""OffsetRange, TopicAndPartition, Broker, KafkaMessageAndMetadata: the values of Spark 2.4's Kafka API, with its names.

All ranges are half-open: `fromOffset` is included, `untilOffset` is excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


def utf8_decoder(s: bytes | None) -> str | None:
    """Decode UTF-8. This is the default decoder of keys and values.

    Args:
        s: bytes, or None.

    Returns:
        The text; None for None.

    Raises:
        UnicodeDecodeError: the bytes are no UTF-8.
    """
    return None if s is None else s.decode("utf-8")


@dataclass(frozen=True, order=True, slots=True)
class TopicAndPartition:
    """One partition of one topic. Equal by value and hashable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
    """

    topic: str
    partition: int


TopicPartition = TopicAndPartition
"""The name of TopicAndPartition in the 0-10 API and in Kafka's clients."""


@dataclass(frozen=True, order=True, slots=True)
class Broker:
    """Host and port of a Kafka broker.

    Attributes:
        host: the host name.
        port: the port.
    """

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records [fromOffset, untilOffset) of one partition. Equal by value and hashable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        fromOffset: the first offset.
        untilOffset: the offset after the last one.

    Example:
        OffsetRange("orders", 0, 100, 200).count()  # 100
    """

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int

    def count(self) -> int:
        """Return the number of offsets. It is also the number of records, unless compaction or transactions left gaps."""
        return self.untilOffset - self.fromOffset

    @property
    def topicAndPartition(self) -> TopicAndPartition:
        """The partition of the range."""
        return TopicAndPartition(self.topic, self.partition)

    def topicPartition(self) -> TopicAndPartition:
        """Return the partition of the range, by its name in the 0-10 API."""
        return TopicAndPartition(self.topic, self.partition)

    @staticmethod
    def create(topic: str, partition: int, fromOffset: int, untilOffset: int) -> OffsetRange:
        """Create a range, like Spark's factory of the same name.

        Args:
            topic: the topic.
            partition: the partition's number.
            fromOffset: the first offset.
            untilOffset: the offset after the last one.

        Returns:
            The range.
        """
        return OffsetRange(topic, partition, fromOffset, untilOffset)

    def to_json(self) -> list[str | int]:
        """Return the stored form, `[topic, partition, from, until]`."""
        return [self.topic, self.partition, self.fromOffset, self.untilOffset]

    @staticmethod
    def from_json(values: Sequence[Any]) -> OffsetRange:
        """Return the range of a stored form.

        Args:
            values: `[topic, partition, from, until]`.

        Raises:
            ValueError: there are not exactly four values, or a number is none.
        """
        topic, partition, from_offset, until_offset = values
        return OffsetRange(str(topic), int(partition), int(from_offset), int(until_offset))

    def __str__(self) -> str:
        return f"OffsetRange(topic: {self.topic}, partition: {self.partition}, range: [{self.fromOffset} -> {self.untilOffset}])"


@runtime_checkable
class HasOffsetRanges(Protocol):
    """An object that has the offset ranges of a batch: a KafkaRDD.

    Example:
        stream.foreachRDD(lambda rdd: print(rdd.offsetRanges()) if isinstance(rdd, HasOffsetRanges) else None)
    """

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the offset ranges that were planned."""
        ...


@runtime_checkable
class CanCommitOffsets(Protocol):
    """An object that commits offsets to Kafka: a direct stream."""

    def commitAsync(self, offsetRanges: Sequence[OffsetRange], callback: Any = None) -> None:
        """Commit the ends of ranges for the consumer group `group.id`. Any thread; returns at once.

        Args:
            offsetRanges: ranges whose records are processed.
            callback: `callback(offsets, error)`, or an object with Java's `onComplete`. None keeps the former callback.
        """
        ...


class KafkaMessageAndMetadata:
    """A Kafka record for a `messageHandler`. Each access to `key` or `message` decodes again.

    A record is pickled with its raw bytes and without its decoders, as in Spark 2.4. An unpickled copy decodes UTF-8.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        offset: the offset.
        timestamp: milliseconds since the epoch; −1 if the record has none.

    Example:
        KafkaUtils.createDirectStream(ssc, ["orders"], kafkaParams, messageHandler=lambda m: (m.offset, m.message))
    """

    __slots__ = ("_keyDecoder", "_rawKey", "_rawMessage", "_valueDecoder", "offset", "partition", "timestamp", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        message: bytes | None,
        timestamp: int = -1,
        keyDecoder: Callable[[Any], Any] | None = utf8_decoder,
        valueDecoder: Callable[[Any], Any] | None = utf8_decoder,
    ) -> None:
        """Create a record.

        Args:
            topic: the topic.
            partition: the partition's number.
            offset: the offset.
            key: the raw key; None if the record has none.
            message: the raw value; None if the record has none.
            timestamp: milliseconds since the epoch; −1 for none.
            keyDecoder: bytes → key; None leaves bytes.
            valueDecoder: bytes → value; None leaves bytes.
        """
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self._rawKey = key
        self._rawMessage = message
        self._keyDecoder = keyDecoder
        self._valueDecoder = valueDecoder

    @property
    def key(self) -> Any:
        """The decoded key. Raises the decoder's errors."""
        return self._rawKey if self._keyDecoder is None else self._keyDecoder(self._rawKey)

    @property
    def message(self) -> Any:
        """The decoded value. Raises the decoder's errors."""
        return self._rawMessage if self._valueDecoder is None else self._valueDecoder(self._rawMessage)

    def __reduce__(self) -> Any:
        raw = (self.topic, self.partition, self.offset, self._rawKey, self._rawMessage, self.timestamp)
        return (KafkaMessageAndMetadata, raw)

    def __repr__(self) -> str:
        return f"KafkaMessageAndMetadata(topic: {self.topic}, partition: {self.partition}, offset: {self.offset}, key and message...)"

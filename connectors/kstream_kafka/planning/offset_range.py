"""OffsetRange, TopicAndPartition, Broker, KafkaMessageAndMetadata: the values of the Kafka API of Spark 2.4, by its names.

Ranges are half-open everywhere: `fromOffset` is read, `untilOffset` is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


def utf8_decoder(s: bytes | None) -> str | None:
    """Decodes UTF-8 bytes; None stays None. The default key and value decoder."""
    return None if s is None else s.decode("utf-8")


@dataclass(frozen=True, order=True, slots=True)
class TopicAndPartition:
    """One partition of one topic. Equal by value and hashable."""

    topic: str
    partition: int


TopicPartition = TopicAndPartition
"""The name in the 0-10 API and in Kafka's own clients."""


@dataclass(frozen=True, order=True, slots=True)
class Broker:
    """Host and port of a Kafka broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [fromOffset, untilOffset) of one partition. Equal by value and hashable."""

    topic: str
    partition: int
    fromOffset: int
    untilOffset: int

    def count(self) -> int:
        """Number of offsets; that of records too, unless compaction or transactions left gaps."""
        return self.untilOffset - self.fromOffset

    @property
    def topicAndPartition(self) -> TopicAndPartition:
        return TopicAndPartition(self.topic, self.partition)

    def topicPartition(self) -> TopicAndPartition:
        """The same, as the 0-10 API spells it."""
        return TopicAndPartition(self.topic, self.partition)

    @staticmethod
    def create(topic: str, partition: int, fromOffset: int, untilOffset: int) -> OffsetRange:
        """Spark's factory of the same name."""
        return OffsetRange(topic, partition, fromOffset, untilOffset)

    def to_json(self) -> list[str | int]:
        """`[topic, partition, from, until]`, the stored form."""
        return [self.topic, self.partition, self.fromOffset, self.untilOffset]

    @staticmethod
    def from_json(values: Sequence[Any]) -> OffsetRange:
        """The inverse of `to_json`. ValueError when it is not four values."""
        topic, partition, from_offset, until_offset = values
        return OffsetRange(str(topic), int(partition), int(from_offset), int(until_offset))

    def __str__(self) -> str:
        return f"OffsetRange(topic: {self.topic}, partition: {self.partition}, range: [{self.fromOffset} -> {self.untilOffset}])"


@runtime_checkable
class HasOffsetRanges(Protocol):
    """What holds the ranges of a batch: a KafkaRDD. `isinstance(rdd, HasOffsetRanges)` tells it from an RDD made of one."""

    def offsetRanges(self) -> list[OffsetRange]: ...


@runtime_checkable
class CanCommitOffsets(Protocol):
    """What commits ranges to Kafka: a direct stream."""

    def commitAsync(self, offsetRanges: Sequence[OffsetRange], callback: Any = None) -> None: ...


class KafkaMessageAndMetadata:
    """A Kafka record as given to a `messageHandler`: `key` and `message` are decoded when asked for.

    `timestamp` is in milliseconds since the epoch, −1 where the record has none. Pickles with its raw bytes; like in Spark 2.4
    the decoders stay behind, and a copy that went through pickle decodes by UTF-8.
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
        return self._rawKey if self._keyDecoder is None else self._keyDecoder(self._rawKey)

    @property
    def message(self) -> Any:
        return self._rawMessage if self._valueDecoder is None else self._valueDecoder(self._rawMessage)

    def __reduce__(self) -> Any:
        raw = (self.topic, self.partition, self.offset, self._rawKey, self._rawMessage, self.timestamp)
        return (KafkaMessageAndMetadata, raw)

    def __repr__(self) -> str:
        return f"KafkaMessageAndMetadata(topic: {self.topic}, partition: {self.partition}, offset: {self.offset}, key and message...)"

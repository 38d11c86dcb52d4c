"""From chunks of Kafka messages to the elements of a stream, a whole chunk at a time.

Four shapes: (key, value) tuples, values only (`messageHandler=value_only`), ConsumerRecords (`consumer_record`), and what any
`messageHandler` makes. The work is done by list comprehensions over a chunk, never by a generator a record: that is most of the speed
of reading in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kstream_kafka.planning.offset_range import KafkaMessageAndMetadata, OffsetRange, utf8_decoder
from kstream_kafka.reader.consumer_record import ConsumerRecord

Decoder = Callable[[Any], Any]
Chunk = list[Any]


def value_only(message: KafkaMessageAndMetadata) -> Any:
    """A messageHandler that keeps the value alone. Given as `messageHandler`, whole chunks are turned into values without
    making a KafkaMessageAndMetadata for each: the quickest way to read."""
    return message.message


def consumer_record(message: KafkaMessageAndMetadata) -> Any:
    """A messageHandler that gives whole ConsumerRecords, as the 0-10 API does; like `value_only` it is applied to chunks."""
    raise TypeError("consumer_record is to be given as messageHandler, not to be called: a KafkaMessageAndMetadata has no headers")


@dataclass(frozen=True)
class Decoding:
    """How messages become elements; pickled into the tasks. A decoder of None leaves the bytes as they are."""

    key_decoder: Decoder | None = utf8_decoder
    value_decoder: Decoder | None = utf8_decoder
    message_handler: Callable[[KafkaMessageAndMetadata], Any] | None = None

    def of_chunk(self, where: OffsetRange) -> Callable[[Chunk], list[Any]]:
        """The function from a chunk of messages of this range to its elements, in order."""
        if self.message_handler is value_only:
            return _values(self.value_decoder)
        if self.message_handler is consumer_record:
            return _consumer_records(self.key_decoder, self.value_decoder, where)
        if self.message_handler is None:
            return key_values(self.key_decoder, self.value_decoder)
        return _handled(self, self.message_handler, where)


TEXT = Decoding()
"""(key, value) of UTF-8."""


def _values(decoder: Decoder | None) -> Callable[[Chunk], list[Any]]:
    if decoder is None:
        return lambda chunk: [m.value() for m in chunk]
    if decoder is utf8_decoder:
        return lambda chunk: [None if (v := m.value()) is None else v.decode() for m in chunk]
    return lambda chunk: [decoder(m.value()) for m in chunk]


def key_values(key: Decoder | None, value: Decoder | None) -> Callable[[Chunk], list[Any]]:
    """From a chunk of messages to (key, value) tuples."""
    if key is None and value is None:
        return lambda chunk: [(m.key(), m.value()) for m in chunk]
    if key is utf8_decoder and value is utf8_decoder:
        return lambda chunk: [
            (None if (k := m.key()) is None else k.decode(), None if (v := m.value()) is None else v.decode()) for m in chunk
        ]
    on_key, on_value = key or _same, value or _same
    return lambda chunk: [(on_key(m.key()), on_value(m.value())) for m in chunk]


def _consumer_records(key: Decoder | None, value: Decoder | None, where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    """librdkafka counts types of timestamps from 1, where Spark counts from 0; 0 is none, and its time is −1."""
    topic, partition, none = where.topic, where.partition, ()
    new, record = tuple.__new__, ConsumerRecord  # what the class's own constructor does, without its call

    def undecoded(chunk: Chunk) -> list[Any]:
        return [
            new(record, (topic, partition, m.offset(), (t := m.timestamp())[1], t[0] - 1, m.key(), m.value(),
                         tuple(h) if (h := m.headers()) else none, m.leader_epoch()))
            for m in chunk
        ]  # fmt: skip

    def decoded(chunk: Chunk) -> list[Any]:
        kind = type(chunk[0])
        keys, values = _column(key, map(kind.key, chunk)), _column(value, map(kind.value, chunk))
        return [
            new(record, (topic, partition, m.offset(), (t := m.timestamp())[1], t[0] - 1, k, v,
                         tuple(h) if (h := m.headers()) else none, m.leader_epoch()))
            for m, k, v in zip(chunk, keys, values, strict=True)
        ]  # fmt: skip

    return undecoded if key is None and value is None else decoded


def _column(decoder: Decoder | None, raw: Iterable[bytes | None]) -> Iterable[Any]:
    """Keys or values of a chunk, decoded."""
    if decoder is None:
        return raw
    if decoder is utf8_decoder:
        return [None if v is None else v.decode() for v in raw]
    return map(decoder, raw)


def _handled(decoding: Decoding, handler: Callable[[KafkaMessageAndMetadata], Any], where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    topic, partition = where.topic, where.partition
    key_decoder, value_decoder, record = decoding.key_decoder, decoding.value_decoder, KafkaMessageAndMetadata
    return lambda chunk: [
        handler(record(topic, partition, m.offset(), m.key(), m.value(), m.timestamp()[1], key_decoder, value_decoder)) for m in chunk
    ]


def _same(raw: bytes | None) -> bytes | None:
    return raw

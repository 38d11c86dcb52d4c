"""From chunks of Kafka messages to the elements of a stream, a whole chunk at a time.

Three shapes: (key, value) tuples, values only (`messageHandler=value_only`), and any `messageHandler`. The work is done by list
comprehensions over a chunk, never by a generator a record: that is most of the speed of reading in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream_kafka.offset_range import KafkaMessageAndMetadata, OffsetRange, utf8_decoder

Decoder = Callable[[Any], Any]
Chunk = list[Any]


def value_only(message: KafkaMessageAndMetadata) -> Any:
    """A messageHandler that keeps the value alone. Given as `messageHandler`, whole chunks are turned into values without
    making a KafkaMessageAndMetadata for each: the quickest way to read."""
    return message.message


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
        if self.message_handler is None:
            return _key_values(self.key_decoder, self.value_decoder)
        return _handled(self, self.message_handler, where)


def _values(decoder: Decoder | None) -> Callable[[Chunk], list[Any]]:
    if decoder is None:
        return lambda chunk: [m.value() for m in chunk]
    if decoder is utf8_decoder:
        return lambda chunk: [None if (v := m.value()) is None else v.decode() for m in chunk]
    return lambda chunk: [decoder(m.value()) for m in chunk]


def _key_values(key: Decoder | None, value: Decoder | None) -> Callable[[Chunk], list[Any]]:
    if key is None and value is None:
        return lambda chunk: [(m.key(), m.value()) for m in chunk]
    if key is utf8_decoder and value is utf8_decoder:
        return lambda chunk: [
            (None if (k := m.key()) is None else k.decode(), None if (v := m.value()) is None else v.decode()) for m in chunk
        ]
    on_key, on_value = key or _same, value or _same
    return lambda chunk: [(on_key(m.key()), on_value(m.value())) for m in chunk]


def _handled(decoding: Decoding, handler: Callable[[KafkaMessageAndMetadata], Any], where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    topic, partition = where.topic, where.partition
    key_decoder, value_decoder, record = decoding.key_decoder, decoding.value_decoder, KafkaMessageAndMetadata
    return lambda chunk: [
        handler(record(topic, partition, m.offset(), m.key(), m.value(), m.timestamp()[1], key_decoder, value_decoder)) for m in chunk
    ]


def _same(raw: bytes | None) -> bytes | None:
    return raw

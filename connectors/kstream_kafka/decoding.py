"""From chunks of Kafka messages to the elements of a stream, a whole chunk at a time.

Four shapes: (key, value) tuples, values only (`messageHandler=value_only`), ConsumerRecords (`consumer_record`), and what any
`messageHandler` makes. The work is done by list
comprehensions over a chunk, never by a generator a record: that is most of the speed of reading in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream_kafka.offset_range import KafkaMessageAndMetadata, OffsetRange, utf8_decoder
from kstream_kafka.records import ConsumerRecord

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
            return _key_values(self.key_decoder, self.value_decoder)
        return _handled(self, self.message_handler, where)


TEXT = Decoding()
"""(key, value) of UTF-8."""


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


def _consumer_records(key: Decoder | None, value: Decoder | None, where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    topic, partition, none = where.topic, where.partition, ()
    on_key, on_value = _none_stays(key), _none_stays(value)
    new, record = tuple.__new__, ConsumerRecord  # what the class's own constructor does, without its call

    def of_chunk(chunk: Chunk) -> list[Any]:
        made: list[Any] = []
        add = made.append
        for m in chunk:
            kind, stamp = m.timestamp()
            headers = m.headers()
            add(new(record, (
                topic, partition, m.offset(), stamp if kind else -1, kind - 1, on_key(m.key()), on_value(m.value()),
                tuple(headers) if headers else none, m.leader_epoch(),
            )))  # fmt: skip
        return made

    return of_chunk


def _none_stays(decoder: Decoder | None) -> Decoder:
    """The decoder to call for each record; UTF-8 without the detour over our own function."""
    if decoder is None:
        return _same
    return _utf8 if decoder is utf8_decoder else decoder


def _utf8(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _handled(decoding: Decoding, handler: Callable[[KafkaMessageAndMetadata], Any], where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    topic, partition = where.topic, where.partition
    key_decoder, value_decoder, record = decoding.key_decoder, decoding.value_decoder, KafkaMessageAndMetadata
    return lambda chunk: [
        handler(record(topic, partition, m.offset(), m.key(), m.value(), m.timestamp()[1], key_decoder, value_decoder)) for m in chunk
    ]


def _same(raw: bytes | None) -> bytes | None:
    return raw

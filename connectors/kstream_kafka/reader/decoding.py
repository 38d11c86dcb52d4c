"""ConsumerRecord: a Kafka record of the 0-10 API, as a named tuple.

From chunks of Kafka messages to the elements of a stream, a whole chunk at a time.

Four shapes: (key, value) tuples, values only (`messageHandler=value_only`), ConsumerRecords (`consumer_record`), and what any
`messageHandler` makes. The work is done by list comprehensions over a chunk, never by a generator a record: that is most of the speed
of reading in Python.

Java's deserialisers by class name, for parameters taken over from a Java or Scala job. Pure.

`key.deserializer` and `value.deserializer` of the 0-10 form may name one of Kafka's own; anything else is the user's code, which has
no meaning here: a decoder must be given instead. Kafka's numbers are big-endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.offset_range import KafkaMessageAndMetadata, OffsetRange, utf8_decoder


class ConsumerRecord(NamedTuple):
    """One record. `key` and `value` are decoded as the stream says, None where the record has none.

    `timestamp` is ms since the epoch (−1: none); `timestampType` is 0 for CreateTime, 1 for LogAppendTime, −1 for none. `headers`
    are (name, bytes or None) pairs in their order, empty when there are none. `leaderEpoch` is None where the broker did not say.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leaderEpoch: int | None


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


def short(raw: bytes | None) -> int | None:
    return None if raw is None else struct.unpack(">h", raw)[0]


def integer(raw: bytes | None) -> int | None:
    return None if raw is None else struct.unpack(">i", raw)[0]


def long(raw: bytes | None) -> int | None:
    return None if raw is None else struct.unpack(">q", raw)[0]


def single(raw: bytes | None) -> float | None:
    return None if raw is None else struct.unpack(">f", raw)[0]


def double(raw: bytes | None) -> float | None:
    return None if raw is None else struct.unpack(">d", raw)[0]


def uuid_text(raw: bytes | None) -> uuid.UUID | None:
    return None if raw is None else uuid.UUID(raw.decode())


_KNOWN: dict[str, Decoder | None] = {
    "StringDeserializer": utf8_decoder, "ByteArrayDeserializer": None, "BytesDeserializer": None, "ByteBufferDeserializer": None,
    "ShortDeserializer": short, "IntegerDeserializer": integer, "LongDeserializer": long, "FloatDeserializer": single,
    "DoubleDeserializer": double, "UUIDDeserializer": uuid_text, "VoidDeserializer": lambda _raw: None,
}  # fmt: skip


def decoder(given: Mapping[str, Any], key: str, chosen: Decoder | None) -> Decoder | None:
    """The decoder that parameter `key` names; `chosen` if it is not there, or if the user chose another than the default.

    KafkaConfigError for a class that is not Kafka's own.
    """
    name = given.get(key)
    if name is None or chosen is not utf8_decoder:
        return chosen
    text = str(name)
    if text.rpartition(".")[2] not in _KNOWN:
        raise KafkaConfigError(key, f"names {text}, a Java class", "Give keyDecoder or valueDecoder, a Python function of the bytes.")
    return _KNOWN[text.rpartition(".")[2]]

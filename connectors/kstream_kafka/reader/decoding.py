"""Decoding: it turns Kafka messages into the elements of a stream, a whole chunk at a time.

There are four kinds of elements: (key, value) tuples, values (`messageHandler=value_only`), ConsumerRecords (`consumer_record`), and the
results of any other `messageHandler`. List comprehensions over a chunk do the work, and no generator runs for each record. This is most of
the speed of reading in Python.

Parameters from a Java or Scala job name deserialisers by their Java classes. In the 0-10 form, `key.deserializer` and `value.deserializer`
may name Kafka's own classes. Any other class is the user's Java code, and the user must give a decoder instead. Kafka's deserialisers of
numbers are big-endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kstream.offsets.offset_range import OffsetRange
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.reader.headers import headers_of


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


class ConsumerRecord(NamedTuple):
    """A Kafka record of the 0-10 API.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        offset: the offset.
        timestamp: milliseconds since the epoch; −1 if the record has none.
        timestampType: 0 for CreateTime, 1 for LogAppendTime, −1 if the record has no timestamp.
        key: the key, decoded by the stream's decoder; None if the record has none.
        value: the value, decoded by the stream's decoder; None if the record has none.
        headers: (name, bytes or None) pairs in their order; empty if there are none.
        leaderEpoch: the leader epoch; None if the broker did not send it.
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


Decoder: TypeAlias = Callable[[Any], Any]
"""A function from the bytes of a key or value, or None, to the decoded object."""
Chunk: TypeAlias = list[Any]
"""Messages of confluent_kafka."""


def value_only(message: KafkaMessageAndMetadata) -> Any:
    """A messageHandler that returns only the decoded value. With it, reading is fastest.

    The stream does not call this function for each record. It recognises the function and decodes the values of whole chunks.

    Args:
        message: a record.

    Returns:
        The record's decoded value.

    Example:
        KafkaUtils.createDirectStream(ssc, ["orders"], kafkaParams, messageHandler=value_only)
    """
    return message.message


def consumer_record(message: KafkaMessageAndMetadata) -> Any:
    """A messageHandler that makes the elements ConsumerRecords, as in the 0-10 API. The stream recognises it and never calls it.

    Args:
        message: a record.

    Raises:
        TypeError: always, because a KafkaMessageAndMetadata has no headers.

    Example:
        KafkaUtils.createDirectStream(ssc, ["orders"], kafkaParams, messageHandler=consumer_record)
    """
    raise TypeError("consumer_record is to be given as messageHandler, not to be called: a KafkaMessageAndMetadata has no headers")


@dataclass(frozen=True)
class Decoding:
    """The decoders and the handler that make elements from messages. Immutable; pickled into the tasks.

    Attributes:
        key_decoder: bytes → key; None leaves bytes.
        value_decoder: bytes → value; None leaves bytes.
        message_handler: KafkaMessageAndMetadata → element; None for (key, value) tuples.
    """

    key_decoder: Decoder | None = utf8_decoder
    value_decoder: Decoder | None = utf8_decoder
    message_handler: Callable[[KafkaMessageAndMetadata], Any] | None = None

    def of_chunk(self, where: OffsetRange) -> Callable[[Chunk], list[Any]]:
        """Return the function that turns a chunk of messages of a range into the list of their elements, in order.

        Errors of the user's decoders and handler come from that function.

        Args:
            where: the range. Only its topic and partition are used.
        """
        if self.message_handler is value_only:
            return _values(self.value_decoder)
        if self.message_handler is consumer_record:
            return _consumer_records(self.key_decoder, self.value_decoder, where)
        if self.message_handler is None:
            return key_values(self.key_decoder, self.value_decoder)
        return _handled(self, self.message_handler, where)


TEXT = Decoding()
"""The default: (key, value) tuples, decoded as UTF-8."""


def _values(decoder: Decoder | None) -> Callable[[Chunk], list[Any]]:
    """Return the function from a chunk of messages to their decoded values."""
    if decoder is None:
        return lambda chunk: [m.value() for m in chunk]
    if decoder is utf8_decoder:
        return lambda chunk: [None if (v := m.value()) is None else v.decode() for m in chunk]
    return lambda chunk: [decoder(m.value()) for m in chunk]


def key_values(key: Decoder | None, value: Decoder | None) -> Callable[[Chunk], list[Any]]:
    """Return the function from a chunk of messages to (key, value) tuples.

    Args:
        key: the decoder of keys; None leaves bytes.
        value: the decoder of values; None leaves bytes.
    """
    if key is None and value is None:
        return lambda chunk: [(m.key(), m.value()) for m in chunk]
    if key is utf8_decoder and value is utf8_decoder:
        return lambda chunk: [
            (None if (k := m.key()) is None else k.decode(), None if (v := m.value()) is None else v.decode()) for m in chunk
        ]
    on_key, on_value = key or _same, value or _same
    return lambda chunk: [(on_key(m.key()), on_value(m.value())) for m in chunk]


def _consumer_records(key: Decoder | None, value: Decoder | None, where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    """Return the function from a chunk of messages, which must not be empty, to ConsumerRecords.

    librdkafka counts the types of timestamps from 1, and Spark from 0. librdkafka's 0 means no timestamp, with the time −1.
    """
    topic, partition, none = where.topic, where.partition, ()
    new, record = tuple.__new__, ConsumerRecord  # the same as a call of the constructor, and faster

    def undecoded(chunk: Chunk) -> list[Any]:
        return [
            new(
                record,
                (
                    topic,
                    partition,
                    m.offset(),
                    (t := m.timestamp())[1],
                    t[0] - 1,
                    m.key(),
                    m.value(),
                    tuple(h) if h else none,
                    m.leader_epoch(),
                ),
            )
            for m, h in zip(chunk, headers_of(chunk), strict=True)
        ]

    def decoded(chunk: Chunk) -> list[Any]:
        kind = type(chunk[0])
        keys, values = _column(key, map(kind.key, chunk)), _column(value, map(kind.value, chunk))
        return [
            new(
                record,
                (
                    topic,
                    partition,
                    m.offset(),
                    (t := m.timestamp())[1],
                    t[0] - 1,
                    k,
                    v,
                    tuple(h) if h else none,
                    m.leader_epoch(),
                ),
            )
            for m, k, v, h in zip(chunk, keys, values, headers_of(chunk), strict=True)
        ]

    return undecoded if key is None and value is None else decoded


def _column(decoder: Decoder | None, raw: Iterable[bytes | None]) -> Iterable[Any]:
    """Return the decoded keys or values of a chunk."""
    if decoder is None:
        return raw
    if decoder is utf8_decoder:
        return [None if v is None else v.decode() for v in raw]
    return map(decoder, raw)


def _handled(decoding: Decoding, handler: Callable[[KafkaMessageAndMetadata], Any], where: OffsetRange) -> Callable[[Chunk], list[Any]]:
    """Return the function that calls the user's handler with each message of a chunk, as a KafkaMessageAndMetadata."""
    topic, partition = where.topic, where.partition
    key_decoder, value_decoder, record = decoding.key_decoder, decoding.value_decoder, KafkaMessageAndMetadata
    return lambda chunk: [
        handler(record(topic, partition, m.offset(), m.key(), m.value(), m.timestamp()[1], key_decoder, value_decoder)) for m in chunk
    ]


def _same(raw: bytes | None) -> bytes | None:
    return raw


def _short(raw: bytes | None) -> int | None:
    """Decode a number of 16 bits, big-endian; None for None."""
    return None if raw is None else struct.unpack(">h", raw)[0]


def _integer(raw: bytes | None) -> int | None:
    """Decode a number of 32 bits, big-endian; None for None."""
    return None if raw is None else struct.unpack(">i", raw)[0]


def _long(raw: bytes | None) -> int | None:
    """Decode a number of 64 bits, big-endian; None for None."""
    return None if raw is None else struct.unpack(">q", raw)[0]


def _single(raw: bytes | None) -> float | None:
    """Decode a floating-point number of 32 bits, big-endian; None for None."""
    return None if raw is None else struct.unpack(">f", raw)[0]


def _double(raw: bytes | None) -> float | None:
    """Decode a floating-point number of 64 bits, big-endian; None for None."""
    return None if raw is None else struct.unpack(">d", raw)[0]


def _uuid(raw: bytes | None) -> uuid.UUID | None:
    """Decode the text of a UUID; None for None."""
    return None if raw is None else uuid.UUID(raw.decode())


_KNOWN: dict[str, Decoder | None] = {
    "StringDeserializer": utf8_decoder,
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "ShortDeserializer": _short,
    "IntegerDeserializer": _integer,
    "LongDeserializer": _long,
    "FloatDeserializer": _single,
    "DoubleDeserializer": _double,
    "UUIDDeserializer": _uuid,
    "VoidDeserializer": lambda _raw: None,
}


def decoder_of(given: Mapping[str, Any], key: str, chosen: Decoder | None) -> Decoder | None:
    """Return the decoder of a deserialiser parameter; `chosen` if the parameter is not given.

    Args:
        given: the user's parameters.
        key: `key.deserializer` or `value.deserializer`.
        chosen: the decoder that the user gave. It wins unless it is the default, `utf8_decoder`.

    Returns:
        The decoder; None leaves bytes.

    Raises:
        KafkaConfigError: the class is not Kafka's own.
    """
    name = given.get(key)
    if name is None or chosen is not utf8_decoder:
        return chosen
    text = str(name)
    if text.rpartition(".")[2] not in _KNOWN:
        decoder = "keyDecoder" if key.startswith("key.") else "valueDecoder"
        hint = f"Leave it out and give {decoder}, a Python function of the bytes."
        if "Avro" in text or "Protobuf" in text or "JsonSchema" in text:
            hint += " For Avro this is a kstream_kafka.AvroDeserializer: docs/schema-registry.md."
        raise KafkaConfigError(key, f"names {text}, a Java class that Python workers cannot call", hint)
    return _KNOWN[text.rpartition(".")[2]]

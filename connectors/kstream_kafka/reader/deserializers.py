"""Java's deserialisers by class name, for parameters taken over from a Java or Scala job. Pure.

`key.deserializer` and `value.deserializer` of the 0-10 form may name one of Kafka's own; anything else is the user's code, which has
no meaning here: a decoder must be given instead. Kafka's numbers are big-endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.offset_range import utf8_decoder

Decoder = Callable[[Any], Any]


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

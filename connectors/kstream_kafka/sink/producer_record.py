"""ProducerRecord: a record that is to be written to Kafka, and how a record of a stream becomes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.ports import Encoded, Headers
from kstream_kafka.errors import RecordTooLargeError

OVERHEAD = 92
"""The most bytes of a record in a batch of its own, besides key, value and headers: 61 of the batch, 21 of the record, 10 of lengths."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to write, as that of the Java client. `saveToKafka` takes it in place of its functions.

    Attributes:
        topic: its topic.
        value: its value. A text becomes UTF-8; None is a tombstone.
        key: its key, in the same forms; None for none.
        headers: name and value of each header.
        partition: its partition; None for that of its key.
        timestamp: milliseconds since the Unix epoch; None for now.
    """

    topic: str
    value: bytes | str | None = None
    key: bytes | str | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class RecordEncoder:
    """Makes what is written of the records of a stream. Pickled into the tasks.

    Attributes:
        output: the name of the output, for messages.
        topic: the topic; None if each record is a ProducerRecord.
        key, value, headers, partition: functions of the user; None for what the record itself has.
        most_bytes: a larger record is refused, here and not by the brokers, where it would fail all records of the task.
    """

    output: str
    topic: str | None
    key: Callable[[Any], Any] | None = None
    value: Callable[[Any], Any] | None = None
    headers: Callable[[Any], Any] | None = None
    partition: Callable[[Any], Any] | None = None
    most_bytes: int = 1_048_576

    def __call__(self, record: Any) -> Encoded:
        """Return what is written of a record.

        Raises:
            TypeError: a key or a value is neither bytes nor text.
            ValueError: the record has no topic.
            RecordTooLargeError: it has more bytes than allowed.
        """
        if isinstance(record, ProducerRecord):
            topic, own_key, own_value = record.topic, record.key, record.value
            headers, partition, timestamp = record.headers, record.partition, record.timestamp
        else:
            topic, headers, partition, timestamp = self.topic, (), None, None
            own_key, own_value = record if type(record) is tuple and len(record) == 2 else (None, record)
        if topic is None:
            raise ValueError(f"output {self.output}: no topic is given, so each record must be a ProducerRecord; this is a {_kind(record)}")
        key = self._bytes("key", own_key if self.key is None else self.key(record))
        value = self._bytes("value", own_value if self.value is None else self.value(record))
        if self.headers is not None:
            headers = self.headers(record)
        if self.partition is not None:
            partition = self.partition(record)
        size = OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
        if headers:
            size += sum(len(name) + len(content or b"") for name, content in headers)
        if size > self.most_bytes:
            raise RecordTooLargeError(self.output, topic, size, self.most_bytes)
        return topic, key, value, headers, partition, timestamp

    def _bytes(self, part: str, found: Any) -> bytes | None:
        if found is None or type(found) is bytes:
            return found
        if isinstance(found, str):
            return found.encode()
        if isinstance(found, (bytes, bytearray, memoryview)):
            return bytes(found)
        raise TypeError(
            f"output {self.output}: the {part} of a record is a {_kind(found)}. Give bytes or text: saveToKafka(…, {part}=lambda record: …)"
        )


def _kind(value: object) -> str:
    return type(value).__name__

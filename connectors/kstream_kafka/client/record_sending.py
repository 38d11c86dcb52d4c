"""The producers of the sink: `send_all` adds records, and IdempotentProducer writes records at least once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from kstream_kafka.client.librdkafka import LastClientError, new_client, text_of
from kstream_kafka.client.ports import Encoded, Settings
from kstream_kafka.client.redaction import Properties
from kstream_kafka.errors import KafkaError

FLUSH_S = 130.0
"""Seconds that a flush waits: longer than `message.timeout.ms`, so that each record has had its answer."""
MESSAGE_MS = 120_000


def send(producer: Any, record: Encoded, on_delivery: Callable[[Any, Any], None] | None = None) -> None:
    """Add a record to the queue of a producer. Blocks while the queue is full.

    Args:
        producer: a producer of confluent_kafka.
        record: the record. Without a partition its key chooses one, as with the Java client.
        on_delivery: called within a later call of the producer with error and message.

    Raises:
        KafkaException: the producer cannot take the record.
    """
    topic, key, value, headers, partition, timestamp = record
    more: dict[str, Any] = {}
    if headers:
        more["headers"] = list(headers)
    if partition is not None:
        more["partition"] = partition
    if timestamp is not None:
        more["timestamp"] = timestamp
    if on_delivery is not None:
        more["on_delivery"] = on_delivery
    while True:
        try:
            producer.produce(topic, value, key, **more)
            return
        except BufferError:
            producer.poll(0.1)


def send_all(producer: Any, records: Iterable[Encoded], failed: Callable[[str, ClientError], KafkaError]) -> None:
    """Add records to the queue of a producer. Blocks while the queue is full.

    Args:
        producer: a producer of confluent_kafka.
        records: the records.
        failed: failed(topic, error) returns the error to raise for a record that the producer cannot take.
    """
    produce = producer.produce  # most records have neither headers nor a partition of their own: for them this is the whole cost
    for record in records:
        topic, key, value, headers, partition, timestamp = record
        try:
            if headers or partition is not None or timestamp is not None:
                send(producer, record)
                continue
            try:
                produce(topic, value, key)
            except BufferError:
                send(producer, record)
        except KafkaException as e:
            raise failed(topic, e.args[0]) from e


def too_large(topic: str, reason: str) -> KafkaError:
    """Return the error for a batch of records that the brokers refuse for its size. `topic`: "" if it is not known."""
    of = f" for {topic}" if topic else ""
    return KafkaError(
        f"a batch of records{of} is larger than the topic allows ({reason.rstrip('.')}). The client does not divide it: set batch.size "
        "below max.message.bytes of the topic, or raise that",
        topic=topic,
        reason=reason,
    )


class IdempotentProducer:
    """Writes records, each at least once. Not thread-safe. Its client is kept for many tasks, until a record has failed."""

    def __init__(self, settings: Settings) -> None:
        """Create the producer. Sends nothing.

        Args:
            settings: complete producer properties.

        Raises:
            KafkaConfigError: librdkafka refuses a property.
        """
        self._failures: list[str] = []
        self._last_error = LastClientError()
        self._producer: Any = new_client(
            Producer,
            Properties(
                {
                    "message.timeout.ms": MESSAGE_MS,
                    **settings,
                    "delivery.report.only.error": True,
                    "on_delivery": self._on_delivery,
                    "error_cb": self._last_error.note,
                }
            ),
        )

    def send_all(self, records: Iterable[Encoded]) -> None:
        """Add records. Blocks while the queue is full. KafkaError if the producer cannot take one of them."""
        send_all(self._producer, records, lambda topic, error: self._failed(topic, text_of(error)))

    def flush(self) -> None:
        """Wait until each record is stored. KafkaError if one of them is not."""
        unanswered = self._producer.flush(FLUSH_S)
        if self._failures:
            raise KafkaError(self._failures[0])
        if unanswered:
            raise KafkaError(f"{unanswered} records have had no answer: {self._last_error.text}")

    def _on_delivery(self, error: Any, message: Any) -> None:
        reason = text_of(error)
        is_large = error.code() == ClientError.MSG_SIZE_TOO_LARGE
        self._failures.append((too_large if is_large else self._failed)(message.topic(), reason).message)

    def _failed(self, topic: str, reason: str) -> KafkaError:
        return KafkaError(f"{topic}: a record was not written: {reason}{self._last_error.because}", topic=topic, reason=reason)

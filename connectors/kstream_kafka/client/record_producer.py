"""RecordProducer: an idempotent producer that tells which of its records were not stored.

Dead letters and the records of `kstream produce` are written with it.

A broker that finds a batch of records larger than the topic allows refuses all of them. The client does not split the batch, as Java's
does. So its records are sent once more, by a second producer whose batches have one record. Only a record that is too large alone fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from kstream_kafka.client.librdkafka import UNKNOWN_TOPIC, LastClientError, new_client, text_of
from kstream_kafka.client.ports import Settings
from kstream_kafka.client.redaction import Properties
from kstream_kafka.errors import KafkaError, create_command

FLUSH_S = 70.0
"""Seconds that a flush waits: longer than `message.timeout.ms`, so that each record has had its answer."""


def store(producer: RecordProducer, topic: str, key: bytes, value: bytes, partitions: Collection[int], failed: str) -> dict[int, int]:
    """Write a record to each of these partitions, and wait until all replicas have it. Blocks. `failed`: the clause of the error.

    Returns:
        partition → the offset of the record.

    Raises:
        KafkaError: a record was not stored. `reason` says why.
    """
    failures: list[str] = []
    offsets: dict[int, int] = {}
    for partition in sorted(partitions):
        producer.send(topic, key, value, (), failures.append, partition, lambda stored, offset: offsets.update({stored: offset}))
    producer.flush()
    if offsets.keys() != set(partitions):
        reason = failures[0] if failures else f"{topic} has not answered"
        raise KafkaError(f"{failed}: {reason}", reason=reason)
    return offsets


class RecordProducer:
    """A producer of one process. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        """Create the producer. Sends nothing.

        Args:
            settings: complete producer properties, from `KafkaParams.producer`.

        Raises:
            KafkaConfigError: librdkafka refuses a property.
            AuthenticationFailedError: `oauth_cb` returned no token.
        """
        self._bootstrap = str(settings.get("bootstrap.servers", ""))
        self._last_error = LastClientError()
        self._settings = Properties({**settings, "error_cb": self._last_error.note})
        self._producer = new_client(Producer, self._settings)
        self._one_by_one: Producer | None = None
        """The producer whose batches have one record; None before the first batch that is too large."""

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        on_failure: Callable[[str], None],
        partition: int | None = None,
        on_stored: Callable[[int, int], None] | None = None,
    ) -> None:
        """Send a record, with the timestamp of now. Blocks only while the queue of the producer is full.

        Args:
            topic: its topic.
            key: its key.
            value: its value.
            headers: its headers.
            on_failure: called within `send` or `flush` with the reason, if the record was not stored.
            partition: its partition; None for that of its key.
            on_stored: called within `send` or `flush` with partition and offset, once all replicas have the record.
        """
        where: dict[str, Any] = {} if partition is None else {"partition": partition}

        def produce(producer: Producer, is_alone: bool, key: bytes | None, value: bytes | None) -> None:
            def answered(error: Any, message: Any) -> None:
                if error is None:
                    if on_stored is not None:
                        on_stored(message.partition(), message.offset())
                elif error.code() == ClientError.MSG_SIZE_TOO_LARGE and not is_alone:
                    produce(self._producer_one_by_one(), True, message.key(), message.value())
                else:
                    on_failure(self._reason(error, topic, partition is not None))

            until = time.monotonic() + FLUSH_S
            while True:
                try:
                    producer.produce(topic, value, key, headers=list(headers), on_delivery=answered, **where)
                    producer.poll(0)
                    return
                except BufferError:  # the queue is full
                    if time.monotonic() > until:
                        on_failure(f"{topic}: the queue of the producer stays full. {self._last_error.text}")
                        return
                    producer.poll(0.1)
                except KafkaException as e:
                    on_failure(self._reason(e.args[0], topic, partition is not None))
                    return

        produce(self._producer, False, key, value)

    def flush(self, seconds: float = FLUSH_S) -> int:
        """Wait until every record has had its answer; return how many have none. Blocks for so many seconds at most."""
        until = time.monotonic() + seconds
        unanswered = self._producer.flush(seconds)
        if self._one_by_one is not None:
            unanswered += self._one_by_one.flush(max(0.0, until - time.monotonic()))
        return unanswered

    def _producer_one_by_one(self) -> Producer:
        """Return the producer whose batches have one record. The first call creates it."""
        producer = self._one_by_one or new_client(Producer, Properties({**self._settings, "batch.num.messages": 1}))
        self._one_by_one = producer
        return producer

    def _reason(self, error: Any, topic: str, is_placed: bool) -> str:
        """Return why a record of a topic was not stored, with what to do. `is_placed`: its partition was given."""
        code, said = error.code(), text_of(error)
        if code in (ClientError.TOPIC_AUTHORIZATION_FAILED, ClientError.CLUSTER_AUTHORIZATION_FAILED):
            hint = "Allow it the operation WRITE on the topic"
            return f"{topic}: Kafka at {self._bootstrap} does not let this user write to it ({said}). {hint}"
        if code in UNKNOWN_TOPIC:
            if is_placed:
                hint = "Create the topic, with at least as many partitions as the records name"
                return f"{topic}: Kafka at {self._bootstrap} has no such topic or partition ({said}). {hint}"
            return f"{topic}: Kafka at {self._bootstrap} has no such topic ({said}). Create it: {create_command(topic, self._bootstrap)}"
        if code == ClientError.MSG_SIZE_TOO_LARGE:
            return f"{topic}: the record with its headers is too large ({said}). Raise max.message.bytes of the topic"
        return f"{topic}: Kafka at {self._bootstrap} did not store it: {said}{self._last_error.because}"

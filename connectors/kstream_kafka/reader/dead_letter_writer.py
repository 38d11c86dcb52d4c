"""KafkaDeadLetters: the dead-letter topic of a stream, as the tasks of a batch write it. Its producer is kept in the worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Time
from kstream.errors import DeadLetterNotStoredError
from kstream.worker.process import drop, once
from kstream.worker.record_failure import RecordFailure
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.dead_letter import WITHOUT_HEADERS, Origin, error_headers
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.reader.headers import headers_of

if TYPE_CHECKING:
    from kstream_kafka.client.record_producer import RecordProducer


@dataclass(frozen=True)
class KafkaDeadLetters:
    """The dead letters of one batch. Immutable; pickled into the tasks.

    Attributes:
        settings: complete producer properties.
        topic: the dead-letter topic.
        application: the name of the Spark application.
        batch_ms: the batch time, in ms.
    """

    settings: Mapping[str, Any]
    topic: str
    application: str
    batch_ms: int

    def open(self, task: int) -> KafkaDeadLetterWriter:
        """Return the writer of a task. The first one of a process creates its producer.

        Raises:
            KafkaError: the producer cannot be created.
        """
        key = ("dead letters", settings_key(self.settings))
        return KafkaDeadLetterWriter(
            once(key, self._producer), self.topic, Origin(self.application, task, self.batch_ms), lambda: drop(key)
        )

    def _producer(self) -> RecordProducer:
        from kstream_kafka.client.record_producer import RecordProducer  # imported late: only a task with a poison record needs it

        return RecordProducer(self.settings)


def dead_letters(params: KafkaParams, topic: str | None, application: str, time: Time) -> KafkaDeadLetters | None:
    """Return the dead letters of a batch; None without a topic.

    Args:
        params: the user's Kafka parameters. The topic is on the brokers that the stream reads.
        topic: the dead-letter topic.
        application: the name of the Spark application.
        time: the batch time.
    """
    return None if topic is None else KafkaDeadLetters(params.producer(), topic, application, time.milliseconds)


class KafkaDeadLetterWriter:
    """Writes the dead letters of one task. One thread, that of the task."""

    def __init__(self, producer: RecordProducer, topic: str, origin: Origin, on_failure: Callable[[], None]) -> None:
        """
        Args:
            producer: the producer of this process.
            topic: the dead-letter topic.
            origin: the application, the task and the batch.
            on_failure: called when records were not stored: the producer may be the cause, and the next task should have another one.
        """
        self._producer = producer
        self._topic = topic
        self._origin = origin
        self._on_failure = on_failure
        self._failures: list[str] = []

    def write(self, failure: RecordFailure) -> None:
        """Send the record of a failure with its error. Its timestamp is that of now, so that retention does not remove it early.

        A record whose headers the client cannot read is sent without them, and says so.
        """
        message = failure.record.raw
        errors = error_headers(failure, self._origin)
        try:
            own = headers_of([message])[0] or ()
        except ValueError:
            own, errors = (), [*errors, WITHOUT_HEADERS]
        self._producer.send(self._topic, message.key(), message.value(), [*own, *errors], self._failures.append)

    def flush(self) -> None:
        """Block until all letters are stored. DeadLetterNotStoredError if one of them is not."""
        unanswered = self._producer.flush()
        if not unanswered and not self._failures:
            return
        self._on_failure()
        reason = self._failures[0] if self._failures else f"{self._topic}: {unanswered} records have had no answer"
        said = f"a dead letter could not be stored in {reason}. So its batch fails and stays pending; nothing is lost."
        raise DeadLetterNotStoredError(said, topic=self._topic, reason=reason)

"""KafkaDeadLetters: the dead-letter topic of a stream, as the tasks of a batch write it. Its producer is kept in the worker process.

A task holds its letters back until its end. One that fails, because it has too many errors or for another reason, leaves none.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream.batch_time import Time
from kstream.errors import DeadLetterNotStoredError
from kstream.worker.process import drop, once
from kstream.worker.record_failure import RecordFailure
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.dead_letter import Origin, error_headers, letter_headers
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.reader.headers import headers_of

if TYPE_CHECKING:
    from kstream_kafka.client.record_producer import RecordProducer

HELD_BYTES = 4_000_000
"""The bytes of letters that are held in memory. More than that wait in a temporary file."""

Letter: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""(key, value, headers) of a letter."""


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
        self._held = SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115 – `_letters` closes it
        """Pickled letters: as objects they would occupy the garbage collector."""

    def write(self, failure: RecordFailure) -> None:
        """Hold the record of a failure with its error until `flush`. Raises OSError if the disk for temporary files is full.

        The letter of a record whose headers the client cannot read lacks them, and says so.
        """
        message = failure.record.raw
        try:
            own = headers_of([message])[0] or ()
        except ValueError:
            own = None
        letter: Letter = (message.key(), message.value(), letter_headers(own, error_headers(failure, self._origin)))
        self._held.write(pickle.dumps(letter))

    def flush(self) -> None:
        """Send the held letters, and block until all are stored. DeadLetterNotStoredError if one of them is not.

        After the first failure no further one is sent, and `on_failure` is called. The timestamp of a letter is that of now, so that
        retention does not remove it early.
        """
        for key, value, headers in self._letters():
            if self._failures:  # with brokers that are away each further one would wait, too
                break
            self._producer.send(self._topic, key, value, headers, self._failures.append)
        unanswered = self._producer.flush()
        if not unanswered and not self._failures:
            return
        self._on_failure()
        reason = self._failures[0] if self._failures else f"{self._topic}: {unanswered} records have had no answer"
        said = f"a dead letter could not be stored in {reason}. So its batch fails and stays pending; nothing is lost."
        raise DeadLetterNotStoredError(said, topic=self._topic, reason=reason)

    def _letters(self) -> Iterator[Letter]:
        """Return the held letters in order, and close their file at their end."""
        with self._held as file:
            end = file.tell()
            file.seek(0)
            while file.tell() < end:
                yield pickle.load(file)

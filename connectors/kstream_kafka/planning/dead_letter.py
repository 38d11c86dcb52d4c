"""The form of a dead letter: a record with its key, value and headers untouched, and the headers of its error after them. Pure.

The names and texts are those of Kafka Connect (`errors.deadletterqueue.context.headers.enable`), so that tools for its dead letters work.
All values are UTF-8 text. kstream adds headers of its own. The error's headers are one block at the end, which begins with TOPIC; so they
can be taken off again, also from a record that had been a dead letter before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kstream.worker.record_failure import RecordFailure

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""(name, value) pairs in their order."""
CONNECT = "__connect.errors."
"""The beginning of the names of Kafka Connect's headers."""
KSTREAM = "__kstream.errors."
"""The beginning of the names of kstream's own headers."""
TOPIC = CONNECT + "topic"
HEADERS = KSTREAM + "headers"
"""The header of a letter that lacks headers of its record. It says why: they are not readable, or how many are left out."""
MOST_HEADERS = 100_000
"""The most headers of a letter. Of a record with more, librdkafka reads no header."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What wrote a dead letter.

    Attributes:
        application: the name of the Spark application; Connect's `connector.name`.
        task: the number of the task's partition.
        batch_ms: the batch time, in ms.
    """

    application: str
    task: int
    batch_ms: int


def error_headers(failure: RecordFailure, origin: Origin) -> list[tuple[str, bytes]]:
    """Return the headers that describe a failure, Connect's first.

    Args:
        failure: the failure.
        origin: what writes the dead letter.
    """
    record, step = failure.record, failure.step
    texts = {
        TOPIC: record.topic,
        CONNECT + "partition": record.partition,
        CONNECT + "offset": record.offset,
        CONNECT + "connector.name": origin.application,
        CONNECT + "task.id": origin.task,
        CONNECT + "stage": step.stage,
        CONNECT + "class.name": step.function,
        CONNECT + "exception.class.name": failure.exception,
        CONNECT + "exception.message": failure.message,
        CONNECT + "exception.stacktrace": failure.stacktrace,
        KSTREAM + "batch.time": origin.batch_ms,
        KSTREAM + "operator": step.operator,
        KSTREAM + "timestamp": -1 if record.timestamp is None else record.timestamp,
    }
    return [(name, str(value).encode("utf-8", "replace")) for name, value in texts.items()]


def letter_headers(own: Headers | None, errors: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter: those of its record, as many as MOST_HEADERS allows, and those of its error after them.

    If it lacks headers of its record, HEADERS is the last one and says why.

    Args:
        own: the headers of the record; None if the client cannot read them.
        errors: the headers that describe the failure.
    """
    if own is None:
        return [*errors, (HEADERS, b"not readable")]
    if len(own) + len(errors) <= MOST_HEADERS:
        return [*own, *errors]
    kept = MOST_HEADERS - len(errors) - 1
    return [*own[:kept], *errors, (HEADERS, b"%d left out" % (len(own) - kept))]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter topic, taken apart. A text is empty, and a number None, if its header is missing.

    Attributes:
        topic: the topic of origin.
        partition: the partition of origin.
        offset: the offset there.
        headers: the record's own headers.
        timestamp: the record's own timestamp, in ms; None if it had none, or if Kafka Connect wrote the letter.
        batch_ms: the batch in which it failed, in ms.
        operator: where it failed.
        exception: the class of the exception.
        message: the exception's message.
        stacktrace: its stack trace.
        has_headers: whether `headers` are all those of the record; see `letter_headers`.
        application: the name of the application that wrote the letter; Connect's `connector.name`.
    """

    topic: str
    partition: int | None
    offset: int | None
    headers: Headers
    timestamp: int | None = None
    batch_ms: int | None = None
    operator: str = ""
    exception: str = ""
    message: str = ""
    stacktrace: str = ""
    has_headers: bool = True
    application: str = ""

    @property
    def place(self) -> tuple[str, int | None, int | None]:
        """The place of origin. Two letters of one place are repeats of one another."""
        return self.topic, self.partition, self.offset


def dead_letter_of(headers: Headers | None) -> DeadLetter | None:
    """Return the dead letter that a record is, by its headers; None if it is none: there is no header TOPIC.

    Of a record that has been a dead letter twice, the last error counts. The headers of the first one are among the record's own.

    Args:
        headers: all headers of the record; None for none.
    """
    given = list(headers or ())
    begins = [at for at, (name, _) in enumerate(given) if name == TOPIC]
    if not begins:
        return None
    own, block = given[: begins[-1]], dict(given[begins[-1] :])

    def text(name: str) -> str:
        return (block.get(name) or b"").decode("utf-8", "replace")

    def number(name: str) -> int | None:
        value = text(name)
        return int(value) if value.isdigit() else None

    return DeadLetter(
        topic=text(TOPIC),
        partition=number(CONNECT + "partition"),
        offset=number(CONNECT + "offset"),
        headers=own,
        timestamp=number(KSTREAM + "timestamp"),
        batch_ms=number(KSTREAM + "batch.time"),
        operator=text(KSTREAM + "operator") or text(CONNECT + "class.name"),
        exception=text(CONNECT + "exception.class.name"),
        message=text(CONNECT + "exception.message"),
        stacktrace=text(CONNECT + "exception.stacktrace"),
        has_headers=HEADERS not in block,
        application=text(CONNECT + "connector.name"),
    )

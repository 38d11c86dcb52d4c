"""TolerantDecoding: decodes chunks of messages under the errors policy of a stream.

A chunk is decoded as a whole. Only if that fails, it is decoded again, one message after the other, without the messages that fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kstream.offsets.offset_range import OffsetRange
from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_errors import TaskErrors, make_one_by_one
from kstream.worker.record_failure import KEY_CONVERTER, TRANSFORMATION, VALUE_CONVERTER, RecordStep, name_of
from kstream_kafka.reader.decoding import Chunk, Decoding, consumer_record, value_only


def record_of(messages: Sequence[Any], position: int) -> CurrentRecord:
    """Return the message at a position as the record that a failure names."""
    message = messages[position]
    kind, timestamp = message.timestamp()
    return CurrentRecord(message.topic(), message.partition(), message.offset(), timestamp if kind else None, raw=message)


class TolerantDecoding:
    """The decoding of one task. One thread, that of the task."""

    def __init__(self, decoding: Decoding, errors: TaskErrors) -> None:
        """
        Args:
            decoding: makes the elements from the messages.
            errors: the record errors of the task.
        """
        self._decoding = decoding
        self._errors = errors

    def decoded(self, where: OffsetRange, messages: Chunk) -> tuple[Chunk, list[Any]]:
        """Decode a chunk of messages, and leave out those that fail. May block on the dead letters.

        Args:
            where: the range of the messages.
            messages: the messages, at least one.

        Returns:
            The messages that have not failed, and their elements, in order.

        Raises:
            TooManyRecordErrorsError: too many records of the batch have failed.
            Exception: an error for which no record is to blame.
        """
        decode = self._decoding.of_chunk(where)
        try:
            return messages, decode(messages)
        except Exception:
            pass  # the errors of single messages must not have this one as their context
        return make_one_by_one(self._lazily(decode, type(messages[0])), messages, self._failed)

    def _lazily(self, decode: Callable[[Chunk], list[Any]], kind: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        """Return the function from an iterator over messages to one over their elements, which decodes each when it is asked for."""
        decoder = self._decoding.value_decoder
        if self._decoding.message_handler is value_only and decoder is not None:
            return lambda rest: map(decoder, map(kind.value, rest))
        return lambda rest: (decode([message])[0] for message in rest)

    def _failed(self, error: Exception, message: Any) -> None:
        """Pass the error of a message to the policy."""
        self._errors.tolerate(error, record_of((message,), 0), self._step(message))

    def _step(self, message: Any) -> RecordStep:
        """Return the step in which the decoding of a message has failed: the key is decoded before the value."""
        decoding = self._decoding
        if decoding.message_handler not in (None, value_only, consumer_record):
            return RecordStep(TRANSFORMATION, "messageHandler", name_of(decoding.message_handler))
        if decoding.message_handler is not value_only and _fails(decoding.key_decoder, message.key()):
            return RecordStep(KEY_CONVERTER, "keyDecoder", name_of(decoding.key_decoder))
        if decoding.message_handler is consumer_record and not _fails(decoding.value_decoder, message.value()):  # it reads the headers
            return RecordStep(TRANSFORMATION, "messageHandler", name_of(consumer_record))
        return RecordStep(VALUE_CONVERTER, "valueDecoder", name_of(decoding.value_decoder))


def _fails(decoder: Callable[[Any], Any] | None, raw: bytes | None) -> bool:
    if decoder is None:
        return False
    try:
        decoder(raw)
    except Exception:
        return True
    return False

"""Headers that the client cannot read: an error of their record, and no crash of its process."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from kstream_kafka import consumer_record
from kstream_kafka.planning.dead_letter import Origin, dead_letter_of
from kstream_kafka.reader.dead_letter_writer import KafkaDeadLetterWriter
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.headers import headers_of
from kstream_kafka.reader.tolerant_decoding import TolerantDecoding, record_of
from kstream_kafka.tools import record_reading

from kstream.offsets.offset_range import OffsetRange
from kstream.worker.record_failure import VALUE_CONVERTER, RecordStep, failure_of
from tests.kstream_kafka.fakes import Message

WHERE = OffsetRange("t", 0, 0, 9)


def pair_without_a_name() -> Any:
    """A tuple as confluent_kafka makes it for a name that is not UTF-8. To read an entry of it would end the process."""
    new = ctypes.pythonapi.PyTuple_New
    new.restype = ctypes.py_object
    return new(2)


class Record(Message):
    """A message. If it is bad, it has a header name that is not UTF-8: the first call raises, as `map` sees it, and later ones return a
    broken tuple."""

    def __init__(self, at: int, payload: bytes = b"v", extra: Any = None, bad: bool = False) -> None:
        super().__init__(at, payload, b"k", extra=extra)
        self._bad, self._asked = bad, False

    def headers(self) -> Any:
        if not self._bad:
            return self.extra
        if not self._asked:
            self._asked = True
            raise SystemError("returned a result with an exception set")
        return [("good", b"1"), pair_without_a_name()]


def test_headers_are_those_of_the_messages_in_their_order() -> None:
    pairs: list[tuple[str, bytes | None]] = [("id", b"1"), ("none", None)]
    assert headers_of([Message(1, extra=pairs), Message(2), Message(3, extra=[])]) == [pairs, None, []]


def test_a_name_that_is_not_utf_8_is_an_error_whenever_it_is_read() -> None:
    message = Record(1, bad=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="the name of a header is not UTF-8"):
            headers_of([message])


@pytest.mark.parametrize("decoder", [None, bytes.decode])
def test_such_a_record_is_left_out_of_consumer_records_under_an_errors_policy(decoder: Any) -> None:
    class Errors:
        def __init__(self) -> None:
            self.noted: list[Any] = []

        def tolerate(self, error: Exception, record: Any, step: RecordStep) -> None:
            self.noted.append((str(error), record.offset, step.operator))

    errors: Any = Errors()
    decoding = TolerantDecoding(Decoding(decoder, decoder, consumer_record), errors)
    chunk = [Record(0), Record(1, bad=True), Record(2, extra=[("a", b"1")])]
    messages, elements = decoding.decoded(WHERE, chunk)
    assert [(m.offset(), e.offset, e.headers) for m, e in zip(messages, elements, strict=True)] == [(0, 0, ()), (2, 2, (("a", b"1"),))]
    ((said, offset, operator),) = errors.noted
    assert (offset, operator) == (1, "messageHandler") and "not UTF-8" in said


def test_a_dead_letter_of_such_a_record_is_stored_without_its_headers_and_says_so() -> None:
    sent: list[Any] = []

    class Producer:
        def send(self, topic: str, key: Any, value: Any, headers: Any, on_failure: Any) -> None:
            sent.append((key, value, headers))

        def flush(self) -> int:
            return 0

    producer: Any = Producer()
    writer = KafkaDeadLetterWriter(producer, "dead", Origin("orders", 0, 1000), lambda: None)
    for message in (Record(1, b"{", bad=True), Record(2, b"{", [("a", b"1")])):
        writer.write(failure_of(ValueError("no JSON"), record_of([message], 0), RecordStep(VALUE_CONVERTER, "valueDecoder", "loads")))
    writer.flush()
    letters = [dead_letter_of(headers) for _, _, headers in sent]
    found = [(letter.offset, list(letter.headers), letter.has_headers) for letter in letters if letter is not None]
    assert found == [(1, [], False), (2, [("a", b"1")], True)]


def test_such_a_record_is_shown_with_an_entry_that_says_so() -> None:
    found = record_reading.as_log_record(Record(1, bad=True))
    assert [name for name, _ in found.headers] == ["a header whose name is not UTF-8: the client shows no header"]

"""Chunks with messages that cannot be decoded: the others come through, and each failure has its step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kstream_kafka.reader.decoding import Decoding, consumer_record, utf8_decoder, value_only
from kstream_kafka.reader.tolerant_decoding import TolerantDecoding

from kstream.offsets.offset_range import OffsetRange
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy, TaskErrors
from kstream.worker.record_failure import RecordFailure
from tests.kstream_kafka.fakes import Message

WHERE = OffsetRange("t", 0, 10, 20)


class Letters:
    def __init__(self) -> None:
        self.found: list[RecordFailure] = []

    def open(self, task: int) -> Letters:
        return self

    def write(self, failure: RecordFailure) -> None:
        assert failure.record.raw.offset() == failure.record.offset
        self.found.append(failure)

    def flush(self) -> None: ...


def decode(decoding: Decoding, *messages: Message) -> tuple[list[Any], list[RecordFailure]]:
    letters = Letters()
    kept, elements = TolerantDecoding(decoding, TaskErrors(ErrorsPolicy(ErrorLimit(1, 100), letters))).decoded(WHERE, list(messages))
    assert len(kept) == len(elements)
    return elements, letters.found


def loads(raw: bytes | None) -> Any:
    return json.loads(raw or b"null")


MESSAGES = (Message(10, b"1", b"a"), Message(12, b"{", b"b"), Message(13, b"3", b"\xff"), Message(14, b"4", b"d"))


def test_key_and_value_fail_in_their_own_stages() -> None:
    elements, failures = decode(Decoding(utf8_decoder, loads), *MESSAGES)
    assert elements == [("a", 1), ("d", 4)]
    assert [(f.record.offset, f.step.stage, f.step.operator) for f in failures] == [
        (12, "VALUE_CONVERTER", "valueDecoder"),
        (13, "KEY_CONVERTER", "keyDecoder"),
    ]
    assert failures[0].step.function.endswith("test_tolerant_decoding.loads")
    assert [f.exception for f in failures] == ["json.decoder.JSONDecodeError", "UnicodeDecodeError"]


def test_values_alone_do_not_fail_for_their_keys() -> None:
    elements, failures = decode(Decoding(utf8_decoder, loads, value_only), *MESSAGES)
    assert elements == [1, 3, 4]
    assert [(f.record.offset, f.step.stage) for f in failures] == [(12, "VALUE_CONVERTER")]


def test_consumer_records_keep_their_offsets() -> None:
    elements, failures = decode(Decoding(None, loads, consumer_record), *MESSAGES)
    assert [(e.offset, e.value) for e in elements] == [(10, 1), (13, 3), (14, 4)] and len(failures) == 1


def test_a_handler_fails_as_a_transformation() -> None:
    def handler(record: Any) -> Any:
        return record.offset, record.message["total"]

    elements, failures = decode(Decoding(None, loads, handler), Message(10, b'{"total": 5}'), Message(11, b"{}"), Message(12, b"{"))
    assert elements == [(10, 5)]
    assert [(f.step.stage, f.step.operator, f.exception) for f in failures] == [
        ("TRANSFORMATION", "messageHandler", "KeyError"),
        ("TRANSFORMATION", "messageHandler", "json.decoder.JSONDecodeError"),
    ]


def test_a_stack_trace_begins_in_the_function_of_the_user() -> None:
    _, (failure,) = decode(Decoding(None, loads, value_only), Message(10, b"{"))
    assert failure.stacktrace.splitlines()[1].endswith("in loads")
    assert failure.stacktrace.count("Traceback") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_exception_that_ends_the_process_is_never_swallowed(error: type[BaseException]) -> None:
    def stop(raw: bytes | None) -> Any:
        raise error

    with pytest.raises(error):
        decode(Decoding(None, stop, value_only), Message(10))

"""The form of a dead letter: Kafka Connect's headers byte for byte, and how they come off again."""

from __future__ import annotations

from kstream_kafka.planning.dead_letter import HEADERS, MOST_HEADERS, Origin, dead_letter_of, error_headers, letter_headers

from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_failure import VALUE_CONVERTER, RecordFailure, RecordStep

RECORD = CurrentRecord("orders", 3, 1207, 1_700_000_000_123)
STEP = RecordStep(VALUE_CONVERTER, "valueDecoder", "json.loads")
FAILURE = RecordFailure(RECORD, STEP, "json.decoder.JSONDecodeError", "Expecting value: línea", "Traceback…\nJSONDecodeError")
ORIGIN = Origin("shop", 5, 1_795_346_570_000)
GOLDEN = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"1207"),
    ("__connect.errors.connector.name", b"shop"),
    ("__connect.errors.task.id", b"5"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"json.loads"),
    ("__connect.errors.exception.class.name", b"json.decoder.JSONDecodeError"),
    ("__connect.errors.exception.message", b"Expecting value: l\xc3\xadnea"),
    ("__connect.errors.exception.stacktrace", b"Traceback\xe2\x80\xa6\nJSONDecodeError"),
    ("__kstream.errors.batch.time", b"1795346570000"),
    ("__kstream.errors.operator", b"valueDecoder"),
    ("__kstream.errors.timestamp", b"1700000000123"),
]


def test_the_names_the_order_and_the_bytes_of_the_headers() -> None:
    assert error_headers(FAILURE, ORIGIN) == GOLDEN


def test_a_dead_letter_is_taken_apart_and_its_own_headers_are_untouched() -> None:
    own: list[tuple[str, bytes | None]] = [("trace", b"1"), ("trace", None), ("", b"\xff")]
    letter = dead_letter_of([*own, *GOLDEN])
    assert letter is not None and letter.headers == own
    assert letter.place == ("orders", 3, 1207) and letter.batch_ms == ORIGIN.batch_ms and letter.timestamp == RECORD.timestamp
    assert (letter.operator, letter.exception, letter.message) == ("valueDecoder", FAILURE.exception, FAILURE.message)
    assert letter.stacktrace == FAILURE.stacktrace


def test_a_record_that_was_a_dead_letter_before_keeps_those_headers() -> None:
    first = error_headers(FAILURE, Origin("other", 0, 1))
    letter = dead_letter_of([*first, *GOLDEN])
    assert letter is not None and letter.headers == first and letter.batch_ms == ORIGIN.batch_ms


def test_a_dead_letter_of_kafka_connect_is_read_as_well() -> None:
    letter = dead_letter_of(GOLDEN[:10])
    assert letter is not None and letter.place == ("orders", 3, 1207)
    assert letter.batch_ms is None and letter.timestamp is None and letter.operator == "json.loads"


def test_a_record_without_a_timestamp_has_none_again() -> None:
    failure = RecordFailure(CurrentRecord("orders", 0, 1), STEP, "E", "", "")
    letter = dead_letter_of(error_headers(failure, ORIGIN))
    assert letter is not None and letter.timestamp is None


def test_another_record_is_no_dead_letter() -> None:
    assert dead_letter_of(None) is None and dead_letter_of([("trace", b"1")]) is None


def test_a_letter_has_no_more_headers_than_a_client_reads_and_counts_the_rest() -> None:
    fits: list[tuple[str, bytes | None]] = [("h", b"%d" % n) for n in range(MOST_HEADERS - len(GOLDEN))]
    assert letter_headers(fits, GOLDEN) == [*fits, *GOLDEN]
    headers = letter_headers([*fits, ("one more", None)], GOLDEN)
    assert headers == [*fits[:-1], *GOLDEN, (HEADERS, b"2 left out")] and len(headers) == MOST_HEADERS
    letter = dead_letter_of(headers)
    assert letter is not None and letter.place == ("orders", 3, 1207) and letter.headers == fits[:-1] and not letter.has_headers


def test_a_letter_whose_record_has_headers_that_cannot_be_read_says_so() -> None:
    assert letter_headers(None, GOLDEN) == [*GOLDEN, ("__kstream.errors.headers", b"not readable")]
    letter = dead_letter_of(letter_headers(None, GOLDEN))
    assert letter is not None and not letter.has_headers and letter.headers == []

"""How a record of a stream becomes a record of Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka import ProducerRecord
from kstream_kafka.errors import RecordTooLargeError
from kstream_kafka.sink.producer_record import RecordEncoder


def encoded(record: Any, topic: str | None = "totals", **functions: Any) -> Any:
    return RecordEncoder("kafka totals", topic, **functions)(record)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [("text", None, b"text"), (b"bytes", None, b"bytes"), (None, None, None), (("k", b"v"), b"k", b"v"), ((None, "v"), None, b"v")],
)
def test_a_pair_has_a_key_and_anything_else_is_a_value(record: Any, key: bytes | None, value: bytes | None) -> None:
    assert encoded(record) == ("totals", key, value, (), None, None)


def test_functions_of_the_user_take_the_whole_record() -> None:
    found = encoded(("k", 7), key=lambda r: r[0], value=lambda r: str(r[1]), headers=lambda r: [("n", b"1")], partition=lambda r: r[1] % 3)
    assert found == ("totals", b"k", b"7", [("n", b"1")], 1, None)


def test_a_producer_record_names_all_itself() -> None:
    record = ProducerRecord("other", "v", b"k", [("h", None)], partition=2, timestamp=1000)
    assert encoded(record, None) == ("other", b"k", b"v", [("h", None)], 2, 1000)


def test_what_is_neither_bytes_nor_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"output kafka totals: the value of a record is a int.*saveToKafka\(…, value=lambda record: …\)"):
        encoded(("k", 7))


def test_without_a_topic_each_record_must_name_one() -> None:
    with pytest.raises(ValueError, match="no topic is given, so each record must be a ProducerRecord; this is a str"):
        encoded("text", None)


@pytest.mark.parametrize(
    ("record", "functions"),
    [
        (b"v" * 909, {}),
        ((b"k" * 500, b"v" * 409), {}),
        (b"v" * 900, {"headers": lambda _: [("h", b"12345678")]}),
        (b"v" * 900, {"headers": lambda _: [("123456789", None)]}),
    ],
)
def test_a_record_that_is_too_large_is_refused_with_the_setting(record: Any, functions: Any) -> None:
    with pytest.raises(RecordTooLargeError, match=r"a record for topic totals has 1001 bytes, and max.request.size allows 1000") as refused:
        encoded(record, most_bytes=1000, **functions)
    assert (refused.value.facts["size"], refused.value.facts["most"]) == (1001, 1000)
    assert encoded(record, most_bytes=1001, **functions)

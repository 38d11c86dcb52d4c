"""JsonDeserializer: a value of an RDD has the types of the schema, as a column would, or is an error of its record."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from kstream_kafka import JsonDeserializer
from kstream_kafka.reader.json_values import JsonFormat
from kstream_kafka.reader.value_formats import ValueSchema
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.kstream_kafka.reader.value_format_contract import binary

LINE = StructType([StructField("tags", MapType(StringType(), MapType(StringType(), DateType())))])
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("amount", DecimalType(10, 2)),
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("lines", ArrayType(LINE)),
    ]
)
RAW = b"""{"id": 7, "amount": 12.345, "at": "2026-01-02T03:04:05.5+01:00", "local": "2026-01-02T03:04:05", "other": 1,
    "lines": [{"tags": {"a": {"b": "2026-01-02"}, "c": null}}, null]}"""


def test_the_fields_of_a_value_have_the_types_of_the_schema() -> None:
    for decode in (JsonDeserializer(SCHEMA), pickle.loads(pickle.dumps(JsonDeserializer(schema=SCHEMA)))):
        assert decode(RAW) == {
            "id": 7,
            "amount": Decimal("12.35"),
            "at": datetime(2026, 1, 2, 2, 4, 5, 500_000, timezone.utc),
            "local": datetime(2026, 1, 2, 3, 4, 5),
            "lines": [{"tags": {"a": {"b": date(2026, 1, 2)}, "c": None}}, None],
        }
        assert decode(b"{}") == dict.fromkeys(SCHEMA.names)
        assert decode(None) is None


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'{"id": "seven"}', b'{"at": "SECRET"}', b"{} {}", b"\xff", b'{"id": 1.5}'])
def test_what_does_not_fit_is_an_error_with_the_reason_that_a_column_has(raw: bytes) -> None:
    fields = JsonDeserializer(SCHEMA)
    (bad,) = JsonFormat(ValueSchema("json", fields._fields)).decode(binary(raw)).malformed  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ValueError, match=r"^the value ") as caught:
        fields(raw)
    assert str(caught.value) == f"the value {bad.reason}"


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        (5, TypeError, "^JsonDeserializer: schema must be a StructType or its DDL"),
        (StructType([StructField("a", DayTimeIntervalType())]), ValueError, "which no JSON value has"),
        (StructType([StructField("a", LongType(), False)]), ValueError, "has 'a' as NOT NULL"),
        (StructType([StructField("a", LongType()), StructField("a", LongType())]), ValueError, "has the column 'a' twice"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_at_the_call(schema: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        JsonDeserializer(schema)

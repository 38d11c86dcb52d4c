"""JsonRows: rows of a frame as JSON objects, in the forms that `value.format=json` and Spark read."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from kstream_kafka.reader.value_formats import ValueSchema
from kstream_kafka.schemas.plain_rows import plain_rows
from kstream_kafka.structured.json_rows import JsonRows

KINDS: dict[str, tuple[pa.DataType, Any, str]] = {
    "text": (pa.string(), 'Zoë "x"\n', '"Zoë \\"x\\"\\n"'),
    "small": (pa.int8(), -7, "-7"),
    "long": (pa.int64(), 2**62, "4611686018427387904"),
    "yes": (pa.bool_(), True, "true"),
    "part": (pa.float32(), 0.1, "0.1"),
    "ratio": (pa.float64(), 1e300, "1e+300"),
    "money": (pa.decimal128(30, 4), Decimal("12345678901234567890.5000"), "12345678901234567890.5000"),
    "day": (pa.date32(), date(2026, 1, 2), '"2026-01-02"'),
    "at": (pa.timestamp("us", "UTC"), datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc), '"2026-01-02T03:04:05.678901Z"'),
    "local": (pa.timestamp("us"), datetime(1969, 1, 2, 3, 4, 5), '"1969-01-02T03:04:05"'),
    "raw": (pa.binary(), b"\1\xfe", '"Af4="'),
    "list": (pa.list_(pa.struct([("n", pa.int32())])), [{"n": 1}, None, {"n": None}], '[{"n":1},null,{}]'),
    "map": (pa.map_(pa.string(), pa.date32()), [("a", date(2026, 1, 2)), ("b", None)], '{"a":"2026-01-02","b":null}'),
}


def encode(kinds: list[tuple[str, pa.DataType]], *rows: dict[str, Any]) -> list[bytes]:
    columns = pa.struct(kinds)
    encoder = JsonRows(columns)
    return [encoder(row) for row in plain_rows(pa.array(rows, columns), columns)]


@pytest.mark.parametrize("name", KINDS)
def test_a_value_of_each_type_has_one_form_and_is_read_as_it_was(name: str) -> None:
    kind, value, text = KINDS[name]
    (raw,) = encode([(name, kind)], {name: value})
    assert raw == f'{{"{name}":{text}}}'.encode()
    found = ValueSchema("json", pa.schema([(name, kind)])).open().decode(pa.array([raw], pa.binary()))
    assert not found.malformed and found.rows.equals(pa.array([{name: value}], pa.struct([(name, kind)])))


def test_a_null_field_is_left_out_as_by_to_json() -> None:
    assert encode([("a", pa.int32()), ("b", pa.string())], {"a": None, "b": "x"}, {"a": None, "b": None}) == [b'{"b":"x"}', b"{}"]


def test_what_json_has_no_number_for_is_a_text_as_by_to_json() -> None:
    rows = [{"a": value} for value in (float("nan"), float("inf"), float("-inf"))]
    assert encode([("a", pa.float64())], *rows) == [b'{"a":"NaN"}', b'{"a":"Infinity"}', b'{"a":"-Infinity"}']


def test_a_type_that_no_json_value_has_is_refused_before_a_row() -> None:
    for kind in (pa.duration("us"), pa.map_(pa.int32(), pa.string())):
        with pytest.raises(ValueError, match="which no JSON value has"):
            encode([("a", kind)])


def test_a_point_in_time_that_has_no_text_is_an_error_of_its_row() -> None:
    with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
        JsonRows(pa.struct([("at", pa.timestamp("us", "UTC"))]))({"at": 2**60})

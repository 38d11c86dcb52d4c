"""JSON values as typed columns: what fits, what does not, and that a chunk is the same as its values one by one."""

from __future__ import annotations

import base64
import json
import random
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from kstream_kafka.reader.json_documents import JsonDocuments
from kstream_kafka.reader.json_values import JsonFormat
from kstream_kafka.reader.value_formats import ValueSchema

from tests.kstream_kafka.reader.value_format_contract import ValueFormatContract, binary

FIELDS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("item", pa.string())])
INSTANT = pa.timestamp("us", "UTC")


def decoded(fields: pa.Schema, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    found = ValueSchema("json", fields).open().decode(binary(*values))
    found.rows.validate(full=True)
    return found.rows.to_pylist(), dict(found.malformed)


def one(kind: pa.DataType, text: str) -> Any:
    """The field of a type of one value between others; the reason if it does not fit."""
    rows, malformed = decoded(pa.schema([("x", kind)]), b"{}", b'{"x":%s}' % text.encode(), b'{"x":null}')
    assert rows[0] == rows[2] == {"x": None}
    return malformed[1] if malformed else rows[1]["x"]


class TestJson(ValueFormatContract):
    schema = ValueSchema("json", FIELDS)
    good, bad = b'{"id":1,"amount":1.5,"item":"a"}', b'{"id":1'


class TestJsonThatPythonDecodes(ValueFormatContract):
    schema = ValueSchema("json", pa.schema([("counts", pa.map_(pa.string(), pa.int64()))]))
    good, bad = b'{"counts":{"a":1}}', b'{"counts":{"a":"b"}}'


def test_a_field_that_a_value_lacks_is_null_and_one_that_the_schema_lacks_is_left_out() -> None:
    rows, _ = decoded(FIELDS, b'{"id":1,"more":{"deep":[1,"two"]}}', b"{}", b'{"more":7,"item":"a"}')
    assert rows == [
        {"id": 1, "amount": None, "item": None},
        {"id": None, "amount": None, "item": None},
        {"id": None, "amount": None, "item": "a"},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.bool_(), "true", True),
        (pa.int8(), "-128", -128),
        (pa.int64(), "9223372036854775807", 9223372036854775807),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "1e3", 1000.0),
        (pa.float64(), '"Infinity"', float("inf")),
        (pa.float32(), "1.5", 1.5),
        (pa.string(), r'"\u00e9\n\ud83d\ude00"', "é\n😀"),
        (pa.string(), "12", "12"),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), '{"a": [1, true]}', '{"a":[1,true]}'),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), '"1.25"', Decimal("1.25")),
        (pa.decimal128(10, 2), "0.125", Decimal("0.13")),
        (pa.decimal128(38, 18), "12345678901234567890.000000000000000001", Decimal("12345678901234567890.000000000000000001")),
        (pa.decimal128(38, 2), "123456789012345678901234567890.5", Decimal("123456789012345678901234567890.50")),
        (pa.decimal128(38, 2), '"123456789012345678901234567890.125"', Decimal("123456789012345678901234567890.13")),
        (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
        (INSTANT, '"2024-01-02T03:04:05Z"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        (INSTANT, '"2024-01-02T03:04:05.1234567+02:00"', datetime(2024, 1, 2, 1, 4, 5, 123456, tzinfo=timezone.utc)),
        (INSTANT, '"2024-01-02 03:04:05"', datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        (INSTANT, '"2024-01-02"', datetime(2024, 1, 2, tzinfo=timezone.utc)),
        (INSTANT, "1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)),
        (pa.timestamp("us"), '"2024-01-02T03:04:05.5"', datetime(2024, 1, 2, 3, 4, 5, 500000)),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.list_(pa.int64()), "[1,null,2]", [1, None, 2]),
        (pa.list_(INSTANT), '["2024-01-02T00:00:00Z",null]', [datetime(2024, 1, 2, tzinfo=timezone.utc), None]),
        (pa.struct([("a", pa.list_(pa.struct([("b", pa.date32())])))]), '{"a":[{"b":"2024-01-02"},null,{}]}',
         {"a": [{"b": date(2024, 1, 2)}, None, {"b": None}]}),
        (pa.map_(pa.string(), pa.int64()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
    ],
)  # fmt: skip
def test_a_field_has_the_type_of_the_schema(kind: pa.DataType, text: str, expected: Any) -> None:
    assert one(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.bool_(), '"true"', "has in the field 'x' a string, not true or false"),
        (pa.int64(), "1.0", "has in the field 'x' a number, not a whole number"),
        (pa.int64(), "1e2", "has in the field 'x' a number, not a whole number"),
        (pa.int64(), "9223372036854775808", "has in the field 'x' a whole number of more than 64 bits"),
        (pa.int32(), "true", "has in the field 'x' true or false, not a whole number"),
        (pa.float64(), '"much"', "has in the field 'x' a string, not a number"),
        (pa.string(), r'"\ud800"', "has in the field 'x' a string with half of a surrogate pair"),
        (pa.decimal128(4, 2), "100", "has in the field 'x' no number of 4 digits"),
        (pa.decimal128(4, 2), '"NaN"', "has in the field 'x' no number of 4 digits"),
        (pa.date32(), "20240102", "has in the field 'x' a whole number, not a string"),
        (pa.binary(), '"?"', "has in the field 'x' a string that is no base64"),
        (pa.list_(pa.int64()), '["a"]', "has in the field 'x' a string, not a whole number"),
        (pa.struct([("a", pa.int64())]), '{"a":[]}', "has in the field 'a' a list, not a whole number"),
        (pa.struct([("a", pa.int64())]), "[]", "has in the field 'x' a list, not an object"),
    ],
)
def test_a_field_of_another_type_does_not_fit(kind: pa.DataType, text: str, reason: str) -> None:
    assert one(kind, text) == reason


@pytest.mark.parametrize(
    ("kind", "text"), [(INSTANT, '"yesterday"'), (INSTANT, '"2024-13-02T00:00:00Z"'), (pa.date32(), '"2024-02-30"'), (pa.date32(), '""')]
)
def test_a_string_that_is_no_time_does_not_fit(kind: pa.DataType, text: str) -> None:
    assert str(one(kind, text)).startswith("has a string that does not fit its field")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "is empty"),
        (b"  ", "is no JSON: Expecting value at character 2"),
        (b"null", "is null and no JSON object"),
        (b"[{}]", "is a list and no JSON object"),
        (b'"a"', "is a string and no JSON object"),
        (b'{"id":1}{"id":2}', "is no JSON: Extra data at character 8"),
        (b'{"id":1},{"id":2}', "is no JSON: Extra data at character 8"),
        (b'{"id":1}\n{"id":2}', "is no JSON: Extra data at character 9"),
        (b'{"id":1,}', "is no JSON: "),
        (b"{'id':1}", "is no JSON: "),
        (b'{"id":01}', "is no JSON: "),
        (b'{"item":"a\nb"}', "is no JSON: Invalid control character"),
        (b'{"item":"a\x00b"}', "is no JSON: Invalid control character"),
        (b'{"id":1}\x00', "is no JSON: Extra data"),
        (b'{"item":"\xff"}', "is no UTF-8: invalid start byte at byte 9"),
        (b'{"id":1} x}', "is no JSON: Extra data at character 9"),
    ],
)
def test_a_value_that_is_not_one_json_object_does_not_fit(value: bytes, reason: str) -> None:
    rows, malformed = decoded(FIELDS, b'{"id":1}', value, b'{"id":2}')
    assert [row and row["id"] for row in rows] == [1, None, 2]
    assert malformed[1].startswith(reason)


def test_no_depth_ends_the_worker() -> None:
    deep = b'{"u":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert decoded(FIELDS, deep)[1] == {}
    assert JsonDocuments(FIELDS).decode([deep])[1] == [(0, "is no JSON that can be read: it is nested too deeply")]


def test_a_value_may_have_line_ends_and_space_around_it() -> None:
    rows, malformed = decoded(FIELDS, b' {\n "id": 1,\r\n "item":\t"a" }\n', b'{"id":2}')
    assert [row["id"] for row in rows] == [1, 2] and not malformed


def test_of_a_key_that_is_there_twice_the_last_one_counts() -> None:
    assert [row["id"] for row in decoded(FIELDS, b'{"id":1}', b'{"id":1,"id":2}')[0]] == [1, 2]


def test_values_that_are_one_document_together_are_none_and_two_documents_in_a_value_do_not_make_up_for_it() -> None:
    rows, malformed = decoded(FIELDS, b'{"u":[{"id":1}', b'{"id":2}', b"]}", b'{"id":3}{"id":4}', b'{"id":5}')
    assert [row and row["id"] for row in rows] == [None, 2, None, None, 5]
    assert sorted(malformed) == [0, 2, 3]


def test_no_reason_shows_what_a_field_holds() -> None:
    _, malformed = decoded(FIELDS, b'{"id":"4111-1111"}', b'{"id":4111.5}', b"4111", b'{"item":"4111')
    assert len(malformed) == 4 and "4111" not in str(malformed.values())
    _, malformed = decoded(pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]), b'{"at":"4111"}', b'{"day":"on 4111"}')
    assert len(malformed) == 2 and "4111" not in str(malformed.values())


def test_the_type_that_no_json_value_has_is_refused() -> None:
    with pytest.raises(ValueError, match="duration"):
        JsonFormat(ValueSchema("json", pa.schema([("x", pa.duration("us"))])))


POOL = [
    b'{"id":7,"amount":"x"}', b'{"id":1.5}', b'{"id":"1"}', b'{"amount":{}}', b'{"item":5}', b'{"item":[1]}', b'{"id":1,}', b"", b"null",
    b'{"id":1}{"id":2}', b'{"id":99999999999999999999}', b'{"id":1,"id":2}', b'{"amount":true}', b"\xff", b' {"id":3} ', b"{} {}",
    b'{"x":[{"id":1},', b'{"id":2}]}', b'{"\\u0069d":"x"}', b'{"amount":1e400}', b'{"amount":NaN}', b'{"u":"} {","id":5}',
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_chunks_are_decoded_as_their_values_one_by_one(seed: int) -> None:
    dice = random.Random(seed)
    decoder = ValueSchema("json", FIELDS).open()
    for share in (dice.choice([0.01, 0.1, 0.5]), dice.choice([0, 0.1]), 0.1):
        values = [
            dice.choice(POOL) if dice.random() < share else json.dumps({"id": i, "amount": i / 2, "item": "a" * (i % 3)}).encode()
            for i in range(dice.choice([3, 50, 400]))
        ]
        found = decoder.decode(binary(*values))
        rows, malformed = JsonDocuments(FIELDS).decode(values)
        assert str(found.rows.to_pylist()) == str(rows.to_pylist())  # NaN is not equal to itself
        assert [tuple(bad) for bad in found.malformed] == malformed


def test_base64_is_that_of_spark() -> None:
    assert one(pa.binary(), json.dumps(base64.b64encode(bytes(range(256))).decode())) == bytes(range(256))


def test_a_decimal_of_38_digits_is_the_same_whichever_reader_decodes_its_chunk() -> None:
    good, fields = b'{"d":123456789012345678901234567890.5}', pa.schema([("d", pa.decimal128(38, 2))])
    alone, beside = decoded(fields, good, good), decoded(fields, good, b'{"d":"x"}')
    assert alone[0][0] == beside[0][0] and not alone[1] and list(beside[1]) == [1]


def test_after_a_misfit_a_field_whose_name_only_ends_so_is_no_suspect() -> None:
    decoder = JsonFormat(ValueSchema("json", pa.schema([("id", pa.int64()), ("customer_id", pa.string())])))
    decoder.decode(binary(b'{"id":"x"}'))
    clean = binary(*[b'{"id":%d,"customer_id":"c"}' % i for i in range(50)])
    assert not decoder._misfits_as_before(clean).any() and decoder._last_misfit is None  # pyright: ignore[reportPrivateUsage]
    assert not decoder.decode(clean).malformed

"""AvroRows: rows of a frame as Avro values, byte for byte those of confluent_kafka's serializer, or an error that shows no value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.schemas.avro_rows import AvroRows
from kstream_kafka.schemas.avro_schema import AvroSchema
from kstream_kafka.schemas.plain_rows import plain_rows

from tests.kstream_kafka.schemas.avro_orders import COLUMNS, ORDER, ROW, A
from tests.kstream_kafka.schemas.registry_server import registry_server

STRUCT = pa.struct(list(COLUMNS))


def row(**changed: Any) -> dict[str, Any]:
    return {**ROW, **changed}


def encode(rows: list[Any], schema: Any = ORDER, columns: pa.StructType = STRUCT, number: int = 1) -> list[bytes]:
    encoder = AvroRows(AvroSchema(json.dumps(schema)), number, columns)
    return [encoder(one) for one in plain_rows(pa.array(rows, columns), columns)]


def record(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def test_the_bytes_are_those_of_confluents_serializer() -> None:
    with registry_server() as server:
        write = AvroSerializer(SchemaRegistryClient({"url": server.url}), json.dumps(ORDER))
        before = datetime(1969, 12, 31, 23, 59, 59, 999_500, timezone.utc)
        changes: list[dict[str, Any]] = [
            {},
            {"customer": None, "lines": [], "tags": {}},
            {"at": before, "seen": before, "day": date(1, 1, 1)},
        ]
        expected = [write({**A, **change}, SerializationContext("orders", MessageField.VALUE)) for change in changes]
    assert encode([row(**{k: list(v.items()) if k == "tags" else v for k, v in change.items()}) for change in changes]) == expected


def test_a_column_becomes_a_wider_field_and_a_field_without_one_has_its_default() -> None:
    fields: list[dict[str, Any]] = [
        {"name": "a", "type": "long"},
        {"name": "b", "type": "double"},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4}},
        {"name": "d", "type": "string", "default": "x"},
        {"name": "e", "type": ["null", "int"]},
    ]
    columns = pa.struct([("c", pa.decimal128(10, 2)), ("b", pa.int32()), ("a", pa.int8())])
    (raw,) = encode([{"a": 1, "b": 2, "c": Decimal("3.45")}], record(*fields), columns)
    assert raw == b"\0\0\0\0\1" + b"\2" + b"\0\0\0\0\0\0\0\x40" + b"\6\x00\x86\xc4" + b"\2x" + b"\0"


@pytest.mark.parametrize(
    ("fields", "columns", "words"),
    [
        ([{"name": "a", "type": "int"}], [("a", pa.int64())], "the field a is int, and the column is int64"),
        ([{"name": "a", "type": "float"}], [("a", pa.float64())], "the field a is float, and the column is double"),
        ([{"name": "a", "type": "int"}], [("b", pa.int32())], "the schema has no field b"),
        ([{"name": "a", "type": "int"}, {"name": "b", "type": "int"}], [("a", pa.int32())], "the field b has no column and no default"),
        ([{"name": "a", "type": ["int", "string"]}], [("a", pa.int32())], "the field a: a union of int and string has no type of a column"),
        (
            [{"name": "a", "type": record({"name": "b", "type": "int"}) | {"name": "I"}}],
            [("a", pa.struct([("c", pa.int32())]))],
            "no field a.c",
        ),
        ([{"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}}], [("a", pa.timestamp("us"))], "timestamp-micros"),
    ],
)
def test_columns_that_lose_something_are_refused_before_a_row(fields: Any, columns: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode([], record(*fields), pa.struct(columns))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"id": None}, r"has null in the field 'id', and its schema has not"),
        ({"lines": [{"n": None}]}, r"has null in the field 'lines\.n'"),
        ({"lines": [None]}, r"has null in the field 'lines'"),
        ({"tags": [("a", None)]}, r"has null in the field 'tags'"),
        ({"state": "SECRET"}, r"has in the field 'state' a text that is no symbol of State"),
    ],
)
def test_a_row_that_does_not_fit_is_an_error_that_names_the_field_and_shows_nothing(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        encode([row(**changed)])
    assert "SECRET" not in str(caught.value)


def test_null_is_not_written_as_false() -> None:
    with pytest.raises(ValueError, match="has null in the field 'a'"):
        encode([{"a": None}], record({"name": "a", "type": "boolean"}), pa.struct([("a", pa.bool_())]))


BYTES = {"type": "record", "name": "B", "fields": [{"name": "x", "type": "bytes"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("bytes", "SECRET"),
        (DECIMAL, "\1"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab"),
        (["bytes", "null"], "a"),
        ({"type": "array", "items": "bytes"}, ["a"]),
        ({"type": "map", "values": "bytes"}, {"k": "a"}),
        (BYTES, {"x": "a"}),
    ],
)
def test_a_default_of_bytes_which_no_row_can_have_is_refused_before_a_row(kind: Any, default: Any) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": kind, "default": default}]
    with pytest.raises(ValueError, match="the field b has no column, and fastavro cannot write a default of bytes"):
        encode([], record(*fields), pa.struct([("a", pa.int32())]))


@pytest.mark.parametrize(
    ("kind", "default", "raw"),
    [
        (["null", "bytes"], None, b"\0"),
        ({"type": "array", "items": "bytes"}, [], b"\0"),
        (["string", "bytes"], "x", b"\0\2x"),
        (["null", BYTES], None, b"\0"),
    ],
)
def test_a_default_without_bytes_is_written(kind: Any, default: Any, raw: bytes) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": kind, "default": default}]
    assert encode([{"a": 1}], record(*fields), pa.struct([("a", pa.int32())])) == [b"\0\0\0\0\1\2" + raw]

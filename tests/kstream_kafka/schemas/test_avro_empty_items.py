"""bounded_reader: a damaged count of items that take no byte makes no more objects than a value may have."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest
from kstream_kafka.schemas.avro_empty_items import MOST, bounded_reader

UNIT = {"type": "record", "name": "Unit", "fields": [{"name": "nothing", "type": "null"}]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "children", "type": {"type": "array", "items": "Tree"}}]}
KINDS: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", True),
    ("int", -70),
    ("long", 2**60),
    ("float", 0.5),
    ("double", 0.25),
    ("bytes", b"\xff" * 70),
    ("string", "Zoë" * 30),
    ({"type": "fixed", "name": "Four", "size": 4}, b"four"),
    ({"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}, "BLUE"),
    (["null", "string"], "text"),
    ({"type": "array", "items": "double"}, [0.5, 0.25]),
    ({"type": "map", "values": "Colour"}, {"a": "RED", "b": "BLUE"}),
    ({"type": "map", "values": "null"}, {"a": None, "b": None}),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1_790_000_000_000_000),
    (TREE, {"children": [{"children": []}, {"children": [{"children": []}]}]}),
]
"""Types of Avro, each with a value."""


def read(schema: Any, value: Any) -> Any:
    file, parsed = BytesIO(), fastavro.parse_schema(schema)
    fastavro.schemaless_writer(file, parsed, value)
    file.seek(0)
    return bounded_reader(parsed)(file, parsed, None)


@pytest.mark.parametrize("item", ["null", UNIT, {"type": "fixed", "name": "Nil", "size": 0}], ids=["null", "record", "fixed"])
def test_the_items_behind_fields_of_all_kinds_are_counted(item: Any) -> None:
    fields = [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(KINDS)]
    schema = {"type": "record", "name": "All", "fields": [*fields, {"name": "last", "type": {"type": "array", "items": item}}]}
    nothing: Any = {"nothing": None} if item is UNIT else None if item == "null" else b""
    value = {f"f{i}": one for i, (_, one) in enumerate(KINDS)}
    assert read(schema, {**value, "last": [nothing] * MOST})["last"] == [nothing] * MOST
    with pytest.raises(ValueError, match="more than 1000 items without bytes"):
        read(schema, {**value, "last": [nothing] * (MOST + 1)})


def test_all_arrays_of_a_value_are_counted_together() -> None:
    schema = {"type": "array", "items": {"type": "array", "items": "null"}}
    assert len(read(schema, [[None]] * MOST)) == MOST
    with pytest.raises(ValueError, match="items without bytes"):
        read(schema, [[None] * (MOST // 2)] * 3)


def test_a_damaged_count_is_refused_before_an_object_is_made() -> None:
    parsed = fastavro.parse_schema({"type": "array", "items": "null"})
    for huge in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0\0"):
        with pytest.raises(ValueError, match="items without bytes"):
            bounded_reader(parsed)(BytesIO(huge), parsed, None)


@pytest.mark.parametrize("count", [2**40, -(2**40)])
@pytest.mark.parametrize("item", ["double", "string", UNIT | {"fields": [{"name": "n", "type": "int"}]}], ids=str)
def test_a_damaged_count_of_other_items_ends_with_the_bytes(item: Any, count: int) -> None:
    fields = [{"name": "a", "type": {"type": "array", "items": item}}, {"name": "b", "type": {"type": "array", "items": "null"}}]
    parsed = fastavro.parse_schema({"type": "record", "name": "Both", "fields": fields})
    file = BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema("long"), count)
    with pytest.raises((EOFError, IndexError)):
        bounded_reader(parsed)(BytesIO(file.getvalue() + b"\2" * 30), parsed, None)


def test_a_schema_without_such_items_is_read_by_fastavro_alone() -> None:
    fields = [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(KINDS)]
    schema = fastavro.parse_schema({"type": "record", "name": "All", "fields": fields})
    assert bounded_reader(schema) is fastavro.schemaless_reader

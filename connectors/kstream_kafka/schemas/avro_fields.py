"""From Avro schemas to Arrow types: the fields of a record as columns, and the types in which decoded values become an asked-for column.

An Avro value becomes a wider column, never a narrower one, so nothing is lost. Times of a day, and timestamps in nanoseconds, are columns
of numbers: Spark has no types for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

UTC = "UTC"
_SIMPLE = {
    "boolean": (pa.bool_(),),
    "string": (pa.string(),),
    "enum": (pa.string(),),
    "bytes": (pa.binary(),),
    "fixed": (pa.binary(),),
    "int": (pa.int32(), pa.int64(), pa.float64()),
    "long": (pa.int64(),),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
}
"""type of Avro → the types that a column of it may have; the first is the one that it has unless the query names another."""
TIMESTAMPS = {
    "timestamp-millis": pa.timestamp("ms", UTC),
    "timestamp-micros": pa.timestamp("us", UTC),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class AvroFields:
    """The fields of an Avro schema as columns. Immutable."""

    def __init__(self, schema: Any) -> None:
        """Look at a schema.

        Args:
            schema: a record, parsed by fastavro.

        Raises:
            ValueError: it is no record, or one that contains itself.
        """
        self._named: Mapping[str, Any] = schema.get("__named_schemas", {}) if isinstance(schema, Mapping) else {}
        record = self._resolved(schema)
        if not is_record(record):
            raise ValueError(f"the schema is {shown(schema)}, and only the fields of a record are columns")
        self._record = record
        self._fields: dict[str, Any] = {field["name"]: field["type"] for field in record["fields"]}
        self._refuse_recursion(record, ())

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def columns(self) -> pa.Schema:
        """Return the columns of all fields, with Spark's types. ValueError if one of them has none."""
        return pa.schema([(name, self._natural(schema, name)) for name, schema in self._fields.items()])

    def built_as(self, name: str, wanted: pa.DataType) -> pa.DataType:
        """Return the type in which decoded values of a field become an array that can be cast to a wanted type.

        Raises:
            ValueError: values of the field do not fit the wanted type.
        """
        return self._built(self._fields[name], wanted, name)

    def _resolved(self, schema: Any) -> Any:
        """Return the schema that a name or a union with null stands for. ValueError for a union of several others."""
        if isinstance(schema, list):
            others = [branch for branch in schema if type_name(branch) != "null"]
            if len(others) > 1:
                raise ValueError(f"a union of {' and '.join(map(shown, others))} has no type of a column")
            return self._resolved(others[0]) if others else "null"
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        inner = schema["type"]
        return self._resolved(inner) if isinstance(inner, (dict, list)) or inner in self._named else schema

    def _refuse_recursion(self, schema: Any, inside: tuple[str, ...]) -> None:
        """Raise ValueError if a record contains itself: Arrow has no type for it."""
        for branch in schema if isinstance(schema, list) else [schema]:
            found = self._named.get(branch, branch) if isinstance(branch, str) else branch
            if not isinstance(found, dict):
                continue
            if is_record(found):
                if found["name"] in inside:
                    raise ValueError(f"the record {found['name']} contains itself, and no type of a column does")
                for field in found["fields"]:
                    self._refuse_recursion(field["type"], (*inside, found["name"]))
            else:
                for part in ("items", "values", "type"):
                    self._refuse_recursion(found.get(part, "null"), inside)

    def _natural(self, schema: Any, path: str) -> pa.DataType:
        """Return the type of a column in which values of a schema lose nothing. ValueError, which names the field, if there is none."""
        found = self._resolved(schema)
        kind, logical = type_name(found), logical_type(found)
        if logical == "decimal":
            return pa.decimal128(found["precision"], found.get("scale", 0))
        if logical in TIMESTAMPS:
            return pa.timestamp("us", TIMESTAMPS[logical].tz)
        if logical == "date":
            return pa.date32()
        if kind in _SIMPLE:
            return _SIMPLE[kind][0]
        if kind == "array":
            return pa.list_(self._natural(found["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self._natural(found["values"], path))
        if is_record(found):
            return pa.struct([(f["name"], self._natural(f["type"], f"{path}.{f['name']}")) for f in found["fields"]])
        raise ValueError(f"the field {path} is {shown(schema)}, which has no type of a column")

    def _built(self, schema: Any, wanted: pa.DataType, path: str) -> pa.DataType:
        """Return the type of `built_as`, for a schema at any depth. A field that a record lacks counts as null, which fits any type."""
        try:
            found = self._resolved(schema)
        except ValueError as e:
            raise ValueError(f"the field {path}: {e}") from None
        kind, logical = type_name(found), logical_type(found)
        if kind == "null":
            return wanted
        if kind == "array" and pa.types.is_list(wanted):
            return pa.list_(self._built(found["items"], wanted.value_type, path))
        if kind == "map" and pa.types.is_map(wanted) and wanted.key_type == pa.string():
            return pa.map_(pa.string(), self._built(found["values"], wanted.item_type, path))
        if is_record(found) and pa.types.is_struct(wanted):
            own = {field["name"]: field["type"] for field in found["fields"]}
            inner = [wanted.field(i) for i in range(wanted.num_fields)]
            return pa.struct([(f.name, self._built(own.get(f.name, "null"), f.type, f"{path}.{f.name}")) for f in inner])
        if logical == "decimal":
            if pa.types.is_decimal(wanted) and _is_wider(wanted, found["precision"], found.get("scale", 0)):
                return wanted
        elif logical in TIMESTAMPS and pa.types.is_timestamp(wanted):
            if (wanted.tz is None) == (TIMESTAMPS[logical].tz is None):
                return TIMESTAMPS[logical]
        elif wanted in _SIMPLE.get(kind, ()) or (logical == "date" and wanted == pa.date32()):
            return wanted
        raise ValueError(f"the field {path} is {shown(found)}, and the column is {wanted}")


def is_record(schema: Any) -> bool:
    """Return whether a schema is that of a record."""
    return isinstance(schema, Mapping) and schema.get("type") in ("record", "error")


def type_name(schema: Any) -> str:
    """Return the type of a schema; "union" for a list of them."""
    return schema if isinstance(schema, str) else "union" if isinstance(schema, list) else str(schema["type"])


def logical_type(schema: Any) -> str:
    """Return the logical type of a schema; "" if it has none."""
    return "" if isinstance(schema, str) else str(schema.get("logicalType", ""))


def shown(schema: Any) -> str:
    """Return a schema in a few words, for an error."""
    if isinstance(schema, list):
        return f"a union of {' and '.join(map(shown, schema))}"
    logical = logical_type(schema)
    return f"{type_name(schema)} ({logical})" if logical else type_name(schema)


def _is_wider(wanted: Any, precision: int, scale: int) -> bool:
    """Return whether a decimal has at least these digits before and after its point."""
    return wanted.scale >= scale and wanted.precision - wanted.scale >= precision - scale

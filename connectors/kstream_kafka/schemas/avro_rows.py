"""AvroRows: rows of a struct as Avro values, in Confluent's framing. Needs pyarrow and fastavro.

A column becomes a field of the same or of a wider type, never a narrower one. Only points in time are cut to the milliseconds of a field,
as Spark's to_avro and Confluent's serializer do. fastavro itself checks little: it would write a number
that is too large for its field, and false for null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa

from kstream_kafka.schemas.avro_fields import TIMESTAMPS, AvroFields, is_record, logical_type, shown, type_name
from kstream_kafka.schemas.avro_schema import AvroSchema, fastavro
from kstream_kafka.schemas.framing import frame_of
from kstream_kafka.schemas.plain_rows import Make, or_none

_WIDER: Mapping[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "string": (pa.string(),),
    "enum": (pa.string(),),
    "bytes": (pa.binary(),),
    "fixed": (pa.binary(),),
    "int": (pa.int8(), pa.int16(), pa.int32()),
    "long": (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    "float": (pa.float32(),),
    "double": (pa.float32(), pa.float64(), pa.int8(), pa.int16(), pa.int32()),
}
"""type of Avro → the types of a column whose values it has all."""


class AvroRows:
    """Encodes rows of a struct, as `plain_rows` gives them. One thread."""

    def __init__(self, schema: AvroSchema, schema_id: int, columns: pa.StructType) -> None:
        """Prepare the fields.

        Args:
            schema: the schema of the values, a record.
            schema_id: its id in the registry.
            columns: the struct.

        Raises:
            ValueError: a column has no field, or one that does not have all its values; or a field has no column.
        """
        self._make = _Fields(schema.parsed()).record_maker(columns)
        self._parsed, self._frame, self._write = schema.parsed_plain(), frame_of(schema_id), fastavro().schemaless_writer

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        """Return the framed bytes of a row. ValueError, which shows nothing of the row, if a value does not fit its field."""
        made = row if self._make is None else self._make(row)
        file = BytesIO()
        file.write(self._frame)
        try:
            self._write(file, self._parsed, made)
        except Exception as e:  # its text may have a value
            raise ValueError(f"is none of its Avro schema: {type(e).__name__}") from None
        return file.getvalue()


class _Fields(AvroFields):
    """The fields of a schema, as columns become them: makes the functions (`Make`) that turn a value of a column into one of its field."""

    def record_maker(self, columns: pa.StructType) -> Make:
        """Return what turns a row into the record that fastavro writes; None if the row is it already. ValueError as `AvroRows`."""
        return self._maker_at(self._record, columns, "")

    def _maker_at(self, record: Any, columns: pa.StructType, path: str) -> Make:
        """Return what `record_maker` does for a record at any depth. `path`: the names around its fields, as `order.`, for errors."""
        fields = {field["name"]: field for field in record["fields"]}
        makes: list[tuple[str, Callable[[Any], Any]]] = []
        for column in columns:
            if column.name not in fields:
                raise ValueError(f"the schema has no field {path}{column.name}")
            make = self._value_maker(fields[column.name]["type"], column.type, f"{path}{column.name}")
            if make is not None:
                makes.append((column.name, make))
        for name, field in fields.items():
            if name in columns.names:
                continue
            if "default" not in field and not self._may_be_null(field["type"]):
                raise ValueError(f"the field {path}{name} has no column and no default")
            if self._has_bytes(field["type"], field.get("default")):
                raise ValueError(f"the field {path}{name} has no column, and fastavro cannot write a default of bytes")
        return (lambda row: {**row, **{name: make(row[name]) for name, make in makes}}) if makes else None

    def _value_maker(self, schema: Any, kind: pa.DataType, path: str) -> Make:
        """Return what turns a column's value into that of a field. It raises ValueError for null if the schema has no null."""
        try:
            found = self._resolved(schema)
        except ValueError as e:
            raise ValueError(f"the field {path}: {e}") from None
        make = self._maker_of_present(found, kind, path)
        if self._may_be_null(schema):
            return None if make is None else or_none(make)

        def not_null(value: Any) -> Any:
            if value is None:
                raise ValueError(f"has null in the field {path!r}, and its schema has not")
            return value if make is None else make(value)

        return not_null

    def _maker_of_present(self, found: Any, kind: pa.DataType, path: str) -> Make:
        """Return what turns a column's value, which is not null, into a field's. ValueError if the field does not have all its values."""
        name, logical = type_name(found), logical_type(found)
        if name == "array" and pa.types.is_list(kind):
            item = self._value_maker(found["items"], kind.value_type, path)
            return None if item is None else lambda values: [item(value) for value in values]
        if name == "map" and pa.types.is_map(kind) and kind.key_type == pa.string():
            value_of = self._value_maker(found["values"], kind.item_type, path) or (lambda value: value)
            return lambda pairs: {key: value_of(value) for key, value in pairs}
        if is_record(found) and pa.types.is_struct(kind):
            return self._maker_at(found, kind, f"{path}.")
        if logical == "decimal":
            whole = found["precision"] - found.get("scale", 0)
            if pa.types.is_decimal(kind) and kind.scale <= found.get("scale", 0) and kind.precision - kind.scale <= whole:
                return None
        elif logical in TIMESTAMPS:
            if pa.types.is_timestamp(kind) and (kind.tz is None) == (TIMESTAMPS[logical].tz is None):
                return (lambda micros: micros // 1000) if logical.endswith("millis") else None
        elif logical == "date":
            if pa.types.is_date32(kind):
                return None
        elif kind in _WIDER.get(name, ()):
            return _checker(found, name, path)
        raise ValueError(f"the field {path} is {shown(found)}, and the column is {kind}")

    def _has_bytes(self, schema: Any, default: Any) -> bool:
        """Return whether the default of a field has bytes at any depth. In JSON they are a text, which fastavro does not write as bytes."""
        if default is None:
            return False
        if isinstance(schema, list):  # a default is one of the first type of a union
            return any(self._has_bytes(branch, default) for branch in [one for one in schema if type_name(one) != "null"][:1])
        found = self._resolved(schema)
        name = type_name(found)
        if name == "array":
            return any(self._has_bytes(found["items"], item) for item in default)
        if name == "map":
            return any(self._has_bytes(found["values"], item) for item in default.values())
        if is_record(found):
            return any(self._has_bytes(f["type"], default.get(f["name"], f.get("default"))) for f in found["fields"])
        return name in ("bytes", "fixed")

    def _may_be_null(self, schema: Any) -> bool:
        branches = schema if isinstance(schema, list) else [schema]
        return any(type_name(branch) == "null" for branch in branches)


def _checker(found: Any, name: str, path: str) -> Make:
    """Return what checks a value of an enum or a fixed, and gives it back; None for other types, whose values all fit."""
    if name == "enum":
        symbols = frozenset(found["symbols"])

        def symbol(value: str) -> str:
            if value not in symbols:
                raise ValueError(f"has in the field {path!r} a text that is no symbol of {found['name']}")
            return value

        return symbol
    if name == "fixed":

        def fixed(value: bytes) -> bytes:
            if len(value) != found["size"]:
                raise ValueError(f"has in the field {path!r} {len(value)} bytes, and {found['name']} has {found['size']}")
            return value

        return fixed
    return None

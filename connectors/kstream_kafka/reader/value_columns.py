"""Which columns of a schema are fields of the values, and which are those of the records. Needs pyspark, but no Spark session.

A column `value` that is a STRUCT has the fields of the value. Without one, each column that no record has is a field of the value. So a
field with the name of a record's column, as `timestamp`, needs the struct. `value BINARY` stays the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    _parse_datatype_string,  # pyright: ignore[reportPrivateUsage]  # `DataType.fromDDL` came with Spark 4
)

from kstream.public_call import refused
from kstream_kafka.reader.arrow import TIMESTAMP
from kstream_kafka.reader.data_frame import SCHEMA
from kstream_kafka.reader.typed_columns import CORRUPT, TypedColumns
from kstream_kafka.reader.value_formats import FORMATS, VALUE, Mode, ValueSchema

Refuse: TypeAlias = Callable[[str, str], Exception]
"""Makes the error for a schema. Arguments: the end of the sentence `schema …`, and a hint."""

TEXT = "text"
"""The format whose only field is `value STRING`."""

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
"""Name of a type of Spark → the type of Arrow."""


def schema_of_format(records: StructType, format: str, options: Mapping[str, Any]) -> StructType | None:
    """Return the schema of a query that names no field of the values: `value` has the type that its format has.

    With a schema registry that is a struct of the fields of the schema that the options name; blocks on the registry.

    Args:
        records: the columns of the records.
        format: the name of the format of the values.
        options: the options of the format.

    Returns:
        The schema; None if the format leaves the fields to a schema of the user.

    Raises:
        SourceOptionError: the options name no schema, or it cannot be columns.
        KafkaError: an error of the registry.
    """
    fields = FORMATS[format].fields
    if fields is None:
        return None
    kind: DataType = StringType()
    if format != TEXT:
        kind = from_arrow_schema(fields(options), prefer_timestamp_ntz=True)  # its default differs between versions
    return StructType([StructField(VALUE, kind) if field.name == VALUE else field for field in records.fields])


def typed_columns(schema: StructType, format: str, mode: Mode, options: Mapping[str, Any], refuse: Refuse) -> TypedColumns:
    """Return the columns of a query whose values are decoded. Sends no request.

    Args:
        schema: the schema of the query.
        format: the name of the format of the values.
        mode: what becomes of a value that does not fit.
        options: the options of the format.
        refuse: makes the error for a schema that cannot be. It is raised here.
    """
    names = schema.fieldNames()
    _check_fields(schema.fields, refuse)
    whole = schema[VALUE].dataType if VALUE in names else None
    is_struct = isinstance(whole, StructType) and format != TEXT
    flat = [field for field in schema.fields if _is_of_value(field, format, mode, is_struct, refuse)]
    fields = list(whole.fields) if is_struct and isinstance(whole, StructType) else flat
    if not fields:
        raise refuse("names no field of the values", f"Name one, or leave the format {format} out.")
    if is_struct and flat:
        raise refuse(f"has {flat[0].name!r} beside value STRUCT<…>", "Put it into the struct: it has all fields of the value.")
    values = ValueSchema(format, arrow_fields(fields, refuse), mode, options)
    try:
        values.open()
    except ValueError as e:
        raise refuse(str(e), "") from None
    return TypedColumns(tuple(names), values, is_struct)


def _is_of_value(field: StructField, format: str, mode: Mode, is_struct: bool, refuse: Refuse) -> bool:
    """Return whether a column is a field of the values. Raises what `refuse` makes, if it is none and cannot be a record's."""
    name, found = field.name, field.dataType.simpleString()
    if name == VALUE and (is_struct or (format == TEXT and isinstance(field.dataType, StringType))):
        return not is_struct
    if name == CORRUPT:
        if mode != "permissive":
            raise refuse(f"has the column {CORRUPT!r}, and in the mode {mode} it would always be null", "Leave it out.")
        if not isinstance(field.dataType, StringType):
            raise refuse(f"has the column {CORRUPT!r} as {found}, and it is string", "")
        return False
    if name not in SCHEMA.names:
        if format == TEXT:
            raise refuse(f"has the column {name!r}, and the only field of a text is value STRING", "")
        return True
    wanted = SCHEMA[name].dataType
    if field.dataType != wanted:
        of_value = f"If it is a field of the value, name the fields as one struct: value STRUCT<{name}: {found}, …>."
        hint = "" if format == TEXT else of_value
        raise refuse(f"has the column {name!r} as {found}, and that of a record is {wanted.simpleString()}", hint)
    return False


def arrow_fields(fields: Sequence[StructField], refuse: Refuse) -> pa.Schema:
    """Return the fields of values in Arrow. Raises what `refuse` makes, if one is there twice, is NOT NULL, or Arrow has no such type."""
    _check_fields(fields, refuse)
    return pa.schema([_arrow_field(field, refuse) for field in fields])


def parsed_schema(call: str, schema: Any) -> StructType:
    """Return a schema that a user gives: a StructType, or its DDL, which needs a SparkContext. `call`: the name of the public function.

    Raises:
        TypeError: it is neither.
        ParseException: Spark cannot parse the DDL.
    """
    if isinstance(schema, str):
        schema = _parse_datatype_string(schema)
    if not isinstance(schema, StructType):
        raise refused(TypeError(f"{call}: schema must be a StructType or its DDL, as 'id BIGINT, amount DOUBLE', it is {schema!r}"))
    return schema


def _check_fields(fields: Sequence[StructField], refuse: Refuse) -> None:
    """Raise what `refuse` makes, if a field is there twice or is NOT NULL."""
    names = [field.name for field in fields]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise refuse(f"has the column {twice!r} twice", "")
    if required := next((name for field in fields for name in _not_null(field)), None):
        raise refuse(f"has {required!r} as NOT NULL, and it may be null", "")


def _not_null(field: StructField) -> Iterator[str]:
    """Yield the names of a field, and of the fields in it, that are NOT NULL."""
    if not field.nullable:
        yield field.name
    kind = field.dataType
    while isinstance(kind, ArrayType | MapType):
        kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
    if isinstance(kind, StructType):
        for inner in kind.fields:
            yield from _not_null(inner)


def _arrow_field(field: StructField, refuse: Refuse) -> pa.Field:
    """Return a field as one of Arrow. Raises what `refuse` makes, if Arrow has no such type."""
    found = arrow_type(field.dataType)
    if found is None:
        raise refuse(f"has {field.name!r} as {field.dataType.simpleString()}, a type that no value has", "")
    return pa.field(field.name, found)


def arrow_type(kind: DataType) -> pa.DataType | None:
    """Return the type of Arrow for one of Spark; None if there is none for values."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, TimestampNTZType):
        return pa.timestamp("us")
    if isinstance(kind, DayTimeIntervalType):
        return pa.duration("us")
    if isinstance(kind, ArrayType):
        inner = arrow_type(kind.elementType)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if isinstance(kind, MapType):
        key, item = arrow_type(kind.keyType), arrow_type(kind.valueType)
        return None if key is None or item is None else pa.map_(key, item)
    if isinstance(kind, StructType):
        inner_fields = [(field.name, arrow_type(field.dataType)) for field in kind.fields]
        return None if any(inner is None for _, inner in inner_fields) else pa.struct(inner_fields)
    return _TYPES.get(kind.typeName())

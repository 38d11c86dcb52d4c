"""The columns of a query: all of Spark's Kafka source, or those that a schema of the user names.

Spark's Kafka source refuses a schema. Here it selects columns, by `.schema("value BINARY, offset BIGINT")`: a column that nobody asks for
is not built. With a format of values it names their fields, too. Needs pyspark, but no Spark session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.types import StructType

from kstream.nearest_name import did_you_mean, nearest_names
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.data_frame import SCHEMA
from kstream_kafka.structured.options import SourceOptions

if TYPE_CHECKING:
    from kstream_kafka.reader.typed_columns import TypedColumns

Columns: TypeAlias = "tuple[str, ...] | TypedColumns"
"""The columns of a query: names of columns of the records, or these together with fields of the values."""

SCHEMA_KEY = "schema"
"""The name of the user's schema, for errors."""


def default_schema(include_headers: bool) -> StructType:
    """Return the schema of a query without a schema of the user: that of Spark's Kafka source, letter for letter."""
    return SCHEMA if include_headers else StructType(SCHEMA.fields[:-1])


def schema_of(options: SourceOptions) -> StructType:
    """Return the schema of a query without a schema of the user: the default one, with the type of its format for `value`.

    Raises:
        SourceOptionError: the format leaves the fields to a schema of the user.
        Exception: as `schema_of_format`, which may block on a registry.
    """
    schema = default_schema(options.include_headers)
    if options.value_format is None:
        return schema
    from kstream_kafka.reader.value_columns import schema_of_format

    found = schema_of_format(schema, options.value_format, options.format_options)
    if found is None:
        hint = 'Name the fields of the values, as .schema("id BIGINT, amount DOUBLE"), or by a column value STRUCT<…>.'
        raise SourceOptionError(SCHEMA_KEY, f"is missing: with value.format={options.value_format} a query needs one", hint)
    return found


def columns_of(schema: StructType, options: SourceOptions) -> Columns:
    """Return the columns of a query.

    Args:
        schema: the schema of the query, given by the user or that of `schema_of`.
        options: the options of the query.

    Raises:
        SourceOptionError: as `chosen_columns`; or the fields of the values cannot be those of their format.
    """
    if options.value_format is None:
        return chosen_columns(schema)
    from kstream_kafka.reader.value_columns import typed_columns

    def refused(reason: str, hint: str) -> SourceOptionError:
        return SourceOptionError(SCHEMA_KEY, reason, hint)

    return typed_columns(schema, options.value_format, options.mode, options.format_options, refused)


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns that a schema asks for, in its order. Pure.

    Args:
        schema: the schema of the query, given by the user or the default.

    Raises:
        SourceOptionError: the schema has no column, one twice, or one that is unknown, of another type or not nullable.
    """
    names = schema.fieldNames()
    if not names:
        raise SourceOptionError(SCHEMA_KEY, "names no column", f"The columns are: {_described(SCHEMA)}.")
    for position, field in enumerate(schema.fields):
        if field.name not in SCHEMA.names:
            columns = f"The columns are: {_described(SCHEMA)}. Fields of the values need the option value.format."
            near = did_you_mean(nearest_names(field.name, SCHEMA.names)) or columns
            raise SourceOptionError(SCHEMA_KEY, f"has the column {field.name!r}, which is no column of Kafka's records", near)
        if field.name in names[:position]:
            raise SourceOptionError(SCHEMA_KEY, f"has the column {field.name!r} twice")
        wanted = SCHEMA[field.name]
        if field.dataType != wanted.dataType:
            reason = f"has the column {field.name!r} as {field.dataType.simpleString()}, and it is {wanted.dataType.simpleString()}"
            raise SourceOptionError(SCHEMA_KEY, reason, "Cast it in the query: a cast in the schema would be made by nobody.")
        if not field.nullable:
            raise SourceOptionError(SCHEMA_KEY, f"has the column {field.name!r} as NOT NULL, and it may be null")
    return tuple(names)


def _described(schema: StructType) -> str:
    """Return the columns of a schema as one writes them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)

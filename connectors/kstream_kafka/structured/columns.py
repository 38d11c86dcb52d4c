"""The columns of a query: all of Spark's Kafka source, or those that a schema of the user names.

Spark's Kafka source refuses a schema. Here it selects columns, by `.schema("value BINARY, offset BIGINT")`: a column that nobody asks for
is not built. Needs pyspark, but no Spark session.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from kstream.nearest_name import did_you_mean, nearest_names
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.data_frame import SCHEMA

SCHEMA_KEY = "schema"
"""The name of the user's schema, for errors."""


def default_schema(include_headers: bool) -> StructType:
    """Return the schema of a query without a schema of the user: that of Spark's Kafka source, letter for letter."""
    return SCHEMA if include_headers else StructType(SCHEMA.fields[:-1])


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
            near = did_you_mean(nearest_names(field.name, SCHEMA.names)) or f"The columns are: {_described(SCHEMA)}."
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

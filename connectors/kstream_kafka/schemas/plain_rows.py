"""plain_rows: a column as values of Python that encoders take: structs are dicts, and all points in time are numbers.

Dates are days and timestamps microseconds since 1970; durations are microseconds. So no point in time is out of the range of Python's
types, and none depends on a time zone. A map is a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

Make: TypeAlias = Callable[[Any], Any] | None
"""Makes of a value what is written. None if the value is written as it is."""


def times_as_integers(kind: pa.DataType) -> pa.DataType:
    """Return the type to which a column is cast before its values are encoded: integers for times and durations, at every depth. Pure."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(times_as_integers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(times_as_integers(kind.key_type), times_as_integers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, times_as_integers(field.type)) for field in kind])
    return kind


def plain_rows(column: pa.Array, kind: pa.DataType) -> list[Any]:
    """Return the values of a column, with times as integers; None for null.

    Args:
        column: the column.
        kind: its type, as the encoder knows it. The column may have another width, as large_string.
    """
    return column.cast(kind).cast(times_as_integers(kind)).to_pylist()


def or_none(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that leaves None as it is, and does what `make` does with any other value."""
    return lambda value: None if value is None else make(value)

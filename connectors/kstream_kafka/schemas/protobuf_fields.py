"""From Protobuf fields to Arrow types: the fields of a message as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kstream_kafka.schemas.plain_message import DURATION, TIMESTAMP, WRAPPERS, is_map, is_repeated

UTC = "UTC"
_SIMPLE: Mapping[str, tuple[pa.DataType, ...]] = {
    "int32": (pa.int32(), pa.int64()),
    "uint32": (pa.int64(),),
    "int64": (pa.int64(),),
    "uint64": (pa.decimal128(20, 0), pa.int64()),
    "double": (pa.float64(),),
    "float": (pa.float32(), pa.float64()),
    "bool": (pa.bool_(),),
    "enum": (pa.string(),),
    "string": (pa.string(),),
    "bytes": (pa.binary(),),
}
"""kind of a field → the types that a column of it may have; the first is the one that it has unless the query names another."""
_UP_TO_ENUM = ("", "double", "float", "int64", "uint64", "int32", "uint64", "uint32", "bool", "string", "", "", "bytes", "uint32", "enum")
_KINDS: tuple[str, ...] = (*_UP_TO_ENUM, "int32", "int64", "int32", "int64")
"""The kind of a field by the number of its type in its descriptor; sint32 and sfixed32 are int32."""


def types_of(field: Any) -> tuple[pa.DataType, ...]:
    """Return the types that a column of a field may have, the natural one first; empty for a field that is a message."""
    return _SIMPLE.get(_KINDS[field.type], ())


def misfit(field: Any, wanted: pa.DataType) -> ValueError:
    """Return the error for a field that does not fit a column."""
    shown = field.message_type.full_name if field.message_type is not None else _KINDS[field.type]
    words = "a map" if is_map(field) else f"a list of {shown}" if is_repeated(field) else shown
    return ValueError(f"the field {field.name} is {words}, and the column is {wanted}")


def natural(field: Any, inside: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of a column in which a field loses nothing. ValueError if it has none. `inside`: the messages around it."""
    if is_map(field):
        parts = field.message_type.fields_by_name
        return pa.map_(natural(parts["key"], inside), natural(parts["value"], inside))
    one = _natural_value(field, inside)
    return pa.list_(one) if is_repeated(field) else one


def _natural_value(field: Any, inside: tuple[str, ...]) -> pa.DataType:
    """Return the type of one value of a field. ValueError if its message contains itself."""
    if field.message_type is None:
        return types_of(field)[0]
    kind = field.message_type.full_name
    if kind == TIMESTAMP:
        return pa.timestamp("us", UTC)
    if kind == DURATION:
        return pa.duration("us")
    if kind in WRAPPERS:
        return natural(field.message_type.fields_by_name["value"], inside)
    if kind in inside:
        raise ValueError(f"the message {kind} contains itself, and no type of a column does")
    return pa.struct([(inner.name, natural(inner, (*inside, kind))) for inner in field.message_type.fields])

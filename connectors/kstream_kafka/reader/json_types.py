"""The types of JSON fields: in which Arrow's reader of JSON reads each, and how it becomes the type of the schema. Needs pyarrow and numpy.

Points in time and dates are strings of ISO 8601 in JSON. They are read as strings and cast, because the reader itself takes fewer forms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
"""Arrow's functions. pyarrow makes them when it is imported, so no type checker knows them."""

_AS_THEY_ARE = (pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_string)
_MOST_DIGITS = 38


def read_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type in which Arrow's reader reads a field of a type; None if it cannot, as for maps and base64.

    Args:
        kind: the type of the field.

    Raises:
        ValueError: no JSON value has this type.
    """
    if any(is_it(kind) for is_it in _AS_THEY_ARE):
        return kind
    if pa.types.is_decimal128(kind):
        return pa.decimal128(_MOST_DIGITS, kind.scale)  # the reader does not look at the precision, and a cast does
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = read_type(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, read_type(field.type)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        read_type(kind.item_type)
        return None
    if pa.types.is_binary(kind):
        return None
    raise ValueError(f"has the type {kind}, which no JSON value has")


def typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array that was read, in the type of its field.

    Args:
        array: an array of `read_type(kind)`.
        kind: the type of the field.

    Raises:
        ArrowInvalid: a string is no date or point in time.
    """
    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind):
        return _instants(array, kind)
    if pa.types.is_list(kind):
        inner = typed(array.values, kind.value_type)
        ends_too = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
        return pa.ListArray.from_arrays(pa.array(array.offsets.to_numpy(), pa.int32(), mask=ends_too), inner).cast(kind)
    if pa.types.is_struct(kind):
        columns = [typed(column, field.type) for column, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())
    return array.cast(kind)


def _instants(texts: pa.StringArray, kind: pa.TimestampType) -> pa.Array:
    """Return points in time. Without a zone they are in UTC. A type without a zone takes none."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        pass
    texts = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    if kind.tz is None:
        return texts.cast(kind)
    is_day = pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d$")
    timed = pc.if_else(is_day, pc.binary_join_element_wise(texts, "T00:00:00", ""), texts)
    has_zone = pc.match_substring_regex(texts, r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$")
    return pc.if_else(has_zone, timed, pc.binary_join_element_wise(timed, "Z", "")).cast(kind)

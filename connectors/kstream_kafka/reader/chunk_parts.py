"""Parts of a chunk: rows of one schema, decoded together, and how they become the struct of the whole chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kstream_kafka.reader.value_formats import MalformedValue

Part: TypeAlias = tuple[Sequence[int], pa.StructArray]
"""Rows of a chunk, and a struct for each of them."""


def fitting(
    rows: Sequence[int], found: Sequence[Any], struct: Callable[[Sequence[Any]], pa.StructArray], malformed: list[MalformedValue]
) -> Part:
    """Return the part that decoded values make. Those that are out of the range of their column are left out and added to `malformed`.

    Args:
        rows: the row of each value.
        found: the values.
        struct: makes a struct of values. An ArrowInvalid, OverflowError or ValueError says that one of them is out of range.
        malformed: gets the values that are out of range, such as a timestamp after the year 294,000.
    """
    try:
        return rows, struct(found)
    except (pa.ArrowInvalid, OverflowError, ValueError):
        pass
    kept: list[int] = []
    for at, value in enumerate(found):
        try:
            struct([value])
            kept.append(at)
        except (pa.ArrowInvalid, OverflowError, ValueError):  # its text may have the value
            malformed.append(MalformedValue(rows[at], "is out of range: a field is too large for its column"))
    return [rows[at] for at in kept], struct([found[at] for at in kept])


def together(parts: Sequence[Part], count: int, fields: pa.Schema) -> pa.StructArray:
    """Return the struct of a whole chunk. Rows of no part are null.

    Args:
        parts: the parts; no row is in two of them.
        count: the number of rows of the chunk.
        fields: the fields of the structs.
    """
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    where = np.full(count, -1, np.int64)
    begin = 0
    for rows, _ in parts:
        where[rows] = np.arange(begin, begin + len(rows))
        begin += len(rows)
    arrays = [array for _, array in parts] or [pa.array([], pa.struct(list(fields)))]
    return pa.concat_arrays(arrays).take(pa.array(where, mask=where < 0))

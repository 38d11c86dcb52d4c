"""JsonRows: rows of a struct as JSON objects. Needs pyarrow.

The forms are those that `value.format=json` reads. Null fields are left out, as `to_json` does.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from kstream_kafka.reader.json_types import read_type

Text = Callable[[Any], str]
"""Returns the JSON of a value that is not null."""
_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1)
_quoted: Text = json.JSONEncoder(ensure_ascii=False).encode


class JsonRows:
    """Encodes rows of a struct, as `plain_rows` gives them. One thread."""

    def __init__(self, columns: pa.StructType) -> None:
        """Prepare the fields. ValueError if a column has a type that no JSON value has."""
        self._text = _of_struct(columns)

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        """Return the JSON of a row. ValueError if a value has none, as a date after the year 9999."""
        try:
            return self._text(row).encode()
        except OverflowError:
            raise ValueError("has a point in time outside of the years 1 to 9999") from None


def _text_of(kind: pa.DataType) -> Text:
    """Return the function that makes the JSON of a value of a type. ValueError if no JSON value has the type."""
    if pa.types.is_struct(kind):
        return _of_struct(kind)
    if pa.types.is_list(kind):
        item = _or_null(_text_of(kind.value_type))
        return lambda values: f"[{','.join(map(item, values))}]"
    if pa.types.is_map(kind):
        read_type(kind)
        value_of = _or_null(_text_of(kind.item_type))
        return lambda pairs: f"{{{','.join(f'{_quoted(key)}:{value_of(value)}' for key, value in pairs)}}}"
    read_type(kind)
    if pa.types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if pa.types.is_floating(kind):
        return _float32 if pa.types.is_float32(kind) else _float
    if pa.types.is_decimal(kind):
        return lambda value: format(Decimal(value), "f")
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return lambda micros: f'"{(_EPOCH + timedelta(microseconds=micros)).isoformat()}{zone}"'
    if pa.types.is_date(kind):
        return lambda days: f'"{(_DAY + timedelta(days)).isoformat()}"'
    if pa.types.is_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    return _quoted if pa.types.is_string(kind) else str


def _of_struct(kind: pa.StructType) -> Text:
    """Return the function that makes the JSON object of a row, without the fields that are null."""
    fields = [(field.name, f"{_quoted(field.name)}:", _text_of(field.type)) for field in kind]

    def text(row: Mapping[str, Any]) -> str:
        return "{" + ",".join([key + of(value) for name, key, of in fields if (value := row[name]) is not None]) + "}"

    return text


def _or_null(text: Text) -> Text:
    return lambda value: "null" if value is None else text(value)


def _float(value: float) -> str:
    """Return a number, or one of the three texts that Spark writes for what JSON has no number for."""
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _float32(value: float) -> str:
    """Return the shortest number that is the same float of 32 bits."""
    return repr(float(str(np.float32(value)))) if math.isfinite(value) else _float(value)

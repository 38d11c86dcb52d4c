"""JsonDocuments: JSON values decoded by Python, one by one: those that Arrow's reader does not take. It says what is wrong with each."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa

from kstream_kafka.reader.json_types import read_type, typed

Convert: TypeAlias = Callable[[Any], Any]
"""A function from a value of Python's json, which is not None, to one for the read type of a field. ValueError if it does not fit."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SPECIAL = {"NaN", "Infinity", "+Infinity", "-Infinity", "INF", "+INF", "-INF"}
"""The strings that Spark's from_json takes for numbers."""


class JsonDocuments:
    """Decodes JSON values one by one, to rows of the fields of a schema."""

    def __init__(self, fields: pa.Schema) -> None:
        """
        Args:
            fields: the fields.

        Raises:
            ValueError: a field has a type that JSON values cannot have.
        """
        self._struct = pa.struct(list(fields))
        self._read = _type_before_cast(self._struct)
        self._convert = _object_converter(self._struct)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """Decode values, none of which is null.

        Returns:
            A row for each value, null for one that does not fit; and the position of each of these in `values`, with the reason.
        """
        reasons: dict[int, str] = {}
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(self._convert(_document(value)))
            except ValueError as e:
                found.append(None)
                reasons[row] = str(e)
        rows = self._typed(found, reasons)
        return rows, sorted(reasons.items())

    def _typed(self, found: list[Any], reasons: dict[int, str]) -> pa.StructArray:
        """Return the rows of converted documents. A string that is no date is found here: its row is null, and `reasons` gets it."""
        try:
            return typed(pa.array(found, self._read), self._struct)
        except pa.ArrowInvalid:
            pass
        for row, document in enumerate(found):
            try:
                typed(pa.array([document], self._read), self._struct)
            except pa.ArrowInvalid:  # its text has the string
                found[row] = None
                reasons[row] = "has a string that does not fit its field, which is a date or a time"
        return typed(pa.array(found, self._read), self._struct)


def _document(value: bytes) -> Any:
    """Return the JSON object of a value. ValueError if it is none."""
    try:
        found = _DECODER.decode(value.decode())
    except UnicodeDecodeError as e:
        raise ValueError(f"is no UTF-8: {e.reason} at byte {e.start}") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"is no JSON: {e.msg} at character {e.pos}" if value else "is empty") from None
    except ValueError:
        raise ValueError("is no JSON that can be read: a number of it is too long") from None
    except RecursionError:
        raise ValueError("is no JSON that can be read: it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"is {_kind(found)} and no JSON object")
    return found


class _Number(float):
    """A number with a point or an exponent, and its text: a decimal must not be a float in between."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


_DECODER = json.JSONDecoder(parse_float=_Number)


def _type_before_cast(kind: pa.DataType) -> pa.DataType:
    """Return the type of the array of converted values: that of `read_type`; the type itself where that is None, as for base64."""
    if pa.types.is_list(kind):
        return pa.list_(_type_before_cast(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _type_before_cast(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _type_before_cast(kind.item_type))
    return read_type(kind) or kind


def _converter(kind: pa.DataType) -> Convert:
    """Return what converts values for a type. ValueError if no JSON value has it."""
    read_type(kind)
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_signed_integer(kind):
        return _whole_number_converter(kind.bit_width)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_string(kind):
        return _string_or_json
    if pa.types.is_decimal(kind):
        return _decimal_converter(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_binary(kind):
        return _base64
    if pa.types.is_list(kind):
        return _list_converter(kind)
    if pa.types.is_map(kind):
        return _map_converter(kind)
    return _object_converter(kind) if pa.types.is_struct(kind) else _only_string


def _field_value(convert: Convert, name: str, value: Any) -> Any:
    """Convert the value of a field of an object; None for None. The ValueError of a misfit gets the name of the innermost field."""
    if value is None:
        return None
    try:
        return convert(value)
    except ValueError as e:
        raise ValueError(str(e) if str(e).startswith("has in") else f"has in the field {name!r} {e}") from None


def _object_converter(kind: pa.StructType) -> Convert:
    fields = [(field.name, _converter(field.type)) for field in kind]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{_kind(value)}, not an object")
        return {name: _field_value(one, name, value.get(name)) for name, one in fields}

    return convert


def _list_converter(kind: pa.ListType) -> Convert:
    one = _converter(kind.value_type)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{_kind(value)}, not a list")
        return [None if item is None else one(item) for item in value]

    return convert


def _map_converter(kind: pa.MapType) -> Convert:
    one = _converter(kind.item_type)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise ValueError(f"{_kind(value)}, not an object")
        return [(_string_or_json(name), None if item is None else one(item)) for name, item in value.items()]

    return convert


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_kind(value)}, not true or false")
    return value


def _whole_number_converter(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{_kind(value)}, not a whole number")
        if not -limit <= value < limit:
            raise ValueError(f"a whole number of more than {bits} bits")
        return value

    return convert


def _float(value: Any) -> float:
    """Return a number, or one of the strings of _SPECIAL, as a float. ValueError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("a number that is too large") from None
    if isinstance(value, str) and value in _SPECIAL:
        return float(value)
    raise ValueError(f"{_kind(value)}, not a number")


def _string_or_json(value: Any) -> str:
    """Return a string as it is, and of any other value its JSON, as Spark's from_json does. ValueError if it cannot be UTF-8."""
    text = value if isinstance(value, str) else value.text if isinstance(value, _Number) else _as_json(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a string with half of a surrogate pair") from None
    return text


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_EXACT = Context(prec=2 * 38)
"""Python's own context has 28 digits, and a decimal of Spark 38."""


def _decimal_converter(precision: int, scale: int) -> Convert:
    """Return what makes decimals of numbers and of strings of digits. Digits behind the scale are rounded half up."""

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"{_kind(value)}, not a number")
        try:
            exact = Decimal(value.text if isinstance(value, _Number) else value)
            found = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT) if exact.is_finite() else exact
        except InvalidOperation:
            raise ValueError(f"no number of {precision} digits") from None
        if not found.is_finite() or len(found.as_tuple().digits) > precision:
            raise ValueError(f"no number of {precision} digits")
        return found

    return convert


def _instant(value: Any) -> str:
    """Return a point in time as a string, which is cast later. A whole number counts seconds, as in Spark's from_json."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return (EPOCH + timedelta(seconds=value)).replace(tzinfo=None).isoformat()
        except OverflowError:
            raise ValueError("a time that is too far away") from None
    return _only_string(value)


def _only_string(value: Any) -> str:
    """Return a string as it is. ValueError for any other value, and for a string that cannot be UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{_kind(value)}, not a string")
    return _string_or_json(value)


def _base64(value: Any) -> bytes:
    try:
        return base64.b64decode(_only_string(value), validate=True)
    except ValueError as e:
        raise ValueError(str(e) if not isinstance(value, str) else "a string that is no base64") from None


_KINDS = ((bool, "true or false"), (int, "a whole number"), (float, "a number"), (str, "a string"), (list, "a list"), (dict, "an object"))


def _kind(value: Any) -> str:
    """Return what a JSON value is, for an error. It shows none of the value, which may be a secret."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")

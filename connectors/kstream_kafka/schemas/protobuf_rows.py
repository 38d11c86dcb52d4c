"""ProtobufRows: rows of a struct as Protobuf messages, in Confluent's framing. Needs pyarrow and protobuf.

A column goes into the field of its name. What is null in a row is not set, so a field that has no presence reads as its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from kstream_kafka.schemas.framing import frame_of
from kstream_kafka.schemas.plain_message import DURATION, TIMESTAMP, WRAPPERS, is_map, is_repeated, is_required
from kstream_kafka.schemas.plain_rows import Make
from kstream_kafka.schemas.protobuf_fields import UTC, misfit, types_of
from kstream_kafka.schemas.protobuf_schema import FIRST, path_bytes

if TYPE_CHECKING:
    from google.protobuf.message import Message

Fill: TypeAlias = Callable[[Any, Any], None]
"""Puts a value into a message: of a row the columns, of a column its value."""
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_SECOND = 1_000_000


class ProtobufRows:
    """Encodes rows of a struct, as `plain_rows` gives them. One thread."""

    def __init__(self, message: type[Message], schema_id: int, columns: pa.StructType) -> None:
        """Prepare the fields.

        Args:
            message: the class of the messages, the first of its file.
            schema_id: the id of its file in the registry.
            columns: the struct.

        Raises:
            ValueError: a column has no field, or one of another type; or a required field has no column.
        """
        self._message = message
        self._frame = frame_of(schema_id) + path_bytes(FIRST)
        self._fill = _filler(message.DESCRIPTOR, columns, "")

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        """Return the framed bytes of a row. ValueError, which shows nothing of the row, if a value does not fit its field."""
        message = self._message()
        self._fill(message, row)
        try:
            return self._frame + message.SerializeToString(deterministic=True)
        except Exception as e:  # EncodeError is no ValueError
            raise ValueError(f"becomes no message of Protobuf: {type(e).__name__}") from None


def _filler(descriptor: Any, columns: pa.StructType, path: str) -> Fill:
    """Return what puts a row into a message: all values but nulls. It refuses null in a required field. ValueError as `ProtobufRows`.

    Args:
        descriptor: that of the message.
        columns: the struct of the rows.
        path: the names around its fields, as `order.`, for errors.
    """
    known = descriptor.fields_by_name
    if unknown := next((column.name for column in columns if column.name not in known), None):
        raise ValueError(f"the message {descriptor.full_name} has no field {path}{unknown}")
    required, given = frozenset(name for name, field in known.items() if is_required(field)), {column.name for column in columns}
    if missing := next((name for name in known if name in required and name not in given), None):
        raise ValueError(f"the field {path}{missing} is required and has no column")
    fills = list[tuple[str, Fill]]()
    for column in columns:
        field, inner = known[column.name], f"{path}{column.name}"
        fills.append((column.name, _alone_in_its_oneof(field, _field_filler(field, column.type, inner), inner)))

    def fill(message: Any, row: Mapping[str, Any]) -> None:
        for name, put in fills:
            if (value := row[name]) is not None:
                put(message, value)
            elif name in required:
                raise _FieldError(f"has null in the field {path + name!r}, which its message requires")

    return fill


def _alone_in_its_oneof(field: Any, put: Fill, path: str) -> Fill:
    """Return what does as `put`, and refuses the value if another field of its oneof has one, which would be cleared."""
    oneof = field.containing_oneof
    if oneof is None or len(oneof.fields) == 1:  # a field that is `optional` in proto3 has a oneof for itself
        return put
    name = oneof.name

    def fill(message: Any, value: Any) -> None:
        if message.WhichOneof(name) is not None:
            raise _FieldError(f"has a value in the field {path!r} and in another one of the oneof {name!r}")
        put(message, value)

    return fill


def _field_filler(field: Any, kind: pa.DataType, path: str) -> Fill:
    """Return what puts the value of a column, which is not null, into a field of a message. ValueError if the types do not fit.

    A value that does not fit raises a _FieldError with `path`, the names of the field and of those around it.
    """
    name = field.name
    if is_map(field):
        parts = field.message_type.fields_by_name
        if not pa.types.is_map(kind):
            raise misfit(field, kind)
        key_of, put = _value_maker(parts["key"], kind.key_type), _item_filler(parts["value"], kind.item_type, path)
        return _blaming(path, lambda message, pairs: [put(getattr(message, name), _made(key_of, key), value) for key, value in pairs])
    if is_repeated(field):
        if not pa.types.is_list(kind):
            raise misfit(field, kind)
        if field.message_type is None:
            make = _value_maker(field, kind.value_type)
            return _blaming(path, lambda message, values: getattr(message, name).extend([_made(make, value) for value in values]))
        fill = _message_filler(field, kind.value_type, path)
        return _blaming(path, lambda message, values: [fill(getattr(message, name).add(), value) for value in values])
    if field.message_type is None:
        make = _value_maker(field, kind)
        return _blaming(path, lambda message, value: setattr(message, name, _made(make, value)))
    fill = _message_filler(field, kind, path)

    def put_message(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        fill(inner, value)

    return _blaming(path, put_message)


def _item_filler(field: Any, kind: pa.DataType, path: str) -> Callable[[Any, Any, Any], None]:
    """Return what puts a key with its value into a map. `field`: that of the map's values."""
    if field.message_type is None:
        make = _value_maker(field, kind)
        return lambda entries, key, value: entries.__setitem__(key, _made(make, value))
    fill = _message_filler(field, kind, path)
    return lambda entries, key, value: fill(entries[key], value)


def _message_filler(field: Any, kind: pa.DataType, path: str) -> Fill:
    """Return what puts a value into the message that a field holds. ValueError if its type does not fit."""
    name = field.message_type.full_name
    if name == TIMESTAMP and kind == pa.timestamp("us", UTC):
        return _fill_timestamp
    if name == DURATION and kind == pa.duration("us"):
        return _fill_duration
    if name in WRAPPERS:
        make = _value_maker(field.message_type.fields_by_name["value"], kind)
        return lambda message, value: setattr(message, "value", _made(make, value))
    if not pa.types.is_struct(kind):
        raise misfit(field, kind)
    fill = _filler(field.message_type, kind, f"{path}.")

    def fill_row(message: Any, row: Mapping[str, Any] | None) -> None:
        if row is None:
            raise TypeError("null")
        fill(message, row)

    return fill_row


def _fill_timestamp(message: Any, micros: int) -> None:
    message.seconds, rest = divmod(micros, _SECOND)
    message.nanos = rest * 1000


def _fill_duration(message: Any, micros: int) -> None:
    """Put a duration into a message. Its two parts have the same sign."""
    seconds, rest = divmod(abs(micros), _SECOND)
    sign = -1 if micros < 0 else 1
    message.seconds, message.nanos = sign * seconds, sign * rest * 1000


def _value_maker(field: Any, kind: pa.DataType) -> Make:
    """Return what turns a column's value into that of a field, which is no message. ValueError if the types do not fit.

    Numbers are not checked: protobuf refuses those that are out of range.
    """
    known = types_of(field)
    if field.enum_type is not None:
        if kind != pa.string():
            raise misfit(field, kind)
        numbers = {name: value.number for name, value in field.enum_type.values_by_name.items()}
        return lambda name: numbers[name] if name in numbers else int(name)  # a number without a name is read as its text
    if pa.int64() in known and (kind in _INTEGERS or kind in known):
        return int if pa.types.is_decimal(kind) else None
    if kind in known and not (kind == pa.float64() and known[0] == pa.float32()):  # which would lose digits
        return None
    if kind == pa.float32() and known[0] == pa.float64():
        return None
    raise misfit(field, kind)


def _made(make: Make, value: Any) -> Any:
    return value if make is None else make(value)


def _blaming(path: str, put: Callable[[Any, Any], Any]) -> Fill:
    """Return what does as `put`. Its errors become a _FieldError with the path of the field, which shows nothing of the value."""

    def fill(message: Any, value: Any) -> None:
        try:
            put(message, value)
        except _FieldError:
            raise
        except Exception as e:  # its text may have the value
            raise _FieldError(f"has in the field {path!r} what its message cannot have: {type(e).__name__}") from None

    return fill


class _FieldError(ValueError):
    """The value of a field does not fit."""

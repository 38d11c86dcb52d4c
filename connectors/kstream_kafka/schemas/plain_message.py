"""A Protobuf message as a dict of plain values, and the parts of that, of which columns and messages are made, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value" for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""The messages that hold one value, so that it may be absent."""


def plain(message: Message) -> dict[str, Any]:
    """Return the fields of a message by their names, all of them. Pure.

    A field that is not set is None if that can be told from its default. An enum is the name of its number, or the number as text if it
    has no name. A Timestamp is a datetime in UTC, a Duration a timedelta, both in microseconds, and a wrapper the value in it.
    """
    return {name: get(message) for name, get in _getters(type(message))}


@lru_cache(maxsize=1000)
def _getters(kind: type[Message]) -> tuple[tuple[str, Callable[[Message], Any]], ...]:
    """Return each field of a class of messages, and the function that gets its plain value."""
    return tuple((field.name, getter(field, plain_value(field))) for field in kind.DESCRIPTOR.fields)


def is_repeated(field: Any) -> bool:
    """Return whether a field is a list or a map. Older packages tell it by a label."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def is_required(field: Any) -> bool:
    """Return whether a message must have a field, as it can be in proto2. Older packages tell it by a label."""
    found = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if found is None else found)


def is_map(field: Any) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def getter(field: Any, of_one: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return the function from a message to the value of a field: a list, a dict for a map, None if its absence can be told.

    Args:
        field: the descriptor of the field.
        of_one: makes what stands for one value: for each item of a list, for each value of a map; None leaves them as they are.
    """
    name, keep = field.name, of_one or (lambda value: value)
    if is_map(field):
        return lambda message: {key: keep(value) for key, value in getattr(message, name).items()}
    if is_repeated(field):
        return lambda message: [keep(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: keep(getattr(message, name)) if message.HasField(name) else None
    return lambda message: keep(getattr(message, name))


def plain_value(field: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes a plain value, as of `plain`, of one value of a field; None if it is one already."""
    if is_map(field):
        return plain_value(field.message_type.fields_by_name["value"])
    if field.enum_type is not None:
        return enum_names(field)
    if field.message_type is None:
        return None
    kind = field.message_type.full_name
    if kind == TIMESTAMP:
        return lambda value: EPOCH + timedelta(microseconds=microseconds(value))
    if kind == DURATION:
        return lambda value: timedelta(microseconds=microseconds(value))
    return (lambda value: value.value) if kind in WRAPPERS else plain


def enum_names(field: Any) -> Callable[[int], str]:
    """Return the function from the numbers of an enum to their names."""
    names: dict[int, str] = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def microseconds(value: Any) -> int:
    """Return the microseconds of a Timestamp or a Duration."""
    return value.seconds * 1_000_000 + value.nanos // 1_000

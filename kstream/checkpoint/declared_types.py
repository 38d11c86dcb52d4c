"""check_types: whether an object that was made of a record has the types that its class declares.

JSON can have any value in any place, and a checksum only says that nobody has changed the bytes since. So what is made of a record is
compared with its class once, where it is read. No record needs checks of its own, but for values of the right type that are impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from kstream.batch_time import Duration, Time

_LARGEST = 2**63
"""No writer stores a larger number. Some larger ones cannot be printed, or be made a float."""
_LAST_MS = 253_402_000_000_000
"""A moment in the last days of the year 9999: later ones have no date in Python."""


def moment(ms: int) -> int:
    """Return a moment or batch time of a record, in milliseconds since the Unix epoch. ValueError if it has no date."""
    if not -_LAST_MS // 100 < ms < _LAST_MS:
        raise ValueError(f"{ms} ms since the Unix epoch is no date")
    return ms


def positive(ms: int) -> Duration:
    """Return the length of an interval or a window of a record. ValueError if it is not positive."""
    if not 0 < ms < _LAST_MS:
        raise ValueError(f"{ms} ms is no length of time for batches")
    return Duration(ms)


def check_types(value: object) -> None:
    """Check a value that was made of a record: objects of dataclasses, at any depth, against their declared types. Pure.

    Collections outside of a dataclass may have any elements, and dataclasses among them are checked.

    Raises:
        TypeError: a field has another type. The message names class and field.
        ValueError: a time has no date.
    """
    if is_dataclass(value) and not isinstance(value, type):
        for name, declared in _declared(type(value)).items():
            found = getattr(value, name)
            if not _fits(found, declared):
                raise TypeError(f"{type(value).__name__}.{name} cannot be of type {type(found).__name__}, or has such a value in it")
        if isinstance(value, Time):
            moment(value.milliseconds)
    elif isinstance(value, Mapping):
        for key, element in cast("Mapping[object, object]", value).items():
            check_types(key)
            check_types(element)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for element in cast("Iterable[object]", value):
            check_types(element)


@cache
def _declared(cls: type) -> Mapping[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _fits(value: object, declared: Any) -> bool:
    """Return whether a value has a declared type. Raises as `check_types` for a dataclass inside of it."""
    if declared in (Any, object):
        return True
    origin, args = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in args)
    if declared is NoneType:
        return value is None
    if declared is int:
        return type(value) is int and abs(value) < _LARGEST
    if not isinstance(value, origin or declared) or (origin is not None and isinstance(value, (str, bytes))):
        return False
    if origin is None:
        if type(value) is declared:  # else it is of a class that the user may have made, as some handles are
            check_types(value)
        return True
    if issubclass(origin, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return all(_fits(key, args[0]) and _fits(element, args[1]) for key, element in pairs)
    elements = list(cast("Iterable[object]", value))
    if origin is tuple and args[-1] is not Ellipsis:
        return len(elements) == len(args) and all(map(_fits, elements, args))
    return all(_fits(element, args[0]) for element in elements)

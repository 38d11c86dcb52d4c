"""stable_hash: the number that says where a key's state lives. Part of the stored form: what it gives for a key never changes.

pyspark's portable_hash is Python's `hash`, which for text differs from process to process unless PYTHONHASHSEED is set in every one of
them. Here a key is written in a canonical form, and the form is hashed by BLAKE2b: the same number in every process, Python and Spark.

Keys that are equal as keys of a dict have the same form: 1, 1.0, True and Decimal(1) are one key, a named tuple is a tuple, two
datetimes of one instant in two zones are one key. None and tuples are keys like others. Objects of other classes are written as what they
would be pickled from: equal ones must be made of equal parts (a dataclass is), by every version of the class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from hashlib import blake2b
from numbers import Number
from typing import Any
from uuid import UUID

from kstream.errors import StateNotStorableError

_LENGTH = struct.Struct("<I")


def stable_hash(key: Any) -> int:
    """64 bits, unsigned. StateNotStorableError for what could not be found again: an object equal only to itself, NaN, a list."""
    form = b"s" + key.encode("utf-8", "surrogatepass") if type(key) is str else _form_of(key)
    return int.from_bytes(blake2b(form, digest_size=8).digest(), "little")


def partition_of(key: Any) -> int:
    """The partition of a key, modulo the number of partitions: the lower half of its hash. For `RDD.partitionBy`."""
    return stable_hash(key) & 0xFFFFFFFF


def _form_of(key: Any) -> bytes:
    try:
        hash(key)
        return _canonical(key)
    except Exception as e:
        reason = str(e) if isinstance(e, TypeError) else f"{type(e).__name__}: {e}"
        raise StateNotStorableError(
            f"{key!r:.200} cannot be the key of a state, {reason}. Use text, bytes, numbers, None, tuples of these, or objects of a class "
            "with __eq__ and __hash__ (a frozen dataclass)",
            key=repr(key),
            reason=reason,
        ) from e


def _canonical(value: Any) -> bytes:
    """The form of a key or a part of one. A letter for the kind, then what tells it from others of the kind."""
    if value is None:
        return b"z"
    for kind, write in _KINDS:
        if isinstance(value, kind):
            return write(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return b"c" + f"{value.__module__}.{value.__qualname__}".encode()
    return _canonical_object(value)


def _text(value: str) -> bytes:
    return b"s" + value.encode("utf-8", "surrogatepass")


def _number(value: Any) -> bytes:
    """Python's own hash of a number: it has no seed, and is one for equal numbers of all types."""
    if value != value:
        raise TypeError(f"{value!r} is not equal to itself")
    return b"n" + str(hash(value)).encode()


def _sequence(values: Iterable[Any]) -> bytes:
    return b"t" + _joined(map(_canonical, values))


def _set(values: Iterable[Any]) -> bytes:
    return b"f" + _joined(sorted(map(_canonical, values)))


def _dict(values: dict[Any, Any]) -> bytes:
    return b"d" + _joined(sorted(_sequence(item) for item in values.items()))


def _datetime(value: datetime) -> bytes:
    moment = value if value.utcoffset() is None else value.astimezone(timezone.utc)
    return b"m" + moment.replace(fold=0).isoformat().encode()  # fold plays no part in equality


def _time(value: time) -> bytes:
    moment = timedelta(0, (value.hour * 60 + value.minute) * 60 + value.second, value.microsecond)
    offset = value.utcoffset()
    return b"h" + str(moment).encode() if offset is None else b"i" + str(moment - offset).encode()


def _enum(value: Enum) -> bytes:
    return b"e" + f"{type(value).__module__}.{type(value).__qualname__}.{value.name}".encode()


_KINDS: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (str, _text),
    ((bytes, bytearray), lambda value: b"b" + bytes(value)),
    (Number, _number),
    ((tuple, list), _sequence),
    ((frozenset, set), _set),
    (dict, _dict),
    (datetime, _datetime),
    (date, lambda value: b"y" + value.isoformat().encode()),
    (time, _time),
    (timedelta, lambda value: b"l" + str((value.days, value.seconds, value.microseconds)).encode()),
    (UUID, lambda value: b"u" + value.bytes),
    (Enum, _enum),
)
"""In this order: an Enum that is also a str or an int is equal to that, and so has its form."""


def _canonical_object(value: Any) -> bytes:
    if type(value).__eq__ is object.__eq__:
        raise TypeError(f"an object of {type(value).__qualname__} is equal only to itself")
    made = value.__reduce_ex__(4)
    if isinstance(made, str):
        return b"g" + f"{type(value).__module__}.{made}".encode()
    parts: Any = (*made, None, None, None)
    maker, arguments, state, items, pairs = parts[:5]
    return b"o" + _joined(map(_canonical, (maker, *arguments, state, list(items or ()), list(pairs or ()))))


def _joined(forms: Iterable[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(form)) + form for form in forms)

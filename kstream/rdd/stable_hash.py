"""stable_hash: the hash of a key that chooses the partition of the key's state. Stored states depend on it: it must never change.

pyspark's portable_hash is Python's `hash`. The hash of a text differs between processes, unless all have the same PYTHONHASHSEED.
stable_hash writes a key in a canonical form and hashes the form by BLAKE2b. So it is the same in every process, Python and Spark.

Keys that are equal as keys of a dict have the same form: 1, 1.0, True and Decimal(1) are one key; a named tuple equals a tuple; two
datetimes of one instant in two zones are one key. None and tuples are valid keys. An object of another class is written as the parts from
which pickle would restore it. So equal objects must have equal parts (as in a dataclass), in every version of the class.
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
    """Return the hash of a key, an unsigned number of 64 bits. Pure.

    Raises:
        StateNotStorableError: the key could not be found by an equal key: an object that is equal only to itself, NaN, a list.
    """
    form = b"s" + key.encode("utf-8", "surrogatepass") if type(key) is str else _form_of(key)
    return int.from_bytes(blake2b(form, digest_size=8).digest(), "little")


def partition_of(key: Any) -> int:
    """Return the lower 32 bits of the key's `stable_hash`. `RDD.partitionBy` takes them modulo the number of partitions."""
    return stable_hash(key) & 0xFFFFFFFF


def _form_of(key: Any) -> bytes:
    """Return the canonical form of a key. StateNotStorableError if it has none."""
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
    """Return the canonical form of a key or of a part of a key: a letter for the kind, then the value. TypeError if it has none."""
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
    """Return the form of a number: Python's hash, which has no seed and is the same for equal numbers of all types. TypeError for NaN."""
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
    return b"m" + moment.replace(fold=0).isoformat().encode()  # datetimes that differ in `fold` alone are equal


def _time(value: time) -> bytes:
    """Return the form of a time of day: equal times with different offsets have one form."""
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
"""The order matters: an Enum that is also a str or an int equals that value, so it must get the form of that value."""


def _canonical_object(value: Any) -> bytes:
    """Return the form of an object of another class, made from the parts that pickle would store. TypeError without `__eq__`."""
    if type(value).__eq__ is object.__eq__:
        raise TypeError(f"an object of {type(value).__qualname__} is equal only to itself")
    made = value.__reduce_ex__(4)
    if isinstance(made, str):
        return b"g" + f"{type(value).__module__}.{made}".encode()
    parts: Any = (*made, None, None, None)
    maker, arguments, state, items, pairs = parts[:5]
    return b"o" + _joined(map(_canonical, (maker, *arguments, state, list(items or ()), list(pairs or ()))))


def _joined(forms: Iterable[bytes]) -> bytes:
    """Return the forms in one, each after its length, so that different lists of forms never give the same bytes."""
    return b"".join(_LENGTH.pack(len(form)) + form for form in forms)

"""bounded_reader: fastavro's reader of a schema, with a limit on items that take no byte. Pure.

A null takes no byte, nor does a record of nothing else. A damaged count of such items would make as many objects as it says, though
the value has a few bytes. All other items are limited by the bytes of their value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from kstream_kafka.schemas.avro_schema import fastavro

MOST = 1_000
"""A value has at most so many items without bytes."""
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_RECORDS = ("record", "error")


def bounded_reader(written: Any) -> Callable[[BytesIO, Any, Any], Any]:
    """Return the function that reads a value: from a file, by the writer's schema and the reader's, which may be None.

    It raises what fastavro does, and ValueError if the value has more than MOST items without bytes.

    Args:
        written: the writer's schema, parsed by fastavro.
    """
    read = fastavro().schemaless_reader
    named = _named(written)
    if not _has_empty_items(written, named, set()):
        return read

    def checked(file: BytesIO, writers: Any, readers: Any) -> Any:
        _Walk(file.getbuffer(), file.tell(), named).skip(writers)
        return read(file, writers, readers)

    return checked


class _Walk:
    """A walk through the bytes of one value, which counts its items without bytes. One thread."""

    def __init__(self, raw: memoryview, at: int, named: Mapping[str, Any]) -> None:
        self._raw, self._at, self._named = raw, at, named
        self._empty = 0

    def skip(self, schema: Any) -> None:
        """Go behind the next value, which is of a schema, and count its items without bytes.

        Raises:
            ValueError: there are more than MOST of them in all values so far.
            Exception: the value is cut off or damaged.
        """
        found, kind = _resolved(schema, self._named)
        if kind == "union":
            self.skip(found[self._read_number()])
        elif kind in _RECORDS:
            for field in found["fields"]:
                self.skip(field["type"])
        elif kind in ("array", "map"):
            self._skip_items(found["items"] if kind == "array" else found["values"], kind == "map")
        elif kind in ("bytes", "string"):
            self._skip_bytes(self._read_number())
        elif kind in ("int", "long", "enum"):
            self._read_number()
        else:
            self._skip_bytes(found["size"] if kind == "fixed" else _SIZES[kind])

    def _skip_items(self, item: Any, is_map: bool) -> None:
        """Go behind the blocks of an array or a map, and count its items if they are without bytes. `item`: the schema of the items."""
        is_empty = not is_map and _is_empty(item, self._named, ())
        while count := self._read_number():
            if count < 0:
                count = -count
                self._read_number()
            if is_empty:
                self._empty += count
                if self._empty > MOST:
                    raise ValueError(f"it has more than {MOST} items without bytes")
                continue
            for _ in range(count):
                if is_map:
                    self._skip_bytes(self._read_number())
                self.skip(item)

    def _skip_bytes(self, size: int) -> None:
        """Go so many bytes on. EOFError if there are fewer, or if the size is damaged."""
        if not 0 <= size <= len(self._raw) - self._at:
            raise EOFError
        self._at += size

    def _read_number(self) -> int:
        """Return the zigzag number that comes next, and go behind it. IndexError if it is cut off."""
        value = shift = 0
        while True:
            byte = self._raw[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7


def _named(schema: Any) -> dict[str, Any]:
    """Return the schemas within a parsed schema that have a name, by their names."""
    found: dict[str, Any] = {}
    for branch in schema if isinstance(schema, list) else [schema]:
        if isinstance(branch, Mapping):
            found.update(branch.get("__named_schemas", {}))
    return found


def _resolved(schema: Any, named: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the schema that a name stands for, or the schema itself if it is none; and its type, "union" for a list."""
    found = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(found, list):
        return found, "union"
    kind = found if isinstance(found, str) else found["type"]
    return (found, kind) if isinstance(kind, str) and kind not in named else _resolved(kind, named)


def _is_empty(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> bool:
    """Return whether values of a schema take no byte. `inside`: the names of the records around it."""
    found, kind = _resolved(schema, named)
    if kind in _RECORDS:
        name = found["name"]
        return name not in inside and all(_is_empty(field["type"], named, (*inside, name)) for field in found["fields"])
    return kind == "null" or (kind == "fixed" and not found["size"])


def _has_empty_items(schema: Any, named: Mapping[str, Any], seen: set[str]) -> bool:
    """Return whether values of a schema may have items without bytes. `seen`: the names of the records that were looked at."""
    found, kind = _resolved(schema, named)
    if kind == "array" and _is_empty(found["items"], named, ()):
        return True
    if kind in _RECORDS:
        parts = [] if found["name"] in seen else [field["type"] for field in found["fields"]]
        seen.add(found["name"])
    else:
        parts = found if kind == "union" else [found["items" if kind == "array" else "values"]] if kind in ("array", "map") else []
    return any(_has_empty_items(part, named, seen) for part in parts)

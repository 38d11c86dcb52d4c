"""Handles of write-ahead logs as JSON values, in plans, in the driver's log and on the way to it."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from kstream.errors import ConfigurationError, NotRecoverableError
from kstream.wal.random_reader import FileBasedWriteAheadLogSegment
from kstream.wal.write_ahead_log import WriteAheadLogRecordHandle


def handle_to_json(handle: WriteAheadLogRecordHandle | None) -> Any:
    """`[path, offset, length]` of a file-based log's; of another class, a dataclass of JSON values, `{"class": …, "fields": {…}}`.

    ConfigurationError for a handle that is no dataclass: it could not be stored.
    """
    if handle is None:
        return None
    if isinstance(handle, FileBasedWriteAheadLogSegment):
        return [handle.path, handle.offset, handle.length]
    if not dataclasses.is_dataclass(handle):
        raise ConfigurationError(
            f"the write-ahead log's handle {handle!r} is no dataclass, so that it cannot be stored: make {type(handle).__name__} a frozen "
            "dataclass of JSON values",
            key="handle", value=handle,
        )  # fmt: skip
    fields = {field.name: getattr(handle, field.name) for field in dataclasses.fields(handle)}
    return {"class": f"{type(handle).__module__}.{type(handle).__qualname__}", "fields": fields}


def handle_of_json(stored: Any) -> WriteAheadLogRecordHandle | None:
    """The inverse. NotRecoverableError where the class is not to be had any more."""
    if stored is None:
        return None
    if isinstance(stored, list):
        return FileBasedWriteAheadLogSegment(*stored)
    module, _, name = stored["class"].rpartition(".")
    try:
        cls: Any = getattr(importlib.import_module(module), name)
        return cls(**stored["fields"])
    except (ImportError, AttributeError, TypeError) as e:
        raise NotRecoverableError(
            f"a received block lies in a write-ahead log under a handle of class {stored['class']}, which cannot be made: "
            f"{type(e).__name__}: {e}. Put the class back where the log of your own had it.",
            time=None,
        ) from e  # fmt: skip

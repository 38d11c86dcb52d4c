"""WriteAheadLog: the contract of a log, with Spark's names, and the handles of its records, also as JSON.

A setting can name a class of the user in place of kstream's own. Handles are stored as JSON in plans and in the driver's log.
"""

from __future__ import annotations

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from kstream.errors import ConfigurationError, NotRecoverableError


class WriteAheadLogRecordHandle:
    """The place of a record in a log. Small, picklable, and valid in any process and after any restart."""

    __slots__ = ()


class WriteAheadLog(ABC):
    """A log of records. Thread-safe. Every call may block on I/O. Times are in milliseconds; only `clean` uses them."""

    @abstractmethod
    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Log a record durably. After an error the record may be in the log, or not.

        Args:
            record: the bytes of the record.
            time_ms: the record's time, for `clean`.

        Returns:
            The handle by which `read` finds the record.
        """

    @abstractmethod
    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read the record of a handle. Another process may have written the record."""

    @abstractmethod
    def readAll(self) -> Iterator[bytes]:
        """Yield every record that is not cleaned yet, in the order of writing. A restart calls this before the first write."""

    @abstractmethod
    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Delete records older than the threshold.

        Args:
            threshold_ms: the threshold, on the scale of the times given to `write`.
            wait: block until the records are deleted; otherwise they may be deleted later.
        """

    @abstractmethod
    def close(self) -> None:
        """End the writing, and release all open resources. Idempotent."""


# -- handles


@dataclass(frozen=True, slots=True)
class FileBasedWriteAheadLogSegment(WriteAheadLogRecordHandle):
    """The place of a record in a file-based log."""

    path: str
    """The file's name in its store. It is not the full path, so that a checkpoint can be moved."""
    offset: int
    """The offset of the record's length field in the file, in bytes."""
    length: int
    """The size of the record in bytes, without the 4 bytes of its length field."""


def handle_to_json(handle: WriteAheadLogRecordHandle | None) -> Any:
    """Return a handle as JSON values.

    Returns:
        `[path, offset, length]` for a file-based log; None for None. For any other dataclass of JSON values, `{"class": …, "fields": {…}}`.

    Raises:
        ConfigurationError: the handle is no dataclass, or no WriteAheadLogRecordHandle, so it cannot be stored.
    """
    if handle is None:
        return None
    if isinstance(handle, FileBasedWriteAheadLogSegment):
        return [handle.path, handle.offset, handle.length]
    kind: type = type(handle)
    if not dataclasses.is_dataclass(handle) or not issubclass(kind, WriteAheadLogRecordHandle):
        raise ConfigurationError(
            f"the write-ahead log's handle {handle!r} is no dataclass, or no WriteAheadLogRecordHandle, so it cannot be stored: make "
            f"{type(handle).__name__} a WriteAheadLogRecordHandle that is a frozen dataclass of JSON values",
            key="handle",
            value=handle,
        )
    fields = {field.name: getattr(handle, field.name) for field in dataclasses.fields(handle)}
    return {"class": f"{type(handle).__module__}.{type(handle).__qualname__}", "fields": fields}


def handle_of_json(stored: Any) -> WriteAheadLogRecordHandle | None:
    """Return the handle of JSON values: the inverse of `handle_to_json`.

    Raises:
        NotRecoverableError: the class of the handle cannot be imported, is none of a handle, or does not take the stored fields.
    """
    if stored is None:
        return None
    if isinstance(stored, list):
        return FileBasedWriteAheadLogSegment(*cast("list[Any]", stored))
    module, _, name = stored["class"].rpartition(".")
    try:
        cls: Any = getattr(importlib.import_module(module), name)
        if not issubclass(cls, WriteAheadLogRecordHandle):  # whoever has written the record would choose what is called
            raise TypeError(f"it is no {WriteAheadLogRecordHandle.__name__}")
        return cls(**stored["fields"])
    except (ImportError, AttributeError, TypeError) as e:
        raise NotRecoverableError(
            f"a received block in a write-ahead log has a handle of class {stored['class']}, and the class cannot be used: "
            f"{type(e).__name__}: {e}. Make the class importable again under this name.",
            time=None,
        ) from e

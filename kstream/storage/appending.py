"""AppendingStore: what a store can do besides where its files can grow, as on a local disk and on HDFS. On object stores they cannot."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from kstream.storage.file_store import FileStore


class AppendableFile(Protocol):
    """A file open at its end. Its user sees to it that one thread uses it at a time. Every call may block on I/O: StorageError."""

    @property
    def size(self) -> int:
        """Bytes in the file now, whoever wrote them."""
        ...

    def append(self, data: bytes) -> int:
        """Adds `data` at the end and returns the offset of its first byte; durable when it returns.

        After a StorageError the file is to be closed and not written again: a piece of `data` may be at its end. It is taken off where
        that is possible.
        """
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


@runtime_checkable
class AppendingStore(FileStore, Protocol):
    """A FileStore whose files can also grow, and be read in pieces. Files that `create` made can grow, too."""

    def open_to_append(self, name: str) -> AppendableFile:
        """The file, made durably (and empty) if it is not there."""
        ...

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`, fewer where the file ends; MissingFileError if it is not there."""
        ...

"""FileStore: the contract of a store."""

from __future__ import annotations

from typing import Protocol


class FileStore(Protocol):
    """Named immutable byte strings. Thread-safe. Every call may block on I/O and raises StorageError when that fails."""

    @property
    def url(self) -> str:
        """Where the store lies, for messages."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Makes the file durably, whole or not at all; AlreadyExistsError if the name is taken.

        Any other StorageError leaves the outcome unknown: the file may be there. Read it to know.
        """
        ...

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Make or overwrite the file; a reader sees the old bytes or the new. Only for files that can be made again.

        With `private` only the owner may read the file, from its creation on. Stores that do not know owners ignore that.
        """
        ...

    def read(self, name: str) -> bytes:
        """The file's bytes; MissingFileError if it is not there."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the file is there: one small request."""
        ...

    def size(self, name: str) -> int:
        """How many bytes the file has, without reading them; MissingFileError if it is not there."""
        ...

    def list(self, folder: str = "") -> list[str]:
        """Sorted names of the files directly in `folder`, without the folder; empty if there is none."""
        ...

    def delete(self, name: str) -> None:
        """Removes the file; no error if it is not there."""
        ...

    def path(self, name: str) -> str:
        """The full place of a name, for messages."""
        ...

"""The contract of a store (FileStore), what some stores can do besides, and the test of a store's create."""

from __future__ import annotations

import logging
import uuid
from typing import Protocol, runtime_checkable

from kstream.errors import AlreadyExistsError, StorageError


class FileStore(Protocol):
    """Named immutable byte strings. Thread-safe. Every call may block on I/O and raises StorageError when that fails."""

    @property
    def url(self) -> str:
        """Path or URL of the store, for messages."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create the file durably: whole, or not at all.

        Raises:
            AlreadyExistsError: the name is taken.
            StorageError: the outcome is unknown, and the file may exist. Only a read can tell.
        """
        ...

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create or overwrite the file; a reader sees the old bytes or the new. Only for files that can be made again.

        Args:
            private: only the owner may read the file, from its creation on. Stores without owners ignore this.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the file's bytes. MissingFileError if the file does not exist."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the file exists. One small request."""
        ...

    def size(self, name: str) -> int:
        """Return the file's size in bytes without reading the file. MissingFileError if it does not exist."""
        ...

    def list(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files directly in `folder`, without the folder; empty if there is none."""
        ...

    def delete(self, name: str) -> None:
        """Delete the file. No error if it does not exist."""
        ...

    def path(self, name: str) -> str:
        """Full path or URL of a name, for messages."""
        ...


class AppendableFile(Protocol):
    """A file open at its end. One thread uses it at a time. Every call may block on I/O and raises StorageError when that fails."""

    @property
    def size(self) -> int:
        """Bytes in the file now, whoever wrote them."""
        ...

    def append(self, data: bytes) -> int:
        """Append `data`, durably, and return the offset of its first byte.

        Raises:
            StorageError: close the file and write to it no more. A part of `data` may be at its end; it is truncated where possible.
        """
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


@runtime_checkable
class AppendingStore(FileStore, Protocol):
    """A FileStore whose files can also grow, and be read in pieces: a local disk, HDFS. On object stores files cannot grow.

    Files that `create` made can grow, too.
    """

    def open_to_append(self, name: str) -> AppendableFile:
        """Open the file; create it first, durably and empty, if it does not exist."""
        ...

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer where the file ends. MissingFileError if the file does not exist."""
        ...


logger = logging.getLogger(__name__)

SINGLE_WRITER = "spark.streaming.kstream.checkpoint.singleWriter"
"""The setting by which the user says that there is never a second driver."""


@runtime_checkable
class PreparedStore(FileStore, Protocol):
    """A FileStore whose create depends on what is at the other end."""

    def prepare(self, single_writer: bool) -> None:
        """Test the store, or refuse it. A driver calls this once, before it writes; it may block on the network.

        Args:
            single_writer: the user says that there is never a second driver.

        Raises:
            UnsupportedStoreError: two drivers could overwrite each other's files there.
        """
        ...


def refuses_a_second_create(store: FileStore) -> bool:
    """Create a probe file twice, delete it, and return whether the second create was refused.

    Simultaneous creates are not tested: there the documentation of the store has to be trusted.

    Raises:
        StorageError: a request failed.
    """
    name = f"probe-{uuid.uuid4().hex}"
    try:
        store.create(name, b"first")
        try:
            store.create(name, b"second")
        except AlreadyExistsError:
            return True
        return False
    finally:
        try:
            store.delete(name)
        except StorageError as e:  # nothing reads the file
            logger.warning("%s: this probe file could not be deleted and stays: %s", store.path(name), e)

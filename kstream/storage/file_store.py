"""FileStore: the contract of a store. Beside it are the additional abilities of some stores, and the test of a store's create."""

from __future__ import annotations

import logging
import uuid
from typing import Protocol, runtime_checkable

from kstream.errors import AlreadyExistsError, OutsideStoreError, StorageError


class FileStore(Protocol):
    """Named immutable byte strings. Thread-safe. Every call may block on I/O and raises StorageError when that fails.

    A name may come from a record that somebody else has written. So every call but `path` raises OutsideStoreError for a name that leads
    out of the store.
    """

    @property
    def url(self) -> str:
        """The path or URL of the store, for messages."""
        ...

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create the file durably: the whole file, or none.

        Args:
            name: the name of the file.
            data: its bytes.
            private: as for `replace`.

        Raises:
            AlreadyExistsError: the name is taken.
            StorageError: the outcome is unknown, and the file may exist. Only a read can tell.
        """
        ...

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create or overwrite the file. A reader sees the old bytes or the new ones. Use it only for files that can be written again.

        Args:
            name: the name of the file.
            data: its new bytes.
            private: whether only the owner may read the file, from its creation on. Stores without owners ignore this.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return the file's bytes. MissingFileError if the file does not exist."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether the file exists. One small request."""
        ...

    def size(self, name: str) -> int:
        """Return the file's size in bytes without reading the file. MissingFileError if it does not exist."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """Return when the file was written, by the clock of the store, in milliseconds since the Unix epoch.

        Returns:
            None if the store does not know it.

        Raises:
            MissingFileError: the file does not exist.
        """
        ...

    def list(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files directly in `folder`, without the folder's own name; [] if there is no such folder."""
        ...

    def delete(self, name: str) -> None:
        """Delete the file, if it exists."""
        ...

    def path(self, name: str) -> str:
        """Return the full path or URL of a name, for messages."""
        ...


def inside(name: str, url: str) -> str:
    """Return the name of a file or folder as it is, if it lies in the store.

    Args:
        name: the name.
        url: the path or URL of the store, for the message.

    Raises:
        OutsideStoreError: the name is absolute, or has `..`.
    """
    if name.startswith("/") or ".." in name.split("/"):
        raise OutsideStoreError(
            f"{name!r} leads out of {url}: a file of the store has neither an absolute name nor one with `..`. A record that has such a "
            "name was not written by kstream: look who may write there.",
            path=url,
            name=name,
        )
    return name


class AppendableFile(Protocol):
    """A file open at its end. One thread uses it at a time. Every call may block on I/O and raises StorageError when that fails."""

    @property
    def size(self) -> int:
        """The bytes in the file now, by all writers."""
        ...

    def append(self, data: bytes) -> int:
        """Append `data`, durably, and return the offset of its first byte.

        Raises:
            StorageError: the append failed. A part of `data` may be at the end of the file, although it is truncated where possible. The
                caller must close the file and not append to it again.
        """
        ...

    def close(self) -> None:
        """Close the file. Idempotent."""
        ...


@runtime_checkable
class AppendingStore(FileStore, Protocol):
    """A FileStore whose files can also grow, and can be read in pieces: a local disk, HDFS. On object stores files cannot grow.

    Files made by `create` can grow, too.
    """

    def open_to_append(self, name: str) -> AppendableFile:
        """Open the file for appends. If it does not exist, create it first, durably and empty."""
        ...

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer where the file ends. MissingFileError if the file does not exist."""
        ...


logger = logging.getLogger(__name__)


@runtime_checkable
class PreparedStore(FileStore, Protocol):
    """A FileStore whose create may not be exclusive, so that a driver must test it first."""

    def prepare(self, single_writer: bool) -> None:
        """Test the store, or refuse it. A driver calls this once, before it writes. It may block on the network.

        Args:
            single_writer: whether the user promises that there is never a second driver.

        Raises:
            UnsupportedStoreError: two drivers could overwrite each other's files there, and `single_writer` is not set.
            StorageError: a request failed.
        """
        ...


def refuses_a_second_create(store: FileStore) -> bool:
    """Create a probe file twice, and return whether the second create was refused. Blocks.

    Then delete the file. If that fails, the file stays, and a warning is logged. Simultaneous creates are not tested: for these, the
    documentation of the store has to be trusted.

    Raises:
        UnsupportedStoreError: the store refuses every conditional create.
        StorageError: a create failed in another way.
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

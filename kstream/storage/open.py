"""The store of a path or URL: open_store opens it on the driver, StorePlace in the workers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import unquote, urlsplit

from kstream.errors import ConfigurationError, UnsupportedStoreError
from kstream.storage.file_store import FileStore, PreparedStore
from kstream.storage.fsspec_store import FsspecFileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.memory import MemoryFileStore
from kstream.storage.object_store import ObjectFileStore
from kstream.storage.settings import SINGLE_WRITER
from kstream.worker.process import once

HADOOP = frozenset({"hdfs", "viewfs", "o3fs", "ofs"})
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"})

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_CHAINED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case, "" for a plain path, "chained" for fsspec's `a::b` URLs.

    Raises:
        ConfigurationError: the URL has a password in it.
    """
    match = _URL.match(url)
    if match is None:
        return "chained" if _CHAINED.match(url) else ""
    if urlsplit(url).password is not None:
        place = re.sub(r"//[^/]*@", "//…@", url)
        raise ConfigurationError(
            f"{place} has a password in it, which logs and error messages would repeat: give it by the environment",
            key="checkpoint",
            value=place,
        )
    return match[1].lower()


def is_known(scheme: str) -> bool:
    """Return whether kstream or fsspec opens stores of the scheme. All other schemes are left to Hadoop, and so are those in HADOOP."""
    if scheme in OBJECT_STORES or scheme in ("", "chained", "file", "memory"):
        return True
    from fsspec.registry import known_implementations, registry

    return scheme not in HADOOP and (scheme in known_implementations or scheme in registry)


def open_store(url: str, *, read_only: bool = False, single_writer: bool = False) -> FileStore:
    """Open the store under a plain path or a URL. No request is sent, except by file systems of fsspec that connect at once.

    Args:
        url: a path, or a URL: `file:`, `memory://`, of an object store, or of fsspec. `kstream.spark.checkpoint_store` opens HDFS.
        read_only: whether the caller will create nothing.
        single_writer: whether the user promises that there is never a second driver.

    Raises:
        UnsupportedStoreError: the store has no create-if-absent, and neither `read_only` nor `single_writer` is set. Or only Hadoop can
            open the store.
        ConfigurationError: the URL has a password in it, or names no bucket of an object store.
        MissingDependencyError: the package for the store is not installed.
        StorageError: a file system of fsspec connects at once, and failed.
    """
    scheme = scheme_of(url)
    if scheme == "":
        return LocalFileStore(url)
    if scheme == "file":
        return LocalFileStore(unquote(urlsplit(url).path))
    if scheme == "memory":
        return MemoryFileStore(url)
    if scheme in OBJECT_STORES:
        return ObjectFileStore(url)
    if scheme in HADOOP:
        raise UnsupportedStoreError(
            f"{scheme}:// is reached through Hadoop ({url}): open it by kstream.spark.checkpoint_store.open_checkpoint", path=url
        )
    if not read_only and not single_writer:
        raise UnsupportedStoreError(
            f"{scheme}:// cannot create a file only if it is absent ({url}), so two drivers could overwrite each other's plans. Use a "
            f"local directory, s3://, gs://, az:// or hdfs://; or, if never more than one driver runs, set {SINGLE_WRITER}=true",
            path=url,
        )
    return FsspecFileStore(url)


def prepare_to_write(store: FileStore, single_writer: bool) -> FileStore:
    """Test that the store's create can be trusted, and return the store. A driver calls this once, at its start.

    The call blocks on the network where the answer depends on a server.

    Args:
        store: the store of the checkpoint.
        single_writer: whether the user promises that there is never a second driver.

    Raises:
        UnsupportedStoreError: two drivers could overwrite each other's files, and `single_writer` is not set.
        StorageError: a request failed.
    """
    if isinstance(store, PreparedStore):
        store.prepare(single_writer)
    return store


_REQUEST_TIMEOUT = timedelta(minutes=5)
"""The timeout of a worker's request. A partition of state can have hundreds of MB, while a record of the log has a few KB."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The address of a store, pickled into tasks. A worker opens the store with it.

    The address has no secret: endpoint and credentials come from the environment of each worker.
    """

    url: str
    exclusive: bool = True
    """Whether the store's create can be trusted. If not, `write` overwrites, which is safe because each task has names of its own."""

    def open(self) -> FileStore:
        """Return the store, opened once per process. Any thread. Raises as `open_store`."""
        return once(self, self._opened)

    def _opened(self) -> FileStore:
        """Open the store, an object store with a longer timeout than the driver's."""
        if scheme_of(self.url) in OBJECT_STORES:
            return ObjectFileStore(self.url, request_timeout=_REQUEST_TIMEOUT)
        return open_store(self.url, single_writer=not self.exclusive)

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a name that no other task uses: the whole file, or none. Blocks.

        Raises:
            StorageError: the write failed; AlreadyExistsError if the name is taken and `exclusive` is set.
        """
        store = self.open()
        (store.create if self.exclusive else store.replace)(name, data)


def place_for_workers(store: FileStore, single_writer: bool) -> StorePlace | None:
    """Return the address by which workers open the driver's store.

    Returns:
        The address; None where only the driver can reach the store (memory://), and for Hadoop's file systems. These need a JVM in the
        worker, too (`kstream.spark.hadoop_file_store.HadoopPlace`).
    """
    if isinstance(store, (LocalFileStore, ObjectFileStore, FsspecFileStore)):
        return StorePlace(store.url, not single_writer)
    return None

"""StorePlace: where a store lies, as a task is told it, and how a worker opens it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from kstream.storage.file_store import FileStore
from kstream.storage.fsspec_store import FsspecFileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.object_store import ObjectFileStore
from kstream.storage.open import OBJECT_STORES, open_store, scheme_of
from kstream.worker.process import once

REQUEST_TIMEOUT = timedelta(minutes=5)
"""A partition of a state can have hundreds of MB; a record of the log has a few KB."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Pickled into tasks, so it holds no secret: endpoint and credentials come from the environment of each worker.

    `exclusive`: the store's create can be trusted there; else names of a task's own are simply written.
    """

    url: str
    exclusive: bool = True

    def open(self) -> FileStore:
        """The store, opened once a process. Sends nothing."""
        return once(self, self._opened)

    def _opened(self) -> FileStore:
        if scheme_of(self.url) in OBJECT_STORES:
            return ObjectFileStore(self.url, request_timeout=REQUEST_TIMEOUT)
        return open_store(self.url, single_writer=not self.exclusive)

    def write(self, name: str, data: bytes) -> None:
        """Stores a file under a name that nobody else uses, whole or not at all. One request."""
        store = self.open()
        (store.create if self.exclusive else store.replace)(name, data)


def place_for_workers(store: FileStore, single_writer: bool) -> StorePlace | None:
    """Where workers find the driver's store; None where only the driver can reach it (memory://), and for
    Hadoop's file systems, which need a JVM there, too (`spark.hadoop_place`)."""
    if isinstance(store, (LocalFileStore, ObjectFileStore, FsspecFileStore)):
        return StorePlace(store.url, not single_writer)
    return None

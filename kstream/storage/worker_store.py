"""StorePlace: where a store lies, as a task is told it, and how a worker opens it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from kstream.storage.file_store import FileStore
from kstream.storage.fsspec_store import FsspecFileStore
from kstream.storage.local import LocalFileStore
from kstream.storage.object_store import ObjectFileStore
from kstream.storage.open import open_store

_opened: dict[tuple[int, StorePlace], FileStore] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Pickled into tasks, so it holds no secret: endpoint and credentials come from the environment of each worker.

    `exclusive`: the store's create can be trusted there; else names of a task's own are simply written.
    """

    url: str
    exclusive: bool = True

    def open(self) -> FileStore:
        """The store, opened once a process. Sends nothing."""
        key = (os.getpid(), self)
        with _lock:
            if key not in _opened:
                _opened[key] = open_store(self.url, single_writer=not self.exclusive)
            return _opened[key]

    def write(self, name: str, data: bytes) -> None:
        """Stores a file under a name that nobody else uses, whole or not at all. One request."""
        store = self.open()
        (store.create if self.exclusive else store.replace)(name, data)


def place_for_workers(store: FileStore, single_writer: bool) -> StorePlace | None:
    """Where workers find the driver's store; None where only the driver can reach it (memory://, HDFS through the driver's JVM)."""
    if isinstance(store, (LocalFileStore, ObjectFileStore, FsspecFileStore)):
        return StorePlace(store.url, not single_writer)
    return None

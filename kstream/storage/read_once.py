"""ReadOnceStore: reads files that never change only once, for someone who looks at a store again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from kstream.storage.file_store import FileStore


class ReadOnceStore:
    """A FileStore that passes each call to another one, and keeps the bytes of the constant files that were read last. Thread-safe.

    A constant file that was deleted may still be read. Listings are never kept. Blocks and raises as the other store.

    Args:
        store: the other store.
        is_constant: is_constant(name) returns whether a file never changes once it is there.
        most: the most files that are kept.
    """

    def __init__(self, store: FileStore, is_constant: Callable[[str], bool], most: int) -> None:
        self._store = store
        self._is_constant = is_constant
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    @property
    def url(self) -> str:
        """The path or URL of the store, for messages."""
        return self._store.url

    def path(self, name: str) -> str:
        """Return the full path or URL of a name, for messages."""
        return self._store.path(name)

    def read(self, name: str) -> bytes:
        """Return the file's bytes: of a constant file those that were read before, if they are still kept."""
        if not self._is_constant(name):
            return self._store.read(name)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        data = self._store.read(name)
        with self._lock:
            self._kept[name] = data
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return data

    def forget(self) -> None:
        """Read every file anew from now on: someone has repaired one, or will."""
        with self._lock:
            self._kept.clear()

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._store.create(name, data, private=private)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._store.replace(name, data, private=private)
        self._drop(name)

    def exists(self, name: str) -> bool:
        return self._store.exists(name)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def modified_ms(self, name: str) -> int | None:
        return self._store.modified_ms(name)

    def list(self, folder: str = "") -> list[str]:
        return self._store.list(folder)

    def delete(self, name: str) -> None:
        self._store.delete(name)
        self._drop(name)

    def _drop(self, name: str) -> None:
        """Forget one file."""
        with self._lock:
            self._kept.pop(name, None)

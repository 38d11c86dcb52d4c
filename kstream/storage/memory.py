"""MemoryFileStore: files in the memory of this process, by URL. A restart in another process does not find them."""

from __future__ import annotations

import threading
from typing import ClassVar

from kstream.errors import AlreadyExistsError, MissingFileError
from kstream.storage.file_store import inside


class MemoryFileStore:
    """A FileStore in memory. All stores of one `memory://` URL share their files until `forget` or the end of the process."""

    _stores: ClassVar[dict[str, dict[str, bytes]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        with self._lock:
            self._files = self._stores.setdefault(self._url, {})

    @classmethod
    def forget(cls, url: str) -> None:
        """Drop the files of the URL, for stores that are opened later. Open stores keep their files."""
        with cls._lock:
            cls._stores.pop(url.rstrip("/"), None)

    @property
    def url(self) -> str:
        return self._url

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        inside(name, self._url)
        with self._lock:
            if name in self._files:
                raise AlreadyExistsError(f"{self.path(name)} exists already", path=self.path(name))
            self._files[name] = data

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        inside(name, self._url)
        with self._lock:
            self._files[name] = data

    def read(self, name: str) -> bytes:
        inside(name, self._url)
        with self._lock:
            if name not in self._files:
                raise MissingFileError(f"{self.path(name)} is not there", path=self.path(name))
            return self._files[name]

    def exists(self, name: str) -> bool:
        inside(name, self._url)
        with self._lock:
            return name in self._files

    def size(self, name: str) -> int:
        return len(self.read(name))

    def modified_ms(self, name: str) -> int | None:
        """Return None: these files have no dates. MissingFileError if the file does not exist."""
        self.read(name)
        return None

    def list(self, folder: str = "") -> list[str]:
        prefix = f"{inside(folder, self._url)}/" if folder else ""
        with self._lock:
            names = [name[len(prefix) :] for name in self._files if name.startswith(prefix)]
        return sorted(name for name in names if "/" not in name)

    def delete(self, name: str) -> None:
        inside(name, self._url)
        with self._lock:
            self._files.pop(name, None)

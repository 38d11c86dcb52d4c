"""Stores that misbehave on purpose, each around a real one."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

from kstream.errors import AlreadyExistsError, StorageError
from kstream.storage import FileStore, MemoryFileStore


class WrappedStore:
    """Passes every call on; `_call` is where subclasses step in."""

    def __init__(self, inner: FileStore) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        return self.inner.url

    def path(self, name: str) -> str:
        return self.inner.path(name)

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._call("create", name, lambda: self.inner.create(name, data, private=private), len(data))

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._call("replace", name, lambda: self.inner.replace(name, data, private=private), len(data))

    def read(self, name: str) -> bytes:
        return self._call("read", name, lambda: self.inner.read(name))

    def exists(self, name: str) -> bool:
        return self._call("exists", name, lambda: self.inner.exists(name))

    def size(self, name: str) -> int:
        return self._call("size", name, lambda: self.inner.size(name))

    def modified_ms(self, name: str) -> int | None:
        return self._call("modified_ms", name, lambda: self.inner.modified_ms(name))

    def list(self, folder: str = "") -> list[str]:
        return self._call("list", folder, lambda: self.inner.list(folder))

    def delete(self, name: str) -> None:
        self._call("delete", name, lambda: self.inner.delete(name))

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        return action()


class MortalStore(WrappedStore):
    """A driver's view of the store: dead drivers reach nothing."""

    def __init__(self, inner: FileStore, driver: Any) -> None:
        super().__init__(inner)
        self._driver = driver

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if not self._driver.alive:
            raise StorageError("the driver is dead", path=name)
        return action()


class CountingStore(WrappedStore):
    """Counts requests and the bytes written."""

    def __init__(self, inner: FileStore) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str, int]] = []
        self._lock = threading.Lock()

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        with self._lock:
            self.calls.append((verb, name, size))
        return action()

    def take(self) -> list[tuple[str, str, int]]:
        with self._lock:
            calls, self.calls = self.calls, []
        return calls


class FaultyStore(WrappedStore):
    """`fault(verb, name)` says what happens to a call: None (goes well), "before" (fails, nothing done), "after" (done, then fails).

    "again": done, then refused as if another had been first – a client that sends its request again may meet its own.
    """

    def __init__(self, inner: FileStore) -> None:
        super().__init__(inner)
        self.fault: Callable[[str, str], str | None] = lambda _verb, _name: None

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        fault = self.fault(verb, name)
        if fault == "before":
            raise full_disk(name)
        result = action()
        if fault == "after":
            raise full_disk(name)
        if fault == "again":
            raise AlreadyExistsError(f"{name} exists already", path=name)
        return result


class SteppingStore(WrappedStore):
    """Calls `step(verb, name, done)` before and after each changing call: the places where a driver can be killed."""

    def __init__(self, inner: FileStore, step: Callable[[str, str, bool], None]) -> None:
        super().__init__(inner)
        self._step = step

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if verb not in ("create", "replace", "delete"):
            return action()
        self._step(verb, name, False)
        result = action()
        self._step(verb, name, True)
        return result


def full_disk(name: str) -> StorageError:
    return StorageError(f"cannot write {name}: No space left on device", path=name, errno=errno.ENOSPC)


class LateStore(WrappedStore):
    """Loses a plan on its way and remembers it: `arrive` delivers it late, as a proxy that retries would."""

    def __init__(self, inner: MemoryFileStore) -> None:
        super().__init__(inner)
        self.down = False
        self.on_its_way: list[tuple[str, bytes]] = []

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        if self.down:
            self.on_its_way.append((name, data))
            raise StorageError("timed out", path=name)
        super().create(name, data, private=private)

    def arrive(self) -> list[str]:
        outcome = []
        for name, data in self.on_its_way:
            try:
                self.inner.create(name, data)
                outcome.append("stored")
            except StorageError:
                outcome.append("refused")
        return outcome


def no_completions(verb: str, name: str) -> str | None:
    """The fault of a disk on which plans still find room."""
    return "before" if verb == "create" and name.startswith("done/") else None


def works(_verb: str, _name: str) -> None:
    return None

"""Logs, stores and records for the tests of this folder."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from kstream.storage import FileStore, MemoryFileStore
from kstream.wal.file_format import frame
from tests.stores import WrappedStore


def memory() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def record(number: int) -> bytes:
    return f"record {number}".encode() * (1 + number % 7)


def put(store: FileStore, start: int, stop: int, records: list[bytes], tail: bytes = b"") -> None:
    """A file of a log as another process left it."""
    store.create(f"log/log-{start}-{stop}", b"".join(frame(r) for r in records) + tail)


class BusyStore(WrappedStore):
    """Knows how many files were being read at the same time, at most."""

    def __init__(self, inner: FileStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._now = 0
        self.reads = 0
        self.most = 0

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if verb != "read":
            return action()
        with self._lock:
            self._now += 1
            self.reads += 1
            self.most = max(self.most, self._now)
        try:
            return action()
        finally:
            with self._lock:
                self._now -= 1

"""MeasuredStore: a store that measures how long its requests take and counts those that fail.

The plan log of a driver with metrics uses it. So the time of each plan, completion and probe is known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kstream.checkpoint import names
from kstream.errors import AlreadyExistsError, MissingFileError
from kstream.monitoring.histogram import STORE_BOUNDS, Buckets, Histogram
from kstream.storage import FileStore

T = TypeVar("T")
OTHER = "other"
_CREATED = {names.PLANS: "plan", names.DONE: "completion", names.FAILED: "failure"}


class StoreFigures:
    """How long requests took, and how many failed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[str, Histogram] = {}
        self._errors: dict[str, int] = {}

    def note(self, request: str, seconds: float, failed: bool) -> None:
        """Count a request."""
        with self._lock:
            self._times.setdefault(request, Histogram(STORE_BOUNDS)).observe(seconds)
            self._errors[request] = self._errors.get(request, 0) + failed

    def times(self) -> list[tuple[str, Buckets, float]]:
        """Return the times of each request so far: the request, its buckets and the sum of its seconds."""
        with self._lock:
            return [(request, times.buckets(), times.sum) for request, times in sorted(self._times.items())]

    def errors(self) -> list[tuple[str, int]]:
        """Return how often each request has failed so far."""
        with self._lock:
            return sorted(self._errors.items())


class MeasuredStore:
    """Passes each call to another store, and notes its time. Thread-safe; blocks and raises as the other store."""

    def __init__(self, store: FileStore, figures: StoreFigures) -> None:
        self._store = store
        self._figures = figures

    @property
    def url(self) -> str:
        """The path or URL of the store, for messages."""
        return self._store.url

    def path(self, name: str) -> str:
        """Return the full path or URL of a name, for messages."""
        return self._store.path(name)

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._measured("create", name, lambda: self._store.create(name, data, private=private))

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        self._measured("replace", name, lambda: self._store.replace(name, data, private=private))

    def read(self, name: str) -> bytes:
        return self._measured("read", name, lambda: self._store.read(name))

    def exists(self, name: str) -> bool:
        return self._measured("exists", name, lambda: self._store.exists(name))

    def size(self, name: str) -> int:
        return self._measured("size", name, lambda: self._store.size(name))

    def modified_ms(self, name: str) -> int | None:
        return self._measured("modified_ms", name, lambda: self._store.modified_ms(name))

    def list(self, folder: str = "") -> list[str]:
        return self._measured("list", folder, lambda: self._store.list(folder))

    def delete(self, name: str) -> None:
        self._measured("delete", name, lambda: self._store.delete(name))

    def _measured(self, verb: str, name: str, call: Callable[[], T]) -> T:
        """Make a call and note its time. That a file is there already, or is not there, is an answer and no failure."""
        began, failed = time.perf_counter(), True
        try:
            result = call()
            failed = False
            return result
        except (AlreadyExistsError, MissingFileError):
            failed = False
            raise
        finally:
            self._figures.note(request_of(verb, name), time.perf_counter() - began, failed)


def request_of(verb: str, name: str) -> str:
    """Return what a request to the store is for, for a label: `plan`, `completion`, `failure`, `probe` or `other`. Pure."""
    if verb == "create":
        return _CREATED.get(name.partition("/")[0], OTHER)
    return "probe" if verb == "exists" and names.parse_epoch(name) is not None else OTHER

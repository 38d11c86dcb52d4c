"""ReadOnceStore: constant files are read once, all others each time."""

from __future__ import annotations

import uuid

import pytest

from kstream.errors import MissingFileError
from kstream.storage import FileStore, MemoryFileStore
from kstream.storage.read_once import ReadOnceStore
from tests.stores import CountingStore


@pytest.fixture
def counting() -> CountingStore:
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    for name in ("done/1", "done/2", "done/3", "status"):
        store.create(name, name.encode())
    return CountingStore(store)


def read_once(counting: CountingStore, most: int = 10) -> ReadOnceStore:
    return ReadOnceStore(counting, lambda name: name.startswith("done/"), most)


def reads(counting: CountingStore) -> list[str]:
    return [name for verb, name, _ in counting.calls if verb == "read"]


def test_a_constant_file_is_read_once_and_any_other_each_time(counting: CountingStore) -> None:
    store: FileStore = read_once(counting)
    assert [store.read(name) for name in ("done/1", "status", "done/1", "status")] == [b"done/1", b"status", b"done/1", b"status"]
    assert reads(counting) == ["done/1", "status", "status"]


def test_a_file_that_is_not_there_is_asked_for_again(counting: CountingStore) -> None:
    store = read_once(counting)
    with pytest.raises(MissingFileError):
        store.read("done/4")
    counting.create("done/4", b"new")
    assert store.read("done/4") == b"new"


def test_the_files_that_were_read_last_are_kept(counting: CountingStore) -> None:
    store = read_once(counting, most=2)
    for name in ("done/1", "done/2", "done/1", "done/3", "done/1", "done/2"):
        store.read(name)
    assert reads(counting) == ["done/1", "done/2", "done/3", "done/2"]


def test_what_is_forgotten_replaced_or_deleted_is_read_anew(counting: CountingStore) -> None:
    store = read_once(counting)
    store.read("done/1")
    counting.replace("done/1", b"repaired")
    assert store.read("done/1") == b"done/1"
    store.forget()
    assert store.read("done/1") == b"repaired"
    store.replace("done/1", b"again")
    assert store.read("done/1") == b"again"
    store.delete("done/1")
    with pytest.raises(MissingFileError):
        store.read("done/1")


def test_all_other_calls_are_passed_on(counting: CountingStore) -> None:
    store = read_once(counting)
    store.create("done/5", b"five")
    assert (store.url, store.path("a"), store.exists("done/5"), store.size("done/5")) == (counting.url, counting.path("a"), True, 4)
    assert store.list("done") == ["1", "2", "3", "5"] and store.modified_ms("done/5") == counting.modified_ms("done/5")

"""The store of the plan log measures its requests and changes none."""

from __future__ import annotations

import uuid

import pytest

from kstream.errors import AlreadyExistsError, MissingFileError, StorageError
from kstream.metrics.measured_store import MeasuredStore, StoreFigures, request_of
from kstream.storage import FileStore, MemoryFileStore
from kstream.testing.file_store_contract import FileStoreContract
from tests.stores import FaultyStore


def memory() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


class TestMeasuredStore(FileStoreContract):
    def make_store(self) -> FileStore:
        return MeasuredStore(memory(), StoreFigures())


def test_requests_are_counted_by_what_they_are_for() -> None:
    figures = StoreFigures()
    store = MeasuredStore(memory(), figures)
    store.create("plans/1-1", b"")
    store.create("done/1-1", b"")
    store.create("failed/1-1-1", b"")
    store.exists("epoch-2")
    store.list("plans")
    counts = {request: buckets[-1][1] for request, buckets, _ in figures.times()}
    assert counts == {"plan": 1, "completion": 1, "failure": 1, "probe": 1, "other": 1}


def test_only_a_failure_is_an_error_and_not_an_answer() -> None:
    figures = StoreFigures()
    faulty = FaultyStore(memory())
    store = MeasuredStore(faulty, figures)
    store.create("plans/1", b"")
    with pytest.raises(AlreadyExistsError):
        store.create("plans/1", b"")
    with pytest.raises(MissingFileError):
        store.read("plans/2")
    assert figures.errors() == [("other", 0), ("plan", 0)]
    faulty.fault = lambda verb, name: "before"
    with pytest.raises(StorageError):
        store.create("plans/3", b"")
    assert figures.errors() == [("other", 0), ("plan", 1)]


def test_labels_are_few() -> None:
    verbs = ("create", "replace", "read", "exists", "list", "delete")
    found = {request_of(verb, name) for verb in verbs for name in ("plans/1", "done/1", "failed/1", "epoch-7", "state/x", "anything")}
    assert found == {"plan", "completion", "failure", "probe", "other"}

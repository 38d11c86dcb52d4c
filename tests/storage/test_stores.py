"""The two stores keep the contract, and each what is its own."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from kstream.errors import AlreadyExistsError, StorageError, UnsupportedStoreError
from kstream.storage import FileStore, LocalFileStore, MemoryFileStore, open_store
from kstream.testing.file_store_contract import FileStoreContract


class TestLocalFileStore(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "not" / "yet" / "there"

    def make_store(self) -> FileStore:
        return LocalFileStore(self.directory)


class TestMemoryFileStore(FileStoreContract):
    def make_store(self) -> FileStore:
        return MemoryFileStore(f"memory://{uuid.uuid4().hex}")

    def reopen(self, store: FileStore) -> FileStore:
        return MemoryFileStore(store.url)


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_a_create_that_was_refused_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    store.create("plans/a", b"1")
    with pytest.raises(AlreadyExistsError):
        store.create("plans/a", b"2")
    assert files(tmp_path) == ["plans/a"]


def test_a_half_written_file_of_a_killed_writer_is_not_listed(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    store.create("plans/a", b"1")
    (tmp_path / "plans" / ".tmp-0123").write_bytes(b"half")
    assert store.list("plans") == ["a"]


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalFileStore(tmp_path)
    store.create("plans/a", b"1")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError) as caught:
            store.create("plans/b", b"2")
    assert "No space left on device" in str(caught.value) and str(tmp_path / "plans" / "b") in str(caught.value)
    assert caught.value.facts["errno"] == errno.ENOSPC and caught.value.retriable
    assert files(tmp_path) == ["plans/a"]
    store.create("plans/b", b"2")
    assert store.read("plans/b") == b"2"


def test_bytes_and_names_are_durable_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalFileStore(tmp_path)
    store.create("plans/a", b"")
    order: list[str] = []
    fsync, link = os.fsync, os.link

    def noting_fsync(descriptor: int) -> None:
        order.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def noting_link(source: Path, target: Path) -> None:
        order.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    store.create("plans/b", b"bytes")
    assert order == ["file", "link", "directory"]


def test_stores_of_one_memory_url_share_their_files_until_it_is_forgotten() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    open_store(url).create("a", b"1")
    assert open_store(url + "/").read("a") == b"1"
    MemoryFileStore.forget(url)
    assert not open_store(url).exists("a")


def test_paths_and_file_urls_are_local(tmp_path: Path) -> None:
    LocalFileStore(tmp_path / "with space").create("a", b"1")
    assert open_store(str(tmp_path / "with space")).read("a") == b"1"
    assert open_store(f"file://{tmp_path}/with%20space").read("a") == b"1"
    assert open_store(f"file:{tmp_path}/with%20space").read("a") == b"1"


@pytest.mark.parametrize("url", ["s3a://bucket/x", "hdfs://name/x", "hdfs:/x", "gs://b/x", "ftp://h/x"])
def test_a_store_that_cannot_create_if_absent_is_refused(url: str) -> None:
    with pytest.raises(UnsupportedStoreError) as caught:
        open_store(url)
    assert url in str(caught.value) and caught.value.facts["path"] == url


def test_opening_a_store_touches_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()

"""The stores of this machine keep the contract, and each what is its own; what may be opened at all."""

from __future__ import annotations

import errno
import logging
import os
import uuid
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from kstream.conf import Settings
from kstream.errors import AlreadyExistsError, StorageError, UnsupportedStoreError
from kstream.spark.checkpoint_store import open_checkpoint, open_checkpoint_to_write
from kstream.storage import FileStore, LocalFileStore, MemoryFileStore, open_store
from kstream.testing.file_store_contract import FileStoreContract


class TestLocalFileStore(FileStoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "not" / "yet" / "there"

    def make_store(self) -> FileStore:
        return LocalFileStore(self.directory)

    def test_a_private_file_is_its_owners_only_from_its_creation_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store, opened = self.make_store(), list[int]()
        monkeypatch.setattr(os, "fsync", lambda fd, real=os.fsync: (opened.append(os.fstat(fd).st_mode & 0o777), real(fd)))
        store.replace("open", b"x")
        store.replace("graph", b"x", private=True)
        store.replace("graph", b"y", private=True)
        assert stat_mode(store.path("graph")) == 0o600 and store.read("graph") == b"y"
        assert stat_mode(store.path("open")) == 0o666 & ~umask()
        store.create("failed", b"x", private=True)
        assert stat_mode(store.path("failed")) == 0o600 and store.read("failed") == b"x"
        assert opened.count(0o600) == 3


def stat_mode(path: str) -> int:
    return os.stat(path).st_mode & 0o777


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


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


REFUSED = ["webhdfs://h/x", "ftp://h/x", "sftp://h/x", "http://h/x", "github://o/x", "zip://x::s3://b/y", "simplecache::s3://b/y"]


@pytest.mark.parametrize("url", REFUSED)
def test_a_store_that_cannot_create_if_absent_is_refused_with_the_reason_and_what_to_use(url: str) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"cannot create a file only if.*s3://.*hdfs://.*singleWriter=true") as caught:
        open_store(url)
    assert url in str(caught.value) and caught.value.facts["path"] == url
    with pytest.raises(UnsupportedStoreError):
        open_checkpoint_to_write(url, Settings({}))


@pytest.mark.parametrize("url", ["hdfs://name/x", "hdfs:/x", "viewfs://cluster/x"])
def test_hadoops_stores_are_not_opened_in_a_room_without_a_jvm(url: str) -> None:
    with pytest.raises(UnsupportedStoreError, match="open_checkpoint"):
        open_store(url)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a file system that kstream does not know, with neither links nor conditions; fsspec does."""
    fsspec.register_implementation("plain", PlainFileSystem, clobber=True)
    return f"plain://{tmp_path}"


class PlainFileSystem(LocalFileSystem):
    protocol = "plain"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("plain://").rstrip("/")


@pytest.fixture
def declared() -> Settings:
    return Settings({"spark.streaming.kstream.checkpoint.singleWriter": "true"})


class TestStoreOfASingleWriter(FileStoreContract):
    """The contract holds within one process: that is what the setting is the user's word for."""

    @pytest.fixture(autouse=True)
    def _plain(self, plain: str, declared: Settings) -> None:
        self.url, self.declared = plain, declared

    def make_store(self) -> FileStore:
        return open_checkpoint_to_write(self.url, self.declared)


def test_a_store_of_a_single_writer_is_refused_without_the_setting_read_without_it_and_used_with_a_warning(
    plain: str, declared: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnsupportedStoreError):
        open_checkpoint_to_write(plain, Settings({}))
    with caplog.at_level(logging.WARNING):
        open_checkpoint_to_write(plain, declared).create("plans/a", b"1")
    assert "a second driver would not be noticed" in caplog.text and plain in caplog.text
    assert open_checkpoint(plain).read("plans/a") == b"1"


def test_half_a_file_of_a_killed_single_writer_is_not_listed(plain: str, declared: Settings, tmp_path: Path) -> None:
    store = open_checkpoint_to_write(plain, declared)
    store.create("plans/a", b"1")
    (tmp_path / "plans" / ".tmp-0123").write_bytes(b"half")
    assert store.list("plans") == ["a"]


def test_opening_a_store_touches_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()

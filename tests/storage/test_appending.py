"""Files of a local disk that grow: durable when append returns, and whole after a failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kstream.errors import MissingFileError, StorageError
from kstream.storage import AppendingStore, FileStore, LocalFileStore, MemoryFileStore
from kstream.storage import local as local_module


def test_the_local_disk_says_that_its_files_can_grow_and_memory_does_not(tmp_path: Path) -> None:
    memory: FileStore = MemoryFileStore("memory://x")
    assert isinstance(LocalFileStore(tmp_path), AppendingStore) and not isinstance(memory, AppendingStore)


def test_an_append_gives_the_offset_of_its_first_byte_and_is_read_at_once(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    file = store.open_to_append("not/yet/there")
    assert [file.append(b"abc"), file.append(b"de"), file.size] == [0, 3, 5]
    assert (store.read("not/yet/there"), store.read_at("not/yet/there", 2, 2), store.read_at("not/yet/there", 4, 9)) == (
        b"abcde",
        b"cd",
        b"e",
    )
    assert store.list("not/yet") == ["there"]


def test_a_file_that_is_there_goes_on_at_its_end_whoever_else_has_it_open(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    store.create("a", b"12")
    first, second = store.open_to_append("a"), store.open_to_append("a")
    assert [first.append(b"3"), second.append(b"45"), first.append(b"6")] == [2, 3, 5]
    assert store.read("a") == b"123456"


def test_each_append_is_synced_and_a_new_file_is_known_to_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(local_module, "_SYNC", fsync)
    file = LocalFileStore(tmp_path).open_to_append("logs/a")
    assert str(tmp_path / "logs") in synced and str(tmp_path) in synced
    file.append(b"1")
    file.append(b"2")
    assert synced[-2:] == [str(tmp_path / "logs" / "a")] * 2


@pytest.mark.parametrize("fits", [0, 2, 5])
def test_an_append_that_fails_takes_off_what_it_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int) -> None:
    store = LocalFileStore(tmp_path)
    file = store.open_to_append("a")
    file.append(b"whole")
    room, real = [fits], os.write

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageError, match="No space left") as caught:
        file.append(b"record")
    monkeypatch.undo()
    assert (caught.value.facts["errno"], store.read("a")) == (errno.ENOSPC, b"whole")


def test_a_file_that_is_not_there_is_told_and_a_closed_one_is_not_written(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    with pytest.raises(MissingFileError):
        store.read_at("a", 0, 1)
    file = store.open_to_append("a")
    file.close()
    file.close()
    with pytest.raises(StorageError, match="closed"):
        file.append(b"1")

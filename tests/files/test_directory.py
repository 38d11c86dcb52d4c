"""Which directories a path with wild cards names, and what is in them."""

from __future__ import annotations

import os
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from kstream.errors import ConfigurationError, MissingDependencyError, UnsupportedStoreError
from kstream.files.file_systems import FsspecFiles, LocalFiles, file_system, milliseconds
from kstream.files.watched_directory import files_in

FILES = ("a/1", "a/2", "ab/3", "b/4", "b/deep/5", "x{y/6", ".dot/7")


@pytest.fixture(params=["local", "file", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory with FILES, as a path or URL."""
    if request.param == "memory":
        url = f"memory://{uuid.uuid4().hex}"
        fsspec.filesystem("memory").pipe({f"{url}/{name}": b"x" for name in FILES})
        return url
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    return str(tmp_path) if request.param == "local" else f"file://{tmp_path}"


def names(root: str, pattern: str) -> list[str]:
    files = file_system(root)
    return sorted(file.path.rpartition("/")[2] for file in files_in(files.list, files.qualified(f"{root}/{pattern}")))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a", "12"),
        ("a/", "12"),
        ("b", "4"),
        ("*/", "123467"),
        ("*", "123467"),
        ("a*", "123"),
        ("?", "124"),
        ("[ab]", "124"),
        ("[^a]", "4"),
        ("[!a]", "4"),
        ("{a,b}", "124"),
        ("a{,b}", "123"),
        ("*/deep", "5"),
        ("b/*", "5"),
        ("[a-b]/d*", "5"),
        ("x\\{y", "6"),
        ("nothing*", ""),
    ],
)
def test_wild_cards_are_hadoops_and_only_files_directly_inside_count(root: str, pattern: str, found: str) -> None:
    """IS5: the glob names directories."""
    assert names(root, pattern) == list(found)


@pytest.mark.parametrize("path", ["nowhere", "a/1"])
def test_what_is_no_directory_is_told_from_an_empty_one(root: str, path: str) -> None:
    if root.startswith("memory") and path == "a/1":
        assert names(root, path) == []  # as fsspec lists a file: itself
        return
    with pytest.raises((FileNotFoundError, NotADirectoryError)):
        names(root, path)


def test_paths_are_whole_times_and_sizes_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b").write_bytes(b"12345")
    os.utime(tmp_path / "in" / "a b", ns=(0, 1_234_567_891_999_999))
    (tmp_path / "in" / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "in" / "pipe")
    monkeypatch.chdir(tmp_path)
    files = LocalFiles()
    (entry,) = files.list(files.qualified("in/"))
    assert (entry.path, entry.mtime_ms, entry.size) == (str(tmp_path / "in" / "a b"), 1_234_567_891, 5)


def test_fsspecs_paths_keep_their_scheme_and_can_be_opened() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").pipe_file(f"{url}/a", b"content")
    files = file_system(url)
    (entry,) = files.list(files.qualified(url))
    assert entry.path.startswith("memory://") and entry.path.endswith("/a") and entry.size == 7
    with files.open(entry.path) as file:
        file.seek(3)
        assert file.read() == b"tent"


MOMENT = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=timezone.utc)
MOMENT_MS = 1_795_262_400_250


@pytest.mark.parametrize(
    "written",
    [
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.astimezone(timezone(timedelta(hours=-7))),
        "2026-11-21T12:00:00.250Z",
        MOMENT_MS,
        MOMENT_MS / 1000,
    ],
)
def test_modification_times_are_read_in_all_the_ways_they_are_written(written: Any) -> None:
    assert milliseconds(written) == MOMENT_MS


class OtherFiles(MemoryFileSystem):
    """The same files under another scheme."""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.removeprefix(f"{cls.protocol}:"))


class TimelessFiles(OtherFiles):
    """As object stores behind some of fsspec's packages: a listing has no times, each must be asked for."""

    protocol = "timeless"
    asked = 0

    def modified(self, path: str) -> datetime:
        type(self).asked += 1
        return MOMENT


class HopelessFiles(OtherFiles):
    protocol = "hopeless"

    def modified(self, path: str) -> datetime:
        raise NotImplementedError


def test_times_that_a_listing_lacks_are_asked_for_once_a_file() -> None:
    fsspec.register_implementation("timeless", TimelessFiles, clobber=True)
    folder = uuid.uuid4().hex
    fsspec.filesystem("memory").pipe({f"memory://{folder}/{name}": b"x" for name in "ab"})
    files = FsspecFiles(f"timeless://{folder}")
    for _ in range(3):
        assert {entry.mtime_ms for entry in files.list(f"timeless:///{folder}")} == {MOMENT_MS}
    assert TimelessFiles.asked == 2


def test_a_file_system_without_modification_times_is_refused_in_words() -> None:
    fsspec.register_implementation("hopeless", HopelessFiles, clobber=True)
    folder = uuid.uuid4().hex
    fsspec.filesystem("memory").pipe_file(f"memory://{folder}/a", b"x")
    with pytest.raises(UnsupportedStoreError, match="no modification time"):
        FsspecFiles(f"hopeless://{folder}").list(f"hopeless:///{folder}")


def test_a_url_that_nobody_can_open_says_why() -> None:
    with pytest.raises(UnsupportedStoreError, match="no installed package can open"):
        file_system("zebra://in")
    with pytest.raises(MissingDependencyError, match="sftp://host/in needs another package"):
        file_system("sftp://host/in")
    with pytest.raises(ConfigurationError, match="password"):
        file_system("ftp://me:secret@host/in")

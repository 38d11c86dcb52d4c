"""The file systems of watched directories: the local disk, object stores, and all that fsspec knows. On the driver and in the workers.

All paths are absolute paths of the local disk or full URLs of other file systems. So a path in a plan can be opened without other facts.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from kstream.errors import ConfigurationError, MissingDependencyError, UnsupportedStoreError
from kstream.storage.open import OBJECT_STORES, scheme_of

_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "modificationTime")
"""The keys under which file systems of fsspec give the modification time in a listing."""


@dataclass(frozen=True, slots=True, order=True)
class FileStatus:
    """A file in a listing, and in a stored plan. Sorted by path.

    Attributes:
        path: the absolute path; a full URL unless the file is on the local disk.
        mtime_ms: the modification time in ms, by the clock of the file system.
        size: in bytes.
    """

    path: str
    mtime_ms: int
    size: int

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]

    def to_json(self) -> list[Any]:
        """Return the stored form: `[path, mtime_ms, size]`."""
        return [self.path, self.mtime_ms, self.size]

    @staticmethod
    def from_json(row: Sequence[Any]) -> FileStatus:
        """Return the file status whose `to_json` gave this row."""
        return FileStatus(row[0], row[1], row[2])


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory: a file or a directory. The time (ms) and size (bytes) of a directory have no meaning."""

    path: str
    is_directory: bool
    mtime_ms: int = 0
    size: int = 0

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.rpartition("/")[2]


@functools.lru_cache(maxsize=8)
def file_system(url: str) -> LocalFiles | FsspecFiles | ObjectFiles:
    """Return the file system of a path or URL. The last eight are kept in the process. In general this sends no request.

    An object store is accessed by its own fsspec package (s3fs, gcsfs, adlfs) if that is installed, or else by obstore. Both take
    credentials from the environment.

    Returns:
        The file system. `qualified` returns the absolute path or full URL of a path that the user gave. `list` returns the entries of a
        directory, without a cache. `open` opens a file for reading and seeking. The last two block, and raise the errors of the file
        system's client; FileNotFoundError (of `list` also NotADirectoryError) if there is no such file or directory.

    Raises:
        MissingDependencyError: a package is missing.
        UnsupportedStoreError: neither kstream nor fsspec knows the scheme.
        ConfigurationError: the URL has a password in it, or names no bucket.
    """
    scheme = scheme_of(url)
    if scheme in ("", "file"):
        return LocalFiles()
    try:
        return FsspecFiles(url)
    except ImportError as e:
        if scheme not in OBJECT_STORES:
            raise MissingDependencyError(f"reading {url} needs another package: {e}", package=e.name, install=str(e)) from e
    return ObjectFiles(url)


class LocalFiles:
    """The local disk, and file systems that are mounted there. For its methods see `file_system`."""

    def qualified(self, path: str) -> str:
        if scheme_of(path) == "file":  # no URL parser: as in Hadoop, `?` is a wild card and `%20` is literal
            path = re.sub("^file:(//[^/]*)?", "", path, flags=re.IGNORECASE)
        return os.path.abspath(path)

    def list(self, directory: str) -> list[Entry]:
        entries: list[Entry] = []
        with os.scandir(directory) as found:
            for item in found:
                try:
                    status = item.stat()
                except FileNotFoundError:  # deleted meanwhile, or a broken link
                    continue
                if item.is_dir():
                    entries.append(Entry(item.path, True))
                elif item.is_file():
                    entries.append(Entry(item.path, False, status.st_mtime_ns // 1_000_000, status.st_size))
        return entries

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")


class FsspecFiles:
    """Any file system of fsspec. For its methods see `file_system`."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self._fs: Any = fsspec.url_to_fs(url)[0]
        except ValueError as e:
            raise UnsupportedStoreError(f"no installed package can open {url}: {e}", path=url) from e
        self._known: dict[Any, int] = {}

    def qualified(self, path: str) -> str:
        return str(self._fs.unstrip_protocol(path)).rstrip("/")

    def list(self, directory: str) -> list[Entry]:
        self._fs.invalidate_cache()  # some file systems cache listings
        bare = self._bare(directory)
        found = [info for info in self._fs.ls(bare, detail=True) if str(info["name"]).rstrip("/") != bare.rstrip("/")]
        return [self._entry(info) for info in found]

    def open(self, path: str) -> BinaryIO:
        return self._fs.open(path, "rb")

    def _bare(self, path: str) -> str:
        return str(self._fs._strip_protocol(path))  # has no public name in fsspec, but `ls` of some file systems needs it

    def _entry(self, info: Mapping[str, Any]) -> Entry:
        """Return the entry of a listing of fsspec. Its modification time may cost a request; see `_modified`."""
        name = str(info["name"]).rstrip("/")
        path = str(self._fs.unstrip_protocol(name))
        if info["type"] != "file":
            return Entry(path, True)
        return Entry(path, False, self._modified(name, info), int(info["size"] or 0))

    def _modified(self, name: str, info: Mapping[str, Any]) -> int:
        """Return the modification time (ms) from the listing. If the listing has none, ask once for each version of a file; this blocks.

        Raises:
            UnsupportedStoreError: the file system has no modification times.
        """
        for key in _TIMES:
            if info.get(key) is not None:
                return milliseconds(info[key])
        version = (name, info["size"], info.get("e_tag") or info.get("ETag") or info.get("created"))
        if version not in self._known:
            try:
                self._known[version] = milliseconds(self._fs.modified(name))
            except NotImplementedError:
                raise UnsupportedStoreError(
                    f"{self._fs.unstrip_protocol(name)} has no modification time: its file system ({type(self._fs).__name__}) gives none, "
                    "so new files cannot be distinguished from old ones",
                    path=name,
                ) from None
        return self._known[version]


class ObjectFiles:
    """A bucket that is accessed by obstore, if no fsspec package for it is installed. A directory is a common prefix of keys.

    For its methods see `file_system`.
    """

    def __init__(self, url: str) -> None:
        """Make the client of the bucket. Sends no request.

        Raises:
            MissingDependencyError: obstore is not installed.
            ConfigurationError: the URL names no bucket.
        """
        from kstream.storage.object_store import object_client

        parts = urlsplit(url)
        if not parts.netloc:
            raise ConfigurationError(f"{url} names no bucket", key="directory", value=url)
        self._root = f"{parts.scheme}://{parts.netloc}"
        self._store: Any = object_client(self._root)

    def qualified(self, path: str) -> str:
        return path.rstrip("/")

    def list(self, directory: str) -> list[Entry]:
        prefix = self._key(directory)
        found = self._store.list_with_delimiter(f"{prefix}/" if prefix else None)
        folders = [Entry(f"{self._root}/{name.rstrip('/')}", True) for name in found["common_prefixes"]]
        objects = [
            Entry(f"{self._root}/{item['path']}", False, milliseconds(item["last_modified"]), item["size"]) for item in found["objects"]
        ]
        return folders + objects

    def open(self, path: str) -> BinaryIO:
        import obstore

        return cast("BinaryIO", io.BufferedReader(_ObjectFile(obstore.open_reader(self._store, self._key(path)))))

    def _key(self, path: str) -> str:
        return path[len(self._root) :].strip("/")


class _ObjectFile(io.RawIOBase):
    """A reader of obstore as a Python file."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._reader.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        data = bytes(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


def milliseconds(moment: Any) -> int:
    """Return a modification time in ms since the epoch.

    Args:
        moment: seconds, milliseconds, a datetime (UTC if it has no zone), or ISO 8601 text.
    """
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return (aware - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    return int(moment if moment > 1e11 else moment * 1000)  # 1e11 s is the year 5138, 1e11 ms is 1973

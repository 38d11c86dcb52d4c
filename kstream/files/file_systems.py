"""File systems that are watched: the local disk, object stores, and whatever fsspec has a name for. On the driver and in the workers.

Paths in and out are whole: absolute ones of the local disk, URLs of all others, so that what a plan holds can be opened anywhere.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

from kstream.errors import ConfigurationError, MissingDependencyError, UnsupportedStoreError
from kstream.files.directory import Entry
from kstream.storage.open import OBJECT_STORES, scheme_of

_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "modificationTime")
"""Where file systems of fsspec put the modification time in a listing."""


class FileSystem(Protocol):
    """Lists and opens. Blocks; what the client of a file system raises goes to the caller."""

    def qualified(self, path: str) -> str:
        """Return the absolute path or full URL of what the user gave."""
        ...

    def list(self, directory: str) -> list[Entry]:
        """List a directory, without a cache; FileNotFoundError or NotADirectoryError if it is none."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file to read and to seek in."""
        ...


@functools.lru_cache(maxsize=8)
def file_system(url: str) -> FileSystem:
    """Return the file system of a path or URL, made once per process. In general it sends no request yet.

    An object store is reached by its own fsspec package (s3fs, gcsfs, adlfs) if that is installed, else by obstore. Both take credentials
    from the environment.

    Raises:
        MissingDependencyError: a package is missing.
        UnsupportedStoreError: neither kstream nor fsspec knows the scheme.
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
    """The local disk, or what is mounted there."""

    def qualified(self, path: str) -> str:
        if scheme_of(path) == "file":  # not by a parser of URLs: a `?` is a wild card, and `%20` is what it is, as for Hadoop
            path = re.sub("^file:(//[^/]*)?", "", path, flags=re.IGNORECASE)
        return os.path.abspath(path)

    def list(self, directory: str) -> list[Entry]:
        entries: list[Entry] = []
        with os.scandir(directory) as found:
            for item in found:
                try:
                    status = item.stat()
                except FileNotFoundError:  # gone since, or a link to nowhere
                    continue
                if item.is_dir():
                    entries.append(Entry(item.path, True))
                elif item.is_file():
                    entries.append(Entry(item.path, False, status.st_mtime_ns // 1_000_000, status.st_size))
        return entries

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb")


class FsspecFiles:
    """Any file system of fsspec."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self._fs: Any = fsspec.url_to_fs(url)[0]
        except ValueError as e:
            raise UnsupportedStoreError(f"nothing here knows how to open {url}: {e}", path=url) from e
        self._known: dict[Any, int] = {}

    def qualified(self, path: str) -> str:
        return str(self._fs.unstrip_protocol(path)).rstrip("/")

    def list(self, directory: str) -> list[Entry]:
        self._fs.invalidate_cache()  # of listings, where a file system keeps them
        bare = self._bare(directory)
        found = [info for info in self._fs.ls(bare, detail=True) if str(info["name"]).rstrip("/") != bare.rstrip("/")]
        return [self._entry(info) for info in found]

    def open(self, path: str) -> BinaryIO:
        return self._fs.open(path, "rb")

    def _bare(self, path: str) -> str:
        return str(self._fs._strip_protocol(path))  # fsspec has no public name for it, and `ls` of some wants it done

    def _entry(self, info: Mapping[str, Any]) -> Entry:
        name = str(info["name"]).rstrip("/")
        path = str(self._fs.unstrip_protocol(name))
        if info["type"] != "file":
            return Entry(path, True)
        return Entry(path, False, self._modified(name, info), int(info["size"] or 0))

    def _modified(self, name: str, info: Mapping[str, Any]) -> int:
        """The time in the listing; if that has none, one request for each version of a file."""
        for key in _TIMES:
            if info.get(key) is not None:
                return milliseconds(info[key])
        version = (name, info["size"], info.get("e_tag") or info.get("ETag") or info.get("created"))
        if version not in self._known:
            try:
                self._known[version] = milliseconds(self._fs.modified(name))
            except NotImplementedError:
                raise UnsupportedStoreError(
                    f"{self._fs.unstrip_protocol(name)} has no modification time: its file system ({type(self._fs).__name__}) tells none, "
                    "so new files cannot be told from old ones there",
                    path=name,
                ) from None
        return self._known[version]


class ObjectFiles:
    """A bucket by obstore, if no fsspec package for it is installed. A directory is a common prefix."""

    def __init__(self, url: str) -> None:
        """Sends no request. MissingDependencyError without obstore; ConfigurationError if the URL names no bucket."""
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
    """obstore's reader as Python has files."""

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
    """Convert a modification time to ms: from seconds, milliseconds, a datetime (UTC without a zone), or ISO 8601."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
        return (aware - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    return int(moment if moment > 1e11 else moment * 1000)  # 1e11 s is the year 5138, 1e11 ms is 1973

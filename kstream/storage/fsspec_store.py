"""FsspecFileStore: any file system of fsspec, for a checkpoint that only one driver ever uses."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timezone
from typing import Any

from kstream.errors import AlreadyExistsError, MissingDependencyError, MissingFileError, StorageError, UnsupportedStoreError
from kstream.storage.file_store import inside

logger = logging.getLogger(__name__)

_TEMPORARY = ".tmp-"


class FsspecFileStore:
    """A FileStore on any file system of fsspec, whose create is *not* exclusive.

    `create` looks for the name, writes a temporary file and moves it. It is as atomic as the file system's move. Two threads that share
    this object cannot both create a name; two processes can. A write whose answer was lost may happen later: other stores refuse such a
    write, this one does not. So a store of this kind is opened only to read, or if the user promises a single writer.
    """

    def __init__(self, url: str) -> None:
        """Open the file system of the URL.

        Raises:
            MissingDependencyError: the file system's own package is missing.
            UnsupportedStoreError: fsspec does not know the scheme.
            StorageError: the file system connects at once, and failed.
        """
        self._url = url.rstrip("/")
        self._fs, self._root = _file_system(self._url)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._url

    def path(self, name: str) -> str:
        return f"{self._url}/{name}"

    def prepare(self, single_writer: bool) -> None:
        """Accept a single writer with a warning: a second driver would not be noticed.

        Raises:
            UnsupportedStoreError: `single_writer` is not set.
        """
        if not single_writer:
            raise UnsupportedStoreError(f"{self._url} cannot create a file only if it is absent", path=self._url)
        logger.warning(
            "%s cannot create a file only if it is absent; singleWriter is set, so it is used, and a second driver would not be noticed",
            self._url,
        )

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create the file if the name is not taken. Another process may take the name at the same moment, and one file is lost.

        AlreadyExistsError if the name is taken.
        """
        with self._lock, self._mapped("write", name):
            self._fs.invalidate_cache()
            if self._fs.exists(self._full(name)):
                raise AlreadyExistsError(f"{self.path(name)} exists already", path=self.path(name))
            self._write(name, data)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        with self._lock, self._mapped("write", name):
            self._write(name, data)

    def read(self, name: str) -> bytes:
        with self._mapped("read", name):
            return bytes(self._fs.cat_file(self._full(name)))

    def exists(self, name: str) -> bool:
        with self._mapped("look up", name):
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self._full(name)))

    def size(self, name: str) -> int:
        with self._mapped("look up", name):
            self._fs.invalidate_cache()
            return int(self._fs.size(self._full(name)))

    def modified_ms(self, name: str) -> int | None:
        with self._mapped("look up", name):
            self._fs.invalidate_cache()
            try:
                modified = self._fs.modified(self._full(name))
            except NotImplementedError:
                modified = None
            if modified is None and not self._fs.exists(self._full(name)):
                raise FileNotFoundError(name)
            if modified is None:
                return None
            known = modified if modified.tzinfo is not None else modified.replace(tzinfo=timezone.utc)
            return round(known.timestamp() * 1000)

    def list(self, folder: str = "") -> list[str]:
        with self._mapped("list", folder):
            self._fs.invalidate_cache()  # some file systems cache listings
            try:
                found = self._fs.ls(self._full(folder), detail=True)
            except FileNotFoundError:
                return []
            names = (str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "file")
            return sorted(name for name in names if not name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        with self._lock, self._mapped("delete", name):
            try:
                self._fs.rm_file(self._full(name))
            except FileNotFoundError:
                pass

    def _full(self, name: str) -> str:
        """Return the path of a name in the file system. OutsideStoreError."""
        return f"{self._root}/{inside(name, self._url)}" if name else self._root

    def _write(self, name: str, data: bytes) -> None:
        """Write a temporary file and move it to the name."""
        target = self._full(name)
        parent = target.rpartition("/")[0]
        temporary = f"{parent}/{_TEMPORARY}{uuid.uuid4().hex}"
        self._fs.makedirs(parent, exist_ok=True)
        self._fs.pipe_file(temporary, data)
        self._fs.mv(temporary, target)

    @contextmanager
    def _mapped(self, verb: str, name: str) -> Generator[None]:
        """Map any exception to a StorageError with the path; a missing file to MissingFileError."""
        place = self.path(name)
        try:
            yield
        except StorageError:
            raise
        except FileNotFoundError as e:
            raise MissingFileError(f"{place} is not there", path=place) from e
        except Exception as e:  # each file system of fsspec raises the errors of its own client
            raise StorageError(f"cannot {verb} {place}: {type(e).__name__}: {e}", path=place) from e


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path of the URL in it. Raises as `FsspecFileStore`."""
    import fsspec

    try:
        fs, root = fsspec.url_to_fs(url, skip_instance_cache=True)
    except ValueError as e:
        raise UnsupportedStoreError(f"no installed package can open {url}: {e}", path=url) from e
    except ImportError as e:
        raise MissingDependencyError(f"checkpoints on {url} need another package: {e}", package=e.name, install=str(e)) from e
    except Exception as e:  # some file systems connect at once
        raise StorageError(f"cannot open {url}: {type(e).__name__}: {e}", path=url) from e
    return fs, str(root).rstrip("/")

"""LocalFileStore: a directory on a local disk (or a POSIX network mount with working hard links)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kstream.errors import AlreadyExistsError, MissingFileError, StorageError
from kstream.storage.file_store import inside

_TEMPORARY = ".tmp-"
_BY_UMASK, _OWNER_ONLY = 0o666, 0o600
"""The modes of created files."""


class LocalFileStore:
    """The FileStore in a directory of a local disk. Its files can grow: it is an AppendingStore, too.

    Create-if-absent is a temporary file, fsync, `os.link`, and fsync of the directory. It takes 0.4 ms, and two writers cannot both
    succeed. With `open(…, "x")` a reader could see half a record, and a rename would overwrite.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def path(self, name: str) -> str:
        return str(self._root / name)

    def make_root(self) -> None:
        """Create the directory if it does not exist. StorageError if that fails."""
        try:
            _make_directories(self._root)
        except OSError as e:
            raise StorageError(
                f"cannot make the directory {self._root}: {e.strerror or e}. Give a path that this user may write.",
                path=str(self._root),
                errno=e.errno,
            ) from e

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        """Create the file durably by a hard link. AlreadyExistsError if the name is taken."""
        target = self._at(name)
        with _mapped("write", target):
            temporary = self._write_temporary(target, data, _OWNER_ONLY if private else _BY_UMASK)
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise AlreadyExistsError(f"{target} exists already", path=str(target)) from None
            finally:
                temporary.unlink(missing_ok=True)
            _sync_directory(target.parent)

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        target = self._at(name)
        with _mapped("write", target):
            os.replace(self._write_temporary(target, data, _OWNER_ONLY if private else _BY_UMASK), target)
            _sync_directory(target.parent)

    def read(self, name: str) -> bytes:
        target = self._at(name)
        with _mapped("read", target):
            try:
                return target.read_bytes()
            except FileNotFoundError:
                raise MissingFileError(f"{target} is not there", path=str(target)) from None

    def exists(self, name: str) -> bool:
        target = self._at(name)
        with _mapped("look up", target):
            return target.exists()

    def size(self, name: str) -> int:
        target = self._at(name)
        with _mapped("look up", target):
            try:
                return target.stat().st_size
            except FileNotFoundError:
                raise MissingFileError(f"{target} is not there", path=str(target)) from None

    def modified_ms(self, name: str) -> int | None:
        target = self._at(name)
        with _mapped("look up", target):
            try:
                return target.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                raise MissingFileError(f"{target} is not there", path=str(target)) from None

    def list(self, folder: str = "") -> list[str]:
        directory = self._at(folder)
        with _mapped("list", directory):
            try:
                entries = list(os.scandir(directory))
            except FileNotFoundError:
                return []
            return sorted(e.name for e in entries if e.is_file() and not e.name.startswith(_TEMPORARY))

    def delete(self, name: str) -> None:
        target = self._at(name)
        with _mapped("delete", target):
            target.unlink(missing_ok=True)

    def open_to_append(self, name: str) -> LocalAppendableFile:
        """Open the file for appends; create it first, durably, if it does not exist."""
        target = self._at(name)
        with _mapped("open", target):
            _make_directories(target.parent)
            file = LocalAppendableFile(target, _mapped)
            try:
                _sync_directory(target.parent)
            except BaseException:
                file.close()
                raise
            return file

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        target = self._at(name)
        with _mapped("read", target):
            try:
                with open(target, "rb") as file:
                    file.seek(offset)
                    return file.read(length)
            except FileNotFoundError:
                raise MissingFileError(f"{target} is not there", path=str(target)) from None

    def _at(self, name: str) -> Path:
        """Return the path of a name. OutsideStoreError."""
        return self._root / inside(name, self.url)

    def _write_temporary(self, target: Path, data: bytes, mode: int = _BY_UMASK) -> Path:
        """Write the data, durably, to a temporary file in the target's directory; return the path of that file. OSError."""
        _make_directories(target.parent)
        temporary = target.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
        try:
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def _make_directories(directory: Path) -> None:
    """Create missing directories. Each is durable in its parent before a file is created in it. OSError."""
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _mapped(verb: str, path: Path) -> Generator[None]:
    """Map an OSError to a StorageError with the path and advice."""
    try:
        yield
    except OSError as e:
        raise StorageError(
            f"cannot {verb} {path}: {e.strerror or e}. Check free space, permissions and the disk.",
            path=str(path),
            errno=e.errno,
        ) from e


_SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # fdatasync saves the write of the modification time


class LocalAppendableFile:
    """The AppendableFile of a local disk. It is opened with O_APPEND, so a second writer cannot overwrite data of the first."""

    def __init__(self, path: Path, mapped: Callable[[str, Path], AbstractContextManager[None]]) -> None:
        """Open the file; create it if it does not exist. `mapped(verb, path)` is a context that maps OSErrors to StorageErrors."""
        self._path = path
        self._mapped = mapped
        with mapped("open", path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)

    @property
    def size(self) -> int:
        with self._mapped("look up", self._path):
            return os.fstat(self._open_descriptor()).st_size

    def append(self, data: bytes) -> int:
        """Append and sync; return the offset of the first byte. After an error remove the part that was written, if possible."""
        with self._mapped("write", self._path):
            descriptor, written = self._open_descriptor(), 0
            try:
                while written < len(data):  # a full disk, or data of 2 GiB, makes the system write less
                    written += os.write(descriptor, data[written:] if written else data)
                _SYNC(descriptor)
            except OSError:
                self._truncate(descriptor, written)
                raise
            return os.lseek(descriptor, 0, os.SEEK_CUR) - len(data)

    def close(self) -> None:
        if self._descriptor is not None:
            with self._mapped("close", self._path):
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def _open_descriptor(self) -> int:
        """Return the file descriptor. OSError if the file was closed."""
        if self._descriptor is None:
            raise OSError(f"{self._path} was closed")
        return self._descriptor

    def _truncate(self, descriptor: int, written: int) -> None:
        """Remove the bytes of a failed append, if that is possible and no other writer has appended since. Never raises OSError.

        Otherwise the file keeps a torn record, or a whole one that the caller writes again elsewhere.
        """
        try:
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            if written and os.fstat(descriptor).st_size == end:
                os.ftruncate(descriptor, end - written)
                _SYNC(descriptor)
        except OSError:
            return

"""LocalAppendableFile: a file of a local disk that grows; each append is durable."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

_SYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # not everywhere; it saves the write of the modification time


class LocalAppendableFile:
    """Opened with O_APPEND: a second writer of the same file, were there one, could not overwrite what the first has written."""

    def __init__(self, path: Path, mapped: Callable[[str, Path], AbstractContextManager[None]]) -> None:
        self._path = path
        self._mapped = mapped
        with mapped("open", path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)

    @property
    def size(self) -> int:
        with self._mapped("look up", self._path):
            return os.fstat(self._open()).st_size

    def append(self, data: bytes) -> int:
        with self._mapped("write", self._path):
            descriptor, written = self._open(), 0
            try:
                while written < len(data):  # the system writes less where the disk is full, or the data has 2 GiB
                    written += os.write(descriptor, data[written:] if written else data)
                _SYNC(descriptor)
            except OSError:
                self._take_off(descriptor, written)
                raise
            return os.lseek(descriptor, 0, os.SEEK_CUR) - len(data)

    def close(self) -> None:
        if self._descriptor is not None:
            with self._mapped("close", self._path):
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise OSError(f"{self._path} was closed")
        return self._descriptor

    def _take_off(self, descriptor: int, written: int) -> None:
        """Best effort: what stays behind is a torn record, or one that is written again elsewhere."""
        try:
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            if written and os.fstat(descriptor).st_size == end:
                os.ftruncate(descriptor, end - written)
                _SYNC(descriptor)
        except OSError:
            return

"""HdfsFileStore: HDFS itself, where files can also grow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from kstream.errors import MissingFileError, StorageError, UnsupportedStoreError
from kstream.spark.hadoop_file_store import HadoopFileStore, read_from, write_to
from kstream.storage.open import scheme_of

logger = logging.getLogger(__name__)

_RECOVERY_S = 60.0
_LOOK_S = 0.2
_LENGTH_UNKNOWN = "CannotObtainBlockLengthException"
T = TypeVar("T")


def open_hadoop(url: str, settings: Mapping[str, str] | None = None, *, look_first: bool = False) -> HadoopFileStore:
    """The store under a URL that is left to Hadoop; on HDFS one whose files can grow. See HadoopFileStore."""
    return (HdfsFileStore if scheme_of(url) == "hdfs" else HadoopFileStore)(url, settings, look_first=look_first)


class HdfsFileStore(HadoopFileStore):
    """An AppendingStore: an append is on the disks of all its datanodes, and to be read by everybody, when it returns (`hsync`).

    The namenode hears only of a file's beginning and of each new block. So it does not know the length of a file that is growing, or whose
    writer was killed: that is asked of a datanode, at the opening. Datanodes that were restarted meanwhile do not know it either; then,
    and only then, the file is taken from its writer, which makes the namenode find it out (`recoverLease`).
    """

    def create(self, name: str, data: bytes) -> None:
        """An empty file is one that is to grow: it is replicated, also in a directory of erasure coding, where files cannot."""
        if data:
            super().create(name, data)
        else:
            with self._mapped("write", name):
                self._put(name, data, self._keep, self._flags_to_grow())

    def size(self, name: str) -> int:
        return self._recovered("look up", name, lambda stream: int(stream.getVisibleLength()))

    def read(self, name: str) -> bytes:
        return self._recovered("read", name, read_from)

    def read_at(self, name: str, offset: int, length: int) -> bytes:
        def read(stream: Any) -> bytes:
            if offset >= stream.getVisibleLength():
                return b""
            stream.seek(offset)
            return read_from(stream, length)

        return self._recovered("read", name, read)

    def open_to_append(self, name: str) -> HdfsAppendableFile:
        """One writer at a time: another's file is a StorageError for as long as that one lives. UnsupportedStoreError where an append
        would not be durable."""
        try:
            stream = self._opened_to_append(name)
        except MissingFileError:
            self.create(name, b"")
            stream = self._opened_to_append(name)
        file = HdfsAppendableFile(stream, name, self._mapped)
        if not stream.hasCapability("hsync"):
            file.close()
            raise UnsupportedStoreError(
                f"{self.path(name)} cannot grow durably: its file system has no hsync for it, as under erasure coding. Use another "
                "directory, or set closeFileAfterWrite for the write-ahead logs",
                path=self.path(name),
            )
        return file

    def _opened_to_append(self, name: str) -> Any:
        with self._mapped("open", name):
            flags = self._jvm.java.util.EnumSet.of(self._jvm.org.apache.hadoop.fs.CreateFlag.APPEND)
            return self._files.create(self._at(name), flags, self._with_parents)

    def _flags_to_grow(self) -> Any:
        flag = self._jvm.org.apache.hadoop.fs.CreateFlag
        return self._jvm.java.util.EnumSet.of(flag.CREATE, flag.SHOULD_REPLICATE)

    def _recovered(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        """What `use` makes of the open file."""
        try:
            return self._used(verb, name, use)
        except StorageError as e:
            if _LENGTH_UNKNOWN not in str(e):
                raise
        self._recover(name)
        return self._used(verb, name, use)

    def _used(self, verb: str, name: str, use: Callable[[Any], T]) -> T:
        with self._mapped(verb, name):
            stream = self._files.open(self._at(name))
            try:
                return use(stream)
            finally:
                stream.close()

    def _recover(self, name: str) -> None:
        """Returns when the namenode has closed the file, or after a minute."""
        logger.warning("%s was left open, and its datanodes have been restarted: it is closed now", self.path(name))
        with self._mapped("recover", name):
            path = self._at(name)
            hdfs = path.getFileSystem(self._configuration)
            end = time.monotonic() + _RECOVERY_S
            while not hdfs.recoverLease(path) and time.monotonic() < end:
                time.sleep(_LOOK_S)


class HdfsAppendableFile:
    """A file that this process writes alone. After an error nothing can be taken off its end."""

    def __init__(self, stream: Any, name: str, mapped: Callable[[str, str], AbstractContextManager[None]]) -> None:
        self._stream = stream
        self._name = name
        self._mapped = mapped

    @property
    def size(self) -> int:
        with self._mapped("look up", self._name):
            return int(self._stream.getPos())

    def append(self, data: bytes) -> int:
        with self._mapped("write", self._name):
            offset = int(self._stream.getPos())
            write_to(self._stream, data)
            self._stream.hsync()
            return offset

    def close(self) -> None:
        with self._mapped("close", self._name):
            self._stream.close()

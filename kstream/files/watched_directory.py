"""WatchedDirectory: a directory on a file system that Python can read. The driver lists it, and the workers read its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from io import BytesIO
from typing import Any, BinaryIO, Protocol

from kstream.errors import FileLostError
from kstream.files.directory import FileStatus, Split, cut, files_in
from kstream.files.file_systems import file_system
from kstream.files.formats import FileFormat
from kstream.storage.open import scheme_of

MakeRDD = Callable[[int, Callable[[int], Iterable[Any]]], Any]
"""(number of partitions, function that returns the records of partition i, in a worker) → RDD. In practice
`kstream.spark.worker_rdd.WorkerRDD` with its SparkContext bound."""


class FileSource(Protocol):
    """A directory from which a file stream takes its files. Used on the driver, by one thread at a time."""

    @property
    def directory(self) -> str:
        """The path or URL as the user gave it."""
        ...

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """Return the files in the directory now. Blocks.

        Args:
            newer_than_ms: files modified at this time (ms) or before may be left out.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such directory.
            KStreamError: the directory can never be watched. Errors of the file system's client are raised, too.
        """
        ...

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        """Return an RDD of the files' records, in the order of `files`. A partition has records of one file; its task reads them.

        Args:
            files: the files of a plan.
            format: how their records are read.
        """
        ...


class WatchedDirectory:
    """The FileSource for file systems that Python can read. A small file is read by one task, a large one by several.

    Files on `memory://` exist only in the driver's process. So `rdd` reads them on the driver, and the bytes are sent with the tasks.

    Args:
        directory: a path or URL, with wild cards or without.
        split_bytes: the size in bytes of the part of a file that one task reads.
        make_rdd: makes an RDD.
    """

    def __init__(self, directory: str, split_bytes: int, make_rdd: MakeRDD) -> None:
        self.directory = directory
        self._split_bytes = split_bytes
        self._make_rdd = make_rdd

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """Return all files in the directory now, the old ones too. Blocks. See `FileSource.list`."""
        files = file_system(self.directory)
        return files_in(files.list, files.qualified(self.directory))

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        """Return an RDD with one partition a split. On `memory://` it reads the files now; FileLostError if one no longer exists."""
        splits = cut(files, self._split_bytes, format.unit, format.can_cut)
        contents = {f.path: _content(self.directory, f) for f in files} if scheme_of(self.directory) == "memory" else {}
        return self._make_rdd(len(splits), ReadTask(self.directory, splits, format, contents))


class ReadTask:
    """The function of the tasks: called with i, it yields the records of split i. FileLostError if the file no longer exists."""

    def __init__(self, url: str, splits: Sequence[Split], format: FileFormat, contents: Mapping[str, bytes]) -> None:
        self._url = url
        self._splits = splits
        self._format = format
        self._contents = contents

    def __call__(self, index: int) -> Iterator[Any]:
        split = self._splits[index]
        with closing(self._open(split.file)) as file:
            file.seek(split.start)
            yield from self._format.read(file, split)

    def _open(self, status: FileStatus) -> BinaryIO:
        """Open a file, or the bytes of it that came with the task. FileLostError if the file no longer exists."""
        if status.path in self._contents:
            return BytesIO(self._contents[status.path])
        try:
            return file_system(self._url).open(status.path)
        except FileNotFoundError as e:
            raise _gone(status) from e


def _content(url: str, status: FileStatus) -> bytes:
    """Return all bytes of a file. FileLostError if the file no longer exists."""
    try:
        with closing(file_system(url).open(status.path)) as file:
            return file.read()
    except FileNotFoundError as e:
        raise _gone(status) from e


def _gone(status: FileStatus) -> FileLostError:
    """Return the error for a planned file that no longer exists."""
    return FileLostError(
        f"{status.path} ({status.size} bytes) is gone since its batch was planned. A file must stay until no batch or window needs it, or "
        "a restart cannot run its batch again.",
        path=status.path,
        size=status.size,
        found=None,
    )

"""WatchedDirectory: a directory on a file system that Python reaches – listed on the driver, read in the workers."""

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
"""(number of partitions, what makes one in a worker) → RDD; `kstream.spark.worker_rdd.WorkerRDD` without its SparkContext."""


class FileSource(Protocol):
    """What a file stream asks of where its files lie. Used by one thread at a time."""

    @property
    def directory(self) -> str:
        """As the user gave it."""
        ...

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        """The files in the directory now; those modified at `newer_than_ms` or before may be left out. Blocks.

        FileNotFoundError if there is no such directory; KStreamError if it can never be watched; else what its client raises.
        """
        ...

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        """An RDD of the files' records, in the order of `files`; a partition holds records of one file. Looks at nothing."""
        ...


class WatchedDirectory:
    """See the module. A file is read by one task, a large one by several, each about `split_bytes`.

    What lies on `memory://` is in the driver's process alone: its bytes are sent along with the tasks.
    """

    def __init__(self, directory: str, split_bytes: int, make_rdd: MakeRDD) -> None:
        self.directory = directory
        self._split_bytes = split_bytes
        self._make_rdd = make_rdd

    def list(self, newer_than_ms: int) -> list[FileStatus]:
        files = file_system(self.directory)
        return files_in(files.list, files.qualified(self.directory))

    def rdd(self, files: Sequence[FileStatus], format: FileFormat) -> Any:
        splits = cut(files, self._split_bytes, format.unit, format.can_cut)
        contents = {f.path: _content(self.directory, f) for f in files} if scheme_of(self.directory) == "memory" else {}
        return self._make_rdd(len(splits), ReadTask(self.directory, splits, format, contents))


class ReadTask:
    """Reads split i, in a worker. FileLostError if the file is not there any more."""

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
        if status.path in self._contents:
            return BytesIO(self._contents[status.path])
        try:
            return file_system(self._url).open(status.path)
        except FileNotFoundError as e:
            raise _gone(status) from e


def _content(url: str, status: FileStatus) -> bytes:
    try:
        with closing(file_system(url).open(status.path)) as file:
            return file.read()
    except FileNotFoundError as e:
        raise _gone(status) from e


def _gone(status: FileStatus) -> FileLostError:
    return FileLostError(
        f"{status.path} ({status.size} bytes) is gone since its batch was planned. A file must stay until no batch or window needs it, or "
        "a restart cannot run its batch again.",
        path=status.path,
        size=status.size,
        found=None,
    )

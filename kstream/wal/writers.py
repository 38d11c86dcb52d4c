"""The two ways to write a log's files: append to a growing file, or make a file for each write."""

from __future__ import annotations

import logging
from typing import Protocol

from kstream.errors import AlreadyExistsError, StorageError
from kstream.storage import AppendableFile, AppendingStore, FileStore
from kstream.wal.file_format import HEADER, LogFile, first_free, log_files
from kstream.wal.handles import FileBasedWriteAheadLogSegment

logger = logging.getLogger(__name__)


class SegmentWriter(Protocol):
    """A writer of records to the files of a log. Not thread-safe: the log calls it under a lock."""

    @property
    def current(self) -> LogFile | None:
        """The file that is being written, which must not be cleaned; None if there is none."""
        ...

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Write a framed record durably, and return its file and its handle. Retry as often as allowed, then raise the last error."""
        ...

    def close(self) -> None:
        """Close the file that is being written."""
        ...


class _Names:
    """The names of the next files. Start times only rise, so the files are in the order of writing, and a log uses no name twice."""

    def __init__(self, store: FileStore, folder: str, rolling_ms: int) -> None:
        self._store = store
        self._folder = folder
        self._rolling = rolling_ms
        self._last = -1

    def next(self, time_ms: int) -> LogFile:
        """Return the name of a file that begins with a record of this time."""
        return self._starting(max(time_ms, self._last + 1))

    def after_taken(self, file: LogFile) -> LogFile:
        """Return the next free name after a taken one. Lists the folder once; StorageError."""
        return self._starting(first_free(file.start, log_files(self._store.list(self._folder))))

    def path(self, file: LogFile) -> str:
        return f"{self._folder}/{file.name}"

    def _starting(self, start: int) -> LogFile:
        self._last = start
        return LogFile(start, start + self._rolling)


class _Retries:
    """A counter of the failures of one write."""

    def __init__(self, place: str, most: int) -> None:
        self._place = place
        self._most = most
        self._failed = 0

    def failed(self, error: StorageError) -> None:
        """Count a failure. Raise the error if it is not retriable, or if no more failures are allowed."""
        self._failed += 1
        if self._failed >= self._most or not error.retriable:
            logger.error("the write-ahead log %s: gave up a write after %d failures", self._place, self._failed)
            raise error
        logger.warning("the write-ahead log %s: a write failed, trying again: %s", self._place, error)


class RollingWriter:
    """A writer that appends to one file until a record comes whose time is *after* the file's stop time.

    It writes only into files that it has created. An existing file belongs to another writer: an earlier driver, or a receiver that was
    given up and still runs. Such a file may have a torn tail, and no reader finds a record after a torn tail. For the same reason the
    writer begins a new file after each failure.
    """

    def __init__(self, store: AppendingStore, folder: str, rolling_ms: int, max_failures: int) -> None:
        self._store = store
        self._names = _Names(store, folder, rolling_ms)
        self._max_failures = max_failures
        self._place = store.path(folder)
        self._open: tuple[LogFile, AppendableFile] | None = None

    @property
    def current(self) -> LogFile | None:
        return self._open[0] if self._open else None

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Append a framed record to the file for its time. After a failure retry with a new file, up to `max_failures` attempts."""
        retries = _Retries(self._place, self._max_failures)
        while True:
            try:
                log_file, file = self._file_for(time_ms)
                offset = file.append(framed)
                return log_file, FileBasedWriteAheadLogSegment(self._names.path(log_file), offset, len(framed) - HEADER.size)
            except StorageError as e:
                self._drop()
                retries.failed(e)

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened:
            opened[1].close()

    def _file_for(self, time_ms: int) -> tuple[LogFile, AppendableFile]:
        """Return the open file if it takes a record of this time; otherwise close it and open a new one."""
        if self._open and time_ms > self._open[0].stop:
            self.close()
        if self._open is None:
            self._open = self._opened(self._names.next(time_ms))
        return self._open

    def _opened(self, log_file: LogFile) -> tuple[LogFile, AppendableFile]:
        """Create a file and open it. If the name is taken, use the next free name."""
        while True:
            try:
                self._store.create(self._names.path(log_file), b"")
                return log_file, self._store.open_to_append(self._names.path(log_file))
            except AlreadyExistsError:
                log_file = self._names.after_taken(log_file)

    def _drop(self) -> None:
        """Close the file after a failed write. A StorageError of the close is logged, not raised."""
        try:
            self.close()
        except StorageError as e:  # the caller handles the error of the write
            logger.warning("%s", e)


class OneFileAWrite:
    """A writer that makes a file for each write: the whole file, or none.

    A failed attempt may have created its file. The retry uses the same name and recognises the file by its bytes, so no record is logged
    twice. Names that other writers have taken are skipped.
    """

    current = None

    def __init__(self, store: FileStore, folder: str, rolling_ms: int, max_failures: int) -> None:
        self._store = store
        self._names = _Names(store, folder, rolling_ms)
        self._max_failures = max_failures
        self._place = store.path(folder)

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Make a file with the framed record. After a failure retry with the same name, up to `max_failures` attempts."""
        retries = _Retries(self._place, self._max_failures)
        log_file, unsure = self._names.next(time_ms), False
        while True:
            path = self._names.path(log_file)
            try:
                if self._made(path, framed, unsure):
                    return log_file, FileBasedWriteAheadLogSegment(path, 0, len(framed) - HEADER.size)
                log_file, unsure = self._names.after_taken(log_file), False
            except StorageError as e:
                retries.failed(e)
                unsure = True

    def close(self) -> None:
        pass

    def _made(self, path: str, framed: bytes, unsure: bool) -> bool:
        """Create the file; return whether it exists now and belongs to this write.

        An existing file belongs to this write if an earlier attempt may have created it (`unsure`) and it has the same bytes.
        """
        try:
            self._store.create(path, framed)
            return True
        except AlreadyExistsError:
            return unsure and self._store.read(path) == framed

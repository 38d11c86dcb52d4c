"""The two ways to write a log's files: growing ones, and one for each write."""

from __future__ import annotations

import logging
from typing import Protocol

from kstream.errors import AlreadyExistsError, StorageError
from kstream.storage import AppendableFile, AppendingStore, FileStore
from kstream.wal.framing import HEADER
from kstream.wal.log_files import LogFile, first_free, log_files
from kstream.wal.random_reader import FileBasedWriteAheadLogSegment

logger = logging.getLogger(__name__)


class SegmentWriter(Protocol):
    """Not thread-safe: its log calls it under a lock."""

    @property
    def current(self) -> LogFile | None:
        """The file that is still being written; it must not be cleaned."""
        ...

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Durable when it returns. Tries as often as allowed; the last StorageError is raised."""
        ...

    def close(self) -> None: ...


class _Names:
    """Which file comes next. Starts only rise, so that files are in the order of their writing, and no name is used twice by one log."""

    def __init__(self, store: FileStore, folder: str, rolling_ms: int) -> None:
        self._store = store
        self._folder = folder
        self._rolling = rolling_ms
        self._last = -1

    def next(self, time_ms: int) -> LogFile:
        return self._starting(max(time_ms, self._last + 1))

    def after_taken(self, file: LogFile) -> LogFile:
        """The next free one after a name that turned out to be taken. One listing."""
        return self._starting(first_free(file.start, log_files(self._store.list(self._folder))))

    def path(self, file: LogFile) -> str:
        return f"{self._folder}/{file.name}"

    def _starting(self, start: int) -> LogFile:
        self._last = start
        return LogFile(start, start + self._rolling)


class _Tries:
    """Counts the failures of one write."""

    def __init__(self, place: str, most: int) -> None:
        self._place = place
        self._most = most
        self._failed = 0

    def failed(self, error: StorageError) -> None:
        """Called while the error is handled: raises it if it was the last one allowed, or cannot pass."""
        self._failed += 1
        if self._failed >= self._most or not error.retriable:
            logger.error("gave up writing to the write-ahead log %s after %d failures", self._place, self._failed)
            raise error
        logger.warning("failed to write to the write-ahead log %s, trying again: %s", self._place, error)


class RollingWriter:
    """Appends to a file until a record comes whose time is *after* its stop time; one at the stop time still goes in.

    It writes only into files that it has made: one that is there already is another writer's – of a driver before, or of a receiver that
    runs on somewhere although it was given up – and may have a torn tail, behind which nobody would find what is written. After a
    failure a new file is begun, for that reason.
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
        tries = _Tries(self._place, self._max_failures)
        while True:
            try:
                log_file, file = self._file_for(time_ms)
                offset = file.append(framed)
                return log_file, FileBasedWriteAheadLogSegment(self._names.path(log_file), offset, len(framed) - HEADER.size)
            except StorageError as e:
                self._drop()
                tries.failed(e)

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened:
            opened[1].close()

    def _file_for(self, time_ms: int) -> tuple[LogFile, AppendableFile]:
        if self._open and time_ms > self._open[0].stop:
            self.close()
        if self._open is None:
            self._open = self._opened(self._names.next(time_ms))
        return self._open

    def _opened(self, log_file: LogFile) -> tuple[LogFile, AppendableFile]:
        while True:
            try:
                self._store.create(self._names.path(log_file), b"")
                return log_file, self._store.open_to_append(self._names.path(log_file))
            except AlreadyExistsError:
                log_file = self._names.after_taken(log_file)

    def _drop(self) -> None:
        try:
            self.close()
        except StorageError as e:  # the write's own error is the one to be told
            logger.warning("%s", e)


class OneFileAWrite:
    """Each write is a file of its own, whole or not there at all.

    A try that failed may have made its file: the next one uses the same name, and finds it. So a record is not logged twice. Names taken
    by others are passed by.
    """

    current = None

    def __init__(self, store: FileStore, folder: str, rolling_ms: int, max_failures: int) -> None:
        self._store = store
        self._names = _Names(store, folder, rolling_ms)
        self._max_failures = max_failures
        self._place = store.path(folder)

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        tries = _Tries(self._place, self._max_failures)
        log_file, unsure = self._names.next(time_ms), False
        while True:
            path = self._names.path(log_file)
            try:
                if self._made(path, framed, unsure):
                    return log_file, FileBasedWriteAheadLogSegment(path, 0, len(framed) - HEADER.size)
                log_file, unsure = self._names.after_taken(log_file), False
            except StorageError as e:
                tries.failed(e)
                unsure = True

    def close(self) -> None:
        pass

    def _made(self, path: str, framed: bytes, unsure: bool) -> bool:
        """Whether the file is there and ours."""
        try:
            self._store.create(path, framed)
            return True
        except AlreadyExistsError:
            return unsure and self._store.read(path) == framed

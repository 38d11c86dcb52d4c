"""FileBasedWriteAheadLog: a log in files of a store, as Spark has it in files of HDFS."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from kstream.errors import ConfigurationError, IllegalStateError, StorageError
from kstream.loop import THREADS, Runtime, WorkerPool
from kstream.storage import AppendingStore, FileStore
from kstream.wal.framing import frame
from kstream.wal.log_files import LogFile, log_files
from kstream.wal.parallel import in_order
from kstream.wal.random_reader import FileBasedWriteAheadLogSegment, read_records, read_segment
from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle
from kstream.wal.writers import OneFileAWrite, RollingWriter, SegmentWriter

logger = logging.getLogger(__name__)

RECOVERY_FILES = 20
"""Files that are read at once at a restart, and kept in memory; Spark's number."""

_told: set[str] = set()
_told_lock = threading.Lock()


class FileBasedWriteAheadLog(WriteAheadLog):
    """One writer a folder. Nothing is made before the first write; the folder is listed by `readAll` and by the first `clean`.

    With `close_file_after_write` each write is a file of its own, and a restart reads `recovery_files` of them at once. A store whose
    files cannot grow is written so whatever is asked for, and says so once.
    """

    def __init__(
        self,
        store: FileStore,
        folder: str,
        *,
        rolling_interval_secs: int = 60,
        max_failures: int = 3,
        close_file_after_write: bool = False,
        recovery_files: int = RECOVERY_FILES,
        runtime: Runtime = THREADS,
    ) -> None:
        _check("rollingIntervalSecs", rolling_interval_secs)
        _check("maxFailures", max_failures)
        self._store = store
        self._folder = folder
        self._runtime = runtime
        self._recovery_files = recovery_files
        self._writer: SegmentWriter
        rolling_ms = rolling_interval_secs * 1000
        if isinstance(store, AppendingStore) and not close_file_after_write:
            self._writer = RollingWriter(store, folder, rolling_ms, max_failures)
        else:
            self._writer = OneFileAWrite(store, folder, rolling_ms, max_failures)
            if not close_file_after_write:
                _tell(store.url)
        self._in_parallel = isinstance(self._writer, OneFileAWrite)
        self._writing = runtime.lock()
        self._lock = threading.Lock()
        self._files: set[LogFile] = set()
        self._listed = False
        self._closed = False
        self._cleaner: WorkerPool | None = None

    def write(self, record: bytes, time_ms: int) -> FileBasedWriteAheadLogSegment:
        """One write at a time. The last StorageError after so many failures; IllegalStateError after `close`."""
        framed = frame(record)
        with self._writing:
            if self._closed:
                raise IllegalStateError(f"the write-ahead log {self._place} was closed", state="closed")
            file, segment = self._writer.write(framed, time_ms)
            with self._lock:
                self._files.add(file)
            return segment

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Any handle of this store, also of another log's folder. MissingFileError, CorruptRecordError, StorageError."""
        return read_segment(self._store, handle)

    def readAll(self) -> Iterator[bytes]:
        """Lists now, reads as it is iterated. Torn tails and damaged files give what is whole before, with a warning.

        Where files are read in parallel, by threads of this log, iterating after `close` is an IllegalStateError.
        """
        files = self._list()
        return self._read_in_parallel(files) if self._in_parallel else self._read_in_a_row(files)

    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Removes the files that stop *before* the threshold, but never the one being written. What cannot be removed now is tried again
        by the next call, after a warning. Without `wait` a thread of this log does it; after `close` nobody."""
        if wait:
            self._clean(threshold_ms)
            return
        with self._lock:
            if self._closed:
                return
            if self._cleaner is None:
                self._cleaner = WorkerPool(1, "WriteAheadLogCleaner", self._runtime)
                self._cleaner.start()
            self._cleaner.submit(lambda: self._clean(threshold_ms))

    def close(self) -> None:
        """Waits for the write in hand. What is being cleaned goes on."""
        with self._writing:
            with self._lock:
                self._closed = True
                cleaner, self._cleaner = self._cleaner, None
            self._writer.close()
        if cleaner is not None:
            cleaner.stop(0)

    @property
    def _place(self) -> str:
        return self._store.path(self._folder)

    def _path(self, file: LogFile) -> str:
        return f"{self._folder}/{file.name}"

    def _list(self) -> list[LogFile]:
        files = log_files(self._store.list(self._folder))
        with self._lock:
            self._files.update(files)
            self._listed = True
        return files

    def _read_in_a_row(self, files: list[LogFile]) -> Iterator[bytes]:
        for file in files:
            yield from read_records(self._store, self._path(file))

    def _read_in_parallel(self, files: list[LogFile]) -> Iterator[bytes]:
        def read(file: LogFile) -> list[bytes]:
            if self._closed:
                raise IllegalStateError(f"the write-ahead log {self._place} was closed before all of it was read", state="closed")
            return list(read_records(self._store, self._path(file)))

        for records in in_order(files, read, self._recovery_files, self._runtime):
            yield from records

    def _clean(self, threshold_ms: int) -> None:
        try:
            if not self._listed:
                self._list()
            with self._writing:  # so that `current` is the file of the last write
                current = self._writer.current
            with self._lock:
                old = sorted(file for file in self._files if file.is_older_than(threshold_ms) and file != current)
            for file in old:
                self._store.delete(self._path(file))
                with self._lock:
                    self._files.discard(file)
        except StorageError as e:
            logger.warning("old files of the write-ahead log %s stay until the next clean-up: %s", self._place, e)
        except Exception:  # else it would end the cleaner's thread, and nobody would know
            logger.exception("cleaning the write-ahead log %s failed", self._place)


def _check(key: str, value: int) -> None:
    if value < 1:
        raise ConfigurationError(f"{key} of a write-ahead log is {value}: it must be at least 1", key=key, value=value)


def _tell(url: str) -> None:
    with _told_lock:
        if url in _told:
            return
        _told.add(url)
    logger.warning(
        "files on %s cannot grow, so write-ahead logs make one for each write there, as with closeFileAfterWrite. "
        "Set it to true for the driver's log and the receivers' to say that this is meant.",
        url,
    )

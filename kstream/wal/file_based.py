"""FileBasedWriteAheadLog: a log in files of a store, as Spark's log is in files of HDFS."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from kstream.errors import ConfigurationError, IllegalStateError, MissingFileError, StorageError
from kstream.loop import THREADS, Runtime, WorkerPool, map_in_order
from kstream.storage import AppendingStore, FileStore
from kstream.wal.file_format import FrameReader, LogFile, ReadAt, frame, log_files
from kstream.wal.handles import FileBasedWriteAheadLogSegment, read_segment
from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle
from kstream.wal.writers import OneFileAWrite, RollingWriter, SegmentWriter

logger = logging.getLogger(__name__)

RECOVERY_FILES = 20
"""How many files a restart reads at the same time, and keeps in memory. The number is Spark's."""

_warned: set[str] = set()
_warned_lock = threading.Lock()


class FileBasedWriteAheadLog(WriteAheadLog):
    """A log in files of a folder. Each folder may have one writer.

    The log creates nothing before the first write. It lists the folder for `readAll`, for the first `clean`, and when the name of a new
    file is taken.

    Args:
        store: the store of the files.
        folder: the folder of the files in the store.
        rolling_interval_secs: how many seconds of records one file takes.
        max_failures: the number of failures after which a write is given up.
        close_file_after_write: whether each write makes a file. Where files cannot grow each write does so anyway; unless this is set, a
            warning then says so, once for each store.
        recovery_files: how many files `readAll` reads at the same time, if each write makes a file.
        runtime: makes threads and locks.

    Raises:
        ConfigurationError: a number is below 1.
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
                _warn_once(store.url)
        self._in_parallel = isinstance(self._writer, OneFileAWrite)
        self._writing = runtime.lock()
        self._lock = threading.Lock()
        self._files: set[LogFile] = set()
        self._listed = False
        self._closed = False
        self._cleaner: WorkerPool | None = None

    def write(self, record: bytes, time_ms: int) -> FileBasedWriteAheadLogSegment:
        """Log a record durably, and return its handle. Any thread; a call blocks while another write runs.

        Raises:
            StorageError: the write has failed `max_failures` times, or once in a way that no retry can help. This is the last error.
            IllegalStateError: the log is closed.
            ConfigurationError: the record is empty or too long.
        """
        framed = frame(record)
        with self._writing:
            if self._closed:
                raise IllegalStateError(f"the write-ahead log {self._place} was closed", state="closed")
            file, segment = self._writer.write(framed, time_ms)
            with self._lock:
                self._files.add(file)
            return segment

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Read the record of a handle, which may belong to another log in the same store. Raises as `read_segment`."""
        return read_segment(self._store, handle)

    def readAll(self) -> Iterator[bytes]:
        """List the folder now, and return an iterator that reads the files in order.

        A damaged file, or one with a torn tail, gives the whole records at its beginning, and a warning is logged. If each write makes a
        file, threads of this log read the files in parallel.

        Raises:
            StorageError: the listing failed; or, during the iteration, the read of a file.
            IllegalStateError: during an iteration in parallel: the log was closed before all files were read.
        """
        files = self._list()
        return self._read_in_parallel(files) if self._in_parallel else self._read_in_a_row(files)

    def clean(self, threshold_ms: int, wait: bool) -> None:
        """Delete the files that stop *before* the threshold, except the file that is being written.

        A failure is logged as a warning, and the next call tries again.

        Args:
            threshold_ms: the threshold, on the scale of the times given to `write`.
            wait: True deletes the files in this call. Otherwise a thread of this log deletes them; after `close` nothing is deleted.
        """
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
        """Wait for the current write, and close the log. A clean-up that runs is neither interrupted nor waited for. Idempotent.

        Raises:
            StorageError: the file that is being written could not be closed.
        """
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
        """Return the log's files, sorted, and remember them for the clean-up."""
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

        for records in map_in_order(files, read, self._recovery_files, "WriteAheadLogReader", self._runtime):
            yield from records

    def _clean(self, threshold_ms: int) -> None:
        """Delete the files older than the threshold. Raises nothing: every error is logged."""
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
            logger.warning("the write-ahead log %s: old files stay until the next clean-up: %s", self._place, e)
        except Exception:  # otherwise the error would end the cleaner's thread unnoticed
            logger.exception("the write-ahead log %s: the clean-up failed", self._place)


def _check(key: str, value: int) -> None:
    """Raise ConfigurationError if the value is below 1."""
    if value < 1:
        raise ConfigurationError(f"{key} of a write-ahead log is {value}: it must be at least 1", key=key, value=value)


def _warn_once(url: str) -> None:
    """Warn, once in this process for each store, that each write makes a file there."""
    with _warned_lock:
        if url in _warned:
            return
        _warned.add(url)
    logger.warning(
        "%s: files cannot grow there, so write-ahead logs make a file for each write, as with closeFileAfterWrite. "
        "Set it to true for the driver's log and the receivers' to confirm this.",
        url,
    )


def read_records(store: FileStore, path: str) -> Iterator[bytes]:
    """Yield the whole records at the beginning of a file, in order; none if the file is gone. Other bytes are left out, with a warning.

    From an AppendingStore the file is read in chunks; from any other store it is read into memory as a whole.

    Raises:
        StorageError: the read failed.
    """
    try:
        read_at, size = _opened(store, path)
        reader = FrameReader(read_at, size)
        yield from reader
    except MissingFileError:  # a clean-up has deleted the file since it was listed
        return
    if not reader.is_whole:
        logger.warning(
            "%s: %d bytes from byte %d on are no record and left out: a write that was cut off, or damage",
            store.path(path),
            size - reader.end,
            reader.end,
        )


def _opened(store: FileStore, path: str) -> tuple[ReadAt, int]:
    """Return a function that reads pieces of the file, and the file's size in bytes."""
    if isinstance(store, AppendingStore):
        return (lambda offset, length: store.read_at(path, offset, length)), store.size(path)
    data = store.read(path)
    return (lambda offset, length: data[offset : offset + length]), len(data)

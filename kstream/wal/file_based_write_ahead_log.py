"""FileBasedWriteAheadLog: a log in files of a store, as Spark's log is in files of HDFS.

Two writers write its files: `RollingWriter` appends to a growing file, `OneFileAWrite` makes a file for each write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from kstream.errors import AlreadyExistsError, ConfigurationError, CorruptRecordError, IllegalStateError, MissingFileError, StorageError
from kstream.loop import THREADS, WorkerPool, map_in_order
from kstream.storage import AppendableFile, AppendingStore, FileStore
from kstream.wal.file_format import HEADER, FrameReader, LogFile, ReadAt, first_free, frame, log_files
from kstream.wal.write_ahead_log import FileBasedWriteAheadLogSegment, WriteAheadLog, WriteAheadLogRecordHandle

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
    ) -> None:
        _check("rollingIntervalSecs", rolling_interval_secs)
        _check("maxFailures", max_failures)
        self._store = store
        self._folder = folder
        self._recovery_files = recovery_files
        self._writer: RollingWriter | OneFileAWrite
        rolling_ms = rolling_interval_secs * 1000
        if isinstance(store, AppendingStore) and not close_file_after_write:
            self._writer = RollingWriter(store, folder, rolling_ms, max_failures)
        else:
            self._writer = OneFileAWrite(store, folder, rolling_ms, max_failures)
            if not close_file_after_write:
                _warn_once(store.url)
        self._in_parallel = isinstance(self._writer, OneFileAWrite)
        self._writing = THREADS.lock()
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
                self._cleaner = WorkerPool(1, "WriteAheadLogCleaner")
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
        """Yield the records of the files in order, for files that may be large."""
        for file in files:
            yield from read_records(self._store, self._path(file))

    def _read_in_parallel(self, files: list[LogFile]) -> Iterator[bytes]:
        """Yield the records of the files in order, for files of one write each. Threads read some files ahead, whole."""

        def read(file: LogFile) -> list[bytes]:
            if self._closed:
                raise IllegalStateError(f"the write-ahead log {self._place} was closed before all of it was read", state="closed")
            return list(read_records(self._store, self._path(file)))

        for records in map_in_order(files, read, self._recovery_files, "WriteAheadLogReader", THREADS):
            yield from records

    def _clean(self, threshold_ms: int) -> None:
        """Delete the files older than the threshold, for `clean`. Raises nothing: every error is logged."""
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


# -- writers


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

    Not thread-safe: the log calls it under a lock.
    """

    def __init__(self, store: AppendingStore, folder: str, rolling_ms: int, max_failures: int) -> None:
        self._store = store
        self._names = _Names(store, folder, rolling_ms)
        self._max_failures = max_failures
        self._place = store.path(folder)
        self._open: tuple[LogFile, AppendableFile] | None = None

    @property
    def current(self) -> LogFile | None:
        """The file that is being written, which must not be cleaned; None if there is none."""
        return self._open[0] if self._open else None

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Append a framed record durably to the file for its time. Return the file and the record's handle.

        Raises:
            StorageError: `max_failures` attempts have failed, each with a new file, or one that no retry can help. This is the last error.
        """
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
        """Close the file that is being written."""
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

    Not thread-safe: the log calls it under a lock.
    """

    current = None
    """No file is being written between two writes."""

    def __init__(self, store: FileStore, folder: str, rolling_ms: int, max_failures: int) -> None:
        self._store = store
        self._names = _Names(store, folder, rolling_ms)
        self._max_failures = max_failures
        self._place = store.path(folder)

    def write(self, framed: bytes, time_ms: int) -> tuple[LogFile, FileBasedWriteAheadLogSegment]:
        """Make a file with the framed record, durably. Return the file and the record's handle.

        Raises:
            StorageError: `max_failures` attempts have failed, all with one name, or one that no retry can help. This is the last error.
        """
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


# -- reading


def read_segment(store: FileStore, segment: WriteAheadLogRecordHandle) -> bytes:
    """Read the record of a handle. One request to the store; blocks.

    Raises:
        ConfigurationError: the handle belongs to another kind of log.
        MissingFileError: the file is gone.
        StorageError: the request failed.
        CorruptRecordError: the file has other bytes at that place.
    """
    if not isinstance(segment, FileBasedWriteAheadLogSegment):
        raise ConfigurationError(
            f"{segment!r} is no handle of a file-based write-ahead log: read it by the log that has written it", key="handle", value=segment
        )
    wanted = HEADER.size + segment.length
    if isinstance(store, AppendingStore):
        found = store.read_at(segment.path, segment.offset, wanted)
    else:
        found = store.read(segment.path)[segment.offset : segment.offset + wanted]
    if len(found) >= HEADER.size and (length := HEADER.unpack_from(found)[0]) != segment.length:
        raise _corrupt(store, segment, f"its length there is {length}")
    if len(found) < wanted:
        raise _corrupt(store, segment, f"the file ends {wanted - len(found)} bytes before it does")
    return found[HEADER.size :]


def _corrupt(store: FileStore, segment: FileBasedWriteAheadLogSegment, reason: str) -> CorruptRecordError:
    place = store.path(segment.path)
    return CorruptRecordError(
        f"{place} does not hold the {segment.length} bytes written at byte {segment.offset} any more: {reason}. "
        "Restore the file from a copy, or let its batch go.",
        path=place,
        reason=reason,
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
    """Return a function that reads pieces of a file, and the file's size in bytes. MissingFileError if the file is gone."""
    if isinstance(store, AppendingStore):
        return (lambda offset, length: store.read_at(path, offset, length)), store.size(path)
    data = store.read(path)
    return (lambda offset, length: data[offset : offset + length]), len(data)

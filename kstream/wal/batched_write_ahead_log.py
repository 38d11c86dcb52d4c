"""Two wrappers of a driver's log: BatchedWriteAheadLog writes many small records as one, FencedWriteAheadLog fails a replaced driver.

A batch is one record of the log below it: `KWAL`, version (1 byte), crc32 of the rest (4 bytes, big-endian), then the records framed as
in a file. A record that begins otherwise was written without batching, and is a single record.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kstream.errors import CorruptRecordError, FormatVersionError, IllegalStateError, WriteAheadLogError
from kstream.loop import THREADS, Future, Runtime
from kstream.wal.file_format import FrameReader, frame
from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)

VERSION = 1
_MAGIC = b"KWAL"
_HEAD = len(_MAGIC) + 1 + 4


def aggregate(framed: Iterable[bytes]) -> bytes:
    """Return the batch of records that are framed already: one record of the log below."""
    body = b"".join(framed)
    return _MAGIC + bytes([VERSION]) + zlib.crc32(body).to_bytes(4, "big") + body


def deaggregate(record: bytes) -> list[bytes]:
    """Return the records of a batch, without their frames. A record that is no batch is returned alone.

    Raises:
        CorruptRecordError: the batch is damaged: its checksum does not fit, or its records are cut off.
        FormatVersionError: another version of kstream, such as a newer one, has written the batch.
    """
    if not record.startswith(_MAGIC) or len(record) < _HEAD:
        return [record]
    if (version := record[len(_MAGIC)]) != VERSION:
        raise FormatVersionError(
            f"a batch of a write-ahead log has format version {version}, this kstream reads {VERSION}: upgrade kstream to read it",
            path="",
            version=version,
            supported=VERSION,
        )
    body = record[_HEAD:]
    reader = FrameReader(lambda offset, length: body[offset : offset + length], len(body))
    records = list(reader)
    if zlib.crc32(body) != int.from_bytes(record[len(_MAGIC) + 1 : _HEAD], "big") or not reader.is_whole:
        reason = f"a batch of {len(record)} bytes has another checksum than when it was written"
        raise CorruptRecordError(f"a write-ahead log is damaged: {reason}", path="", reason=reason)
    return records


def single_records(batches: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the single records of a log, batched or not. A damaged batch is left out and logged as an error.

    Raises:
        FormatVersionError: another version of kstream, such as a newer one, has written a batch.
    """
    for batch in batches:
        try:
            records = deaggregate(batch)
        except CorruptRecordError as e:
            logger.error("%s; the records of this batch are left out", e)
            continue
        yield from records


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A call of `write`: its framed record, its time in ms, and the future that it waits for."""

    framed: bytes
    time: int
    future: Future[WriteAheadLogRecordHandle]


class _Closed(Exception):
    """The log was closed before the request was answered."""


class BatchedWriteAheadLog(WriteAheadLog):
    """A log that batches: records that arrive while another write runs are then written as one batch.

    A batch has the highest time of its records, so it is not cleaned before any of them. One thread writes; the constructor starts it,
    and `close` ends it.

    Args:
        wrapped: the log that gets the batches.
        timeout_ms: how long a write waits for its batch, in ms.
        runtime: makes the thread and the queue.
    """

    def __init__(self, wrapped: WriteAheadLog, timeout_ms: int = 5000, runtime: Runtime = THREADS) -> None:
        self.wrapped = wrapped
        self._timeout = timeout_ms / 1000
        self._runtime = runtime
        self._queue = runtime.queue()
        self._lock = threading.Lock()
        self._unanswered: set[_Request] = set()
        self._closed = False
        self._thread = runtime.thread(self._run, "BatchedWriteAheadLog Writer")
        self._thread.start()

    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Log a record; block until its batch is durable, `timeout_ms` at most.

        Returns:
            The handle of the whole batch.

        Raises:
            WriteAheadLogError: the write of the batch failed, or was not done in time. A record whose batch has not begun by then is not
                written; a record of a batch that has begun may be in the log.
            IllegalStateError: the log is closed, or was closed before the batch was written.
            ConfigurationError: the record is empty or too long.
        """
        request = _Request(frame(record), time_ms, Future(self._runtime))
        with self._lock:
            if self._closed:
                raise IllegalStateError("the batched write-ahead log was closed", state="closed")
            self._unanswered.add(request)
            self._queue.put(request)
        if not request.future.wait(self._timeout):
            request.future.fail(TimeoutError(f"not written within {self._timeout:g} s"))
        with self._lock:
            self._unanswered.discard(request)
        error = request.future.error
        if error is None:
            return request.future.value
        if isinstance(error, _Closed):
            raise IllegalStateError(f"the batched write-ahead log was closed before a record of {time_ms} ms was written", state="closed")
        reason = f"{type(error).__name__}: {error}"
        raise WriteAheadLogError(
            f"the write-ahead log did not acknowledge a record of {time_ms} ms: {reason}", time=time_ms, reason=reason
        ) from error

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Raise IllegalStateError, always: a handle belongs to a whole batch."""
        raise IllegalStateError(
            "a batched write-ahead log cannot read by a handle, because a handle belongs to a whole batch: use readAll", state="batched"
        )

    def readAll(self) -> Iterator[bytes]:
        """Yield the single records of the log below; see `single_records`."""
        return single_records(self.wrapped.readAll())

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self.wrapped.clean(threshold_ms, wait)

    def close(self) -> None:
        """Fail every write that still waits, and close the log below. Idempotent.

        The failed writes raise IllegalStateError. A batch that is being written may be in the log nevertheless. This call blocks until
        that write has ended, for `timeout_ms` at most.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            unanswered = list(self._unanswered)
            self._queue.put(None)
        for request in unanswered:
            request.future.fail(_Closed())
        self._thread.join(self._timeout)
        self.wrapped.close()

    def _run(self) -> None:
        """Write until `close`: each batch has all records that wait. Runs on the writing thread."""
        while (request := self._queue.get()) is not None:
            batch = [request]
            while self._queue.qsize():  # no other thread takes from the queue
                if (request := self._queue.get()) is None:
                    return
                batch.append(request)
            self._flush(sorted((r for r in batch if not r.future.is_done), key=_time))

    def _flush(self, batch: list[_Request]) -> None:
        """Write a batch, sorted by time, and set the futures of its requests."""
        if not batch:
            return
        try:
            handle = self.wrapped.write(aggregate(request.framed for request in batch), batch[-1].time)
        except BaseException as e:  # every waiting `write` raises it
            for request in batch:
                request.future.fail(e)
            return
        for request in batch:
            request.future.succeed(handle)


def _time(request: _Request) -> int:
    return request.time


class FencedWriteAheadLog(WriteAheadLog):
    """A log whose writes fail if the driver has been replaced.

    Otherwise a driver that does not know yet that it has been replaced could acknowledge a block that its successor never reads.

    Args:
        log: the log below.
        probe: called after each write, on the thread of that write. It raises if another driver has taken over. If it does not raise,
            no successor can have read the log before this write.
    """

    def __init__(self, log: WriteAheadLog, probe: Callable[[], None]) -> None:
        self._log = log
        self._probe = probe

    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        """Log a record, and probe. An error of the log or of the probe is raised; then the record does not count."""
        handle = self._log.write(record, time_ms)
        self._probe()
        return handle

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        return self._log.read(handle)

    def readAll(self) -> Iterator[bytes]:
        return self._log.readAll()

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self._log.clean(threshold_ms, wait)

    def close(self) -> None:
        self._log.close()

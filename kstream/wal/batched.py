"""BatchedWriteAheadLog: records that wait while one is written are written together. For the driver, which logs many small ones.

A batch is one record of the log beneath: `KWAL`, version (1 byte), crc32 of the rest (4 bytes, big-endian), then the records framed as in
a file. What does not begin so was written without batching, and is a record by itself.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kstream.errors import CorruptRecordError, FormatVersionError, IllegalStateError, WriteAheadLogError
from kstream.loop import THREADS, Runtime
from kstream.wal.framing import FrameReader, frame
from kstream.wal.outcome import Outcome
from kstream.wal.write_ahead_log import WriteAheadLog, WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)

VERSION = 1
_MAGIC = b"KWAL"
_HEAD = len(_MAGIC) + 1 + 4


def aggregate(records: Iterable[bytes]) -> bytes:
    """One record of the log beneath."""
    return _joined([frame(record) for record in records])


def _joined(framed: list[bytes]) -> bytes:
    body = b"".join(framed)
    return _MAGIC + bytes([VERSION]) + zlib.crc32(body).to_bytes(4, "big") + body


def deaggregate(record: bytes) -> list[bytes]:
    """What `aggregate` was given; a record of another form is itself. CorruptRecordError, FormatVersionError."""
    if not record.startswith(_MAGIC) or len(record) < _HEAD:
        return [record]
    if (version := record[len(_MAGIC)]) != VERSION:
        raise FormatVersionError(
            f"a batch of a write-ahead log has format version {version}, this kstream reads {VERSION}: upgrade kstream to read it",
            path="", version=version, supported=VERSION,
        )  # fmt: skip
    body = record[_HEAD:]
    reader = FrameReader(lambda offset, length: body[offset : offset + length], len(body))
    records = list(reader)
    if zlib.crc32(body) != int.from_bytes(record[len(_MAGIC) + 1 : _HEAD], "big") or not reader.is_whole:
        reason = f"a batch of {len(record)} bytes has another checksum than when it was written"
        raise CorruptRecordError(f"a write-ahead log is damaged: {reason}", path="", reason=reason)
    return records


def single_records(batches: Iterable[bytes]) -> Iterator[bytes]:
    """The records of a log that was written in batches, or not, or at times. A damaged batch is left out and told as an error."""
    for batch in batches:
        try:
            records = deaggregate(batch)
        except CorruptRecordError as e:
            logger.error("%s; its records are left out", e)
            continue
        yield from records


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    framed: bytes
    time: int
    outcome: Outcome[WriteAheadLogRecordHandle]


class _Closed(Exception):
    """The log was closed before the request was answered."""


class BatchedWriteAheadLog(WriteAheadLog):
    """A batch is sorted by the times of its records and has the highest of them, so that it is cleaned no sooner than any.

    `write` blocks until its batch is durable, `timeout_ms` at most. One thread writes, started here and ended by `close`.
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
        """The handle of the batch. WriteAheadLogError (from the log's own) if its batch failed, or was not written in time; a record
        that still waits then is not written. IllegalStateError after `close`, and if `close` came first."""
        request = _Request(frame(record), time_ms, Outcome(self._runtime))
        with self._lock:
            if self._closed:
                raise IllegalStateError("the batched write-ahead log was closed", state="closed")
            self._unanswered.add(request)
            self._queue.put(request)
        if not request.outcome.wait(self._timeout):
            request.outcome.fail(TimeoutError(f"not written within {self._timeout:g} s"))
        with self._lock:
            self._unanswered.discard(request)
        error = request.outcome.error
        if error is None:
            return request.outcome.value
        if isinstance(error, _Closed):
            raise IllegalStateError(f"the batched write-ahead log was closed before a record of {time_ms} ms was written", state="closed")
        reason = f"{type(error).__name__}: {error}"
        raise WriteAheadLogError(
            f"a record of {time_ms} ms was not written to the write-ahead log, as far as is known: {reason}", time=time_ms, reason=reason
        ) from error

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        """Always IllegalStateError: a handle is that of a whole batch."""
        raise IllegalStateError(
            "a batched write-ahead log cannot read by a handle, which is that of a whole batch: use readAll", state="batched"
        )

    def readAll(self) -> Iterator[bytes]:
        """The single records, as `single_records` gives them."""
        return single_records(self.wrapped.readAll())

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self.wrapped.clean(threshold_ms, wait)

    def close(self) -> None:
        """Fails all that was not answered yet – what is being written may be in the log all the same – and closes the log beneath."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            unanswered = list(self._unanswered)
            self._queue.put(None)
        for request in unanswered:
            request.outcome.fail(_Closed())
        self._thread.join(self._timeout)
        self.wrapped.close()

    def _run(self) -> None:
        while (request := self._queue.get()) is not None:
            batch = [request]
            while self._queue.qsize():  # nobody else takes from it
                if (request := self._queue.get()) is None:
                    return
                batch.append(request)
            self._flush(sorted((r for r in batch if not r.outcome.is_known), key=_time))

    def _flush(self, batch: list[_Request]) -> None:
        if not batch:
            return
        try:
            handle = self.wrapped.write(_joined([request.framed for request in batch]), batch[-1].time)
        except BaseException as e:  # raised by every caller
            for request in batch:
                request.outcome.fail(e)
            return
        for request in batch:
            request.outcome.succeed(handle)


def _time(request: _Request) -> int:
    return request.time

"""BatchedWriteAheadLog: what waits is written at once, and every caller is told what became of it."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from kstream.errors import CorruptRecordError, FormatVersionError, IllegalStateError, StorageError, WriteAheadLogError
from kstream.loop.threads import ThreadRuntime
from kstream.storage import LocalFileStore
from kstream.wal import BatchedWriteAheadLog, FileBasedWriteAheadLog, WriteAheadLog, WriteAheadLogRecordHandle
from kstream.wal.batched_write_ahead_log import aggregate, deaggregate
from kstream.wal.file_format import frame
from tests.wal.logs import record

GOLDEN = bytes.fromhex("4b57414c 01 8cff5e32 00000002 6162 00000001 63".replace(" ", ""))


def batch(*records: bytes) -> bytes:
    """These records as one record of the log below."""
    return aggregate(map(frame, records))


class GatedLog(WriteAheadLog):
    """A write goes on when `gate` is open; `entered` says that one has begun. `error` is what writes raise."""

    def __init__(self) -> None:
        self.writes: list[tuple[list[bytes], int]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.calls: list[Any] = []

    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        self.entered.release()
        assert self.gate.wait(60)
        self.writes.append((deaggregate(record), time_ms))
        if self.error:
            raise self.error
        return WriteAheadLogRecordHandle()

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        raise AssertionError

    def readAll(self) -> Iterator[bytes]:
        return iter(self.calls)

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self.calls.append((threshold_ms, wait))

    def close(self) -> None:
        self.calls.append("close")


class HandEvent(threading.Event):
    """A wait with a timeout ends when the event is set or `expire` is called, and never by the machine's time."""

    def __init__(self) -> None:
        super().__init__()
        self._woken = threading.Event()

    def set(self) -> None:
        super().set()
        self._woken.set()

    def expire(self) -> None:
        self._woken.set()

    def wait(self, timeout: float | None = None) -> bool:
        assert self._woken.wait(60)
        return self.is_set()


class HandRuntime(ThreadRuntime):
    """`put` has a permit for each thing put into a queue; `expire` ends all waits that are under way."""

    def __init__(self) -> None:
        self.put = threading.Semaphore(0)
        self._events: list[HandEvent] = []

    def expire(self) -> None:
        for event in self._events:
            event.expire()

    def event(self) -> HandEvent:
        self._events.append(HandEvent())
        return self._events[-1]

    def queue(self) -> Any:
        runtime = self

        class Queue(SimpleQueue):
            def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
                super().put(item, block, timeout)
                runtime.put.release()

        return Queue()


class Caller:
    """A thread that writes one record; its result or error after `done`."""

    def __init__(self, log: WriteAheadLog, data: bytes, time_ms: int) -> None:
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=(log, data, time_ms), daemon=True)
        self._thread.start()

    def _run(self, log: WriteAheadLog, data: bytes, time_ms: int) -> None:
        try:
            self.result = log.write(data, time_ms)
        except Exception as e:
            self.result = e

    def done(self) -> Any:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.result


class Bench:
    """A batched log over a gated one; `write` returns when the request is queued, the first when it is being written."""

    def __init__(self) -> None:
        self.inner, self.runtime = GatedLog(), HandRuntime()
        self.log = BatchedWriteAheadLog(self.inner, 60_000, self.runtime)
        self.callers: list[Caller] = []

    def write(self, *times: int) -> None:
        for time_ms in times:
            self.callers.append(Caller(self.log, f"at {time_ms}".encode(), time_ms))
            assert self.runtime.put.acquire(timeout=60)
            if len(self.callers) == 1:
                assert self.inner.entered.acquire(timeout=60)

    def results(self) -> list[Any]:
        return [caller.done() for caller in self.callers]


def test_a_batch_is_stored_as_it_always_was() -> None:
    """Spark behaviour WL7."""
    assert zlib.crc32(GOLDEN[9:]).to_bytes(4, "big") == GOLDEN[5:9]
    assert batch(b"ab", b"c") == GOLDEN and deaggregate(GOLDEN) == [b"ab", b"c"]


@pytest.mark.parametrize("count", [1, 2, 100])
def test_what_is_aggregated_comes_out_again(count: int) -> None:
    """Spark behaviour WL7."""
    records = [record(i) for i in range(count)]
    assert deaggregate(batch(*records)) == records


def test_a_record_that_was_written_without_batching_is_itself() -> None:
    """Spark behaviour WL7."""
    assert [deaggregate(r) for r in (b"{}", b"KWAL", b"K")] == [[b"{}"], [b"KWAL"], [b"K"]]


def test_a_batch_with_any_byte_changed_or_cut_is_told_and_one_of_a_newer_kstream_too() -> None:
    """Spark behaviour WL7."""
    whole = batch(b"ab", b"c")
    for at in range(5, len(whole)):
        with pytest.raises(CorruptRecordError, match="checksum"):
            deaggregate(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for end in range(9, len(whole)):
        with pytest.raises(CorruptRecordError):
            deaggregate(whole[:end])
    with pytest.raises(FormatVersionError, match="version 2"):
        deaggregate(b"KWAL\2" + whole[5:])


def test_a_batch_has_the_highest_time_of_its_records_which_are_sorted() -> None:
    """Spark behaviour WL7."""
    bench = Bench()
    bench.write(3)
    bench.write(5, 8, 12, 10)
    bench.inner.gate.set()
    results = bench.results()
    assert bench.inner.writes == [([b"at 3"], 3), ([b"at 5", b"at 8", b"at 10", b"at 12"], 12)]
    assert len({id(r) for r in results[1:]}) == 1 and isinstance(results[0], WriteAheadLogRecordHandle)
    bench.log.close()


def test_a_write_that_fails_is_raised_to_every_caller_and_the_log_goes_on() -> None:
    """Spark behaviour WL7."""
    bench = Bench()
    bench.inner.error = StorageError("Hello!", path="x")
    bench.write(3)
    bench.write(5, 8)
    bench.inner.gate.set()
    errors = bench.results()
    assert [(type(e), str(e.__cause__), e.facts["time"]) for e in errors] == [(WriteAheadLogError, "Hello!", t) for t in (3, 5, 8)]
    assert len({id(e) for e in errors}) == 3
    bench.inner.error = None
    assert bench.log.write(b"again", 9) is not None
    bench.log.close()


def test_close_fails_what_is_queued_and_in_flight() -> None:
    """Spark behaviour WL7."""
    bench = Bench()
    bench.write(3)
    bench.write(5, 8)
    closing = threading.Thread(target=bench.log.close)
    closing.start()
    assert [type(e) for e in bench.results()] == [IllegalStateError] * 3
    bench.inner.gate.set()
    closing.join(60)
    assert bench.inner.calls == ["close"] and bench.inner.writes == [([b"at 3"], 3)]
    bench.log.close()
    assert bench.inner.calls == ["close"]


def test_a_write_after_close_is_refused() -> None:
    """Spark behaviour WL7."""
    bench = Bench()
    bench.log.close()
    with pytest.raises(IllegalStateError, match="was closed"):
        bench.log.write(b"a", 1)


def test_a_record_that_is_not_written_in_time_fails_and_one_still_waiting_is_not_written_at_all() -> None:
    """WL10: the batching timeout."""
    bench = Bench()
    bench.write(3)
    bench.write(5)
    bench.runtime.expire()
    assert [str(e.__cause__) for e in bench.results()] == ["not written within 60 s"] * 2
    bench.inner.gate.set()
    bench.log.close()
    assert bench.inner.writes == [([b"at 3"], 3)]


def test_reading_by_a_handle_is_not_supported(tmp_path: Path) -> None:
    """Spark behaviour WL7."""
    log = BatchedWriteAheadLog(FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log"))
    handle = log.write(b"a", 1)
    with pytest.raises(IllegalStateError, match="use readAll"):
        log.read(handle)
    log.close()


def test_cleaning_is_passed_on() -> None:
    """Spark behaviour WL7."""
    bench = Bench()
    bench.log.clean(5, wait=False)
    assert bench.inner.calls == [(5, False)]
    bench.log.close()


def test_single_records_come_out_in_order_of_a_log_that_was_not_always_batched(tmp_path: Path) -> None:
    """Spark behaviour WL7."""
    plain = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1)
    plain.write(b"plain", 0)
    plain.close()
    log = BatchedWriteAheadLog(FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1))
    for i in range(20):
        log.write(record(i), 500 * i)
    log.close()
    again = BatchedWriteAheadLog(FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log"))
    assert list(again.readAll()) == [b"plain", *[record(i) for i in range(20)]]
    again.close()


def test_a_damaged_batch_is_left_out_and_told_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Spark behaviours WL4 and WL7."""
    bench = Bench()
    bench.inner.calls = [batch(b"a"), batch(b"b")[:-1] + b"x", batch(b"c", b"d")]
    assert list(bench.log.readAll()) == [b"a", b"c", b"d"]
    assert [r.levelno for r in caplog.records] == [logging.ERROR] and "the records of this batch are left out" in caplog.text
    bench.log.close()

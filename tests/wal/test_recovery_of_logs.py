"""What a restart reads of a log that died in the middle, was damaged, or has many files."""

from __future__ import annotations

import os
import shutil
import threading
from itertools import islice
from pathlib import Path

import pytest

from kstream.errors import IllegalStateError, StorageError
from kstream.storage import LocalFileStore
from kstream.wal import FileBasedWriteAheadLog
from tests.stores import FaultyStore
from tests.wal.logs import BusyStore, memory, put, record


def test_a_log_torn_at_any_byte_of_its_last_record_gives_all_before_and_goes_on(tmp_path: Path) -> None:
    """Spark behaviour WL4."""
    twin = [record(i) for i in range(5)]
    whole = FileBasedWriteAheadLog(LocalFileStore(tmp_path / "whole"), "log", rolling_interval_secs=1)
    handles = [whole.write(record(i), 500 * i) for i in range(6)]
    for cut in range(1, 4 + len(record(5)) + 1):
        shutil.copytree(tmp_path / "whole", tmp_path / str(cut))
        path = tmp_path / str(cut) / handles[-1].path
        os.truncate(path, path.stat().st_size - cut)

        store = LocalFileStore(tmp_path / str(cut))
        again = FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1)
        assert list(again.readAll()) == twin, cut
        again.write(b"after", 1500)
        assert list(FileBasedWriteAheadLog(store, "log").readAll()) == [*twin, b"after"], cut
        assert [again.read(h) for h in handles[:5]] == twin
        assert len(store.list("log")) == 3


def test_files_that_are_damaged_give_what_is_whole_before_and_later_files_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark behaviour WL4."""
    for store in (LocalFileStore(tmp_path), memory()):
        caplog.clear()
        put(store, 0, 10, [b"a"])
        put(store, 11, 20, [b"b"], tail=b"\0\0\1\0cut")
        store.create("log/log-21-30", b"\0\0")
        store.create("log/log-31-40", b"")
        store.create("log/log-41-50", b"\xff" * 100)
        put(store, 51, 60, [b"c"], tail=b"garbage")
        put(store, 100, 110, [b"d"])
        for close_file_after_write in (True, False):
            assert list(FileBasedWriteAheadLog(store, "log", close_file_after_write=close_file_after_write).readAll()) == [
                b"a",
                b"b",
                b"c",
                b"d",
            ]
        told = [r.getMessage() for r in caplog.records if "no record" in r.getMessage()]
        assert len(told) == 8  # of files that are read at once in any order
        assert sum(f"{store.path('log/log-11-20')}: 7 bytes from byte 5 on" in line for line in told) == 2


@pytest.mark.parametrize("close_file_after_write", [True, False])
def test_a_file_that_is_cleaned_between_listing_and_reading_is_no_error(tmp_path: Path, close_file_after_write: bool) -> None:
    """Spark behaviour WL4."""
    for store in (LocalFileStore(tmp_path), memory()):
        put(store, 0, 10, [b"a"])
        put(store, 11, 20, [b"b"])
        records = FileBasedWriteAheadLog(store, "log", close_file_after_write=close_file_after_write).readAll()
        store.delete("log/log-0-10")
        assert list(records) == [b"b"]


@pytest.mark.parametrize("close_file_after_write", [True, False])
def test_a_store_that_fails_is_no_damage_and_ends_the_recovery(close_file_after_write: bool) -> None:
    """WL4: only what cannot be read for ever is left out."""
    store = FaultyStore(memory())
    for i in range(50):
        put(store, i, i, [record(i)])
    store.fault = lambda verb, name: "before" if verb == "read" and name.endswith("log-7-7") else None
    records = FileBasedWriteAheadLog(store, "log", close_file_after_write=close_file_after_write).readAll()
    assert list(islice(records, 7)) == [record(i) for i in range(7)]
    with pytest.raises(StorageError):
        next(records)


def test_a_thousand_files_are_read_in_order_and_no_more_than_so_many_at_once() -> None:
    """Spark behaviour WL6."""
    store = BusyStore(memory())
    for i in range(1000):
        put(store.inner, i, i, [record(i), b"second"])
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True, recovery_files=8)
    records = log.readAll()
    assert next(records) == record(0) and store.reads <= 8
    rest = list(records)
    assert [b"second", *[r for i in range(1, 1000) for r in (record(i), b"second")]] == rest
    assert store.reads == 1000 and store.most <= 8


def test_files_are_read_at_the_same_time_with_close_file_after_write() -> None:
    """Spark behaviour WL6."""
    store = MeetingStore(3)
    for i in range(3):
        put(store.inner, i, i, [record(i)])
    assert list(FileBasedWriteAheadLog(store, "log", close_file_after_write=True).readAll()) == [record(i) for i in range(3)]


class MeetingStore(BusyStore):
    """A read goes on only when so many are under way."""

    def __init__(self, parties: int) -> None:
        super().__init__(memory())
        self._barrier = threading.Barrier(parties, timeout=60)

    def read(self, name: str) -> bytes:
        self._barrier.wait()
        return super().read(name)


def test_iterating_after_close_fails_only_where_files_are_read_in_parallel(tmp_path: Path) -> None:
    """Spark behaviour WL6."""
    store = LocalFileStore(tmp_path)
    for i in range(1, 11):
        put(store, i, i, [record(i)])
    for close_file_after_write in (True, False):
        log = FileBasedWriteAheadLog(store, "log", close_file_after_write=close_file_after_write)
        records = log.readAll()
        log.close()
        if close_file_after_write:
            with pytest.raises(IllegalStateError, match="was closed before all of it was read"):
                list(records)
        else:
            assert list(records) == [record(i) for i in range(1, 11)]


def test_a_log_may_change_between_growing_files_and_one_a_write(tmp_path: Path) -> None:
    """Spark behaviour WL6."""
    store, expected = LocalFileStore(tmp_path), []
    for run in range(4):
        log = FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1, close_file_after_write=run % 2 == 1)
        assert list(log.readAll()) == expected
        for i in range(5):
            log.write(record(10 * run + i), 10_000 * run + 400 * i)
            expected.append(record(10 * run + i))
        log.close()
    assert list(FileBasedWriteAheadLog(store, "log").readAll()) == expected

"""FileBasedWriteAheadLog: rolling, handles, one file a write, failures, cleaning."""

from __future__ import annotations

import logging
import os
import pickle
import random
import threading
from pathlib import Path

import pytest

from kstream.errors import ConfigurationError, CorruptRecordError, IllegalStateError, MissingFileError, StorageError
from kstream.storage import LocalFileStore
from kstream.storage import local as local_module
from kstream.storage.local import LocalAppendableFile
from kstream.wal import FileBasedWriteAheadLog, FileBasedWriteAheadLogSegment, WriteAheadLogRecordHandle
from tests.stores import CountingStore, FaultyStore
from tests.wal.logs import memory, put, record


def written(log: FileBasedWriteAheadLog, count: int, step_ms: int = 500) -> list[FileBasedWriteAheadLogSegment]:
    return [log.write(record(i), i * step_ms) for i in range(count)]


def test_a_log_rolls_and_gives_its_records_in_order_over_its_files_to_a_new_one_too(tmp_path: Path) -> None:
    """Spark behaviour WL2."""
    store = LocalFileStore(tmp_path)
    log = FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1)
    written(log, 100)
    assert len(store.list("log")) > 1
    records = [record(i) for i in range(100)]
    assert list(log.readAll()) == records
    log.close()
    assert list(FileBasedWriteAheadLog(store, "log").readAll()) == records


def test_a_record_at_the_stop_time_still_goes_into_the_file_and_one_after_it_does_not(tmp_path: Path) -> None:
    """Spark behaviour WL2."""
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1)
    assert [log.write(b"x", t).path for t in (100, 1100, 1101, 50, 2101, 2102)] == [
        f"log/log-{t}-{t + 1000}" for t in (100, 100, 1101, 1101, 1101, 2102)
    ]


def test_any_handle_is_read_in_any_order_at_once_and_by_a_log_of_another_process(tmp_path: Path) -> None:
    """Spark behaviour WL5."""
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1)
    handles = written(log, 30)
    for i, handle in enumerate(handles):
        assert log.read(handle) == record(i)
    other = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "elsewhere")
    for i in random.Random(7).sample(range(30), 30):
        assert other.read(pickle.loads(pickle.dumps(handles[i]))) == record(i)


def test_a_write_is_durable_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour WL5."""
    synced: list[int] = []
    monkeypatch.setattr(local_module, "_SYNC", lambda d: synced.append(os.fstat(d).st_size))
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log")
    log.write(b"12345", 0)
    log.write(b"1", 1)
    assert synced == [9, 14]


@pytest.mark.parametrize(
    "moved", [FileBasedWriteAheadLogSegment("log/log-0-60000", 0, 4), FileBasedWriteAheadLogSegment("log/log-0-60000", 1, 5)]
)
def test_a_handle_that_does_not_fit_is_told_with_the_file_and_the_place(tmp_path: Path, moved: FileBasedWriteAheadLogSegment) -> None:
    """Spark behaviour WL5."""
    for store in (LocalFileStore(tmp_path), memory()):
        log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True)
        log.write(b"first", 0)
        with pytest.raises(CorruptRecordError, match="its length there is") as caught:
            log.read(moved)
        assert caught.value.facts["path"] == store.path("log/log-0-60000")


def test_a_handle_into_a_cut_or_removed_file_is_told(tmp_path: Path) -> None:
    """Spark behaviour WL5."""
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log")
    handle = log.write(b"first", 0)
    os.truncate(tmp_path / handle.path, 7)
    with pytest.raises(CorruptRecordError, match="ends 2 bytes before"):
        log.read(handle)
    (tmp_path / handle.path).unlink()
    with pytest.raises(MissingFileError):
        log.read(handle)
    with pytest.raises(ConfigurationError, match="no handle of a file-based"):
        log.read(WriteAheadLogRecordHandle())


def test_with_close_file_after_write_each_write_is_a_file_of_its_own(tmp_path: Path) -> None:
    """Spark behaviour WL6."""
    for store in (LocalFileStore(tmp_path), memory()):
        log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True)
        handles = [log.write(record(i), i * 100) for i in range(3)]
        assert store.list("log") == ["log-0-60000", "log-100-60100", "log-200-60200"]
        assert [log.read(h) for h in handles] == [record(i) for i in range(3)]


def test_writes_of_one_moment_or_of_a_clock_set_back_keep_their_order_and_their_files() -> None:
    """Spark behaviour WL6."""
    log = FileBasedWriteAheadLog(memory(), "log", close_file_after_write=True, rolling_interval_secs=1)
    paths = [log.write(record(i), t).path for i, t in enumerate((5, 5, 3, 9))]
    assert paths == ["log/log-5-1005", "log/log-6-1006", "log/log-7-1007", "log/log-9-1009"]
    assert list(log.readAll()) == [record(i) for i in range(4)]


def test_a_store_whose_files_cannot_grow_gets_a_file_a_write_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark behaviour WL6."""
    store = memory()
    with caplog.at_level(logging.WARNING):
        FileBasedWriteAheadLog(store, "log", close_file_after_write=True)
        assert caplog.records == []
        log = FileBasedWriteAheadLog(store, "log")
        FileBasedWriteAheadLog(store, "other")
    assert [r.getMessage().split(",")[0] for r in caplog.records] == [f"{store.url}: files cannot grow there"]
    log.write(b"a", 1)
    log.write(b"b", 1)
    assert len(store.list("log")) == 2


def test_a_name_that_another_has_taken_is_passed_by_and_nothing_of_it_is_lost() -> None:
    """Spark behaviour WL6."""
    store = memory()
    put(store, 5, 60005, [b"theirs"])
    put(store, 6, 60006, [b"mine"])
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True)
    assert log.write(b"mine", 5).path == "log/log-7-60007"
    assert list(log.readAll()) == [b"theirs", b"mine", b"mine"]


def test_a_file_that_is_there_already_is_left_to_whoever_wrote_it(tmp_path: Path) -> None:
    """A driver that was replaced, or a receiver that was given up, may still have it open. (Spark appends to it, BT7.)"""
    store = LocalFileStore(tmp_path)
    first, second = (FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1) for _ in range(2))
    segments = [log.write(data, 4000) for log, data in ((first, b"a"), (second, b"b"), (first, b"c"), (second, b"d"))]
    assert [segment.path for segment in segments] == ["log/log-4000-5000", "log/log-4001-5001"] * 2
    assert [second.read(segment) for segment in segments] == [b"a", b"b", b"c", b"d"]
    assert list(first.readAll()) == [b"a", b"c", b"b", b"d"]


def test_nothing_is_written_behind_a_torn_tail_where_nobody_would_find_it(tmp_path: Path) -> None:
    """Spark behaviours WL4 and BT7."""
    store = LocalFileStore(tmp_path)
    put(store, 4000, 5000, [b"before"], tail=b"\0\0\0\x09torn")
    log = FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1)
    assert log.write(b"after", 4000).path == "log/log-4001-5001"
    assert list(log.readAll()) == [b"before", b"after"]


def test_a_write_is_tried_max_failures_times_and_then_raises_the_last_error() -> None:
    """Spark behaviour WL10."""
    store = FaultyStore(memory())
    failing: list[str] = []

    def fault(verb: str, name: str) -> str | None:
        if verb == "create" and len(failing) < failures:
            failing.append(name)
            return "before"
        return None

    store.fault = fault
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True, max_failures=3)
    failures = 2
    assert log.read(log.write(b"a", 1)) == b"a"
    failures = 5
    with pytest.raises(StorageError, match="No space left"):
        log.write(b"b", 2)
    assert len(failing) == 5
    assert log.read(log.write(b"c", 3)) == b"c" and list(log.readAll()) == [b"a", b"c"]


@pytest.mark.parametrize("outcome", ["after", "again"])
def test_a_try_that_failed_and_yet_made_its_file_is_not_logged_twice(outcome: str) -> None:
    """WL10: a write whose outcome is unknown is read back."""
    faults = iter([outcome if outcome == "after" else "before", "again" if outcome == "again" else None])
    store = FaultyStore(memory())
    store.fault = lambda verb, _name: next(faults, None) if verb == "create" else None
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True)
    assert log.read(log.write(b"a", 1)) == b"a"
    assert list(log.readAll()) == [b"a"] and store.list("log") == ["log-1-60001"]


def test_after_a_failure_on_a_disk_a_new_file_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour WL10."""
    failures, real = [0], LocalAppendableFile.append

    def append(self: LocalAppendableFile, data: bytes) -> int:
        if failures[0]:
            failures[0] -= 1
            raise StorageError("cannot write", path="x")
        return real(self, data)

    monkeypatch.setattr(LocalAppendableFile, "append", append)
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", max_failures=2)
    paths = [log.write(b"a", 1).path]
    failures[0] = 1
    paths.append(log.write(b"b", 1).path)
    failures[0] = 2
    with pytest.raises(StorageError):
        log.write(b"lost", 1)
    paths.append(log.write(b"c", 1).path)
    assert len(set(paths)) == 3 and list(log.readAll()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("close_file_after_write", [True, False])
def test_files_that_stop_before_the_threshold_are_removed(tmp_path: Path, wait: bool, close_file_after_write: bool) -> None:
    """Spark behaviour WL3."""
    store = DeletionSignal(LocalFileStore(tmp_path).url)
    log = FileBasedWriteAheadLog(store, "log", rolling_interval_secs=1, close_file_after_write=close_file_after_write)
    written(log, 20)
    before = store.list("log")
    old = [name for name in before if int(name.split("-")[2]) < 5000]
    store.expected.update(old)
    log.clean(5000, wait)
    assert store.all_gone.wait(60)
    assert old and store.list("log") == sorted(set(before) - set(old))
    log.close()
    log.close()


class DeletionSignal(LocalFileStore):
    """Tells when all files that are expected to go are gone."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.expected: set[str] = set()
        self.all_gone = threading.Event()

    def delete(self, name: str) -> None:
        super().delete(name)
        self.expected.discard(name.rpartition("/")[2])
        if not self.expected:
            self.all_gone.set()


def test_a_file_that_stops_at_the_threshold_stays(tmp_path: Path) -> None:
    """BT7: endTime strictly below the threshold."""
    for store in (LocalFileStore(tmp_path), memory()):
        for start in range(0, 5000, 1000):
            put(store, start, start + 1000, [b"x"])
        FileBasedWriteAheadLog(store, "log").clean(3000, wait=True)
        assert store.list("log") == ["log-2000-3000", "log-3000-4000", "log-4000-5000"]


def test_the_file_that_is_being_written_is_never_cleaned(tmp_path: Path) -> None:
    """Spark behaviour WL3."""
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1)
    handle = log.write(b"a", 0)
    log.clean(1_000_000, wait=True)
    assert log.read(handle) == b"a"
    log.close()
    log.clean(1_000_000, wait=True)
    assert list(log.readAll()) == []


def test_what_could_not_be_removed_is_tried_again_by_the_next_clean_up(caplog: pytest.LogCaptureFixture) -> None:
    """Spark behaviour WL3."""
    store = FaultyStore(memory())
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True, rolling_interval_secs=1)
    written(log, 3)
    store.fault = lambda verb, _name: "before" if verb == "delete" else None
    log.clean(10_000, wait=True)
    assert len(store.list("log")) == 3 and "stay until the next clean-up" in caplog.text
    store.fault = lambda _verb, _name: None
    log.clean(10_000, wait=True)
    assert store.list("log") == []


def test_a_clean_up_lists_the_folder_once_and_then_knows_its_files() -> None:
    """WL3: what is done for every batch lists nothing."""
    store = CountingStore(memory())
    log = FileBasedWriteAheadLog(store, "log", close_file_after_write=True, rolling_interval_secs=1)
    for i in range(5):
        log.write(record(i), i * 1000)
        log.clean(i * 1000, wait=True)
    calls = [verb for verb, _name, _size in store.take()]
    assert (calls.count("list"), calls.count("create"), calls.count("delete"), len(calls)) == (1, 5, 3, 9)


def test_a_closed_log_takes_no_record_and_can_be_closed_again(tmp_path: Path) -> None:
    """Spark behaviour WL3."""
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log")
    handle = log.write(b"a", 0)
    log.close()
    log.close()
    log.clean(1, wait=False)
    with pytest.raises(IllegalStateError, match="was closed"):
        log.write(b"b", 0)
    assert log.read(handle) == b"a"


def test_no_directory_is_made_before_the_first_write(tmp_path: Path) -> None:
    """Spark behaviour WL9."""
    for close_file_after_write in (True, False):
        log = FileBasedWriteAheadLog(LocalFileStore(tmp_path / "c"), "log", close_file_after_write=close_file_after_write)
        assert list(log.readAll()) == []
        log.clean(5, wait=True)
        log.close()
    assert not (tmp_path / "c").exists()


def test_writes_of_many_threads_are_all_there_and_readable(tmp_path: Path) -> None:
    """Spark behaviour WL5."""
    for store in (LocalFileStore(tmp_path), memory()):
        log = FileBasedWriteAheadLog(store, "log", close_file_after_write=store.url.startswith("memory"))
        handles: dict[bytes, FileBasedWriteAheadLogSegment] = {}

        def write(thread: int, log: FileBasedWriteAheadLog = log, handles: dict = handles) -> None:
            for i in range(25):
                data = f"{thread} {i}".encode()
                handles[data] = log.write(data, i)

        threads = [threading.Thread(target=write, args=(t,)) for t in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(handles) == 200 and {log.read(h) for h in handles.values()} == set(handles)
        assert sorted(log.readAll()) == sorted(handles)


@pytest.mark.parametrize("wrong", [{"rolling_interval_secs": 0}, {"max_failures": 0}, {"max_failures": -1}])
def test_numbers_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    """Spark behaviour WL10."""
    with pytest.raises(ConfigurationError, match="must be at least 1"):
        FileBasedWriteAheadLog(memory(), "log", **wrong)  # pyright: ignore[reportArgumentType]

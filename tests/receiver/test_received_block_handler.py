"""Blocks on two executors: which, and what happens when one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kstream.errors import BlockNotStoredError, CorruptRecordError, FormatVersionError, RpcUnreachableError, StorageError
from kstream.receiver.block_reading import records_of
from kstream.receiver.block_store import decode_block, encode_block
from kstream.receiver.block_writer import chunks_of, dumps_plain
from kstream.receiver.received_block_handler import (
    BlockStoreBasedBlockHandler,
    ReceivedBlockHandler,
    ReceivedBlockStoreResult,
    WriteAheadLogBasedBlockHandler,
)
from kstream.storage import LocalFileStore
from kstream.wal import FileBasedWriteAheadLog, FileBasedWriteAheadLogSegment


class FakeStore:
    def __init__(self, executor_id: str, fails: bool = False) -> None:
        self.executor_id = executor_id
        self.fails = fails
        self.blocks: dict[str, Sequence[bytes]] = {}
        self.asked = 0

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        self.asked += 1
        if self.fails:
            raise RpcUnreachableError(f"executor {self.executor_id} is dead", place="")
        self.blocks[name] = chunks

    def remove(self, name: str) -> None:
        self.blocks.pop(name, None)

    def records(self, name: str) -> list[Any]:
        return list(records_of(self.blocks[name], name))


def handler(own: FakeStore, *peers: FakeStore, **options: int) -> BlockStoreBasedBlockHandler:
    return BlockStoreBasedBlockHandler(own, lambda: peers, "memory-and-disk", **options)


def store(into: ReceivedBlockHandler, name: str, records: Iterable[Any]) -> ReceivedBlockStoreResult:
    return into.store(name, *chunks_of(records, dumps_plain))


def test_a_block_is_on_the_receivers_own_executor_and_on_one_other() -> None:
    """Spark behaviour BH1."""
    own, *peers = (FakeStore(str(n)) for n in range(4))
    stored = store(handler(own, own, *peers), "b", iter(range(100)))
    assert (stored.num_records, stored.executors) == (100, ("0", "1"))
    assert own.records("b") == peers[0].records("b") == list(range(100))
    assert peers[1].blocks == peers[2].blocks == {}


def test_where_the_own_store_fails_two_others_have_the_block() -> None:
    own, *peers = FakeStore("0", fails=True), *(FakeStore(str(n)) for n in range(1, 4))
    assert store(handler(own, own, *peers), "b", [1]).executors == ("1", "2")


def test_a_block_that_is_discarded_is_in_no_store() -> None:
    own, peer = FakeStore("0"), FakeStore("1")
    made = handler(own, peer)
    store(made, "b", [1])
    made.discard("b")
    assert own.blocks == peer.blocks == {}


def test_both_replicas_are_written_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(FakeStore):
        def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
            meeting.wait()

    assert store(handler(Meeting("0"), Meeting("1")), "b", [1]).executors == ("0", "1")


def test_a_peer_that_fails_is_passed_over_for_another_and_no_more_than_allowed() -> None:
    own, dead, worse, alive = FakeStore("0"), FakeStore("1", fails=True), FakeStore("2", fails=True), FakeStore("3")
    assert store(handler(own, dead, alive), "b", [1]).executors == ("0", "3")
    assert store(handler(own, dead, worse, alive), "b", [1]).executors == ("0",)
    assert store(handler(own, dead, worse, alive, most_failures=2), "b", [1]).executors == ("0", "3")


def test_one_executor_alone_keeps_one_replica_and_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert store(handler(FakeStore("0")), "b", [1]).executors == ("0",)
    assert "block b has 1 replicas of 2: on 0" in caplog.text


def test_with_one_replica_asked_for_no_peer_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    peer = FakeStore("1")
    assert store(handler(FakeStore("0"), peer, replicas=1), "b", [1]).executors == ("0",)
    assert peer.asked == 0 and "replicas" not in caplog.text


def test_a_block_that_only_a_peer_took_is_stored_and_one_that_nobody_took_is_an_error() -> None:
    assert store(handler(FakeStore("0", fails=True), FakeStore("1")), "b", [1]).executors == ("1",)
    with pytest.raises(
        BlockNotStoredError, match="block b of 1 records could not be stored on any executor; the error of its own executor: executor 0"
    ):
        store(handler(FakeStore("0", fails=True), FakeStore("1", fails=True)), "b", [1])


def test_chunks_are_neither_tiny_nor_huge_and_hold_every_record_in_order() -> None:
    small = [("key", n) for n in range(50_000)]
    chunks = chunks_of(small, dumps_plain)[1]
    assert list(records_of(chunks, "b")) == small and len(chunks) < 30
    large = [bytes(1_000_000)] * 200
    sizes = [len(chunk) for chunk in chunks_of(large, dumps_plain)[1]]
    assert max(sizes[10:]) <= 1_100_000 and chunks_of([], dumps_plain) == (0, [])


# -- with a write-ahead log


class Broken(LocalFileStore):
    """A disk that takes nothing."""

    def open_to_append(self, name: str) -> Any:
        raise StorageError("the disk is full", path=name)


def logging_handler(folder: Path, own: FakeStore, store: LocalFileStore | None = None) -> WriteAheadLogBasedBlockHandler:
    log = FileBasedWriteAheadLog(store or LocalFileStore(folder), "receivedData/0", max_failures=1)
    return WriteAheadLogBasedBlockHandler(handler(own, replicas=1), log, lambda: 1000)


def read_back(folder: Path, stored: ReceivedBlockStoreResult) -> list[Any]:
    assert stored.handle is not None
    logged = FileBasedWriteAheadLog(LocalFileStore(folder), "receivedData/0").read(stored.handle)
    return list(records_of(decode_block(logged, "here"), "b"))


def test_a_block_is_in_the_log_and_in_the_store_when_it_is_stored(tmp_path: Path) -> None:
    """BH1, BH2: its handle reads the same back."""
    own = FakeStore("0")
    made = logging_handler(tmp_path, own)
    for name, count in (("a", 100), ("b", 0), ("c", 125)):
        stored = store(made, name, iter(range(count)))
        assert (stored.num_records, stored.executors) == (count, ("0",))
        assert own.records(name) == read_back(tmp_path, stored) == list(range(count))
    made.close()


def test_both_are_written_at_the_same_time(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(FakeStore):
        def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
            meeting.wait()

    class MeetingLog(FileBasedWriteAheadLog):
        def write(self, record: bytes, time_ms: int) -> FileBasedWriteAheadLogSegment:
            meeting.wait()
            return super().write(record, time_ms)

    log = MeetingLog(LocalFileStore(tmp_path), "log")
    made = WriteAheadLogBasedBlockHandler(handler(Meeting("0"), replicas=1), log, lambda: 0)
    assert store(made, "b", [1]).executors == ("0",)


def test_a_block_that_only_the_log_took_is_stored(tmp_path: Path) -> None:
    """Spark behaviour BH3."""
    stored = store(logging_handler(tmp_path, FakeStore("0", fails=True)), "b", range(70))
    assert (stored.num_records, stored.executors) == (70, ()) and read_back(tmp_path, stored) == list(range(70))


def test_a_block_that_the_log_did_not_take_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(BlockNotStoredError, match="block b of 1 records could not be written to the write-ahead log: the disk is full"):
        store(logging_handler(tmp_path, FakeStore("0"), Broken(tmp_path)), "b", [1])


def test_a_block_that_takes_too_long_is_not_stored(tmp_path: Path) -> None:
    """WL10: spark.streaming.receiver.blockStoreTimeout"""
    late = threading.Event()

    class Slow(FakeStore):
        def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
            late.wait(60)

    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log")
    made = WriteAheadLogBasedBlockHandler(handler(Slow("0"), replicas=1), log, lambda: 0, timeout_s=0.05)
    with pytest.raises(BlockNotStoredError, match=r"block b of 1 records was not stored and logged within 0.05 s"):
        store(made, "b", [1])
    late.set()


def test_a_block_that_the_store_takes_after_the_log_has_failed_does_not_stay_there(tmp_path: Path) -> None:
    """Or a source that tries again and again would fill it."""
    failed = threading.Event()

    class Later(FakeStore):
        def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
            assert failed.wait(60)
            super().put(name, chunks, how)

    own = Later("0")
    made = logging_handler(tmp_path, own, Broken(tmp_path))
    with pytest.raises(BlockNotStoredError):
        store(made, "b", [1])
    failed.set()
    made.close()
    assert own.asked == 1 and own.blocks == {}


def test_old_files_of_the_log_are_removed(tmp_path: Path) -> None:
    """Spark behaviour BH4."""
    now = iter(range(500, 100_000, 500))
    log = FileBasedWriteAheadLog(LocalFileStore(tmp_path), "log", rolling_interval_secs=1)
    made = WriteAheadLogBasedBlockHandler(handler(FakeStore("0"), replicas=1), log, lambda: next(now))
    for n in range(10):
        store(made, f"b{n}", [n])
    before = len(list((tmp_path / "log").iterdir()))
    log.clean(3000, True)
    assert 0 < len(list((tmp_path / "log").iterdir())) < before


def test_a_block_has_the_same_bytes_in_every_version() -> None:
    chunks = [b"one", b"", b"three"]
    golden = b"KBLK\1" + bytes.fromhex("0000000000000003") + b"one" + bytes(8) + bytes.fromhex("0000000000000005") + b"three"
    assert encode_block(chunks) == golden and decode_block(golden, "") == chunks
    assert encode_block([]) == b"KBLK\1" and decode_block(b"KBLK\1", "") == []


@pytest.mark.parametrize(
    "damaged", [encode_block([b"one"])[:-1], encode_block([b"one"]) + b"x", b"KBLK\1" + b"\xff" * 8, b"KBLK", b"", b"other"]
)
def test_bytes_that_are_no_block_are_told_with_their_place(damaged: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=r"the log does not hold a received block: (a chunk that begins at byte|its first bytes)"):
        decode_block(damaged, "the log")


def test_a_block_of_a_newer_kstream_is_told_so() -> None:
    with pytest.raises(FormatVersionError, match="has format version 2, this kstream reads 1: upgrade"):
        decode_block(b"KBLK\2", "the log")

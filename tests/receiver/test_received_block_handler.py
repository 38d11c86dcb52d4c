"""Blocks on two executors: which, and what happens when one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kstream.errors import BlockNotStoredError, RpcUnreachableError
from kstream.receiver.received_block_handler import BlockStoreBasedBlockHandler, pickled, unpickled


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

    def records(self, name: str) -> list[Any]:
        return list(unpickled(self.blocks[name]))


def handler(own: FakeStore, *peers: FakeStore, **options: int) -> BlockStoreBasedBlockHandler:
    return BlockStoreBasedBlockHandler(own, lambda: peers, "memory-and-disk", **options)


def test_a_block_is_on_the_receivers_own_executor_and_on_one_other() -> None:
    """BH1"""
    own, *peers = (FakeStore(str(n)) for n in range(4))
    stored = handler(own, own, *peers).store("b", iter(range(100)))
    assert (stored.num_records, stored.executors) == (100, ("0", "1"))
    assert own.records("b") == peers[0].records("b") == list(range(100))
    assert peers[1].blocks == peers[2].blocks == {}


def test_both_replicas_are_written_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(FakeStore):
        def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
            meeting.wait()

    assert handler(Meeting("0"), Meeting("1")).store("b", [1]).executors == ("0", "1")


def test_a_peer_that_fails_is_passed_over_for_another_and_no_more_than_allowed() -> None:
    own, dead, worse, alive = FakeStore("0"), FakeStore("1", fails=True), FakeStore("2", fails=True), FakeStore("3")
    assert handler(own, dead, alive).store("b", [1]).executors == ("0", "3")
    assert handler(own, dead, worse, alive).store("b", [1]).executors == ("0",)
    assert handler(own, dead, worse, alive, most_failures=2).store("b", [1]).executors == ("0", "3")


def test_one_executor_alone_keeps_one_replica_and_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert handler(FakeStore("0")).store("b", [1]).executors == ("0",)
    assert "block b has 1 replicas instead of 2: on 0" in caplog.text


def test_with_one_replica_asked_for_no_peer_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    peer = FakeStore("1")
    assert handler(FakeStore("0"), peer, replicas=1).store("b", [1]).executors == ("0",)
    assert peer.asked == 0 and "replicas" not in caplog.text


def test_a_block_that_only_a_peer_took_is_stored_and_one_that_nobody_took_is_an_error() -> None:
    assert handler(FakeStore("0", fails=True), FakeStore("1")).store("b", [1]).executors == ("1",)
    with pytest.raises(BlockNotStoredError, match="block b of 1 records could not be stored on any executor; its own said: executor 0"):
        handler(FakeStore("0", fails=True), FakeStore("1", fails=True)).store("b", [1])


def test_an_iterator_that_raises_stores_nothing() -> None:
    """BH3"""

    def records() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    own = FakeStore("0")
    with pytest.raises(ValueError, match="no more"):
        handler(own).store("b", records())
    assert own.blocks == {}


def test_chunks_are_neither_tiny_nor_huge_and_hold_every_record_in_order() -> None:
    small = [("key", n) for n in range(50_000)]
    chunks = list(pickled(small))
    assert list(unpickled(chunks)) == small and len(chunks) < 30
    large = [bytes(1_000_000)] * 200
    sizes = [len(chunk) for chunk in pickled(large)]
    assert max(sizes[10:]) <= 1_100_000 and list(pickled([])) == []

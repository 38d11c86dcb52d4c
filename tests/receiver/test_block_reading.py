"""Blocks read back: stores first, the log where no store has them (Spark behaviour WB1)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kstream.errors import BlocksLostError, RpcError, StorageError
from kstream.receiver.block_reading import BlockLocations, Replica, read_block
from kstream.receiver.block_store import BlockStore, encode_block
from kstream.receiver.block_writer import chunks_of, dumps_plain
from kstream.rpc import RpcCredentials, RpcServer
from kstream.storage import LocalFileStore
from kstream.storage.open import StorePlace
from kstream.wal import FileBasedWriteAheadLog, WriteAheadLogRecordHandle
from kstream.wal.file_based_write_ahead_log import read_segment

CREDENTIALS = RpcCredentials.new()


def from_log(place: StorePlace, handle: WriteAheadLogRecordHandle) -> bytes:
    return read_segment(place.open(), handle)


class World:
    """Two stores, and a log."""

    def __init__(self, folder: Path) -> None:
        self.stores = [BlockStore(1_000_000, folder / str(n)) for n in range(2)]
        self.servers = [RpcServer(CREDENTIALS, {}, store) for store in self.stores]
        self.replicas = tuple(Replica(str(n), "127.0.0.1", server.port) for n, server in enumerate(self.servers))
        self.log = FileBasedWriteAheadLog(LocalFileStore(folder), "receivedData/0")
        self.read_log = partial(from_log, StorePlace(str(folder)))

    def block(self, name: str, stores: tuple[int, ...], logged: bool) -> BlockLocations:
        """A block of two records that say where it is."""
        for n in stores:
            self.stores[n].put(name, chunks_of([name, f"store {n}"], dumps_plain)[1])
        handle = self.log.write(encode_block(chunks_of([name, "log"], dumps_plain)[1]), 0) if logged else None
        return BlockLocations(name, 2, self.replicas, handle, self.read_log)

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.log.close()


@pytest.fixture
def world(tmp_path: Path) -> Generator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("in_stores", [5, 3, 0])
def test_blocks_come_from_the_stores_and_the_rest_from_the_log(world: World, in_stores: int) -> None:
    """WB1: 5/0, 3/2 and 0/5."""
    places = [world.block(f"b{n}", (0,) if n < in_stores else (), logged=True) for n in range(5)]
    found = [list(read_block(place, CREDENTIALS)) for place in places]
    assert found == [[f"b{n}", "store 0" if n < in_stores else "log"] for n in range(5)]


def test_a_store_that_does_not_have_it_is_passed_over_for_one_that_has(world: World) -> None:
    assert list(read_block(world.block("b", (1,), logged=True), CREDENTIALS)) == ["b", "store 1"]


def test_stores_that_are_dead_leave_the_log(world: World) -> None:
    place = world.block("b", (0, 1), logged=True)
    for server in world.servers:
        server.close()
    assert list(read_block(place, CREDENTIALS)) == ["b", "log"]


def test_a_block_that_is_nowhere_is_lost_and_each_that_was_asked_is_named(world: World) -> None:
    with pytest.raises(BlocksLostError, match=r"block b \(2 records\) is lost: executor 0 does not have it; executor 1 does not have it"):
        read_block(world.block("b", (), logged=False), CREDENTIALS)


def test_a_block_that_was_removed_from_the_stores_is_still_in_the_log(world: World) -> None:
    """WB1: removeBlocks() leaves it readable."""
    place = world.block("b", (0,), logged=True)
    world.stores[0].remove(["b"])
    assert list(read_block(place, CREDENTIALS)) == ["b", "log"]


def test_a_log_whose_file_is_gone_says_so(world: World, tmp_path: Path) -> None:
    place = world.block("b", (), logged=True)
    for file in (tmp_path / "receivedData" / "0").iterdir():
        file.unlink()
    with pytest.raises(BlocksLostError, match=r"is lost: .*; the write-ahead log: .* is not there"):
        read_block(place, CREDENTIALS)


def test_a_block_in_a_log_whose_store_is_away_is_not_lost(world: World) -> None:
    """Where lost blocks are tolerated, a moment without the store once dropped records that were durable."""
    place, calls = world.block("b", (), logged=True), list[int]()

    def away_once(handle: WriteAheadLogRecordHandle) -> bytes:
        calls.append(1)
        if len(calls) == 1:
            raise StorageError("503 Slow Down", path="receivedData")
        return world.read_log(handle)

    place = replace(place, log=away_once)
    with pytest.raises(StorageError, match="503"):
        read_block(place, CREDENTIALS)
    assert list(read_block(place, CREDENTIALS)) == ["b", "log"]


def test_a_block_of_a_store_that_answers_with_a_failure_is_not_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    place, get = world.block("b", (0,), logged=False), BlockStore.get

    def refused(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(BlockStore, "get", refused)
    with pytest.raises(RpcError, match="Too many open files"):
        read_block(place, CREDENTIALS)
    monkeypatch.setattr(BlockStore, "get", get)
    assert list(read_block(place, CREDENTIALS)) == ["b", "store 0"]

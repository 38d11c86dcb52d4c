"""Receiver streams on Spark as users run them: a stop that works everything off, strangers on the ports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import Receiver, StreamingContext
from kstream.errors import RpcError, RpcRefusedError
from kstream.receiver import messages
from kstream.receiver.block_store import remove_blocks
from kstream.rpc import RpcClient, RpcCredentials, to_body

PATIENCE = 60.0


class Paced(Receiver):
    """Stores numbers, one every so many seconds, until it is stopped; the last ones while it is being stopped. Says how many in the end."""

    def __init__(self, pause_s: float, after_stop: int) -> None:
        super().__init__()
        self.pause_s, self.after_stop = pause_s, after_stop

    def onStart(self) -> None:
        self.stopping, self.produced = threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.one()

    def one(self) -> None:
        self.store(self.produced)
        self.produced += 1
        time.sleep(self.pause_s)

    def onStop(self) -> None:
        self.stopping.set()
        self.thread.join()
        for _ in range(self.after_stop):
            self.one()
        self.store(f"{self.produced} produced")


def wait(reached: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, "what was waited for never happened"
        time.sleep(0.02)


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[StreamingContext]:
    made = StreamingContext(sc, 0.5)
    yield made
    made.stop(stopSparkContext=False)


@pytest.mark.parametrize(("pause_s", "after_stop"), [(0.0, 0), (0.1, 15)], ids=["fast", "slow"])
def test_a_graceful_stop_works_off_all_that_was_produced(ssc: StreamingContext, pause_s: float, after_stop: int) -> None:
    """SC9, SC10: also what a slow receiver produces while it is being stopped."""
    seen: list[Any] = []
    ssc.receiverStream(Paced(pause_s, after_stop)).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    wait(lambda: len(seen) >= 10)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    *numbers, last = seen
    assert last == f"{len(numbers)} produced" and numbers == list(range(len(numbers)))


def test_a_stop_that_comes_before_the_receiver_has_registered_ends(ssc: StreamingContext) -> None:
    """Spark behaviour SC8."""
    seen: list[Any] = []
    ssc.receiverStream(Paced(0.1, 0)).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    begin = time.monotonic()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert time.monotonic() - begin < PATIENCE


def test_a_stranger_can_neither_add_a_block_nor_read_one_and_is_counted(ssc: StreamingContext) -> None:
    """On the driver's port and on a block store's: with another token, with none. An insider's message of a GiB is refused, too."""
    seen: list[Any] = []
    stream: Any = ssc.receiverStream(Paced(0.01, 0))
    stream.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    wait(lambda: len(seen) >= 10)
    received: Any = ssc._engine._received  # pyright: ignore
    [store] = received._tracker._stores.values()
    [block, *_] = received._blocks.all_blocks()
    added = to_body(stream=stream.id, id="forged", records=1, executors=["driver"], metadata=None, handle=None, stored_at=0)
    driver, blocks = (RpcClient("127.0.0.1", port, RpcCredentials.new()) for port in (received._server.port, store.port))
    attempts: list[Callable[[], Any]] = [
        lambda: driver.ask(messages.ADD_BLOCK, added),
        lambda: driver.ask(messages.NEXT_COMMAND, to_body(stream=stream.id, run=1)),
        lambda: blocks.get(block.block_id),
        lambda: blocks.put("forged", [b"x"]),
        lambda: remove_blocks(blocks, [block.block_id]),
    ]
    for attempt in attempts:
        with pytest.raises(RpcRefusedError):
            attempt()
    with socket.create_connection(("127.0.0.1", received._server.port), PATIENCE) as connection:
        connection.sendall(added)
        assert set(connection.recv(1000)) == {0}, "the refusal"
    assert received._server.refused == 3

    insider = RpcClient("127.0.0.1", received._server.port, received._reader._credentials, 240)
    with pytest.raises(RpcError, match="is refused: it can have 16777216"):
        insider.ask(messages.ADD_BLOCK, bytes(1024**3))
    before = len(seen)
    wait(lambda: len(seen) > before)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    *numbers, last = seen
    assert last == f"{len(numbers)} produced" and numbers == list(range(len(numbers))), "nothing forged, nothing gone"

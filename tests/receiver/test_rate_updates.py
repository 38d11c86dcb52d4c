"""From the driver's command about a rate to the first block that obeys it: through tracker, session, writer and receiver."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kstream_kafka.zookeeper import ReliableKafkaReceiver
from kstream_kafka.zookeeper.group_member import ReceiverParts

from kstream.receiver import Receiver, SocketReceiver, lines_of
from kstream.receiver.block_generator import BlockIds, RateLimiter
from kstream.receiver.block_reading import records_of
from kstream.receiver.block_writer import BlockWriterConfig, ReceiverBlockWriter
from kstream.receiver.messages import TrackerLink
from kstream.receiver.received_block_handler import BlockStoreBasedBlockHandler
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_tracker import ReceiverTracker, ReceiverTrackerConfig
from kstream.testing import ManualClock
from tests.kstream_kafka.zookeeper.fakes import FakeGroup, FakeReader, log, settings
from tests.receivers import InDriver

PATIENCE = 20.0
INTERVAL_MS = 200
RATE = 100
A_BLOCK = RATE * INTERVAL_MS // 1000


class Executor(InDriver):
    """An executor whose receiver has the product's writer. `blocks_at` has the size of each block with its moment."""

    executor_id = "driver"

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.changed = threading.Condition()
        self.blocks_at: list[tuple[int, int]] = []
        self.limited = threading.Event()

    def sink(self, link: TrackerLink, stream_id: int) -> tuple[Any, Any]:
        handler = BlockStoreBasedBlockHandler(self, list, "memory", replicas=1)
        sizes = BlockWriterConfig(INTERVAL_MS, 10)
        clock = self.clock
        writer = ReceiverBlockWriter(handler, link.add_block, link.report, BlockIds(stream_id), clock, sizes, RateLimiter(clock))
        update = writer.update_rate
        writer.update_rate = lambda rate: (update(rate), self.limited.set())[0]  # type: ignore[method-assign]
        writer.open()
        return writer, writer

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        """Store a block, as a BlockStoreClient."""
        with self.changed:
            self.blocks_at.append((self.clock.time_ms(), sum(1 for _ in records_of(chunks, name))))
            self.changed.notify_all()

    def wait_stored(self, blocks: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.blocks_at) >= blocks, PATIENCE), self.blocks_at


@contextmanager
def running(receiver: Receiver, clock: ManualClock) -> Generator[tuple[ReceiverTracker, Executor]]:
    executor = Executor(clock)
    blocks = ReceivedBlockTracker([0], clock)
    tracker = ReceiverTracker({0: receiver}, executor, blocks, clock, config=ReceiverTrackerConfig(restart_delay_ms=0))
    executor.tracker = tracker
    tracker.start()
    yield tracker, executor
    stopping = threading.Thread(target=tracker.stop, args=(PATIENCE,), daemon=True)
    stopping.start()
    while stopping.is_alive():
        clock.advance(20)
        stopping.join(0.001)


def obeys(tracker: ReceiverTracker, executor: Executor, phase_ms: int, flood: Callable[[], None], timers: int) -> None:
    """Command a rate so many ms after a tick, let more records come than it permits, and check the blocks of the next three intervals."""
    clock: Any = executor.clock
    clock.advance(phase_ms)
    sent, before = clock.time_ms(), len(executor.blocks_at)
    tracker.send_rate_update(0, RATE)
    assert executor.limited.wait(PATIENCE)
    flood()
    ticks = range(INTERVAL_MS - phase_ms, 3 * INTERVAL_MS, INTERVAL_MS)
    for passed in range(10, 3 * INTERVAL_MS + 10, 10):
        clock.wait_for_waiters(timers + 1)  # the receiver waits for a permit
        clock.advance(10)
        executor.wait_stored(before + sum(1 for tick in ticks if tick <= passed))
    found = [(at - sent, size) for at, size in executor.blocks_at[before:]]
    assert found[0][0] <= INTERVAL_MS and found[0][1] > 0, found
    assert all(size <= A_BLOCK + 2 for _, size in found), found
    assert sum(size for _, size in found) >= 2 * A_BLOCK, found


@pytest.mark.parametrize("phase_ms", [10, 100, 190])
def test_a_socket_receiver_obeys_a_rate_within_a_block_interval(phase_ms: int) -> None:
    clock = ManualClock(1000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        with running(SocketReceiver("127.0.0.1", server.getsockname()[1], lines_of), clock) as (tracker, executor):
            connection, _ = server.accept()
            connection.sendall(b"line\n")
            clock.wait_for_waiters()
            while not executor.blocks_at:  # the line may come after a tick
                clock.advance(INTERVAL_MS)
            obeys(tracker, executor, phase_ms, lambda: connection.sendall(b"line\n" * 5000), timers=1)
            connection.close()


class WaitingReader(FakeReader):
    """Its second read waits for the broker, until the test lets the records come."""

    def __init__(self) -> None:
        super().__init__(log(2, 5))
        self.waits, self.go_on = threading.Event(), threading.Event()

    def read(self, most: int) -> Any:
        if self.reads == 1:
            self.waits.set()
            assert self.go_on.wait(PATIENCE)
            self.logs.update(log(2, 100_000))
        return super().read(most)


@pytest.mark.parametrize("phase_ms", [10, 100, 190])
def test_a_kafka_receiver_obeys_a_rate_within_a_block_interval_though_it_came_during_a_read(phase_ms: int) -> None:
    clock, reader, group = ManualClock(1000), WaitingReader(), FakeGroup()
    receiver = ReliableKafkaReceiver(settings(), None, ReceiverParts(group.join, lambda _settings: reader, lambda: clock))
    with running(receiver, clock) as (tracker, executor):
        assert reader.waits.wait(PATIENCE)
        clock.wait_for_waiters(2)  # the timers of two generators: that of single records has none
        clock.advance(INTERVAL_MS)
        executor.wait_stored(1)
        obeys(tracker, executor, phase_ms, reader.go_on.set, timers=2)

"""Receiver streams on the engine of `tests.harness`, without a JVM: a receiver that stores what the test says, and drivers that die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kstream.batch_time import Seconds
from kstream.dstream import DStream, ReceiverInputDStream
from kstream.dstream.received_blocks import NoReceivedBlocks
from kstream.receiver import Receiver
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from kstream.wal import FileBasedWriteAheadLog
from tests.fakes import FakeHost
from tests.harness import PATIENCE, Driver, World


class WaitingBlocks(NoReceivedBlocks):
    """These wait."""

    def __init__(self, blocks: Sequence[ReceivedBlockInfo]) -> None:
        self.blocks = blocks

    def unallocated(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        return self.blocks


class Quiet(Receiver):
    """Starts nothing: the test stores."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.on_stop: Callable[[], object] = lambda: None

    def onStart(self) -> None:
        self.started.set()

    def onStop(self) -> None:
        self.on_stop()


class ReceiverDriver(Driver):
    """A driver whose only output is a receiver stream, or `over` of it."""

    def __init__(
        self, world: World, conf: dict[str, str] | None = None, *, receiver: Receiver | None = None,
        over: Callable[[DStream], DStream] = lambda stream: stream, logged: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        """`logged`: its receiver writes a write-ahead log, into the store of the checkpoint."""
        self.receiver = receiver or Quiet()

        def build(host: FakeHost, driver: Driver) -> None:
            self.received = ReceiverInputDStream(host, self.receiver)
            driver.output(over(self.received))

        log = FileBasedWriteAheadLog(world.store, "receivedData/1") if logged else None
        super().__init__(world, conf, build=build, receiver_log=log, **options)

    def waiting(self) -> Sequence[ReceivedBlockInfo]:
        return self.received.services.received_blocks.unallocated(self.received.id)

    def start(self) -> ReceiverDriver:
        super().start()
        if isinstance(self.receiver, Quiet):
            assert self.receiver.started.wait(PATIENCE)
        return self


def records(world: World) -> list[list[Any]]:
    return [list(attempt.records) for attempt in world.attempts]


def together(world: World) -> list[Any]:
    return [record for attempt in world.attempts for record in attempt.records]


def windowed(stream: DStream) -> DStream:
    """Three batches at a time."""
    return stream.map(lambda x: x).window(Seconds(3), Seconds(1))


def killed_with_a_pending_batch(
    world: World, over: Callable[[DStream], DStream] = lambda stream: stream, *, logged: bool = False, meanwhile: Sequence[Any] = ()
) -> int:
    """A driver that received 1, then 2 and 3, and died before the batch of these had ended; the time of that batch.

    `meanwhile`: a block that is stored while that batch runs.
    """
    driver = ReceiverDriver(world, over=over, logged=logged).start()
    driver.receiver.store(1)
    driver.tick()

    def die(_time: int) -> None:
        if meanwhile:
            driver.receiver.storeAll(meanwhile)
        driver.die()
        driver.check_alive()

    driver.before_job = die
    driver.receiver.storeAll([2, 3])
    time = driver.tick_only()
    world.wait(lambda: not driver.alive)
    driver.kill()
    return time

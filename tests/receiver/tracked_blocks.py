"""A driver that tracks received blocks with a log that may fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from kstream.loop import THREADS, Runtime
from kstream.receiver.received_block_tracker import (
    ReceivedBlockEvent,
    ReceivedBlockInfo,
    ReceivedBlockTracker,
    from_bytes,
)
from kstream.testing import ManualClock

STREAM = 1


class ListLog:
    """A log in memory that rolls each second: `files` by the second in which they begin."""

    def __init__(self) -> None:
        self.files: dict[int, list[bytes]] = {}
        self.cleaned: list[tuple[int, bool]] = []
        self.broken: Callable[[bytes], bool] = lambda record: False
        self.writes_before_it_breaks = False

    def write(self, record: bytes, time_ms: int) -> None:
        if not self.broken(record) or self.writes_before_it_breaks:
            self.files.setdefault(time_ms // 1000, []).append(record)
        if self.broken(record):
            raise OSError("disk full")

    def readAll(self) -> list[bytes]:
        return [record for second in sorted(self.files) for record in self.files[second]]

    def clean(self, threshold_ms: int, wait: bool) -> None:
        self.cleaned.append((threshold_ms, wait))
        for second in [second for second in self.files if (second + 1) * 1000 < threshold_ms]:
            del self.files[second]

    def close(self) -> None: ...

    def events(self) -> list[ReceivedBlockEvent]:
        return [from_bytes(record, "the list") for record in self.readAll()]


class Driver:
    """A tracker on a log that outlives it."""

    def __init__(
        self, log: ListLog | None = None, now: int = 0, streams: tuple[int, ...] = (STREAM,), epoch: int = 0, runtime: Runtime = THREADS
    ) -> None:
        self.log = ListLog() if log is None else log
        self.clock = ManualClock(now)
        self.streams = streams
        self.epoch = epoch
        self.tracker = ReceivedBlockTracker(streams, self.clock, self.log, epoch, runtime)

    def again(self, planned: Collection[str] = (), streams: tuple[int, ...] | None = None, **options: Any) -> Driver:
        """This driver dies, and the next one starts, with these blocks in the plans that are stored."""
        successor = Driver(self.log, self.clock.time_ms(), streams or self.streams, self.epoch + 1)
        successor.tracker.recover(planned, **options)
        return successor

    def add(self, *names: str, stream: int = STREAM) -> list[ReceivedBlockInfo]:
        blocks = [ReceivedBlockInfo(stream, name, 10) for name in names]
        assert all(self.tracker.add_block(block) for block in blocks)
        return blocks

    def waiting(self, stream: int = STREAM) -> list[str]:
        return ids(self.tracker.get_unallocated_blocks(stream))

    def take(self, *names: str) -> None:
        self.tracker.allocate_blocks_to_batch(STREAM, names)


def ids(blocks: Iterable[ReceivedBlockInfo]) -> list[str]:
    return [block.block_id for block in blocks]


def breaks(kind: str) -> Callable[[bytes], bool]:
    return lambda record: f'"kind":"{kind}"'.encode() in record

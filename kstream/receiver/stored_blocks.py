"""StoredBlocks: what a receiver on an executor stores – cut into blocks, kept by a handler, told to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kstream.clock import Clock
from kstream.errors import BlockNotStoredError
from kstream.loop import THREADS, Runtime
from kstream.receiver.block_generator import BlockGenerator, BlockIds
from kstream.receiver.rate_limiter import RateLimiter
from kstream.receiver.received_block_handler import ReceivedBlockHandler, StoredBlock

AddBlock = Callable[[str, StoredBlock], bool]
"""Tells the driver of a block, and whether it has taken it. Blocks."""


class StoredBlocks:
    """What a supervisor needs to store for its receiver: the place that `ReceivedBlocks` has where the receiver runs in the driver.

    Records come one by one into the generator's blocks (`add`), or as a block of their own (`add_all`), which is acknowledged: it is
    kept, and the driver knows it, when that returns. `on_error` hears of blocks of the generator that could not be kept.
    """

    def __init__(
        self, handler: ReceivedBlockHandler, add_block: AddBlock, on_error: Callable[[str, BaseException], None], ids: BlockIds,
        clock: Clock, interval_ms: int, queue_size: int, limiter: RateLimiter | None = None, runtime: Runtime = THREADS,
    ) -> None:  # fmt: skip
        self._handler = handler
        self._add_block = add_block
        self._on_error = on_error
        self._ids = ids
        self._generator = BlockGenerator(self, ids, clock, interval_ms, queue_size, limiter, runtime)

    def open(self) -> None:
        self._generator.start()

    def add(self, record: Any) -> None:
        """Returns when it is in a block that is not closed yet; waits for the rate. IllegalStateError before `open` and after `close`."""
        self._generator.addData(record)

    def add_all(self, records: Iterable[Any]) -> None:
        """BlockNotStoredError: they are not acknowledged."""
        self.onPushBlock(self._ids.next(), records)

    def update_rate(self, records_a_second: int) -> None:
        self._generator.updateRate(records_a_second)

    def close(self) -> None:
        """Returns when what was added is kept, or was told to be lost."""
        self._generator.stop()

    # -- for the generator (BlockGeneratorListener)

    def onAddData(self, data: Any, metadata: Any) -> None: ...
    def onGenerateBlock(self, blockId: str) -> None: ...

    def onPushBlock(self, blockId: str, arrayBuffer: Iterable[Any]) -> None:
        stored = self._handler.store(blockId, arrayBuffer)
        if not self._add_block(blockId, stored):
            raise BlockNotStoredError(
                f"the driver refused block {blockId} of {stored.num_records} records: its log failed, or the stream is no more",
                block=blockId, size=0, free=0,
            )  # fmt: skip

    def onError(self, message: str, throwable: BaseException) -> None:
        self._on_error(message, throwable)

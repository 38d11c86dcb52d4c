"""ReceivedBlocks: the received blocks of a running context, as receiver streams plan, read and release them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kstream.batch_time import Time
from kstream.errors import IllegalStateError, RpcError, RpcUnreachableError
from kstream.receiver.block_reading import BlockLocations, ReadRecord, Replica
from kstream.receiver.received_block_tracker import ReceivedBlockInfo, ReceivedBlockTracker
from kstream.receiver.receiver_tracker import ReceiverTracker
from kstream.rpc import RpcServer

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


class BlockReader(Protocol):
    """Reads blocks in tasks, and removes them from stores (`kstream.spark.receivers`)."""

    def rdd(self, blocks: Sequence[BlockLocations], tolerant: bool, /) -> RDD[Any]:
        """As `ReceivedBlocks.rdd`."""
        ...

    def lost(self) -> Mapping[str, str]:
        """As `ReceivedBlocks.lost`. `forget` removes entries, nothing else does."""
        ...

    def forget(self, block_ids: Iterable[str], /) -> None: ...
    def remove(self, store: Replica, block_ids: Sequence[str], /) -> None:
        """Remove blocks from a store. Blocks. RpcError."""
        ...

    def end(self, store: Replica, /) -> None:
        """End a store with all its blocks. Blocks. RpcError."""
        ...

    def close(self) -> None: ...


class ReceivedBlocks:
    """The blocks and receivers of one start of a context.

    Threads: the generator's thread plans, reads and releases; `lost` is called by any thread; `clean_up` by one thread of its own; the
    rest by the engine. `_lock` guards `_released`.
    """

    def __init__(
        self,
        tracker: ReceiverTracker,
        blocks: ReceivedBlockTracker,
        reader: BlockReader,
        log: ReadRecord | None = None,
        server: RpcServer | None = None,
    ) -> None:
        """
        Args:
            log: Reads a record of a receiver's write-ahead log, in any worker; None if receivers write none.
            server: The driver's port, which `close` closes.
        """
        self._tracker = tracker
        self._blocks = blocks
        self._reader = reader
        self._log = log
        self._server = server
        self._lock = threading.Lock()
        self._ending = False
        self._released: list[ReceivedBlockInfo] = []
        """Blocks that this driver does not need and stores still have."""

    # -- for the engine

    def recover(self, planned: Collection[str], streams_now: Callable[[int, int], int | None]) -> None:
        """Read the log of earlier drivers before `start`, as `ReceivedBlockTracker.recover` does."""
        self._blocks.recover(planned, streams_now)

    def start(self) -> None:
        """Run the receivers. Returns at once."""
        self._tracker.start()

    def stop(self, timeout: float) -> None:
        """Stop the receivers, which may store until then. Blocks for `timeout` seconds at most."""
        self._tracker.stop(timeout)
        self._ending = True

    def has_unallocated_blocks(self) -> bool:
        return self._blocks.has_unallocated_blocks

    def waiting_blocks(self) -> int:
        """The number of blocks that no batch has."""
        return sum(len(self._blocks.get_unallocated_blocks(stream)) for stream in self._blocks.stream_ids)

    def close(self) -> None:
        """Close the driver's port and end the stores, though their executors may live on. Nothing can be read any more."""
        if self._server is not None:
            self._server.close()
        for store in self._tracker.stores():
            try:
                self._reader.end(store)
            except RpcError as e:  # dead with its executor, or soon to be
                logger.debug("the block store of executor %s did not get the order to end: %s", store.executor_id, e)
        self._reader.close()
        self._blocks.close()

    def clean_up(self, up_to: Time) -> None:
        """Remove released blocks from the stores, and blocks of plans of this time and older from the logs. Blocks.

        The plans may be removed after this. If the driver's log raises, so does this; errors of stores are logged, since the blocks of a
        store die with its executor.
        """
        self._blocks.cleanup_old_batches(up_to)
        with self._lock:
            released, self._released = self._released, []
        self._reader.forget(block.block_id for block in released)
        stores, again = self._tracker.by_store(released)
        for store, block_ids in stores.items() if not self._ending else ():  # the blocks end with their stores
            try:
                self._reader.remove(store, block_ids)
            except RpcUnreachableError as e:
                logger.warning("the block store of executor %s does not answer; its blocks are removed later: %s", store.executor_id, e)
                self._tracker.doubt_store(store)
                again.update(block_ids)
            except Exception as e:
                logger.warning("%d blocks that are not needed any more stay on executor %s: %s", len(block_ids), store.executor_id, e)
        with self._lock:
            self._released += [block for block in released if block.block_id in again]
        if self._log is not None:
            for stream in self._blocks.stream_ids:
                self._tracker.clean_up(stream, up_to.milliseconds)

    # -- for streams

    def unallocated(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        """The blocks that no batch has, in the order of arrival."""
        return self._blocks.get_unallocated_blocks(stream_id)

    def allocate(self, stream_id: int, block_ids: Iterable[str]) -> None:
        """Allocate these blocks: a plan that names them is durable."""
        self._blocks.allocate_blocks_to_batch(stream_id, block_ids)

    def locations(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockLocations]:
        """Where the blocks can be read now, as far as the driver knows."""
        return [self._locate(self._blocks.get(block.block_id) or block) for block in blocks]

    def rdd(self, blocks: Sequence[BlockLocations], tolerant: bool) -> RDD[Any]:
        """Make an RDD of the blocks: one partition a block, in order.

        Args:
            tolerant: A block that nobody has is an empty partition, and an entry of `lost`; else its task fails.
        """
        return self._reader.rdd(blocks, tolerant)

    def lost(self) -> Mapping[str, str]:
        """The blocks that tolerant tasks did not find: block id → who was asked. Any thread."""
        return self._reader.lost()

    def release(self, time: Time, block_ids: Iterable[str]) -> None:
        """Release blocks of the plan of this time: no batch and no window of this driver needs them."""
        released = self._blocks.release(time, block_ids)
        with self._lock:
            self._released.extend(released)

    def _locate(self, block: ReceivedBlockInfo) -> BlockLocations:
        handle = block.handle if self._log is not None else None
        return BlockLocations(block.block_id, block.num_records, self._tracker.replicas(block), handle, self._log)


class NoReceivedBlocks:
    """No blocks: before the start, and in a replay, which receives nothing."""

    def unallocated(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        return ()

    def allocate(self, stream_id: int, block_ids: Iterable[str]) -> None: ...

    def locations(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockLocations]:
        return [BlockLocations(block.block_id, block.num_records, ()) for block in blocks]

    def rdd(self, blocks: Sequence[BlockLocations], tolerant: bool) -> RDD[Any]:
        raise IllegalStateError("nothing is received before the context has been started", state="initialized")

    def lost(self) -> Mapping[str, str]:
        return {}

    def release(self, time: Time, block_ids: Iterable[str]) -> None: ...

"""ReceivedBlocks: the received blocks of a running context. Receiver streams plan, read and release blocks through it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.errors import IllegalStateError, ReceiverNotStartedError, RpcError, RpcUnreachableError
from kstream.receiver.block_reading import BlockLocations, ReadRecord, Replica
from kstream.receiver.received_block_tracker import ReceivedBlockInfo, ReceivedBlockTracker
from kstream.receiver.receiver_tracker import ReceiverTracker
from kstream.rpc import RpcServer

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


class BlockReader(Protocol):
    """Reads blocks in tasks, and removes blocks from stores. On the driver, any thread. Implemented in `kstream.spark.receivers`."""

    def rdd(self, blocks: Sequence[BlockLocations], tolerate_loss: bool, /) -> RDD[Any]:
        """Make an RDD of the blocks; see `ReceivedBlocks.rdd`."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Return the blocks that tasks that tolerate losses did not find; see `ReceivedBlocks.lost`. Only `forget` removes entries."""
        ...

    def forget(self, block_ids: Iterable[str], /) -> None:
        """Remove the entries of these blocks from `lost`."""
        ...

    def remove(self, store: Replica, block_ids: Sequence[str], /) -> None:
        """Remove blocks from a store. Blocks for the request. RpcError if it fails."""
        ...

    def end(self, store: Replica, /) -> None:
        """End a store and all its blocks. Blocks for the request. RpcError if it fails."""
        ...

    def close(self) -> None:
        """Close the connections to the stores."""
        ...


class ReceivedBlocks:
    """The blocks and receivers of one start of a context.

    Threads: the JobGenerator's thread plans, reads and releases; a user's thread may read (by `slice`); any thread calls `lost`; the
    cleaner's thread calls `clean_up`; the thread that starts or stops the context calls the rest. `_lock` guards `_released`.
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
            tracker: runs the receivers and knows the stores.
            blocks: the records of the received blocks.
            reader: reads and removes blocks.
            log: reads a record of a receiver's write-ahead log, in any worker; None if receivers write no log.
            server: the server on the driver's port, which `close` closes.
        """
        self._tracker = tracker
        self._blocks = blocks
        self._reader = reader
        self._log = log
        self._server = server
        self._lock = threading.Lock()
        self._ending = False
        self._released: list[ReceivedBlockInfo] = []
        """Blocks that this driver no longer needs and that stores still have."""

    # -- for the engine

    def recover(self, planned: Collection[str], streams_now: Callable[[int, int], int | None]) -> None:
        """Read the log of earlier drivers. Called before `start`; see `ReceivedBlockTracker.recover`. Blocks on the store.

        Args:
            planned: the ids of the blocks in all stored plans.
            streams_now: (epoch, stream id) → the id that the stream has now; None if the job no longer has the stream.
        """
        self._blocks.recover(planned, streams_now)

    def start(self, failed: Callable[[ReceiverNotStartedError], None] = lambda _error: None) -> None:
        """Start the receivers. Returns at once. `failed` is called when one has failed to start too often, on any thread."""
        self._tracker.start(failed)

    def stop(self, timeout: float) -> None:
        """Stop the receivers; until they end they may store blocks. Blocks for `timeout` seconds at most."""
        self._tracker.stop(timeout)
        self._ending = True

    def receivers_on_executors(self) -> Mapping[str, int]:
        """Return how many receivers run on an executor, or may start there, by executor id. Any thread."""
        return self._tracker.receivers_on_executors()

    def has_unallocated_blocks(self) -> bool:
        """Return whether a block is stored that no batch has."""
        return self._blocks.has_unallocated_blocks

    def waiting_blocks(self) -> int:
        """Return the number of blocks that no batch has."""
        return sum(len(self._blocks.get_unallocated_blocks(stream)) for stream in self._blocks.stream_ids)

    def close(self) -> None:
        """Close the driver's port, end all block stores (their executors may continue) and close the log. Blocks on the stores.

        No block can be read after this. A store that cannot be ended is only logged.
        """
        if self._server is not None:
            self._server.close()
        for store in self._tracker.stores():
            try:
                self._reader.end(store)
            except RpcError as e:  # dead with its executor, or soon to be
                logger.debug("the block store of executor %s did not get the command to end: %s", store.executor_id, e)
        self._reader.close()
        self._blocks.close()

    def clean_up(self, required: RequiredBatches) -> None:
        """Remove released blocks from the stores, and those of batches that are not required from the logs. Blocks on the network.

        The plans of these batches may be removed after this. An error of the driver's log is raised. Errors of block stores are only
        logged, because the blocks of a store die with its executor. A store that does not answer is asked again by the next call.

        Args:
            required: the batches whose plans stay.
        """
        self._blocks.cleanup_old_batches(required)
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
                self._tracker.clean_up(stream, required.line.milliseconds)

    # -- for streams

    def unallocated(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        """Return the blocks of a stream that no batch has, in the order of arrival."""
        return self._blocks.get_unallocated_blocks(stream_id)

    def allocate(self, stream_id: int, block_ids: Iterable[str]) -> None:
        """Mark these blocks as allocated. Called when a plan that names them is durable."""
        self._blocks.allocate_blocks_to_batch(stream_id, block_ids)

    def update_rate(self, stream_id: int, records_a_second: int) -> None:
        """Tell the receiver of a stream its rate; a later run of the receiver gets it, too. Any thread; returns at once."""
        self._tracker.send_rate_update(stream_id, records_a_second)

    def locations(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockLocations]:
        """Return where each block can be read now, as far as the driver knows. The result has the order of `blocks`."""
        return [self._locate(self._blocks.get(block.block_id) or block) for block in blocks]

    def rdd(self, blocks: Sequence[BlockLocations], tolerate_loss: bool) -> RDD[Any]:
        """Make an RDD of the blocks: one partition a block, in their order. The blocks are read in the tasks.

        Args:
            blocks: the blocks, with their locations.
            tolerate_loss: if a block is not found, True makes an empty partition and an entry in `lost`; False fails the task.
        """
        return self._reader.rdd(blocks, tolerate_loss)

    def lost(self) -> Mapping[str, str]:
        """Return the blocks that tasks with `tolerate_loss` did not find: block id → a message with the asked places. Any thread."""
        return self._reader.lost()

    def release(self, time: Time, block_ids: Iterable[str]) -> None:
        """Release blocks of the plan of this time: no batch and no window of this driver needs them. `clean_up` removes them later."""
        released = self._blocks.release(time, block_ids)
        with self._lock:
            self._released.extend(released)

    def _locate(self, block: ReceivedBlockInfo) -> BlockLocations:
        """Return a block with its replicas on the known stores, and with its place in the receiver's log if receivers write one."""
        handle = block.handle if self._log is not None else None
        return BlockLocations(block.block_id, block.num_records, self._tracker.replicas(block), handle, self._log)


class NoReceivedBlocks:
    """ReceivedBlocks without any block: before the start, and in a replay. `rdd` raises IllegalStateError."""

    def unallocated(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        return ()

    def allocate(self, stream_id: int, block_ids: Iterable[str]) -> None: ...

    def update_rate(self, stream_id: int, records_a_second: int) -> None: ...

    def locations(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockLocations]:
        return [BlockLocations(block.block_id, block.num_records, ()) for block in blocks]

    def rdd(self, blocks: Sequence[BlockLocations], tolerate_loss: bool) -> RDD[Any]:
        raise IllegalStateError("nothing is received before the context has been started", state="initialized")

    def lost(self) -> Mapping[str, str]:
        return {}

    def release(self, time: Time, block_ids: Iterable[str]) -> None: ...

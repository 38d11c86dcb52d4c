"""ReceivedInput: what receivers have stored, as streams plan it, read it and let go of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kstream.batch_time import Time
from kstream.errors import RpcError, RpcUnreachableError
from kstream.receiver.block_reading import BlockPlace, Replica
from kstream.receiver.received_block_events import ReceivedBlockInfo
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_logs import ReadRecord
from kstream.scheduler.receiver_tracker import ReceiverTracker

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)


class BlockReader(Protocol):
    """Reads blocks in tasks, and removes them from stores."""

    def rdd(self, places: Sequence[BlockPlace], tolerant: bool, /) -> RDD[Any]:
        """One partition a block, in order. `tolerant`: a block that nobody has is noted, and empty."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Blocks that tolerant tasks did not find: name → who was asked. Only grows, but for what `forget` is told."""
        ...

    def forget(self, names: Iterable[str], /) -> None: ...
    def remove(self, store: Replica, names: Sequence[str], /) -> None:
        """Blocks. RpcError."""
        ...

    def end(self, store: Replica, /) -> None:
        """Ends a store with all that it has. Blocks. RpcError."""
        ...

    def close(self) -> None: ...


class ReceivedInput:
    """Of one start of a context. Streams call it on the generator's thread, but for `lost`; `clean_up` has a thread of its own."""

    def __init__(self, tracker: ReceiverTracker, blocks: ReceivedBlockTracker, reader: BlockReader, log: ReadRecord | None = None) -> None:
        """`log` reads a record of a receiver's write-ahead log, in any worker; None where receivers write none."""
        self._tracker = tracker
        self._blocks = blocks
        self._reader = reader
        self._log = log
        self._lock = threading.Lock()
        self._ending = False
        self._released: list[ReceivedBlockInfo] = []
        """Not needed by this driver any more, and in block stores still."""

    # -- for the engine

    def recover(self, planned: Collection[str], streams_now: Callable[[int, int], int | None]) -> None:
        """Before `start`; see ReceivedBlockTracker."""
        self._blocks.recover(planned, streams_now)

    def start(self) -> None:
        """Run the receivers. Blocks until there are cores for them and for batches; raises as `ReceiverTracker.start`."""
        self._tracker.start()

    def stop(self, timeout: float) -> None:
        """Ends the receivers, which may store until then. Blocks for `timeout` seconds at most."""
        self._tracker.stop(timeout)
        self._ending = True

    def has_unallocated_blocks(self) -> bool:
        return self._blocks.has_unallocated_blocks

    def waiting_blocks(self) -> int:
        """How many wait for a batch."""
        return sum(len(self._blocks.get_unallocated_blocks(stream)) for stream in self._blocks.stream_ids)

    def close(self) -> None:
        """Nothing can be read any more: the stores end, though their executors may live on."""
        for store in self._tracker.stores():
            try:
                self._reader.end(store)
            except RpcError as e:  # dead with its executor, or soon to be
                logger.debug("the block store of executor %s was not told to end: %s", store.executor_id, e)
        self._reader.close()
        self._blocks.close()

    def clean_up(self, up_to: Time) -> None:
        """Removes from the stores what streams have forgotten, and from the logs what is of plans of this time and older. Those may go.

        Blocks. What the driver's log raises is raised, what stores raise is logged: what an executor keeps dies with it.
        """
        self._blocks.cleanup_old_batches(up_to)
        with self._lock:
            released, self._released = self._released, []
        self._reader.forget(block.block_id for block in released)
        stores, again = self._tracker.by_store(released)
        for store, names in stores.items() if not self._ending else ():  # they end with it
            try:
                self._reader.remove(store, names)
            except RpcUnreachableError as e:
                logger.warning("the block store of executor %s does not answer, and is asked again: %s", store.executor_id, e)
                self._tracker.doubt_store(store)
                again.update(names)
            except Exception as e:
                logger.warning("%d blocks that are not needed any more stay on executor %s: %s", len(names), store.executor_id, e)
        with self._lock:
            self._released += [block for block in released if block.block_id in again]
        if self._log is not None:
            for stream in self._blocks.stream_ids:
                self._tracker.clean_up(stream, up_to.milliseconds)

    # -- for streams (dstream.ports.ReceivedBlocks)

    def waiting(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        return self._blocks.get_unallocated_blocks(stream_id)

    def allocate(self, stream_id: int, names: Iterable[str]) -> None:
        self._blocks.allocate_blocks_to_batch(stream_id, names)

    def places(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockPlace]:
        return [self._place(self._blocks.get(block.block_id) or block) for block in blocks]

    def rdd(self, places: Sequence[BlockPlace], tolerant: bool) -> RDD[Any]:
        return self._reader.rdd(places, tolerant)

    def lost(self) -> Mapping[str, str]:
        return self._reader.lost()

    def forget(self, time: Time, names: Iterable[str]) -> None:
        forgotten = self._blocks.forget(time, names)
        with self._lock:
            self._released.extend(forgotten)

    def _place(self, block: ReceivedBlockInfo) -> BlockPlace:
        handle = block.handle if self._log is not None else None
        return BlockPlace(block.block_id, block.num_records, self._tracker.replicas(block), handle, self._log)

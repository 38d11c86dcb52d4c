"""ReceivedBlockHandler: stores a receiver's blocks, in block stores and in a write-ahead log (Spark's `ReceivedBlockHandler.scala`).

There are two. One stores a block on two executors, so that one of them may die. The other stores it in a write-ahead log and on one
executor.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from time import monotonic

from kstream.errors import BlockNotStoredError, RpcError
from kstream.receiver.block_store import BlockStoreClient, encode_block
from kstream.receiver.settings import BLOCK_STORE_TIMEOUT
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceivedBlockStoreResult:
    """The places in which a handler has stored a block."""

    num_records: int | None
    """None if nobody has counted them."""
    executors: tuple[str, ...]
    """Ids of the executors that have the block, the receiver's own first."""
    handle: WriteAheadLogRecordHandle | None = None
    """The block's handle in the receiver's write-ahead log; None without a log."""
    stored_at: int = 0
    """The time in ms that was given to the log with the block; 0 without a log."""


class ReceivedBlockHandler(ABC):
    """A handler that stores blocks. The thread that pushes blocks calls it, and threads of the receiver do."""

    @abstractmethod
    def store(self, block_id: str, count: int | None, chunks: Sequence[bytes]) -> ReceivedBlockStoreResult:
        """Store a block. Block until it is as safe as the handler promises.

        Args:
            block_id: The id of the block.
            count: The number of its records; None if nobody has counted them.
            chunks: Pickled lists of records.

        Raises:
            BlockNotStoredError: the block is not stored; a copy that remains somewhere does not count.
        """

    @abstractmethod
    def discard(self, block_id: str) -> None:
        """Remove a block that will be in no batch from the stores. A store that does not answer may keep it. Blocks."""

    @abstractmethod
    def clean(self, threshold_ms: int) -> None:
        """Remove the blocks that were stored before this time (ms) from the log. No batch needs them any more."""

    @abstractmethod
    def close(self) -> None:
        """Wait for work that is under way, and end the handler's threads and its log."""


class BlockStoreBasedBlockHandler(ReceivedBlockHandler):
    """A handler that stores a block on several executors at once: the receiver's own, and the first of its peers that take the block.

    If the receiver's own executor does not take the block, one more peer gets it. After a failed peer the next one is tried. A block with
    fewer replicas than wanted counts as stored, with a warning whenever their number changes. A block without a replica is not stored.
    """

    def __init__(
        self,
        own: BlockStoreClient,
        peers: Callable[[], Sequence[BlockStoreClient]],
        level: str,
        replicas: int = 2,
        most_failures: int = 1,
    ) -> None:
        """Make a handler.

        Args:
            own: The store of the receiver's executor.
            peers: Returns the stores of the executors, in the order in which they are tried. The receiver's own executor is left out.
            level: The value of the Level at which stores keep the block.
            replicas: How many executors should have a block.
            most_failures: `spark.storage.maxReplicationFailures`: no further peer is tried for a block after more failures.
        """
        self._own = own
        self._peers = peers
        self._level = level
        self._replicas = replicas
        self._most_failures = most_failures
        self._logged_replicas = replicas
        self._copying = ThreadPoolExecutor(1, "BlockReplication")

    def store(self, block_id: str, count: int | None, chunks: Sequence[bytes]) -> ReceivedBlockStoreResult:
        """Store a block on as many executors as wanted, or as take it. BlockNotStoredError if no executor takes it. Blocks."""
        peers = [peer for peer in self._peers() if peer.executor_id != self._own.executor_id]
        copying: Future[list[str]] | None = None
        if self._replicas > 1:
            copying = self._copying.submit(self._copy, block_id, chunks, peers, self._replicas - 1)
        error = self._put(self._own, block_id, chunks)
        copied = copying.result() if copying is not None else []
        if error is not None:  # one more peer replaces the receiver's own executor
            copied += self._copy(block_id, chunks, [peer for peer in peers if peer.executor_id not in copied], 1)
        executors = [*([self._own.executor_id] if error is None else []), *copied]
        if not executors:
            raise _not_stored(f"could not be stored on any executor; the error of its own executor: {error}", block_id, count, chunks)
        if len(executors) != self._logged_replicas:
            self._logged_replicas = len(executors)  # one line for each change, not for each block
            logger.warning("block %s has %d replicas of %d: on %s", block_id, len(executors), self._replicas, ", ".join(executors))
        return ReceivedBlockStoreResult(count, tuple(executors))

    def discard(self, block_id: str) -> None:
        for store in (self._own, *self._peers()):
            try:
                store.remove(block_id)
            except RpcError as e:  # the block dies with the executor
                logger.debug("block %s may still be on executor %s: %s", block_id, store.executor_id, e)

    def clean(self, threshold_ms: int) -> None:
        """Do nothing: the driver removes blocks from stores by their ids."""

    def close(self) -> None:
        self._copying.shutdown()

    def _copy(self, block_id: str, chunks: Sequence[bytes], peers: Sequence[BlockStoreClient], wanted: int) -> list[str]:
        """Put a block in the stores of `wanted` peers, one after the other; return the ids of the executors that took it."""
        done: list[str] = []
        failures = 0
        for peer in peers:
            if self._put(peer, block_id, chunks) is None:
                done.append(peer.executor_id)
            else:
                failures += 1
            if len(done) == wanted or failures > self._most_failures:
                break
        return done

    def _put(self, store: BlockStoreClient, block_id: str, chunks: Sequence[bytes]) -> RpcError | None:
        """Put a block in a store. Return the error if the store did not take it, else None."""
        try:
            store.put(block_id, chunks, self._level)
            return None
        except RpcError as e:
            logger.warning("block %s could not be put on executor %s: %s", block_id, store.executor_id, e)
            return e


class WriteAheadLogBasedBlockHandler(ReceivedBlockHandler):
    """A handler that writes a block to the receiver's write-ahead log and to the executor's own store at once, and returns after both.

    The log decides. A block that only the log has taken counts as stored; the store may lack room, for example. A block that the log has
    not taken is not stored.
    """

    def __init__(
        self, replicas: BlockStoreBasedBlockHandler, log: WriteAheadLog, time_ms: Callable[[], int], timeout_s: float = 30.0
    ) -> None:
        """Make a handler.

        Args:
            replicas: Stores a block in the executor's own store.
            log: The receiver's write-ahead log. `close` closes it.
            time_ms: Returns the time (ms) that is given to the log with a block, for its clean-up.
            timeout_s: `spark.streaming.receiver.blockStoreTimeout`, in seconds. A block is not stored if the log or the store has not
                answered by then.
        """
        self._replicas = replicas
        self._log = log
        self._time_ms = time_ms
        self._timeout = timeout_s
        self._threads = ThreadPoolExecutor(2, "ReceivedBlockHandler")

    def store(self, block_id: str, count: int | None, chunks: Sequence[bytes]) -> ReceivedBlockStoreResult:
        """Store a block in the log and in the store. Blocks. BlockNotStoredError if the log fails, or if one of them takes too long."""
        now, deadline = self._time_ms(), monotonic() + self._timeout
        logging_it = self._threads.submit(lambda: self._log.write(encode_block(chunks), now))
        storing = self._threads.submit(self._store, block_id, count, chunks)
        try:
            handle = logging_it.result(self._timeout)
            executors = storing.result(max(0.0, deadline - monotonic()))
        except FutureTimeoutError as e:
            self._discard_when_stored(block_id, storing)
            text = f"was not stored and logged within {self._timeout:g} s ({BLOCK_STORE_TIMEOUT})"
            raise _not_stored(text, block_id, count, chunks) from e
        except Exception as e:  # the log may be the user's own
            self._discard_when_stored(block_id, storing)
            raise _not_stored(f"could not be written to the write-ahead log: {e}", block_id, count, chunks) from e
        return ReceivedBlockStoreResult(count, executors, handle, now)

    def discard(self, block_id: str) -> None:
        """Remove the block from the stores. Its record in the log is removed with the log's old files."""
        self._replicas.discard(block_id)

    def _discard_when_stored(self, block_id: str, storing: Future[tuple[str, ...]]) -> None:
        """Discard a block as soon as the attempt to store it has ended."""
        storing.add_done_callback(lambda _stored: self._replicas.discard(block_id))

    def clean(self, threshold_ms: int) -> None:
        self._log.clean(threshold_ms, False)

    def close(self) -> None:
        self._threads.shutdown()
        self._replicas.close()
        self._log.close()

    def _store(self, block_id: str, count: int | None, chunks: Sequence[bytes]) -> tuple[str, ...]:
        """Store a block in the executor's store; return the executors that have it, () with a warning if none has it."""
        try:
            return self._replicas.store(block_id, count, chunks).executors
        except BlockNotStoredError as e:
            logger.warning("%s; it is in the write-ahead log alone", e)
            return ()


def _not_stored(text: str, block_id: str, count: int | None, chunks: Sequence[bytes]) -> BlockNotStoredError:
    records = "uncounted records" if count is None else f"{count} records"
    return BlockNotStoredError(f"block {block_id} of {records} {text}", block=block_id, size=sum(map(len, chunks)), free=0)

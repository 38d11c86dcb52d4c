"""Where a receiver's blocks are kept (Spark's `ReceivedBlockHandler.scala`): on two executors, so that one of them may die."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from kstream.errors import BlockNotStoredError, RpcError
from kstream.receiver.block_form import joined
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """`executors`: the ids of those that have it, the receiver's own first. `handle`: where it lies in the receiver's log."""

    num_records: int | None
    executors: tuple[str, ...]
    handle: WriteAheadLogRecordHandle | None = None
    stored_at: int = 0
    """In ms, as the log was told; 0 without one."""


class Store(Protocol):
    """An executor's block store, from wherever one is."""

    @property
    def executor_id(self) -> str: ...
    def put(self, name: str, chunks: Sequence[bytes], how: str, /) -> None:
        """RpcError if it could not be kept there."""
        ...

    def remove(self, name: str, /) -> None:
        """If it is there. RpcError."""
        ...


class ReceivedBlockHandler(Protocol):
    """Called by the thread that pushes blocks and by receivers' own."""

    def store(self, name: str, count: int | None, chunks: Sequence[bytes]) -> StoredBlock:
        """Of records that have been pickled, in lists, and perhaps counted. Returns when the block is kept as well as was promised.
        BlockNotStoredError, and it is nowhere that counts."""
        ...

    def discard(self, name: str) -> None:
        """The block is not to be in any batch: stores need not keep it."""
        ...

    def clean(self, threshold_ms: int) -> None:
        """No batch needs blocks that were stored before this moment any more, but for those that are being stored now."""
        ...

    def close(self) -> None: ...


class BlockStoreBasedBlockHandler:
    """Writes a block to `replicas` stores at once, of distinct executors: the receiver's own and, of `peers`, the first that take it;
    if its own does not, one more of them.

    A peer that fails is passed over for the next one, `most_failures` of them (`spark.storage.maxReplicationFailures`) a block; then, or
    where there are not so many executors, the block has the replicas it has, with a warning whenever their number changes. With none at
    all it is an error.
    """

    def __init__(self, own: Store, peers: Callable[[], Sequence[Store]], how: str, replicas: int = 2, most_failures: int = 1) -> None:
        self._own = own
        self._peers = peers
        self._how = how
        self._replicas = replicas
        self._most_failures = most_failures
        self._told_replicas = replicas
        self._beside = ThreadPoolExecutor(1, "BlockReplication")

    def store(self, name: str, count: int | None, chunks: Sequence[bytes]) -> StoredBlock:
        peers = [peer for peer in self._peers() if peer.executor_id != self._own.executor_id]
        copying: Future[list[str]] | None = None
        if self._replicas > 1:
            copying = self._beside.submit(self._copy, name, chunks, peers, self._replicas - 1)
        held, error = self._put(self._own, name, chunks)
        copied = copying.result() if copying is not None else []
        if not held:  # another in its place
            copied += self._copy(name, chunks, [peer for peer in peers if peer.executor_id not in copied], 1)
        executors = [*([self._own.executor_id] if held else []), *copied]
        if not executors:
            raise BlockNotStoredError(
                f"block {name} of {_records(count)} could not be stored on any executor; its own said: {error}",
                block=name, size=sum(map(len, chunks)), free=0,
            )  # fmt: skip
        if len(executors) != self._told_replicas:
            self._told_replicas = len(executors)  # once, not with every block for as long as it lasts
            logger.warning("block %s has %d replicas of %d: on %s", name, len(executors), self._replicas, ", ".join(executors))
        return StoredBlock(count, tuple(executors))

    def discard(self, name: str) -> None:
        for store in (self._own, *self._peers()):
            try:
                store.remove(name)
            except RpcError as e:  # what an executor keeps dies with it
                logger.debug("block %s may still be on executor %s: %s", name, store.executor_id, e)

    def clean(self, threshold_ms: int) -> None:
        """The driver removes blocks from stores by their names."""

    def close(self) -> None:
        self._beside.shutdown()

    def _copy(self, name: str, chunks: Sequence[bytes], peers: Sequence[Store], wanted: int) -> list[str]:
        done: list[str] = []
        failures = 0
        for peer in peers:
            held, _error = self._put(peer, name, chunks)
            if held:
                done.append(peer.executor_id)
            else:
                failures += 1
            if len(done) == wanted or failures > self._most_failures:
                break
        return done

    def _put(self, store: Store, name: str, chunks: Sequence[bytes]) -> tuple[bool, RpcError | None]:
        try:
            store.put(name, chunks, self._how)
            return True, None
        except RpcError as e:
            logger.warning("block %s could not be put on executor %s: %s", name, store.executor_id, e)
            return False, e


class WriteAheadLogBasedBlockHandler:
    """Writes a block to the receiver's log and to the executor's own store at once, and returns after both.

    The log is what is promised: a block that the store did not take – there is no room, say – is stored all the same; one that the log
    did not take is not, nor one that either of them has not answered within `timeout_s` (`spark.streaming.receiver.blockStoreTimeout`).
    `time_ms` says when, for the log's clean-up.
    """

    def __init__(
        self, beside: BlockStoreBasedBlockHandler, log: WriteAheadLog, time_ms: Callable[[], int], timeout_s: float = 30.0
    ) -> None:
        self._beside = beside
        self._log = log
        self._time_ms = time_ms
        self._timeout = timeout_s
        self._threads = ThreadPoolExecutor(2, "ReceivedBlockHandler")

    def store(self, name: str, count: int | None, chunks: Sequence[bytes]) -> StoredBlock:
        now, deadline = self._time_ms(), monotonic() + self._timeout
        logging_it = self._threads.submit(lambda: self._log.write(joined(chunks), now))
        storing = self._threads.submit(self._store, name, count, chunks)
        try:
            handle = logging_it.result(self._timeout)
            executors = storing.result(max(0.0, deadline - monotonic()))
        except FutureTimeoutError as e:
            self._let_go(name, storing)
            raise BlockNotStoredError(
                f"block {name} of {_records(count)} was not stored and logged within {self._timeout:g} s "
                "(spark.streaming.receiver.blockStoreTimeout)",
                block=name, size=sum(map(len, chunks)), free=0,
            ) from e  # fmt: skip
        except Exception as e:  # the log may be the user's own
            self._let_go(name, storing)
            raise BlockNotStoredError(
                f"block {name} of {_records(count)} could not be written to the write-ahead log: {e}",
                block=name, size=sum(map(len, chunks)), free=0,
            ) from e  # fmt: skip
        return StoredBlock(count, executors, handle, now)

    def discard(self, name: str) -> None:
        """What the log has of it goes with the log's files."""
        self._beside.discard(name)

    def _let_go(self, name: str, storing: Future[tuple[str, ...]]) -> None:
        """The store may have the block only later."""
        storing.add_done_callback(lambda _stored: self._beside.discard(name))

    def clean(self, threshold_ms: int) -> None:
        self._log.clean(threshold_ms, False)

    def close(self) -> None:
        self._threads.shutdown()
        self._beside.close()
        self._log.close()

    def _store(self, name: str, count: int | None, chunks: Sequence[bytes]) -> tuple[str, ...]:
        try:
            return self._beside.store(name, count, chunks).executors
        except BlockNotStoredError as e:
            logger.warning("%s; it is in the write-ahead log alone", e)
            return ()


def _records(count: int | None) -> str:
    return "uncounted records" if count is None else f"{count} records"

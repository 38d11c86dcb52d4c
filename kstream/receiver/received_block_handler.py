"""Where a receiver's blocks are kept (Spark's `ReceivedBlockHandler.scala`): on two executors, so that one of them may die."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pickle import HIGHEST_PROTOCOL, dumps, loads
from typing import Any, Protocol

from kstream.errors import BlockNotStoredError, RpcError, StorageError, WriteAheadLogError
from kstream.pickled_chunks import pickled_chunks
from kstream.receiver.block_form import joined
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle

logger = logging.getLogger(__name__)


def dumps_plain(records: list[Any]) -> bytes:
    return dumps(records, HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """`executors`: the ids of those that have it, the receiver's own first. `handle`: where it lies in the receiver's log."""

    num_records: int
    executors: tuple[str, ...]
    handle: WriteAheadLogRecordHandle | None = None


class Store(Protocol):
    """An executor's block store, from wherever one is."""

    @property
    def executor_id(self) -> str: ...
    def put(self, name: str, chunks: Sequence[bytes], how: str, /) -> None:
        """RpcError if it could not be kept there."""
        ...


class ReceivedBlockHandler(Protocol):
    """Called by the thread that pushes blocks and by receivers' own."""

    def store(self, name: str, records: Iterable[Any]) -> StoredBlock:
        """Returns when the block is kept as well as was promised. BlockNotStoredError, and it is nowhere that counts."""
        ...


class BlockStoreBasedBlockHandler:
    """Writes a block to `replicas` stores at once, of distinct executors: the receiver's own and, of `peers`, the first that take it.

    A peer that fails is passed over for the next one, `most_failures` of them (`spark.storage.maxReplicationFailures`) a block; then, or
    where there are not so many executors, a warning, and the block has the replicas it has. With none at all it is an error. `dumps`
    pickles lists of records.
    """

    def __init__(
        self, own: Store, peers: Callable[[], Sequence[Store]], how: str, replicas: int = 2, most_failures: int = 1,
        dumps: Callable[[list[Any]], bytes] = dumps_plain,
    ) -> None:  # fmt: skip
        self._own = own
        self._peers = peers
        self._how = how
        self._replicas = replicas
        self._most_failures = most_failures
        self._dumps = dumps
        self._beside = ThreadPoolExecutor(1, "BlockReplication")

    def store(self, name: str, records: Iterable[Any]) -> StoredBlock:
        return self.store_chunks(name, *counted(records, self._dumps))

    def store_chunks(self, name: str, count: int, chunks: Sequence[bytes]) -> StoredBlock:
        """As `store`, of records that have been counted and pickled."""
        peers = [peer for peer in self._peers() if peer.executor_id != self._own.executor_id]
        copying: Future[list[str]] | None = None
        if self._replicas > 1:
            copying = self._beside.submit(self._copy, name, chunks, peers)
        held, error = self._put(self._own, name, chunks)
        executors = [*([self._own.executor_id] if held else []), *(copying.result() if copying is not None else [])]
        if not executors:
            raise BlockNotStoredError(
                f"block {name} of {count} records could not be stored on any executor; its own said: {error}",
                block=name, size=sum(map(len, chunks)), free=0,
            )  # fmt: skip
        if len(executors) < self._replicas:
            logger.warning("block %s has %d replicas instead of %d: on %s", name, len(executors), self._replicas, ", ".join(executors))
        return StoredBlock(count, tuple(executors))

    def close(self) -> None:
        self._beside.shutdown()

    def _copy(self, name: str, chunks: Sequence[bytes], peers: Sequence[Store]) -> list[str]:
        done: list[str] = []
        failures = 0
        for peer in peers:
            held, _error = self._put(peer, name, chunks)
            if held:
                done.append(peer.executor_id)
            else:
                failures += 1
            if len(done) == self._replicas - 1 or failures > self._most_failures:
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
    """Writes a block to the receiver's log and to the executor's own store at once, and returns after both (BH1).

    The log is what is promised: a block that the store did not take – there is no room, say – is stored all the same; one that the log
    did not take is not. `time_ms` says when, for the log's clean-up.
    """

    def __init__(
        self, beside: BlockStoreBasedBlockHandler, log: WriteAheadLog, time_ms: Callable[[], int],
        dumps: Callable[[list[Any]], bytes] = dumps_plain,
    ) -> None:  # fmt: skip
        self._beside = beside
        self._log = log
        self._time_ms = time_ms
        self._dumps = dumps
        self._thread = ThreadPoolExecutor(1, "BlockBesideLog")

    def store(self, name: str, records: Iterable[Any]) -> StoredBlock:
        count, chunks = counted(records, self._dumps)
        storing = self._thread.submit(self._store, name, count, chunks)
        try:
            handle = self._log.write(joined(chunks), self._time_ms())
        except (StorageError, WriteAheadLogError) as e:
            raise BlockNotStoredError(
                f"block {name} of {count} records could not be written to the write-ahead log: {e}", block=name, size=0, free=0
            ) from e
        finally:
            executors = storing.result()
        return StoredBlock(count, executors, handle)

    def clean(self, threshold_ms: int) -> None:
        """No batch needs blocks from before this moment any more."""
        self._log.clean(threshold_ms, False)

    def close(self) -> None:
        self._thread.shutdown()
        self._beside.close()
        self._log.close()

    def _store(self, name: str, count: int, chunks: Sequence[bytes]) -> tuple[str, ...]:
        try:
            return self._beside.store_chunks(name, count, chunks).executors
        except BlockNotStoredError as e:
            logger.warning("%s; it is in the write-ahead log alone", e)
            return ()


def counted(records: Iterable[Any], dumps: Callable[[list[Any]], bytes]) -> tuple[int, list[bytes]]:
    """How many records there are, and their chunks."""
    at_hand = records if isinstance(records, list) else list(records)
    return len(at_hand), list(pickled(at_hand, dumps))


def pickled(records: Iterable[Any], dumps: Callable[[list[Any]], bytes] = dumps_plain) -> Iterator[bytes]:
    """The chunks of a block."""
    return pickled_chunks(records, dumps)


def unpickled(chunks: Iterable[bytes]) -> Iterator[Any]:
    """The records of a block."""
    for chunk in chunks:
        yield from loads(chunk)

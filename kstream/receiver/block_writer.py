"""ReceiverBlockWriter: a receiver's records become blocks, a handler stores the blocks, and the driver acknowledges them.

A block is a few chunks of bytes. A chunk is one or more pickled lists of records. Records that are stored together are pickled at once
and wait for their block as bytes: pickling fresh records costs a third of pickling them later.

The handlers are those of Spark's `ReceivedBlockHandler.scala`. One stores a block on two executors, so that one of them may die. The
other stores it in a write-ahead log and on one executor.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from itertools import groupby
from time import monotonic
from typing import Any, Protocol

from kstream.batch.plan import Json
from kstream.clock import Clock
from kstream.errors import BlockNotStoredError, IllegalStateError, RpcError
from kstream.loop import THREADS, Runtime
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener, BlockIds, RateLimiter
from kstream.receiver.block_store import BlockStoreClient, encode_block
from kstream.wal import WriteAheadLog, WriteAheadLogRecordHandle
from kstream.worker.pickled_chunks import CHUNK_BYTES, pickled_chunks

logger = logging.getLogger(__name__)
MOST_BLOCK_BYTES = 64 * 1024 * 1024
"""The largest block, in bytes, of records that were stored one by one: a task should not get more."""


# -- from records to chunks

Dumps = Callable[[Any], bytes]
"""Pickles a list of records, or an object that unpickles to one."""


def dumps_plain(records: Any) -> bytes:
    """Pickle a list of records with the highest protocol."""
    return pickle.dumps(records, pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class PackedRecords:
    """Pickled records. `pickled` is one or more pickled lists with `count` records in all."""

    count: int
    pickled: bytes


class TextLines:
    """Lines that arrived together, kept as one text. The object unpickles to the list of the lines, so the reading task splits the text."""

    def __init__(self, text: str) -> None:
        """`text` has LF between the lines, and none after the last one."""
        self.text = text

    def __len__(self) -> int:
        return self.text.count("\n") + 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.split("\n"))

    def __reduce__(self) -> tuple[Any, ...]:
        return str.split, (self.text, "\n")


class RecordPacker:
    """A pickler of records in packs of moderate size. A call with few records makes a small pack. Any thread."""

    def __init__(self, dumps: Dumps) -> None:
        self._dumps = dumps
        self._at_once = 1000  # a guess at the number of records in a chunk; threads may overwrite each other's guess

    def pack(self, records: Iterable[Any]) -> list[PackedRecords]:
        """Pickle all records, and return the packs. If a record cannot be pickled, its error is raised and no record is packed."""
        if isinstance(records, TextLines):
            return [PackedRecords(len(records), self._dumps(records))]
        at_hand = records if isinstance(records, list) else list(records)
        packs: list[PackedRecords] = []
        at = 0
        while at < len(at_hand):
            some = at_hand[at : at + self._at_once]
            packs.append(PackedRecords(len(some), self._dumps(some)))
            at += len(some)
            self._learn(len(some), len(packs[-1].pickled))
        return packs

    def _learn(self, count: int, size: int) -> None:
        """Adjust the number of records in a pack by the size of a pack of `count` records."""
        if size > 2 * CHUNK_BYTES and count > 1:
            self._at_once = max(1, count // 2)
        elif size < CHUNK_BYTES // 2 and count == self._at_once:
            self._at_once = count * 2


def chunks_of(records: Iterable[Any], dumps: Dumps) -> tuple[int, list[bytes]]:
    """Return the number of records, and their chunks in order. An element may be a PackedRecords, which counts as its records."""
    chunks = list(counted_chunks(records, dumps))
    return sum(chunk.count for chunk in chunks), [chunk.pickled for chunk in chunks]


def counted_chunks(records: Iterable[Any], dumps: Dumps) -> Iterator[PackedRecords]:
    """Yield the chunks of the records in order, each with its count. An element may be a PackedRecords, which joins others of its kind."""
    for packed, group in groupby(records, lambda record: isinstance(record, PackedRecords)):
        if packed:
            yield from _joined(group)
        else:
            counts: list[int] = []
            for chunk in pickled_chunks(group, lambda some, counts=counts: (counts.append(len(some)), dumps(some))[1]):
                yield PackedRecords(counts[-1], chunk)


def portions(chunks: Iterable[PackedRecords], most_bytes: int) -> Iterator[list[PackedRecords]]:
    """Yield the chunks in portions of at most so many bytes. A single larger chunk is a portion of its own."""
    some, size = list[PackedRecords](), 0
    for chunk in chunks:
        if some and size + len(chunk.pickled) > most_bytes:
            yield some
            some, size = [], 0
        some.append(chunk)
        size += len(chunk.pickled)
    if some:
        yield some


def _joined(packs: Iterable[PackedRecords]) -> Iterator[PackedRecords]:
    """Yield chunks of at most CHUNK_BYTES, joined from small packs. A larger pack is a chunk of its own."""
    for some in portions(packs, CHUNK_BYTES):
        yield some[0] if len(some) == 1 else PackedRecords(sum(pack.count for pack in some), b"".join(pack.pickled for pack in some))


# -- handlers


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


class ReceivedBlockHandler(Protocol):
    """A handler that stores blocks. The thread that pushes blocks calls it, and threads of the receiver do."""

    def store(self, block_id: str, count: int | None, chunks: Sequence[bytes]) -> ReceivedBlockStoreResult:
        """Store a block. Block until it is as safe as the handler promises.

        Args:
            block_id: The id of the block.
            count: The number of its records; None if nobody has counted them.
            chunks: Pickled lists of records.

        Raises:
            BlockNotStoredError: the block is not stored; a copy that remains somewhere does not count.
        """
        ...

    def discard(self, block_id: str) -> None:
        """Remove a block that will be in no batch from the stores. A store that does not answer may keep it. Blocks."""
        ...

    def clean(self, threshold_ms: int) -> None:
        """Remove the blocks that were stored before this time (ms) from the log. No batch needs them any more."""
        ...

    def close(self) -> None:
        """Wait for work that is under way, and end the handler's threads and its log."""
        ...


class BlockStoreBasedBlockHandler:
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


class WriteAheadLogBasedBlockHandler:
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
            text = f"was not stored and logged within {self._timeout:g} s (spark.streaming.receiver.blockStoreTimeout)"
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


# -- the writer

AddBlock = Callable[[str, ReceivedBlockStoreResult, Json], bool]
"""(block id, its places, metadata) → whether the driver has accepted the block. Blocks. RpcError if the driver does not answer."""


@dataclass(frozen=True, slots=True)
class BlockWriterConfig:
    """The sizes of a receiver's blocks."""

    interval_ms: int
    """`spark.streaming.blockInterval`, in ms."""
    queue_size: int
    """`spark.streaming.blockQueueSize`, in blocks."""
    most_bytes: int = MOST_BLOCK_BYTES
    """The largest block of records that were stored one by one."""


class ReceiverBlockWriter:
    """The writer of the records that one receiver stores. Any thread.

    `add` and `add_each` put records into the open block of a generator. `add_all` and `add_bytes` write a block of their own: when they
    return, the block is stored and the driver has acknowledged it.

    `_lock` guards `_in_flight`, `_closed` and `_others`.
    """

    def __init__(
        self,
        handler: ReceivedBlockHandler,
        add_block: AddBlock,
        on_error: Callable[[str, BaseException], None],
        ids: BlockIds,
        clock: Clock,
        config: BlockWriterConfig,
        limiter: RateLimiter | None = None,
        dumps: Dumps = dumps_plain,
        runtime: Runtime = THREADS,
    ) -> None:
        """Make a writer; `open` starts it.

        Args:
            handler: Stores the blocks. `close` closes it.
            add_block: Sends the driver a stored block.
            on_error: Called with a message and the error of a generator's block that could not be stored; any thread.
            ids: Gives the ids of all blocks of this receiver.
            clock: The clock of the block intervals and of `acknowledged_before`.
            config: The sizes of the blocks.
            limiter: The rate limit of all generators together; None is no limit.
            dumps: Pickles a list of records.
            runtime: Makes threads, events, queues and locks.
        """
        self._handler = handler
        self._add_block = add_block
        self._on_error = on_error
        self._ids = ids
        self._clock = clock
        self._config = config
        self._limiter = RateLimiter(clock, runtime=runtime) if limiter is None else limiter
        self._dumps = dumps
        self._packer = RecordPacker(dumps)
        self._runtime = runtime
        self._lock = threading.Lock()
        self._closed = False
        self._idle = runtime.event()
        self._in_flight: dict[str, int] = {}
        """The blocks that are being stored or sent to the driver: id → the time (ms) at which this began."""
        self._generator = self._make_generator(self)
        self._others: list[BlockGenerator] = []

    def open(self) -> None:
        """Start the generator of single records. Call once."""
        self._generator.start()

    def add(self, record: Any) -> None:
        """Add a record to the open block. Waits for the rate limit. IllegalStateError before `open` and after `close`."""
        self._generator.addData(record)

    def add_each(self, records: Iterable[Any]) -> None:
        """Add each record as `add` does, at less cost.

        Without a rate limit the calling thread pickles the records, and all of them enter the open block or none. Under a limit each
        record enters as soon as it has its permit.

        Raises:
            IllegalStateError: as `BlockGenerator.addMultipleData` raises it.
            Exception: a record cannot be pickled, without a rate limit. No record enters a block then.
        """
        if self._limiter.getCurrentLimit() is None:
            records = self._packer.pack(records)
        self._generator.addMultipleData(records)

    def add_all(self, records: Iterable[Any], metadata: Json = None) -> None:
        """Write the records as one block. Blocks until the driver has acknowledged it.

        Args:
            records: The records; an element may be a PackedRecords.
            metadata: A JSON value of the receiver's own that the driver gets with the block.

        Raises:
            BlockNotStoredError: the block will be in no batch.
            RpcError: the driver did not answer; the block may be in a batch.
            IllegalStateError: after `close`.
            TypeError, ValueError: the metadata is no JSON value. Nothing is stored.
        """
        self._write(self._ids.next(), lambda block_id: self._handler.store(block_id, *chunks_of(records, self._dumps)), metadata)

    def add_bytes(self, pickled: bytes, metadata: Json = None) -> None:
        """Write a pickled list of records as one block, as `add_all` does. ValueError if `pickled` is empty: an empty list has bytes."""
        if not pickled:
            raise ValueError("storeBytes was given no bytes: it takes a pickled list of records")
        self._write(self._ids.next(), lambda block_id: self._handler.store(block_id, None, [pickled]), metadata)

    def new_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        """Make another generator with the same settings. The caller starts it; `close` stops it."""
        made = self._make_generator(listener)
        with self._lock:
            self._others = [*(other for other in self._others if not other.isStopped()), made]
        return made

    def update_rate(self, records_a_second: int) -> None:
        """Set the rate limit of all generators together, in records a second."""
        self._limiter.updateRate(records_a_second)

    def acknowledged_before(self) -> int:
        """Return the time (ms) before which every stored block was acknowledged: now, or the earliest begin of a block in flight."""
        now = self._clock.time_ms()
        with self._lock:
            return min([now, *self._in_flight.values()])

    def clean(self, threshold_ms: int) -> None:
        """Remove the blocks that were stored before this time (ms) from the receiver's log."""
        self._handler.clean(threshold_ms)

    def close(self) -> None:
        """Refuse further records. Blocks until every added record is stored and acknowledged, or its error was reported."""
        with self._lock:
            others = list(self._others)
        for generator in (*others, self._generator):
            generator.stop()
        with self._lock:
            self._closed = True
            if not self._in_flight:
                self._idle.set()
        self._idle.wait()  # a block that reaches the driver after the receiver's end would be in no batch
        self._handler.close()

    # -- BlockGeneratorListener

    def onAddData(self, data: Any, metadata: Any) -> None: ...
    def onGenerateBlock(self, blockId: str) -> None: ...

    def onPushBlock(self, blockId: str, arrayBuffer: Iterable[Any]) -> None:
        """Write a block. A block that has grown too large while the driver or a store was slow is written as several blocks."""
        block_id: str | None = blockId
        for some in portions(counted_chunks(arrayBuffer, self._dumps), self._config.most_bytes):
            self._write_chunks(block_id or self._ids.next(), sum(chunk.count for chunk in some), [chunk.pickled for chunk in some])
            block_id = None

    def onError(self, message: str, throwable: BaseException) -> None:
        self._on_error(message, throwable)

    # -- inside

    def _make_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        config = self._config
        return BlockGenerator(listener, self._ids, self._clock, config.interval_ms, config.queue_size, self._limiter, self._runtime)

    def _write_chunks(self, block_id: str, count: int, chunks: list[bytes]) -> None:
        self._write(block_id, lambda block_id: self._handler.store(block_id, count, chunks), None)

    def _write(self, block_id: str, store: Callable[[str], ReceivedBlockStoreResult], metadata: Json) -> None:
        """Store a block, and send it to the driver. Discard the block if it is not accepted. Raises as `add_all`."""
        json.dumps(metadata, allow_nan=False)  # raises to the caller before anything is stored
        with self._lock:
            if self._closed:
                raise IllegalStateError("the receiver has been stopped: nothing can be stored any more", state="stopped")
            self._in_flight[block_id] = self._clock.time_ms()
        try:
            if not self._add_block(block_id, store(block_id), metadata):
                raise BlockNotStoredError(
                    f"the driver refused block {block_id}: its log failed, or the job has no such stream", block=block_id, size=0, free=0
                )
        except BlockNotStoredError:
            self._handler.discard(block_id)
            raise
        finally:
            with self._lock:
                del self._in_flight[block_id]
                if self._closed and not self._in_flight:
                    self._idle.set()

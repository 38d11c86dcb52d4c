"""ReceiverBlockWriter: a receiver's records become blocks, a handler stores the blocks, and the driver acknowledges them.

A block is a few chunks of bytes. A chunk is one or more pickled lists of records. Records that are stored together are pickled at once
and wait for their block as bytes: pickling fresh records costs a third of pickling them later.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kstream.batch.plan import Json
from kstream.clock import Clock
from kstream.errors import BlockNotStoredError, IllegalStateError
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener, BlockIds, RateLimiter
from kstream.receiver.received_block_handler import ReceivedBlockHandler, ReceivedBlockStoreResult
from kstream.worker.pickled_chunks import CHUNK_BYTES, pickled_chunks

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


class PackedLines:
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
        if isinstance(records, PackedLines):
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
        """
        self._handler = handler
        self._add_block = add_block
        self._on_error = on_error
        self._ids = ids
        self._clock = clock
        self._config = config
        self._limiter = RateLimiter(clock) if limiter is None else limiter
        self._dumps = dumps
        self._packer = RecordPacker(dumps)
        self._lock = threading.Lock()
        self._closed = False
        self._idle = threading.Event()
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
            records = records if isinstance(records, (list, PackedLines)) else list(records)
            if self._generator.add_unless_limited(self._packer.pack(records)):
                return  # otherwise a rate has come, and each record takes a permit
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
        """Store a block, and block until the driver has acknowledged it.

        A block that has grown too large while the driver or a store was slow is stored as several blocks. The first of them has the id.
        """
        block_id: str | None = blockId
        for some in portions(counted_chunks(arrayBuffer, self._dumps), self._config.most_bytes):
            self._write_chunks(block_id or self._ids.next(), sum(chunk.count for chunk in some), [chunk.pickled for chunk in some])
            block_id = None

    def onError(self, message: str, throwable: BaseException) -> None:
        self._on_error(message, throwable)

    # -- inside

    def _make_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        config = self._config
        return BlockGenerator(listener, self._ids, self._clock, config.interval_ms, config.queue_size, self._limiter)

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

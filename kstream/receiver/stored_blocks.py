"""StoredBlocks: what a receiver on an executor stores – cut into blocks, kept by a handler, told to the driver."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from kstream.batch.plan import Json
from kstream.clock import Clock
from kstream.errors import BlockNotStoredError, IllegalStateError
from kstream.loop import THREADS, Runtime
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener, BlockIds
from kstream.receiver.packed_records import Dumps, RecordPacker, chunks_of, counted_chunks, dumps_plain, portions
from kstream.receiver.rate_limiter import RateLimiter
from kstream.receiver.received_block_handler import ReceivedBlockHandler, StoredBlock

MOST_BLOCK_BYTES = 64 * 1024 * 1024
"""Of what was stored one by one: a task should not get more."""
AddBlock = Callable[[str, StoredBlock, Json], bool]
"""Tells the driver of a block and its metadata, and whether it has taken it. Blocks."""


class StoredBlocks:
    """The BlockSink of a supervisor.

    Records come one by one into the generator's blocks (`add`), or as a block of their own (`add_all`), which is acknowledged: it is
    kept, and the driver knows it, when that returns. `on_error` hears of blocks of the generator that could not be kept.
    """

    def __init__(
        self, handler: ReceivedBlockHandler, add_block: AddBlock, on_error: Callable[[str, BaseException], None], ids: BlockIds,
        clock: Clock, interval_ms: int, queue_size: int, limiter: RateLimiter | None = None, dumps: Dumps = dumps_plain,
        most_bytes: int = MOST_BLOCK_BYTES, runtime: Runtime = THREADS,
    ) -> None:  # fmt: skip
        self._handler = handler
        self._add_block = add_block
        self._on_error = on_error
        self._ids = ids
        self._limiter = RateLimiter(clock, runtime=runtime) if limiter is None else limiter
        self._make = lambda listener: BlockGenerator(listener, ids, clock, interval_ms, queue_size, self._limiter, runtime)
        self._dumps = dumps
        self._packer = RecordPacker(dumps)
        self._most = most_bytes
        self._closed = False
        self._idle = runtime.event()
        self._clock = clock
        self._lock = threading.Lock()
        self._in_flight: dict[str, int] = {}
        """Since when, of blocks that the driver has not answered for yet."""
        self._generator = self._make(self)
        self._others: list[BlockGenerator] = []

    def open(self) -> None:
        self._generator.start()

    def add(self, record: Any) -> None:
        """Returns when it is in a block that is not closed yet; waits for the rate. IllegalStateError before `open` and after `close`."""
        self._generator.addData(record)

    def add_each(self, records: Iterable[Any]) -> None:
        """Adds each record as `add` does, at less cost.

        Without a rate limit the calling thread pickles the records, and all of them enter the open block or none. Under a limit each
        record enters as soon as it has its permit.
        """
        if self._limiter.getCurrentLimit() is None:
            records = self._packer.pack(records)
        self._generator.addMultipleData(records)

    def add_all(self, records: Iterable[Any], metadata: Json = None) -> None:
        """BlockNotStoredError: they are not acknowledged. IllegalStateError after `close`."""
        name = self._ids.next()
        self._keep(name, lambda: self._handler.store(name, *chunks_of(records, self._dumps)), metadata)

    def add_bytes(self, pickled: bytes, metadata: Json = None) -> None:
        """As `add_all`. ValueError if there are no bytes: a list without records is some, too."""
        if not pickled:
            raise ValueError("storeBytes was given no bytes: it takes a pickled list of records")
        name = self._ids.next()
        self._keep(name, lambda: self._handler.store(name, None, [pickled]), metadata)

    def new_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        made = self._make(listener)
        with self._lock:
            self._others = [*(other for other in self._others if not other.isStopped()), made]
        return made

    def update_rate(self, records_a_second: int) -> None:
        """Of all generators together."""
        self._limiter.updateRate(records_a_second)

    def told_before(self) -> int:
        """Of all blocks stored before this moment, in ms, the driver knows."""
        now = self._clock.time_ms()
        with self._lock:
            return min([now, *self._in_flight.values()])

    def clean(self, threshold_ms: int) -> None:
        """What was stored before that moment may go from the receiver's log."""
        self._handler.clean(threshold_ms)

    def close(self) -> None:
        """Returns when what was added is kept, or was told to be lost."""
        with self._lock:
            others = list(self._others)
        for generator in (*others, self._generator):
            generator.stop()
        with self._lock:
            self._closed = True
            if not self._in_flight:
                self._idle.set()
        self._idle.wait()  # a block that is told after the receiver's end would be in no batch
        self._handler.close()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the receiver has been stopped: nothing can be stored any more", state="stopped")

    # -- for the generator (BlockGeneratorListener)

    def onAddData(self, data: Any, metadata: Any) -> None: ...
    def onGenerateBlock(self, blockId: str) -> None: ...

    def onPushBlock(self, blockId: str, arrayBuffer: Iterable[Any]) -> None:
        """One that has grown too large, while the driver or a store kept it waiting, as several."""
        name: str | None = blockId
        for some in portions(counted_chunks(arrayBuffer, self._dumps), self._most):
            self._keep_chunks(name or self._ids.next(), sum(chunk.count for chunk in some), [chunk.pickled for chunk in some])
            name = None

    def _keep_chunks(self, name: str, count: int, chunks: list[bytes]) -> None:
        self._keep(name, lambda: self._handler.store(name, count, chunks), None)

    def _keep(self, name: str, store: Callable[[], StoredBlock], metadata: Json) -> None:
        json.dumps(metadata, allow_nan=False)  # said here, to whoever gave it, before anything is stored
        with self._lock:
            self._check_open()
            self._in_flight[name] = self._clock.time_ms()
        try:
            if not self._add_block(name, store(), metadata):
                raise BlockNotStoredError(
                    f"the driver refused block {name}: its log failed, or the stream is no more", block=name, size=0, free=0
                )
        except BlockNotStoredError:
            self._handler.discard(name)
            raise
        finally:
            with self._lock:
                del self._in_flight[name]
                if self._closed and not self._in_flight:
                    self._idle.set()

    def onError(self, message: str, throwable: BaseException) -> None:
        self._on_error(message, throwable)

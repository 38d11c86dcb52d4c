"""BlockGenerator: cuts what a receiver stores one by one into blocks and pushes them in order (Spark's `BlockGenerator.scala`)."""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.clock import Clock
from kstream.errors import ConfigurationError, IllegalStateError
from kstream.loop import THREADS, RecurringTimer, Runtime
from kstream.receiver.rate_limiter import RateLimiter

logger = logging.getLogger(__name__)


class BlockIds:
    """Names of a receiver's blocks, `input-<stream>-<run>-<number>`, for its supervisor and all its generators. Any thread.

    `run` is drawn anew by each start of a supervisor, so that blocks of one that died are never taken for another's.
    """

    def __init__(self, stream_id: int, run: str | None = None) -> None:
        self._prefix = f"input-{stream_id}-{uuid.uuid4().hex[:8] if run is None else run}"
        self._lock = threading.Lock()
        self._made = 0

    def next(self) -> str:
        with self._lock:
            self._made += 1
            return f"{self._prefix}-{self._made}"


class BlockGeneratorListener(Protocol):
    """Whoever stores the blocks.

    `onAddData` and `onGenerateBlock` are called under one lock: between two calls of `onGenerateBlock` come exactly the `onAddData` of
    the records in that block, so offsets noted by the one belong to the block of the other. They must be short and not call back.
    """

    def onAddData(self, data: Any, metadata: Any) -> None:
        """A record with metadata is in the block that is being filled; the list of them after `addMultipleDataWithCallback`."""
        ...

    def onGenerateBlock(self, blockId: str) -> None:
        """The block with everything added so far is closed. If this raises it is not, and is tried again an interval later."""
        ...

    def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
        """Stores a block; may block. One after the other, in order, on one thread."""
        ...

    def onError(self, message: str, throwable: BaseException) -> None:
        """Something above raised. After a block that could not be pushed this is called before the next one is."""
        ...


class GeneratorState(enum.Enum):
    """In this order, none twice."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED_ADDING = "stopped adding data"
    STOPPED_GENERATING = "stopped generating blocks"
    STOPPED_ALL = "stopped all"


@dataclass(frozen=True, slots=True)
class _Block:
    name: str
    records: list[Any]


class BlockGenerator:
    """`add*` from any thread; two threads of its own, a timer that closes blocks and one that pushes them.

    `interval_ms` is `spark.streaming.blockInterval`: a block is what came in one; one in which nothing came gives none. At most
    `queue_size` blocks (`spark.streaming.blockQueueSize`) wait to be pushed. While so many do, none is closed: what comes is added to
    the one that is open. ConfigurationError where one of the two is not positive.
    """

    def __init__(
        self, listener: BlockGeneratorListener, ids: BlockIds, clock: Clock, interval_ms: int = 200, queue_size: int = 10,
        limiter: RateLimiter | None = None, runtime: Runtime = THREADS,
    ) -> None:  # fmt: skip
        _check_positive("spark.streaming.blockInterval", interval_ms)
        _check_positive("spark.streaming.blockQueueSize", queue_size)
        self._listener = listener
        self._ids = ids
        self._limiter = RateLimiter(clock, runtime=runtime) if limiter is None else limiter
        self._runtime = runtime
        self._lock = runtime.lock()  # a listener's callback runs under it
        self._state = GeneratorState.INITIALIZED
        self._open: list[Any] = []
        self._over = runtime.event()
        self._stopped = runtime.event()
        self._free = runtime.queue()
        for _ in range(queue_size):
            self._free.put(None)
        self._closed = runtime.queue()
        self._timer = RecurringTimer(clock, interval_ms, self._tick, "BlockGenerator", self._timer_ended, runtime)
        self._pusher = runtime.thread(self._push_all, "BlockPushingThread")

    # -- life

    def start(self) -> None:
        """IllegalStateError unless it is new."""
        with self._lock:
            if self._state is not GeneratorState.INITIALIZED:
                raise IllegalStateError(
                    f"a BlockGenerator is started once; this one is {self._state.value}: make another", state=self._state.value
                )
            self._state = GeneratorState.ACTIVE
        self._pusher.start()
        self._timer.start(self._timer.start_time())

    def stop(self) -> None:
        """Nothing can be added from now on; returns when all that was added has been pushed, or its `onPushBlock` has raised.

        Said again, and by a second thread at the same time, it waits, too. One that was not started cannot be any more. Not to be
        called from a callback of the listener, for which it would wait.
        """
        with self._lock:
            was = self._state
            if was is GeneratorState.INITIALIZED:
                self._state = GeneratorState.STOPPED_ALL
            elif was is GeneratorState.ACTIVE:
                self._state = GeneratorState.STOPPED_ADDING
        self._over.set()
        if was is GeneratorState.ACTIVE:
            self._drain()
        elif was is not GeneratorState.INITIALIZED:
            self._stopped.wait()
        self._stopped.set()

    def isActive(self) -> bool:
        """Whether data can be added."""
        return self._state is GeneratorState.ACTIVE

    def isStopped(self) -> bool:
        """Whether all has been pushed, too."""
        return self._state is GeneratorState.STOPPED_ALL

    def getCurrentLimit(self) -> int | None:
        """Records a second; None is no limit."""
        return self._limiter.getCurrentLimit()

    def updateRate(self, newRate: int) -> None:
        """As `RateLimiter.updateRate`."""
        self._limiter.updateRate(newRate)

    # -- for the receiver. Each waits for the rate limit, and raises IllegalStateError before the start and once `stop` has been called.

    def addData(self, data: Any) -> None:
        """One record; the listener does not hear of it."""
        self._take_permit()
        with self._lock:
            self._check_active()
            self._open.append(data)

    def addMultipleData(self, data: Iterable[Any]) -> None:
        """Adds each record as `addData` does, at less cost.

        Without a rate limit all records get into one block, or none does. Under a limit each record enters the open block as soon as it
        has its permit. When the generator stops meanwhile, the records that have entered are pushed, and IllegalStateError says that the
        rest is not stored.
        """
        self._check_active()
        if self.getCurrentLimit() is not None:
            for record in data:
                self.addData(record)
            return
        records = list(data)
        with self._lock:
            self._check_active()
            self._open.extend(records)

    def addDataWithCallback(self, data: Any, metadata: Any) -> None:
        """One record, and `onAddData` before this returns."""
        self._take_permit()
        with self._lock:
            self._check_active()
            self._open.append(data)
            self._listener.onAddData(data, metadata)

    def addMultipleDataWithCallback(self, dataIterator: Iterable[Any], metadata: Any) -> None:
        """Records that get into one block, together or not at all, and one `onAddData` with the list of them.

        Under a rate limit the last record waits for its permit before the first one enters, so a caller who has few records at a time
        keeps the rate more evenly.
        """
        self._check_active()
        records = self._permitted(dataIterator)
        with self._lock:
            self._check_active()
            self._open.extend(records)
            self._listener.onAddData(records, metadata)

    def _permitted(self, records: Iterable[Any]) -> list[Any]:
        """The records, after a permit for each. Without a rate limit it takes none: a permit costs as much as a record from Kafka."""
        if self.getCurrentLimit() is None:
            return list(records)
        permitted: list[Any] = []
        for record in records:
            self._take_permit()
            permitted.append(record)
        return permitted

    def _take_permit(self) -> None:
        self._check_active()
        self._limiter.waitToPush(self._over)

    def _check_active(self) -> None:
        if self._state is not GeneratorState.ACTIVE:
            raise IllegalStateError(
                f"cannot add data: the BlockGenerator has not been started or has been stopped (it is {self._state.value})",
                state=self._state.value,
            )

    # -- the timer's thread

    def _tick(self, _time_ms: int) -> None:
        self._free.get()
        if not self._close_block():
            self._free.put(None)

    def _close_block(self) -> bool:
        """Whether a block has been closed; whoever calls has taken a place in the queue for it."""
        try:
            with self._lock:
                if not self._open:
                    return False
                name = self._ids.next()
                self._listener.onGenerateBlock(name)
                block, self._open = _Block(name, self._open), []
                self._closed.put(block)
        except Exception as e:
            self._report("Error in block updating thread", e)
            return False
        return True

    def _timer_ended(self, error: BaseException) -> None:
        self._report("Block updating thread has ended: nothing more is pushed until the stop", error)

    # -- the stop

    def _drain(self) -> None:
        self._timer.stop(interrupt=True)
        self._free.get()
        self._close_block()
        with self._lock:
            self._state = GeneratorState.STOPPED_GENERATING
            left = len(self._open)
        if left:
            logger.error("%d records are lost with a block that could not be closed", left)
        self._closed.put(None)
        self._pusher.join()
        with self._lock:
            self._state = GeneratorState.STOPPED_ALL

    # -- the pushing thread

    def _push_all(self) -> None:
        while (block := self._closed.get()) is not None:
            self._free.put(None)
            try:
                self._listener.onPushBlock(block.name, block.records)
            except BaseException as e:  # nothing a background thread meets is swallowed
                self._report("Error in block pushing thread", e)

    def _report(self, message: str, error: BaseException) -> None:
        logger.error("%s", message, exc_info=error)
        try:
            self._listener.onError(message, error)
        except Exception:
            logger.exception("onError of the block generator's listener failed")


def _check_positive(key: str, value: int) -> None:
    if value <= 0:
        raise ConfigurationError(f"{key} is {value}; it must be positive", key=key, value=value)

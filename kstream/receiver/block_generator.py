"""BlockGenerator: makes blocks of the records that a receiver stores one by one, and pushes them in order. RateLimiter limits the rate.

Both follow Spark's `BlockGenerator.scala` and `RateLimiter.scala`.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.clock import Clock, StopFlag
from kstream.errors import ConfigurationError, IllegalStateError
from kstream.loop import THREADS, RecurringTimer, Runtime
from kstream.receiver.settings import BLOCK_INTERVAL, BLOCK_QUEUE_SIZE

logger = logging.getLogger(__name__)
_SECOND_MS = 1000.0


class RateLimiter:
    """A limit of the rate at which threads take permits. Unused permits are kept, at most the permits of one second. Any thread.

    `_lock` guards the rate and the permits.
    """

    def __init__(self, clock: Clock, max_rate: int | None = None, initial_rate: int | None = None, runtime: Runtime = THREADS) -> None:
        """Begin with the initial rate, or with the maximum rate if there is none.

        Args:
            clock: The clock by which the rate is kept.
            max_rate: `spark.streaming.receiver.maxRate`, in records a second. No update exceeds it. None, 0 and less are no limit.
            initial_rate: `spark.streaming.backpressure.initialRate`, in records a second, used until the first update. None, 0 and less
                are no initial rate.
            runtime: Makes an event.
        """
        self._clock = clock
        self._never = runtime.event()
        self._max = max_rate if max_rate is not None and max_rate > 0 else None
        self._lock = threading.Lock()
        self._rate = self._bounded(initial_rate) if initial_rate is not None and initial_rate > 0 else self._max
        self._kept = 0.0
        self._next = float(clock.monotonic_ms())

    def getCurrentLimit(self) -> int | None:
        """The limit in records a second; None is no limit."""
        with self._lock:
            return self._rate

    def updateRate(self, newRate: int) -> None:
        """Set the rate. Threads that already wait keep the times of their permits. The number of kept permits changes with the rate.

        Args:
            newRate: Records a second, reduced to `max_rate` if it is higher. 0 and less change nothing.
        """
        if newRate <= 0:
            return
        with self._lock:
            self._refill(self._clock.monotonic_ms())
            before, self._rate = self._rate, self._bounded(newRate)
            self._kept = self._kept * self._rate / before if before else 0.0
        if before != self._rate:
            logger.info("rate limit: %d records a second from now on", self._rate)

    def waitToPush(self, stop: StopFlag | None = None) -> bool:
        """Take a permit. Block until the time of the permit.

        The first call returns at once, and so does a call after a pause. The call after it waits instead.

        Args:
            stop: Ends the wait early; None never does.

        Returns:
            True; False as soon as `stop` is set.
        """
        return self.wait_to_push_some(1, stop) == 1

    def wait_to_push_some(self, most: int, stop: StopFlag | None = None) -> int:
        """Take a permit as `waitToPush` does, and further ones that are kept. Block until the time of the first.

        Args:
            most: How many permits to take at most. Without a limit all are taken.
            stop: Ends the wait early; None never does.

        Returns:
            How many were taken, one at least; 0 as soon as `stop` is set.
        """
        stop = self._never if stop is None else stop
        at, taken = self._reserve(most)
        while (left := at - self._clock.monotonic_ms()) > 0:
            if self._clock.wait(math.ceil(left), stop):
                return 0
        return 0 if stop.is_set() else taken

    def _reserve(self, most: int) -> tuple[float, int]:
        """Take the next permit and those that are kept, `most` at most. Return the time of the next one, in ms of the monotonic clock,
        and how many were taken.
        """
        with self._lock:
            now = self._clock.monotonic_ms()
            self._refill(now)
            if self._rate is None:
                return now, most
            at = self._next
            taken = max(1, min(most, int(self._kept)))
            from_kept = min(float(taken), self._kept)
            self._kept -= from_kept
            self._next += (taken - from_kept) * _SECOND_MS / self._rate
            return at, taken

    def _refill(self, now: int) -> None:
        """Keep the permits that nobody has taken until now, at most those of one second. Call this under the lock."""
        if now > self._next:
            if self._rate is not None:
                self._kept = min(float(self._rate), self._kept + (now - self._next) * self._rate / _SECOND_MS)
            self._next = float(now)

    def _bounded(self, rate: int) -> int:
        return rate if self._max is None else min(rate, self._max)


class BlockIds:
    """The ids of a receiver's blocks, `input-<stream>-<run>-<number>`, for its supervisor and all its generators. Any thread.

    Each start of a supervisor draws a new random `run`, so it does not use an id of an earlier supervisor again.
    """

    def __init__(self, stream_id: int, run: str | None = None) -> None:
        self._prefix = f"input-{stream_id}-{uuid.uuid4().hex[:8] if run is None else run}"
        self._lock = threading.Lock()
        self._made = 0

    def next(self) -> str:
        """Return an id that this object has not returned before."""
        with self._lock:
            self._made += 1
            return f"{self._prefix}-{self._made}"


class BlockGeneratorListener(Protocol):
    """A listener that stores the blocks of a BlockGenerator.

    The generator calls `onAddData` and `onGenerateBlock` under one lock. The calls of `onAddData` between two calls of `onGenerateBlock`
    are those of the records in the second call's block. So offsets that `onAddData` has noted belong to the block of the next
    `onGenerateBlock`. Both must be short and must not call the generator.
    """

    def onAddData(self, data: Any, metadata: Any) -> None:
        """Note that data has entered the open block. Called on the thread that adds. An error is raised to the caller that adds.

        Args:
            data: A record; after `addMultipleDataWithCallback`, a list of records.
            metadata: The value that was given with the data.
        """
        ...

    def onGenerateBlock(self, blockId: str) -> None:
        """Note that the block with all records added so far is being closed. If this raises, the block stays open for the next interval."""
        ...

    def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
        """Store a block. This may block. One thread calls it for one block after the other, in their order."""
        ...

    def onError(self, message: str, throwable: BaseException) -> None:
        """Handle an error of `onGenerateBlock` or `onPushBlock`, or of the timer, which then has ended.

        After an error of `onPushBlock` this is called before the next block is pushed.
        """
        ...


class GeneratorState(enum.Enum):
    """The states of a BlockGenerator, in their order. A generator never returns to an earlier state."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED_ADDING = "stopped adding data"
    STOPPED_GENERATING = "stopped generating blocks"
    STOPPED_ALL = "stopped all"


@dataclass(frozen=True, slots=True)
class _Block:
    """A closed block that waits to be pushed."""

    block_id: str
    records: list[Any]


class BlockGenerator:
    """A generator of blocks from single records. Any thread may call the `add…` methods.

    The generator has two threads: a timer closes blocks, and another thread pushes them. `_lock` guards `_state` and `_open`. The
    listener's `onAddData` and `onGenerateBlock` run under it.
    """

    def __init__(
        self,
        listener: BlockGeneratorListener,
        ids: BlockIds,
        clock: Clock,
        interval_ms: int = 200,
        queue_size: int = 10,
        limiter: RateLimiter | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        """Make a generator; `start` starts its threads.

        Args:
            listener: Gets the blocks and the errors.
            ids: Gives the ids of the blocks.
            clock: The clock of the intervals.
            interval_ms: `spark.streaming.blockInterval`. A block has the records of one interval; an empty interval makes no block.
            queue_size: `spark.streaming.blockQueueSize`. At most so many blocks wait to be pushed. While the queue is full the open
                block is not closed, and takes all further records.
            limiter: The rate limit; None is no limit.
            runtime: Makes threads, events, queues and the lock.

        Raises:
            ConfigurationError: `interval_ms` or `queue_size` is not positive.
        """
        _check_positive(BLOCK_INTERVAL.key, interval_ms)
        _check_positive(BLOCK_QUEUE_SIZE.key, queue_size)
        self._listener = listener
        self._ids = ids
        self._limiter = RateLimiter(clock, runtime=runtime) if limiter is None else limiter
        self._runtime = runtime
        self._lock = runtime.lock()
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
        """Start both threads. IllegalStateError unless the generator is new."""
        with self._lock:
            if self._state is not GeneratorState.INITIALIZED:
                raise IllegalStateError(
                    f"a BlockGenerator is started once; this one is {self._state.value}: make another", state=self._state.value
                )
            self._state = GeneratorState.ACTIVE
        self._pusher.start()
        self._timer.start(self._timer.start_time())

    def stop(self) -> None:
        """Refuse further records. Block until all blocks have been pushed, or their `onPushBlock` has raised. Idempotent; any thread.

        A second call waits as the first call does. A generator that was not started can no longer be started. A callback of the listener
        must not call this, because it would wait for itself.
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
        """Return whether data can be added."""
        return self._state is GeneratorState.ACTIVE

    def isStopped(self) -> bool:
        """Return whether the generator has stopped, and all blocks have been pushed."""
        return self._state is GeneratorState.STOPPED_ALL

    def getCurrentLimit(self) -> int | None:
        """The limit in records a second; None is no limit."""
        return self._limiter.getCurrentLimit()

    def updateRate(self, newRate: int) -> None:
        """Set the rate as `RateLimiter.updateRate` does. All generators of a receiver share it."""
        self._limiter.updateRate(newRate)

    # -- for the receiver. Each method waits for the rate limit. It raises IllegalStateError before `start` and after `stop`.

    def addData(self, data: Any) -> None:
        """Add one record, without a call of `onAddData`. Blocks for the rate limit.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
        """
        self._take_permit()
        with self._lock:
            self._check_active()
            self._open.append(data)

    def addMultipleData(self, data: Iterable[Any]) -> None:
        """Add each record as `addData` does, at less cost.

        Without a rate limit all records enter one block, or none does. Under a limit each record enters the open block as soon as it has
        its permit.

        Raises:
            IllegalStateError: the generator is not started, or is stopped. If it was stopped meanwhile, the records that have entered a
                block are pushed, and the rest is not stored.
        """
        self._check_active()
        if self.getCurrentLimit() is None:
            data = list(data)
            if self.add_unless_limited(data):
                return
        for record in data:
            self.addData(record)

    def add_unless_limited(self, records: Sequence[Any]) -> bool:
        """Add all records to one block, unless there is a rate limit by now. Waits for nothing.

        A rate may come while the caller makes the records ready. So it gives those that may stand for many others to this method, not to
        `addMultipleData`, which would take one permit for each.

        Returns:
            Whether the records were added.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
        """
        with self._lock:
            self._check_active()
            if self.getCurrentLimit() is not None:
                return False
            self._open.extend(records)
            return True

    def addDataWithCallback(self, data: Any, metadata: Any) -> None:
        """Add one record, and call `onAddData` before this returns. Blocks for the rate limit.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
            Exception: the error of `onAddData`. The record is in the open block nevertheless.
        """
        self._take_permit()
        with self._lock:
            self._check_active()
            self._open.append(data)
            self._listener.onAddData(data, metadata)

    def addMultipleDataWithCallback(self, dataIterator: Iterable[Any], metadata: Any) -> None:
        """Add records to one block, all or none, and call `onAddData` once with their list.

        Under a rate limit no record enters before the last one has its permit. So a caller with few records at a time keeps the rate more
        evenly. `take_permits` and `add_permitted` are for a caller that has many.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
            Exception: the error of `onAddData`. The records are in the open block nevertheless.
        """
        self._check_active()
        self.add_permitted(self._permitted(dataIterator), metadata)

    def take_permits(self, most: int) -> int:
        """Take permits for the next records: one, and those that are kept. Without a rate limit take all. Blocks for the first.

        Args:
            most: How many records there are; 1 at least.

        Returns:
            For how many records there are permits, one at least.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
        """
        self._check_active()
        taken = self._limiter.wait_to_push_some(most, self._over)
        self._check_active()
        return taken

    def add_permitted(self, records: Sequence[Any], metadata: Any) -> None:
        """Add records that have their permits to one block, all or none, and call `onAddData` once with their list. Waits for nothing.

        Raises:
            IllegalStateError: the generator is not started, or is stopped.
            Exception: the error of `onAddData`. The records are in the open block nevertheless.
        """
        added = list(records)
        with self._lock:
            self._check_active()
            self._open.extend(added)
            self._listener.onAddData(added, metadata)

    def _permitted(self, records: Iterable[Any]) -> list[Any]:
        """Take a permit for each record, and return their list. Without a rate limit take none: each costs as much as a record itself."""
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
        """Raise IllegalStateError unless the generator is started and not stopped."""
        if self._state is not GeneratorState.ACTIVE:
            raise IllegalStateError(
                f"cannot add data: the BlockGenerator has not been started or has been stopped (it is {self._state.value})",
                state=self._state.value,
            )

    # -- the timer's thread

    def _tick(self, _time_ms: int) -> None:
        """Wait for a free place in the queue, and close the open block."""
        self._free.get()
        if not self._close_block():
            self._free.put(None)

    def _close_block(self) -> bool:
        """Close the open block. The caller has taken a place in the queue for it.

        Returns:
            Whether a block was closed: False if it is empty, and if `onGenerateBlock` raised, which is reported.
        """
        try:
            with self._lock:
                if not self._open:
                    return False
                block_id = self._ids.next()
                self._listener.onGenerateBlock(block_id)
                block, self._open = _Block(block_id, self._open), []
                self._closed.put(block)
        except Exception as e:
            self._report("Error in block updating thread", e)
            return False
        return True

    def _timer_ended(self, error: BaseException) -> None:
        self._report("Block updating thread has ended: nothing more is pushed until the stop", error)

    # -- the stop

    def _drain(self) -> None:
        """Close the last block, and block until all blocks are pushed and both threads have ended."""
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
        """Push the closed blocks in order, until the stop. Report errors."""
        while (block := self._closed.get()) is not None:
            self._free.put(None)
            try:
                self._listener.onPushBlock(block.block_id, block.records)
            except BaseException as e:  # a background thread swallows no error
                self._report("Error in block pushing thread", e)

    def _report(self, message: str, error: BaseException) -> None:
        """Log an error, and pass it to the listener's `onError`."""
        logger.error("%s", message, exc_info=error)
        try:
            self._listener.onError(message, error)
        except Exception:
            logger.exception("onError of the block generator's listener failed")


def _check_positive(key: str, value: int) -> None:
    if value <= 0:
        raise ConfigurationError(f"{key} is {value}; it must be positive", key=key, value=value)

"""ReceivedBlockTracker: the received blocks, each given to one batch, and their log (Spark's `ReceivedBlockTracker.scala`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.loop import THREADS, Runtime
from kstream.receiver.block_allocation import BlockAllocation
from kstream.receiver.received_block_events import (
    BatchCleanupEvent,
    BlockAdditionEvent,
    ReceivedBlockEvent,
    ReceivedBlockInfo,
    from_bytes,
    to_bytes,
)

logger = logging.getLogger(__name__)


class EventLog(Protocol):
    """What the tracker asks of a write-ahead log. Blocks."""

    def write(self, record: bytes, time_ms: int, /) -> object:
        """Durable when it returns. After an error it may, or may not, have been written."""
        ...

    def readAll(self) -> Iterable[bytes]:
        """All records that are there, in the order in which they were written."""
        ...

    def clean(self, threshold_ms: int, wait: bool, /) -> object:
        """Records written before this moment may go, by whole files; with `wait` they are gone when it returns."""
        ...


class ReceivedBlockTracker:
    """Any thread may add; the thread that plans allocates. Every change is in the log before it is made, and before anyone is told.

    With a `log` (there is one if there is a checkpoint, whether or not receivers write logs of their own) and `recover`, it goes on from
    what the log says; recovered blocks are not valid in any block store. Without `recover` the log is only written.
    """

    def __init__(
        self, stream_ids: Iterable[int], clock: Clock, log: EventLog | None = None, recover: bool = False, runtime: Runtime = THREADS
    ) -> None:
        self._clock = clock
        self._log = log
        self._blocks = BlockAllocation(stream_ids)
        self._lock = threading.Lock()
        self._changing = runtime.lock()  # held over a write: of allocations and clean-ups one at a time
        self._logged_at: dict[str, int] = {}
        if log is not None and recover:
            self._recover(log)

    @property
    def is_write_ahead_log_enabled(self) -> bool:
        return self._log is not None

    def add_block(self, block: ReceivedBlockInfo) -> bool:
        """Whether the block is kept and will be in a batch; blocks until that is durable.

        False, and nothing is kept, when the log failed or no such stream exists: the receiver is not to acknowledge its records. A
        block that is known already – a receiver that had no answer asks again – is True, and stays where it is.
        """
        if block.stream_id not in self._blocks.stream_ids:
            logger.error("block %s is refused: there is no receiver stream %d", block.block_id, block.stream_id)
            return False
        now = self._clock.time_ms()
        with self._lock:
            if self._blocks.knows(block.block_id):
                return True
            self._logged_at[block.block_id] = now
        event = BlockAdditionEvent(block)
        if self._write(event, now):
            return self._apply(event)
        with self._lock:
            if not self._blocks.knows(block.block_id):  # else another call has kept it meanwhile
                self._logged_at.pop(block.block_id, None)
        return False

    def allocate_blocks_to_batch(self, time: Time) -> bool:
        """Gives all blocks that wait to this batch, for good; whether it has. Blocks until that is durable.

        False where this batch or a later one has had its blocks: nothing changes. False where the log failed: the batch has none, and
        they wait for the next one.
        """
        with self._changing:
            with self._lock:
                event = self._blocks.next_for(time)
            if event is None:
                logger.info("batch %s was given its blocks before", time)
                return False
            if not self._write(event, self._clock.time_ms()):
                return False
            self._apply(event)
            with self._lock:
                for info in [info for infos in event.blocks.values() for info in infos]:
                    self._logged_at.pop(info.block_id, None)
            return True

    def cleanup_old_batches(self, threshold: Time, wait: bool = False) -> None:
        """Forgets the batches strictly before `threshold`, in memory and in the log, of which whole old files go.

        ValueError unless the threshold is in the past. Where the log fails nothing is forgotten, and the next clean-up tries again.
        """
        now = self._clock.time_ms()
        if threshold.milliseconds >= now:
            raise ValueError(f"blocks can be forgotten up to a time that has passed: {threshold.milliseconds} ms is not before {now} ms")
        with self._changing:
            with self._lock:
                event = BatchCleanupEvent(self._blocks.batches_before(threshold))
                kept = min(self._logged_at.values(), default=now)  # what no batch has is nowhere else in the log
            if self._write(event, now):
                self._apply(event)
                self._clean(min(threshold.milliseconds, kept), wait)

    def keep_to_plans(self, plans: Mapping[Time, Collection[str]]) -> None:
        """After a recovery, before the first allocation: the plan is the allocation. `plans`: the block ids in each plan there is.

        A driver can die, or its log can fail, between the allocation and the plan. From the oldest plan on a block belongs to the batch
        whose plan names it, whatever the log says; one that no plan names waits again, before those that never had a batch. Older
        batches stay as they are: their plans have been cleaned away. Nothing is logged: the next recovery finds the same.
        """
        with self._changing, self._lock:
            self._blocks.keep_to_plans(plans)
            self._logged_at = dict.fromkeys(self._blocks.all_waiting(), 0)

    # -- questions

    def get_blocks_of_batch(self, time: Time) -> dict[int, tuple[ReceivedBlockInfo, ...]]:
        """By stream id, every stream with what it has, in order of arrival; {} for a batch that was given nothing or is forgotten."""
        with self._lock:
            return self._blocks.of_batch(time)

    def get_blocks_of_batch_and_stream(self, time: Time, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        return self.get_blocks_of_batch(time).get(stream_id, ())

    def get_unallocated_blocks(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        """Those that wait for a batch, in order of arrival."""
        with self._lock:
            return self._blocks.waiting(stream_id)

    @property
    def has_unallocated_blocks(self) -> bool:
        with self._lock:
            return bool(self._blocks.all_waiting())

    # -- the log

    def _recover(self, log: EventLog) -> None:
        for number, record in enumerate(log.readAll(), 1):
            self._blocks.apply(from_bytes(record, f"record {number} of the log of received blocks"))
        self._logged_at = dict.fromkeys(self._blocks.all_waiting(), 0)  # when, the records do not say
        for stream, count in self._blocks.strangers().items():
            logger.warning(
                "%d blocks wait for a batch that are of stream %d, which the job no longer has: no batch gets them", count, stream
            )

    def _apply(self, event: ReceivedBlockEvent) -> bool:
        with self._lock:
            self._blocks.apply(event)
        return True

    def _write(self, event: ReceivedBlockEvent, time_ms: int) -> bool:
        if self._log is None:
            return True
        record = to_bytes(event)
        try:
            self._log.write(record, time_ms)
        except Exception:
            logger.warning("%s could not be logged", type(event).__name__, exc_info=True)
            return False
        return True

    def _clean(self, threshold_ms: int, wait: bool) -> None:
        if self._log is None:
            return
        try:
            self._log.clean(threshold_ms, wait)
        except Exception:
            logger.warning("old files of the log of received blocks could not be removed; the next clean-up tries again", exc_info=True)

"""ReceivedBlockTracker: the received blocks, each in one batch, and their log (Spark's `ReceivedBlockTracker.scala`).

The plan of a batch is the allocation: a block belongs to the batch whose stored plan names it, and waits if there is none. So this log
says only which blocks came and which are not needed any more; Spark's also says which batch has which.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.loop import THREADS, Runtime
from kstream.loop.runtime import Event
from kstream.receiver.received_block_events import (
    BatchCleanupEvent,
    BlockAdditionEvent,
    ReceivedBlockInfo,
    from_bytes,
    to_bytes,
)
from kstream.wal import single_records

logger = logging.getLogger(__name__)
REMEMBERED_MS = 600_000
"""So long a block that is gone is still answered for: longer than a receiver that has no answer goes on telling of it."""


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

    def close(self) -> None: ...


class ReceivedBlockTracker:
    """Any thread may add; the thread that plans takes; one thread cleans. Each block is in one place, told by its id: it waits, a batch
    has taken it, or it is forgotten.

    With a `log` (there is one if there is a checkpoint, whether or not receivers write logs of their own) an addition, and that a block
    is forgotten, is in the log before anyone is told. `epoch` is that of the driver.
    """

    def __init__(
        self, stream_ids: Iterable[int], clock: Clock, log: EventLog | None = None, epoch: int = 0, runtime: Runtime = THREADS
    ) -> None:
        self.stream_ids = tuple(stream_ids)
        self._clock = clock
        self._log = log
        self._epoch = epoch
        self._runtime = runtime
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[str, ReceivedBlockInfo]] = {stream: {} for stream in self.stream_ids}
        self._taken: dict[str, ReceivedBlockInfo] = {}
        self._forgotten: dict[str, tuple[Time, ReceivedBlockInfo]] = {}
        """Of batches that are over; the log does not say so yet. With the time of the plan that names it."""
        self._adding: dict[str, tuple[ReceivedBlockInfo, Event]] = {}
        """The event is set when it is decided."""
        self._refused: dict[str, ReceivedBlockInfo] = {}
        """Their write failed, as far as is known: the log may have them, and does not say yet that nobody needs them."""
        self._letting_go: frozenset[str] = frozenset()
        """Of the refused: the log is being told that nobody needs them, and they are not tried again."""
        self._no_more = False
        self._decided: dict[str, tuple[int, bool]] = {}
        """Of blocks that are in none of these any more: since when, and what receivers are told that ask again."""
        self._logged_at: dict[str, int] = {}
        """Of all that the log may have."""

    @property
    def is_write_ahead_log_enabled(self) -> bool:
        return self._log is not None

    def recover(self, planned: Collection[str], streams_now: Callable[[int, int], int | None] = lambda _epoch, stream: stream) -> None:
        """Goes on from what the log says; called once, before anything else. The blocks are in no block store any more.

        `planned`: the ids in all plans that are stored; they are taken, the others wait. `streams_now(epoch, stream)`: which stream of
        this graph the stream of an earlier driver's is, None where it is gone. Error of the log, or CorruptRecordError.
        """
        if self._log is None:
            return
        gone: dict[int, int] = {}
        for number, record in enumerate(single_records(self._log.readAll()), 1):
            event = from_bytes(record, f"record {number} of the log of received blocks")
            if isinstance(event, BatchCleanupEvent):
                for block_id in event.block_ids:
                    self._drop(block_id)
                continue
            stream = streams_now(event.epoch, event.block.stream_id)
            if stream not in self._waiting:
                gone[event.block.stream_id] = gone.get(event.block.stream_id, 0) + 1
            else:
                self._found(event.block.of_stream(stream), planned)
        for stream, count in gone.items():
            logger.warning("%d blocks are of what was stream %d, which the job no longer has: no batch gets them", count, stream)

    def add_block(self, block: ReceivedBlockInfo, anew: bool = True) -> bool:
        """Whether the block is kept and will be in a batch; blocks until that is durable.

        False, and it never is in one, when the log failed or no such stream exists: the receiver is not to acknowledge its records. A
        receiver that had no answer may ask again: of a block that is known, or was and is gone, it is told the same. `anew` false: only one
        that is known, or being added, is answered for, others are refused. TypeError or ValueError where the metadata are no JSON value.
        """
        if block.stream_id not in self._waiting:
            logger.error("block %s is refused: there is no receiver stream %d", block.block_id, block.stream_id)
            return False
        record, now = to_bytes(BlockAdditionEvent(block, self._epoch)), self._clock.time_ms()
        with self._lock:
            if (answer := self._answer(block.block_id)) is not None:
                return answer
            _, decided = self._adding.get(block.block_id, (block, None))
            if decided is None and (self._no_more or not anew):
                why = "the receivers have been stopped" if self._no_more else "a later run of its receiver has begun"
                logger.warning("block %s of receiver %d is refused: %s", block.block_id, block.stream_id, why)
                return False
            if decided is None:
                self._adding[block.block_id] = (block, self._runtime.event())
                self._refused.pop(block.block_id, None)  # it is tried again
                self._logged_at.setdefault(block.block_id, now)
        if decided is not None:
            decided.wait()
            with self._lock:
                return bool(self._answer(block.block_id))
        return self._add(block, record, now)

    def _add(self, block: ReceivedBlockInfo, record: bytes, now: int) -> bool:
        written = False
        try:
            written = self._write(record, now)
        finally:
            with self._lock:
                _, decided = self._adding.pop(block.block_id)
                (self._waiting[block.stream_id] if written else self._refused)[block.block_id] = block
            decided.set()
        return written

    def refuse_more(self) -> None:
        """New blocks; those that are being added now are decided when this returns."""
        with self._lock:
            self._no_more = True
            events = [decided for _, decided in self._adding.values()]
        for decided in events:
            decided.wait()

    def allocate_blocks_to_batch(self, stream_id: int, block_ids: Iterable[str]) -> None:
        """A batch's plan that names these is durable. Ids that do not wait are passed over."""
        with self._lock:
            waiting = self._waiting[stream_id]
            for block_id in block_ids:
                if (block := waiting.pop(block_id, None)) is not None:
                    self._taken[block_id] = block

    def forget(self, time: Time, block_ids: Iterable[str]) -> list[ReceivedBlockInfo]:
        """No batch and no window of this driver needs these, of the plan of this time, any more; a restart may. Those that were known."""
        with self._lock:
            forgotten = [block for block_id in block_ids if (block := self._taken.pop(block_id, None)) is not None]
            self._forgotten.update({block.block_id: (time, block) for block in forgotten})
        return forgotten

    def cleanup_old_batches(self, up_to: Time, wait: bool = False) -> None:
        """Logs that the forgotten blocks of the plans of this time and older are needed no more, and cleans the log.

        To be called before those plans go: without a plan, and without this, their blocks would wait again after a restart. What the log
        raises is raised, nothing is dropped then, and the next call tries again.
        """
        now = self._clock.time_ms()
        with self._lock:
            old = {block_id: True for block_id, (time, _) in self._forgotten.items() if time <= up_to}
            self._letting_go = frozenset(self._refused)
            old.update(dict.fromkeys(self._letting_go, False))
        try:
            if old and self._log is not None:
                self._log.write(to_bytes(BatchCleanupEvent(tuple(old))), now)
        except BaseException:
            self._letting_go = frozenset()
            raise
        with self._lock:
            self._letting_go = frozenset()
            for block_id, answer in old.items():
                self._drop(block_id)
                self._decided[block_id] = (now, answer)
            self._decided = {block: (since, said) for block, (since, said) in self._decided.items() if now - since < REMEMBERED_MS}
            needed_from = min(self._logged_at.values(), default=now)
        if self._log is not None:
            self._log.clean(needed_from, wait)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # -- questions

    def get_unallocated_blocks(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        """Those that wait for a batch, in order of arrival."""
        with self._lock:
            return tuple(self._waiting[stream_id].values())

    @property
    def has_unallocated_blocks(self) -> bool:
        with self._lock:
            return any(self._waiting.values())

    def get(self, block_id: str) -> ReceivedBlockInfo | None:
        """A block that a batch has taken and that is not forgotten."""
        with self._lock:
            return self._taken.get(block_id)

    def all_blocks(self) -> list[ReceivedBlockInfo]:
        """All that are still needed, be it by a restart, which may find those that were refused in the log; and those being added."""
        with self._lock:
            waiting = [block for blocks in self._waiting.values() for block in blocks.values()]
            adding = (block for block, _ in self._adding.values())
            return [*self._taken.values(), *waiting, *(block for _, block in self._forgotten.values()), *self._refused.values(), *adding]

    def needed_from(self, stream_id: int, at_most_ms: int) -> int:
        """What the receiver of this stream wrote to its log before this moment, by its own clock, may go. At most `at_most_ms`."""
        # a block of an earlier driver lies where its stream's number was then
        ours = (block.stored_at for block in self.all_blocks() if block.stream_id == stream_id or not block.block_id_valid)
        return min([at_most_ms, *ours])

    # -- inside

    def _answer(self, block_id: str) -> bool | None:
        """What a receiver is told that asks again; None if it is to be added, is being added, or was refused and may be tried again. Under
        the lock."""
        if block_id in self._taken or block_id in self._forgotten or any(block_id in blocks for blocks in self._waiting.values()):
            return True
        if block_id in self._letting_go:
            return False
        return self._decided[block_id][1] if block_id in self._decided else None

    def _found(self, block: ReceivedBlockInfo, planned: Collection[str]) -> None:
        """Any number of times: a log can hold an addition twice, or one whose write was said to have failed."""
        into = self._taken if block.block_id in planned else self._waiting[block.stream_id]
        into.setdefault(block.block_id, block)
        self._logged_at[block.block_id] = 0  # when, the records do not say

    def _drop(self, block_id: str) -> None:
        for blocks in (self._taken, *self._waiting.values()):
            blocks.pop(block_id, None)
        self._forgotten.pop(block_id, None)
        self._refused.pop(block_id, None)
        self._logged_at.pop(block_id, None)

    def _write(self, record: bytes, time_ms: int) -> bool:
        if self._log is None:
            return True
        try:
            self._log.write(record, time_ms)
        except Exception:
            logger.warning("BlockAdditionEvent could not be logged", exc_info=True)
            return False
        return True


def planned_blocks(plans: Iterable[Mapping[int, object]]) -> set[str]:
    """The ids of all blocks in the data of receiver streams, of plans as they are stored (stream number → data)."""
    found: set[str] = set()
    for inputs in plans:
        for data in inputs.values():
            if isinstance(data, Mapping) and "blocks" in data:
                found.update(block[0] for block in data["blocks"])
    return found

"""ReceivedBlockTracker: the received blocks, each in one batch, and their log (Spark's `ReceivedBlockTracker.scala`).

The plan of a batch is the allocation: a block belongs to the batch whose stored plan names it, and is unallocated if no plan does. So the
log has two kinds of records only: blocks added, and blocks that are not needed any more. Spark's log also has the allocation.

A log record is JSON in the form of all records of kstream (`checkpoint/format.py`: canonical, with kind, version and checksum). A block
in it is `{"handle": (`wal/write_ahead_log.py`) | null, "id", "metadata", "records", "stream"}`.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kstream.batch.plan import Json
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.checkpoint.declared_types import check_types
from kstream.checkpoint.format import Fields, decode, encode
from kstream.clock import Clock
from kstream.errors import CorruptRecordError
from kstream.loop import THREADS, Event, Runtime
from kstream.wal import (
    FileBasedWriteAheadLogSegment,
    WriteAheadLog,
    WriteAheadLogRecordHandle,
    handle_of_json,
    handle_to_json,
    single_records,
)

logger = logging.getLogger(__name__)
REMEMBERED_MS = 600_000
"""How long (ms) the tracker remembers a block after its clean-up, for receivers that ask again. A receiver retries for a shorter time."""


# -- the records of the log


@dataclass(frozen=True, slots=True)
class ReceivedBlockInfo:
    """A block as the driver knows it."""

    stream_id: int
    block_id: str
    num_records: int | None = None
    """None if nobody has counted them."""
    metadata: Json = None
    """A JSON value that the receiver gave with the block."""
    handle: WriteAheadLogRecordHandle | None = None
    """The block's handle in its receiver's write-ahead log; None if that log does not have the block."""
    block_id_valid: bool = field(default=True, compare=False)
    """Whether block stores may have the block. No store has a recovered block: its executors died with the driver. Not in the log."""
    executors: tuple[str, ...] = field(default=(), compare=False)
    """Ids of the executors whose stores have the block. Not in the log."""
    stored_at: int = field(default=0, compare=False)
    """The time at which its receiver wrote the block, in ms by that receiver's clock; 0 is unknown. Not in the log. A clean-up of the
    receiver's log up to a later time would remove the block."""

    def of_stream(self, stream_id: int) -> ReceivedBlockInfo:
        """Return the same block, under the id that its stream has now."""
        return replace(self, stream_id=stream_id)


@dataclass(frozen=True, slots=True)
class BlockAdditionEvent:
    """The log record of a stored block. Once it is durable, the driver acknowledges the block to the receiver.

    `epoch` is the epoch of the driver that wrote the record. The block's stream id is the id in that driver's graph.
    """

    block: ReceivedBlockInfo
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class BatchCleanupEvent:
    """The log record of blocks that nobody needs any more. The plans that name them are removed only after it is durable."""

    block_ids: tuple[str, ...]


ReceivedBlockEvent: TypeAlias = BlockAdditionEvent | BatchCleanupEvent

ADDED, CLEANED = "block-added", "blocks-cleaned"


def to_bytes(event: ReceivedBlockEvent) -> bytes:
    """Return the stored form of an event, one record of the driver's write-ahead log. Pure.

    Raises:
        TypeError, ValueError: the block's metadata, or a field of its handle, is no JSON value.
        ConfigurationError: the block's handle cannot be stored; see `handle_to_json`.
    """
    if isinstance(event, BatchCleanupEvent):
        return encode(CLEANED, {"blocks": list(event.block_ids)})
    info, handle = event.block, handle_to_json(event.block.handle)
    block: dict[str, Json] = {
        "stream": info.stream_id,
        "id": info.block_id,
        "records": info.num_records,
        "metadata": info.metadata,
        "handle": handle,
    }
    return encode(ADDED, {"block": block, "epoch": event.epoch})


def from_bytes(data: bytes, where: str) -> ReceivedBlockEvent:
    """Parse the stored form of an event. The block of the event gets `block_id_valid=False`.

    Args:
        data: The stored form.
        where: The place of the bytes, for error messages.

    Raises:
        CorruptRecordError: the bytes are no event, or are damaged.
        FormatVersionError: another version of kstream has written the event.
        NotRecoverableError: the class of the block's handle cannot be made; see `handle_of_json`.
    """
    kind = next((kind for kind in (ADDED, CLEANED) if f'"kind":"{kind}"'.encode() in data), ADDED)
    try:
        return decode(kind, data, where, _addition_of if kind == ADDED else _cleanup_of)
    except CorruptRecordError as e:
        reason = e.facts["reason"]
        raise CorruptRecordError(
            f"{where} is damaged ({reason}). It has the records of received blocks. Restore the file from a copy. Or remove it: then "
            "the blocks that no batch had taken are lost.",
            path=where,
            reason=reason,
        ) from e


def _cleanup_of(fields: Fields) -> BatchCleanupEvent:
    return BatchCleanupEvent(tuple(fields["blocks"]))


def _addition_of(fields: Fields) -> BlockAdditionEvent:
    return BlockAdditionEvent(_info(fields["block"]), fields["epoch"])


def _info(block: Mapping[str, Any]) -> ReceivedBlockInfo:
    handle = handle_of_json(block["handle"])
    if isinstance(handle, FileBasedWriteAheadLogSegment):
        check_types(handle)
    return ReceivedBlockInfo(block["stream"], block["id"], block["records"], block["metadata"], handle, block_id_valid=False)


# -- the blocks


class BlockState(enum.Enum):
    """The states of a block: ADDING → UNALLOCATED → ALLOCATED → RELEASED → CLEANED; or ADDING → REFUSED → DISCARDING → DISCARDED."""

    ADDING = "adding"
    """Its addition is being written to the log."""
    UNALLOCATED = "unallocated"
    """It waits for a batch."""
    ALLOCATED = "allocated"
    """A durable plan names it."""
    RELEASED = "released"
    """No batch of this driver needs it. A restart may need it, until the log has its clean-up."""
    CLEANED = "cleaned"
    """It was in a batch, and the log has its clean-up. The tracker keeps the record for receivers that ask again."""
    REFUSED = "refused"
    """Its addition failed, but the log may have it nevertheless. A receiver may try to add it again."""
    DISCARDING = "discarding"
    """It was refused, and its clean-up is being written to the log. A further try to add it is refused."""
    DISCARDED = "discarded"
    """It was refused, and the log has its clean-up. The tracker keeps the record for receivers that ask again."""


_GONE = (BlockState.CLEANED, BlockState.DISCARDED)
_KEPT = (BlockState.UNALLOCATED, BlockState.ALLOCATED, BlockState.RELEASED, BlockState.CLEANED)
_REJECTED = (BlockState.DISCARDING, BlockState.DISCARDED)


@dataclass(slots=True)
class BlockRecord:
    """A block and its state. Only `_BlockRecords.move` changes the state."""

    block: ReceivedBlockInfo
    state: BlockState
    logged_at: int
    """The earliest time (ms) at which the log may have got the block. 0 for a recovered block: the log does not give the time."""
    plan_time: Time | None = None
    """In RELEASED: the time of the plan that names the block."""
    decided: Event | None = None
    """In ADDING: the event that is set when the log has the block or has failed."""
    gone_at: int = 0
    """In CLEANED and DISCARDED: the time (ms) of the clean-up."""


class _BlockRecords:
    """The records of all blocks, by block id, and by state in the order in which they got that state. Not thread-safe."""

    def __init__(self) -> None:
        self._by_id: dict[str, BlockRecord] = {}
        self._by_state: dict[BlockState, dict[str, BlockRecord]] = {state: {} for state in BlockState}

    def get(self, block_id: str) -> BlockRecord | None:
        return self._by_id.get(block_id)

    def add(self, record: BlockRecord) -> None:
        block_id = record.block.block_id
        self._by_id[block_id] = self._by_state[record.state][block_id] = record

    def move(self, record: BlockRecord, state: BlockState) -> None:
        block_id = record.block.block_id
        del self._by_state[record.state][block_id]
        record.state = state
        self._by_state[state][block_id] = record

    def remove(self, block_id: str) -> None:
        if (old := self._by_id.pop(block_id, None)) is not None:
            del self._by_state[old.state][block_id]

    def of(self, *states: BlockState) -> list[BlockRecord]:
        """Return the records of these states, one state after the other."""
        return [record for state in states for record in self._by_state[state].values()]

    def __len__(self) -> int:
        return len(self._by_id)


class ReceivedBlockTracker:
    """The received blocks of all streams, on the driver.

    Threads: any thread may add blocks. The thread that plans allocates and releases them. One thread cleans up. `_lock` guards `_records`
    and `_stopped`. The state of a block is decided under the lock; the log is written without it.

    A driver with a checkpoint has a `log`, whether or not receivers write logs of their own. Then an addition or a clean-up is durable
    before its caller gets the result.
    """

    def __init__(
        self, stream_ids: Iterable[int], clock: Clock, log: WriteAheadLog | None = None, epoch: int = 0, runtime: Runtime = THREADS
    ) -> None:
        """Make a tracker without blocks.

        Args:
            stream_ids: The ids of all receiver streams.
            clock: The clock of the log records.
            log: The driver's write-ahead log; None without a checkpoint.
            epoch: The epoch of the driver.
            runtime: Makes events.
        """
        self.stream_ids = tuple(stream_ids)
        self._clock = clock
        self._log = log
        self._epoch = epoch
        self._runtime = runtime
        self._lock = threading.Lock()
        self._records = _BlockRecords()
        self._stopped = False

    def recover(self, planned: Collection[str], streams_now: Callable[[int, int], int | None] = lambda _epoch, stream: stream) -> None:
        """Read the log of earlier drivers. Call this once, before any other method. No block store has these blocks any more.

        Args:
            planned: The ids of the blocks in all stored plans. These blocks become allocated, all others unallocated.
            streams_now: (epoch, stream id) → the present id of the stream that had this id in that driver's graph; None if the job no
                longer has the stream.

        Raises:
            CorruptRecordError: a record of the log is damaged.
            FormatVersionError, NotRecoverableError: a record cannot be parsed; see `from_bytes`.
            Exception: any error of the log.
        """
        if self._log is None:
            return
        dropped: dict[int, int] = {}
        for number, record in enumerate(single_records(self._log.readAll()), 1):
            event = from_bytes(record, f"record {number} of the log of received blocks")
            if isinstance(event, BatchCleanupEvent):
                for block_id in event.block_ids:
                    self._records.remove(block_id)
                continue
            stream = streams_now(event.epoch, event.block.stream_id)
            if stream not in self.stream_ids:
                dropped[event.block.stream_id] = dropped.get(event.block.stream_id, 0) + 1
            elif self._records.get(event.block.block_id) is None:  # the log can hold an addition twice
                state = BlockState.ALLOCATED if event.block.block_id in planned else BlockState.UNALLOCATED
                self._records.add(BlockRecord(event.block.of_stream(stream), state, logged_at=0))
        for stream, count in dropped.items():
            logger.warning("%d blocks belong to the former stream %d, which the job no longer has: no batch gets them", count, stream)

    def add_block(self, block: ReceivedBlockInfo, accept_new: bool = True) -> bool:
        """Add a block. Block until its addition is durable. Idempotent: a retry of a known block gets the first answer. Any thread.

        Args:
            block: The block.
            accept_new: False refuses a block that is neither known nor being added.

        Returns:
            True if the block is kept and will be in a batch. False if the block is refused: the log failed, there is no such stream, or
            new blocks are not accepted. The receiver must then not confirm the records to their source.

        Raises:
            TypeError, ValueError: the metadata is no JSON value.
            ConfigurationError: the handle cannot be stored.
        """
        if block.stream_id not in self.stream_ids:
            logger.error("block %s is refused: there is no receiver stream %d", block.block_id, block.stream_id)
            return False
        entry, now = to_bytes(BlockAdditionEvent(block, self._epoch)), self._clock.time_ms()
        with self._lock:
            decision = self._decide(block, now, accept_new)
        if isinstance(decision, bool):
            return decision
        if decision is None:
            return self._log_addition(block.block_id, entry, now)
        decision.wait()
        with self._lock:
            return bool(_answer(self._records.get(block.block_id)))

    def _decide(self, block: ReceivedBlockInfo, now: int, accept_new: bool) -> bool | Event | None:
        """Decide how to answer an addition. Call this under the lock.

        Returns:
            The answer, if it is known. The event to wait for, if another call is adding the block. None if this call must log the
            addition; the block is then in state ADDING.
        """
        known = self._records.get(block.block_id)
        if (answer := _answer(known)) is not None:
            return answer
        if known is not None and known.decided is not None:
            return known.decided
        if self._stopped or not accept_new:
            why = "the receivers have been stopped" if self._stopped else "a later run of its receiver has begun"
            logger.warning("block %s of receiver %d is refused: %s", block.block_id, block.stream_id, why)
            return False
        adding = BlockRecord(block, BlockState.ADDING, now, decided=self._runtime.event())
        if known is not None:
            adding.logged_at = known.logged_at  # the log may have a refused block already
            self._records.remove(block.block_id)
        self._records.add(adding)
        return None

    def _log_addition(self, block_id: str, entry: bytes, now: int) -> bool:
        """Log the addition of a block in state ADDING, set its next state, and wake up the calls that wait. Return whether it is logged."""
        written = False
        try:
            written = self._write_addition(block_id, entry, now)
        finally:
            with self._lock:
                record = self._records.get(block_id)
                assert record is not None and record.decided is not None
                decided, record.decided = record.decided, None
                self._records.move(record, BlockState.UNALLOCATED if written else BlockState.REFUSED)
            decided.set()
        return written

    def _write_addition(self, block_id: str, entry: bytes, time_ms: int) -> bool:
        """Write the addition to the log, if there is a log. Return False, with a warning, if the log fails."""
        if self._log is None:
            return True
        try:
            self._log.write(entry, time_ms)
        except Exception:
            logger.warning("block %s could not be logged, and is refused", block_id, exc_info=True)
            return False
        return True

    def stop_accepting(self) -> None:
        """Refuse new blocks from now on. Block until all additions under way are decided. Any thread."""
        with self._lock:
            self._stopped = True
            pending = [record.decided for record in self._records.of(BlockState.ADDING) if record.decided is not None]
        for decided in pending:
            decided.wait()

    def allocate_blocks_to_batch(self, stream_id: int, block_ids: Iterable[str]) -> None:
        """Mark blocks of a stream as allocated, because a plan that names them is durable. Blocks in other states are ignored."""
        with self._lock:
            for block_id in block_ids:
                record = self._records.get(block_id)
                if record is not None and record.state is BlockState.UNALLOCATED and record.block.stream_id == stream_id:
                    self._records.move(record, BlockState.ALLOCATED)

    def release(self, time: Time, block_ids: Iterable[str]) -> list[ReceivedBlockInfo]:
        """Mark blocks of the plan of this time as not needed by this driver. The log keeps them for a restart.

        Args:
            time: The batch time of the plan.
            block_ids: The ids of its blocks. Blocks that are not allocated are ignored.

        Returns:
            The blocks that were marked.
        """
        with self._lock:
            released: list[ReceivedBlockInfo] = []
            for block_id in block_ids:
                record = self._records.get(block_id)
                if record is not None and record.state is BlockState.ALLOCATED:
                    record.plan_time = time
                    self._records.move(record, BlockState.RELEASED)
                    released.append(record.block)
        return released

    def cleanup_old_batches(self, required: RequiredBatches, wait: bool = False) -> None:
        """Log that nobody needs the released blocks of plans that are not required, nor the refused blocks. Then clean the log. Blocks.

        Call this before those plans are removed. Otherwise a restart would find no plan for their blocks, and would allocate them again.

        Args:
            required: The batches whose plans stay.
            wait: Whether the old files of the log are removed when this returns.

        Raises:
            Exception: the error of the log. If the write failed, no block changes, and the next call tries again.
        """
        now = self._clock.time_ms()
        with self._lock:
            released = self._records.of(BlockState.RELEASED)
            cleaned = [record for record in released if record.plan_time is not None and record.plan_time not in required]
            discarded = self._records.of(BlockState.REFUSED)
            self._move_all(discarded, BlockState.DISCARDING)
        try:
            if (cleaned or discarded) and self._log is not None:
                block_ids = tuple(record.block.block_id for record in (*cleaned, *discarded))
                self._log.write(to_bytes(BatchCleanupEvent(block_ids)), now)
        except BaseException:
            with self._lock:
                self._move_all(discarded, BlockState.REFUSED)
            raise
        with self._lock:
            self._move_all(cleaned, BlockState.CLEANED)
            self._move_all(discarded, BlockState.DISCARDED)
            for record in (*cleaned, *discarded):
                record.gone_at = now
                if record.block.metadata is not None:  # nobody needs it, and it may be large
                    record.block = replace(record.block, metadata=None)
            for record in self._records.of(*_GONE):
                if now - record.gone_at >= REMEMBERED_MS:
                    self._records.remove(record.block.block_id)
            needed_from = min((record.logged_at for record in self._needed()), default=now)
        if self._log is not None:
            self._log.clean(needed_from, wait)

    def _move_all(self, records: Iterable[BlockRecord], state: BlockState) -> None:
        """Change the state of records. Call this under the lock."""
        for record in records:
            self._records.move(record, state)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    # -- queries, from any thread

    def get_unallocated_blocks(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the stream's blocks that no batch has, in the order in which their additions became durable."""
        with self._lock:
            return tuple(record.block for record in self._records.of(BlockState.UNALLOCATED) if record.block.stream_id == stream_id)

    @property
    def has_unallocated_blocks(self) -> bool:
        """Whether a block of any stream waits for a batch."""
        with self._lock:
            return bool(self._records.of(BlockState.UNALLOCATED))

    def get(self, block_id: str) -> ReceivedBlockInfo | None:
        """Return an allocated block by its id; None if there is no such block, or if its state is another one."""
        with self._lock:
            record = self._records.get(block_id)
            return record.block if record is not None and record.state is BlockState.ALLOCATED else None

    def all_blocks(self) -> list[ReceivedBlockInfo]:
        """Return all blocks that a batch or a restart may still need. Refused blocks are among them: a restart may find them in the log."""
        with self._lock:
            return [record.block for record in self._needed()]

    def needed_from(self, stream_id: int, at_most_ms: int) -> int:
        """Return the time (ms, by the receiver's clock) before which the stream's receiver may clean its log; at most `at_most_ms`."""
        # a block of an earlier driver is in the log of the id that its stream had then, so such blocks of every stream count
        ours = (block.stored_at for block in self.all_blocks() if block.stream_id == stream_id or not block.block_id_valid)
        return min([at_most_ms, *ours])

    def _needed(self) -> list[BlockRecord]:
        """Return the records of all blocks without a clean-up in the log. Call this under the lock."""
        return self._records.of(*(state for state in BlockState if state not in _GONE))


def _answer(record: BlockRecord | None) -> bool | None:
    """Return the answer to a receiver that adds a block again; None if the block is unknown, being added, or may be tried again."""
    if record is None:
        return None
    if record.state in _KEPT:
        return True
    return False if record.state in _REJECTED else None

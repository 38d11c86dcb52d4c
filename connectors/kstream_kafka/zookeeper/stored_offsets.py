"""BlockOffsets: the offsets in each block. Acknowledgement: the time to write them, with one way for each of the two receivers.

`BlockOffsets` is the listener of a receiver's block generator. It stores blocks and counts the records that are not yet stored, so that a
group member can wait for them. The two ways to acknowledge are `AfterStoring` and `OnTimer`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kstream.offsets.offset_range import Partition
from kstream_kafka.errors import OwnershipLostError
from kstream_kafka.zookeeper.zookeeper_layout import Offsets
from kstream_kafka.zookeeper.zookeeper_offsets import ZooKeeperMembership

logger = logging.getLogger("kstream.kafka")

TRIES = 3
"""How often storing a block is tried, as in Spark."""


@dataclass(slots=True)
class ReadProgress:
    """The next offset of each partition, and the membership under which the records were read.

    The block generator gets one with each chunk, as metadata.
    """

    membership: ZooKeeperMembership
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])


class Acknowledgement:
    """Decides when offsets are written to ZooKeeper. A method that a subclass does not override writes none.

    Each method may block on ZooKeeper, and may raise OwnershipLostError from the membership's `commit`.
    """

    drops_unowned_blocks: bool
    """Whether blocks of a membership that is over are dropped. None of their offsets was acknowledged, so they are read again."""

    def on_handed_over(self, progress: ReadProgress) -> None:
        """Note that the block generator got these records. Called by the member's thread."""

    def on_stored(self, progress: ReadProgress) -> None:
        """Note that a block with these records is stored. Called by the generator's thread."""

    def tick(self, now_ms: int) -> None:
        """Write offsets if it is time. Called by the member's thread between reads. `now_ms` is the monotonic time."""

    def flush(self) -> None:
        """Write all offsets that are ready. Called by the member's thread when all records are stored, before it may release claims."""

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Note that partitions begin here, by `auto.offset.reset`. None of their records is waiting. Called by the member's thread."""


class AfterStoring(Acknowledgement):
    """The reliable receiver's way: write the offsets of a block once it is stored."""

    drops_unowned_blocks = True

    def on_stored(self, progress: ReadProgress) -> None:
        """Write the offsets of the block."""
        progress.membership.commit(progress.offsets)

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Write these offsets at once.

        Otherwise a receiver that dies before its first block would begin at a later end of the log, and skip records.
        """
        membership.commit(offsets)


class OnTimer(Acknowledgement):
    """The plain receiver's way: write the offsets of handed-over records at an interval."""

    drops_unowned_blocks = False

    def __init__(self, interval_ms: int | None, now_ms: int) -> None:
        """Create the rule.

        Args:
            interval_ms: the time between two writes; None writes never (`auto.commit.enable=false`).
            now_ms: the monotonic time. The first write comes one interval later.
        """
        self._interval = interval_ms
        self._next = now_ms + (interval_ms or 0)
        self._waiting: ReadProgress | None = None

    def on_handed_over(self, progress: ReadProgress) -> None:
        """Note the offsets for the next write."""
        if self._waiting is None or self._waiting.membership is not progress.membership:
            self._waiting = ReadProgress(progress.membership)
        self._waiting.offsets.update(progress.offsets)

    def tick(self, now_ms: int) -> None:
        """Write the noted offsets if the interval is over."""
        if self._interval is not None and now_ms >= self._next:
            self._next = now_ms + self._interval
            self.flush()

    def flush(self) -> None:
        """Write the noted offsets, unless their membership is over or offsets are never written."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._interval is not None and not waiting.membership.lost:
            waiting.membership.commit(waiting.offsets)

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Write these offsets at once, unless offsets are never written."""
        if self._interval is not None:
            membership.commit(offsets)


class BlockOffsets:
    """A BlockGeneratorListener that stores blocks and acknowledges their offsets.

    A block is stored in TRIES tries. If all fail and the acknowledgement has `drops_unowned_blocks`, `failed` becomes true. From then on
    nothing is stored or acknowledged, because a later offset would skip the block.
    """

    def __init__(
        self,
        store: Callable[[list[Any], Any], None],
        acknowledgement: Acknowledgement,
        on_failed: Callable[[str, BaseException], None],
        report: Callable[[str, BaseException], None],
    ) -> None:
        """Create the listener.

        Args:
            store: the receiver's `storeAll(records, metadata)`.
            acknowledgement: decides when offsets are written.
            on_failed: called with (message, error) for a block that could not be stored.
            report: called with (message, error) for an error of the block generator.
        """
        self._store = store
        self._acknowledgement = acknowledgement
        self._on_failed = on_failed
        self._report = report
        self._changed = threading.Condition()
        self._open: ReadProgress | None = None
        self._closed: dict[str, ReadProgress] = {}
        self._under_way = 0
        self.failed = False

    @property
    def under_way(self) -> int:
        """The number of records that were added and are neither stored nor dropped. Any thread."""
        return self._under_way

    def wait_until_stored(self, timeout_s: float) -> bool:
        """Block until no record is under way, for `timeout_s` seconds at most. Return whether none is. Any thread."""
        with self._changed:
            return self._changed.wait_for(lambda: self._under_way == 0, timeout_s)

    # -- for the generator

    def onAddData(self, data: Any, metadata: Any) -> None:
        """Note the offsets of added records for the block that is open, and count the records as under way. Called by the member's thread.

        A block never has records of two memberships, because the member waits between them.

        Args:
            data: the records.
            metadata: their ReadProgress.
        """
        progress: ReadProgress = metadata
        if self._open is None:
            self._open = ReadProgress(progress.membership)
        self._open.offsets.update(progress.offsets)
        with self._changed:
            self._under_way += len(data)

    def onGenerateBlock(self, blockId: str) -> None:
        """Assign the offsets noted so far to the block that is closed now. Called under the generator's lock."""
        if self._open is not None:
            self._closed[blockId], self._open = self._open, None

    def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
        """Store a block and acknowledge it. Blocks. Called by the generator's thread. A block that cannot be stored goes to `on_failed`."""
        try:
            self._push(blockId, arrayBuffer, self._closed.pop(blockId))
        finally:
            with self._changed:
                self._under_way -= len(arrayBuffer)
                self._changed.notify_all()

    def onError(self, message: str, throwable: BaseException) -> None:
        """Report an error of the block generator."""
        self._report(message, throwable)

    # -- storing

    def _push(self, block: str, records: list[Any], progress: ReadProgress) -> None:
        """Store a block unless it must be dropped, and acknowledge it. A failure calls `on_failed`; a lost membership is logged."""
        strict = self._acknowledgement.drops_unowned_blocks
        if strict and (self.failed or progress.membership.lost):
            return  # the block is not acknowledged, so the next owner of the partitions reads its records again
        error = self._store_with_retries(records, progress)
        if error is not None:
            self.failed = self.failed or strict
            self._on_failed(f"block {block} of {len(records)} records could not be stored after {TRIES} tries", error)
            return
        try:
            self._acknowledgement.on_stored(progress)
        except OwnershipLostError as e:
            logger.warning("block %s of %d records is stored and not acknowledged, it will come again: %s", block, len(records), e)

    def _store_with_retries(self, records: list[Any], progress: ReadProgress) -> BaseException | None:
        """Store a block in TRIES tries at most, without a pause. Blocks. Return the last error if all failed, else None.

        Each try makes a block of its own. If the driver's answer to a try is lost (RpcError), the records may be in two blocks.
        """
        metadata = {"next": [[*partition, at] for partition, at in sorted(progress.offsets.items())]}
        error: BaseException | None = None
        for _ in range(TRIES):
            try:
                self._store(records, metadata)
            except Exception as e:  # another try may succeed, unless the receiver has ended
                error = e
            else:
                return None
        return error

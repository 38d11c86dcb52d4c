"""BlockOffsets and Acknowledgement: the offsets in each block, and the time to write them: one way for each of the two receivers.

`BlockOffsets` is the listener of a receiver's block generator. It stores blocks and counts the records that are not yet stored, so that a
group member can wait for them. An `Acknowledgement` decides when offsets are written: `AfterStoring` or `OnTimer`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kstream_kafka.client.ports import Partition
from kstream_kafka.errors import OwnershipLostError
from kstream_kafka.zookeeper.zookeeper_layout import Offsets
from kstream_kafka.zookeeper.zookeeper_offsets import ZooKeeperMembership

logger = logging.getLogger("kstream.kafka")

TRIES = 3
"""How often storing a block is tried, as in Spark."""


@dataclass(slots=True)
class ReadProgress:
    """The next offset of each partition, and the membership that read so far. The metadata of each chunk for the block generator."""

    membership: ZooKeeperMembership
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])


class Acknowledgement(Protocol):
    """Decides when offsets are written to ZooKeeper. Each method may raise OwnershipLostError from the membership's `commit`."""

    drops_unowned_blocks: bool
    """Whether blocks of a membership that is over are dropped. Nothing of them was acknowledged, so they are read again."""

    def on_handed_over(self, progress: ReadProgress) -> None:
        """Note that the block generator got these records. The member's thread."""
        ...

    def on_stored(self, progress: ReadProgress) -> None:
        """Note that a block with these records is stored. The generator's thread."""
        ...

    def tick(self, now_ms: int) -> None:
        """Write offsets if it is time. The member's thread calls it between reads."""
        ...

    def flush(self) -> None:
        """Write all offsets that are ready. All records are stored, and claims may be released next. The member's thread."""
        ...

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Note that partitions begin here, by `auto.offset.reset`. None of their records is waiting. The member's thread."""
        ...


class AfterStoring:
    """The reliable receiver's way: write the offsets of a block once it is stored."""

    drops_unowned_blocks = True

    def on_handed_over(self, progress: ReadProgress) -> None: ...

    def on_stored(self, progress: ReadProgress) -> None:
        progress.membership.commit(progress.offsets)

    def tick(self, now_ms: int) -> None: ...
    def flush(self) -> None: ...

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Write them at once. Otherwise a receiver that dies before its first block would begin at a later log end, and skip records."""
        membership.commit(offsets)


class OnTimer:
    """The plain receiver's way: write the offsets of handed-over records at an interval."""

    drops_unowned_blocks = False

    def __init__(self, interval_ms: int | None, now_ms: int) -> None:
        """Write every `interval_ms`, the first time that long after `now_ms`; never if it is None (`auto.commit.enable=false`)."""
        self._interval = interval_ms
        self._next = now_ms + (interval_ms or 0)
        self._waiting: ReadProgress | None = None

    def on_handed_over(self, progress: ReadProgress) -> None:
        if self._waiting is None or self._waiting.membership is not progress.membership:
            self._waiting = ReadProgress(progress.membership)
        self._waiting.offsets.update(progress.offsets)

    def on_stored(self, progress: ReadProgress) -> None: ...

    def tick(self, now_ms: int) -> None:
        if self._interval is not None and now_ms >= self._next:
            self._next = now_ms + self._interval
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._interval is not None and not waiting.membership.lost:
            waiting.membership.commit(waiting.offsets)

    def on_initial_offsets(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        if self._interval is not None:
            membership.commit(offsets)


class BlockOffsets:
    """A BlockGeneratorListener that stores blocks and acknowledges their offsets.

    After a block that could not be stored in TRIES tries nothing is stored and nothing acknowledged, if that would skip the block.
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
        """How many records were added and are neither stored nor dropped. Any thread."""
        return self._under_way

    def wait_until_stored(self, timeout_s: float) -> bool:
        """Block until no record is under way, up to `timeout_s`. Returns whether none is. Any thread."""
        with self._changed:
            return self._changed.wait_for(lambda: self._under_way == 0, timeout_s)

    # -- for the generator

    def onAddData(self, data: Any, metadata: Any) -> None:
        """Note added records. `metadata` is their ReadProgress. A block never has records of two memberships: the member waits between."""
        progress: ReadProgress = metadata
        if self._open is None:
            self._open = ReadProgress(progress.membership)
        self._open.offsets.update(progress.offsets)
        with self._changed:
            self._under_way += len(data)

    def onGenerateBlock(self, blockId: str) -> None:
        if self._open is not None:
            self._closed[blockId], self._open = self._open, None

    def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
        try:
            self._push(blockId, arrayBuffer, self._closed.pop(blockId))
        finally:
            with self._changed:
                self._under_way -= len(arrayBuffer)
                self._changed.notify_all()

    def onError(self, message: str, throwable: BaseException) -> None:
        self._report(message, throwable)

    # -- storing

    def _push(self, block: str, records: list[Any], progress: ReadProgress) -> None:
        strict = self._acknowledgement.drops_unowned_blocks
        if strict and (self.failed or progress.membership.lost):
            return  # without acknowledgement the next owner of the partitions reads the records again
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
        """Store a block. Returns the last error if all tries failed."""
        metadata = {"next": [[*partition, at] for partition, at in sorted(progress.offsets.items())]}
        error: BaseException | None = None
        for _ in range(TRIES):
            try:
                self._store(records, metadata)
            except Exception as e:  # BlockNotStoredError, RpcError …: none of them rules out that another try succeeds
                error = e
            else:
                return None
        return error

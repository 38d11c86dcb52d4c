"""What is in which block, and when its offsets may be written: the two ways of the two receivers.

`OffsetsOfBlocks` is the listener of a receiver's block generator. It stores blocks and keeps count of what is under way, so that a member
of the group can wait until nothing is. When offsets are written is said by `Acknowledgement`: `AfterStoring` or `OnTimer`.
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
"""As in Spark: how often a block is tried to be stored."""


@dataclass(slots=True)
class Read:
    """Where records have been read to, and by which membership. Goes with each chunk to the block generator, as its metadata."""

    membership: ZooKeeperMembership
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])


class Acknowledgement(Protocol):
    """When offsets get into ZooKeeper. `commit` of the membership may raise OwnershipLostError out of each of these."""

    drops_what_is_not_owned: bool
    """Whether blocks of a membership that is over are thrown away: nothing of them was acknowledged, they are read again."""

    def handed_over(self, read: Read) -> None:
        """These records have been given to the block generator. The member's thread."""
        ...

    def stored(self, read: Read) -> None:
        """A block with these records is stored. The generator's thread."""
        ...

    def tick(self, now_ms: int) -> None:
        """Called between reads by the member's thread."""
        ...

    def settle(self) -> None:
        """Nothing is under way; claims may be given up next. The member's thread."""
        ...

    def begun_at(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """These partitions begin here, by `auto.offset.reset`; nothing of them is under way. The member's thread."""
        ...


class AfterStoring:
    """The reliable receiver's: the offsets of a block, once it is stored."""

    drops_what_is_not_owned = True

    def handed_over(self, read: Read) -> None: ...

    def stored(self, read: Read) -> None:
        read.membership.commit(read.offsets)

    def tick(self, now_ms: int) -> None: ...
    def settle(self) -> None: ...

    def begun_at(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        """Written at once: a receiver that died before its first block would else begin at a later end of the log, and skip records."""
        membership.commit(offsets)


class OnTimer:
    """The plain receiver's: what has been handed over, every so often. `interval_ms` None: never (`auto.commit.enable=false`)."""

    drops_what_is_not_owned = False

    def __init__(self, interval_ms: int | None, now_ms: int) -> None:
        self._interval = interval_ms
        self._next = now_ms + (interval_ms or 0)
        self._waiting: Read | None = None

    def handed_over(self, read: Read) -> None:
        if self._waiting is None or self._waiting.membership is not read.membership:
            self._waiting = Read(read.membership)
        self._waiting.offsets.update(read.offsets)

    def stored(self, read: Read) -> None: ...

    def tick(self, now_ms: int) -> None:
        if self._interval is not None and now_ms >= self._next:
            self._next = now_ms + self._interval
            self.settle()

    def settle(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._interval is not None and not waiting.membership.lost:
            waiting.membership.commit(waiting.offsets)

    def begun_at(self, membership: ZooKeeperMembership, offsets: Offsets) -> None:
        if self._interval is not None:
            membership.commit(offsets)


class OffsetsOfBlocks:
    """A BlockGeneratorListener. `store(records, metadata)` is the receiver's `storeAll`; `failed(message, error)` hears, once, of a block
    that could not be stored by TRIES tries; from then on nothing is stored and nothing acknowledged, where that would skip the block.
    """

    def __init__(
        self,
        store: Callable[[list[Any], Any], None],
        acknowledgement: Acknowledgement,
        failed: Callable[[str, BaseException], None],
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._store = store
        self._acknowledgement = acknowledgement
        self._tell_failed = failed
        self._report = report
        self._changed = threading.Condition()
        self._open: Read | None = None
        self._closed: dict[str, Read] = {}
        self._under_way = 0
        self.failed = False

    @property
    def under_way(self) -> int:
        """How many records have been added and not yet been stored, or given up."""
        return self._under_way

    def wait_until_stored(self, timeout_s: float) -> bool:
        """Blocks until nothing is under way, or so long; whether nothing is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._under_way == 0, timeout_s)

    # -- for the generator

    def onAddData(self, data: Any, metadata: Any) -> None:
        """`metadata` is a Read. Records of two memberships are never in one block: between the two all is waited for."""
        read: Read = metadata
        if self._open is None:
            self._open = Read(read.membership)
        self._open.offsets.update(read.offsets)
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

    def _push(self, block: str, records: list[Any], read: Read) -> None:
        strict = self._acknowledgement.drops_what_is_not_owned
        if strict and (self.failed or read.membership.lost):
            return  # unacknowledged, it is read again, by whoever has the partitions then
        error = self._tried(records, read)
        if error is not None:
            self.failed = self.failed or strict
            self._tell_failed(f"block {block} of {len(records)} records could not be stored after {TRIES} tries", error)
            return
        try:
            self._acknowledgement.stored(read)
        except OwnershipLostError as e:
            logger.warning("block %s of %d records is stored and not acknowledged, it will come again: %s", block, len(records), e)

    def _tried(self, records: list[Any], read: Read) -> BaseException | None:
        metadata = {"next": [[*partition, at] for partition, at in sorted(read.offsets.items())]}
        error: BaseException | None = None
        for _ in range(TRIES):
            try:
                self._store(records, metadata)
            except Exception as e:  # BlockNotStoredError, RpcError …: none of them says that another try is of no use
                error = e
            else:
                return None
        return error

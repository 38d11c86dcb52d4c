"""BlockAllocation: which batch has which block. Memory only, no locks: the inside of the ReceivedBlockTracker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kstream.batch_time import Time
from kstream.receiver.received_block_events import (
    BatchAllocationEvent,
    BlockAdditionEvent,
    ReceivedBlockEvent,
    ReceivedBlockInfo,
)

_ByStream = dict[int, dict[str, ReceivedBlockInfo]]


class BlockAllocation:
    """Each block is in one place, told by its id: it waits, or a batch has it. Order is that of arrival."""

    def __init__(self, stream_ids: Iterable[int]) -> None:
        self.stream_ids = tuple(stream_ids)
        self.last: Time | None = None
        """The latest batch that has been given blocks, be it none."""
        self._waiting: _ByStream = {}
        self._batches: dict[Time, _ByStream] = {}
        self._batch_of: dict[str, Time | None] = {}

    # -- questions

    def knows(self, block_id: str) -> bool:
        """Whether the block waits or a batch has it that is not forgotten."""
        return block_id in self._batch_of

    def waiting(self, stream_id: int) -> tuple[ReceivedBlockInfo, ...]:
        return tuple(self._waiting.get(stream_id, {}).values())

    def all_waiting(self) -> list[str]:
        """Ids of what the next batch will be given."""
        return [block_id for stream in self.stream_ids for block_id in self._waiting.get(stream, ())]

    def strangers(self) -> dict[int, int]:
        """How many blocks wait of streams that do not exist (any more), by stream id: no batch will be given them."""
        return {stream: len(blocks) for stream, blocks in self._waiting.items() if blocks and stream not in self.stream_ids}

    def next_for(self, time: Time) -> BatchAllocationEvent | None:
        """All that waits, for this batch; None when it, or a later one, has been given its blocks."""
        if self.last is not None and time <= self.last:
            return None
        return BatchAllocationEvent(time, {stream: self.waiting(stream) for stream in self.stream_ids})

    def of_batch(self, time: Time) -> dict[int, tuple[ReceivedBlockInfo, ...]]:
        """{} for a batch that was given nothing or is forgotten; else every stream is there."""
        return {stream: tuple(blocks.values()) for stream, blocks in self._batches.get(time, {}).items()}

    def batches_before(self, threshold: Time) -> tuple[Time, ...]:
        return tuple(sorted(time for time in self._batches if time < threshold))

    # -- what happens

    def apply(self, event: ReceivedBlockEvent) -> None:
        """Any event any number of times: a log can hold one twice, or one whose write was said to have failed."""
        if isinstance(event, BlockAdditionEvent):
            if not self.knows(event.block.block_id):
                self._put(event.block, None)
        elif isinstance(event, BatchAllocationEvent):
            self._allocate(event)
        else:
            for time in event.times:
                self._forget(time)

    def keep_to_plans(self, plans: Mapping[Time, Collection[str]]) -> None:
        """Moves each block to the batch whose plan names it; one of a batch from the oldest plan on that no plan names waits again."""
        planned = {block_id: time for time, ids in plans.items() for block_id in ids}
        oldest = min(plans, default=None)
        moved = {time: blocks for time, blocks in self._batches.items() if oldest is None or time >= oldest}
        loose = [self._batches.pop(time) for time in sorted(moved)] + [self._waiting]
        self._waiting = {}
        for time in plans:
            self._open(time)
        for by_stream in loose:
            for info in [info for blocks in by_stream.values() for info in blocks.values()]:
                self._put(info, planned.get(info.block_id))
        self.last = max(plans, default=None)

    def _allocate(self, event: BatchAllocationEvent) -> None:
        """Of two batches that were given a block the later event is right: the earlier one's write was said to have failed."""
        self._open(event.time, event.blocks)
        for info in [info for infos in event.blocks.values() for info in infos]:
            if self.knows(info.block_id):
                info = self._take(info)
            self._put(info, event.time)
        self.last = event.time if self.last is None else max(self.last, event.time)

    def _open(self, time: Time, streams: Iterable[int] = ()) -> None:
        batch = self._batches.setdefault(time, {})
        for stream in (*self.stream_ids, *streams):
            batch.setdefault(stream, {})

    def _put(self, info: ReceivedBlockInfo, time: Time | None) -> None:
        by_stream = self._waiting if time is None else self._batches[time]
        by_stream.setdefault(info.stream_id, {})[info.block_id] = info
        self._batch_of[info.block_id] = time

    def _take(self, info: ReceivedBlockInfo) -> ReceivedBlockInfo:
        time = self._batch_of[info.block_id]
        by_stream = self._waiting if time is None else self._batches[time]
        return by_stream[info.stream_id].pop(info.block_id)

    def _forget(self, time: Time) -> None:
        for blocks in self._batches.pop(time, {}).values():
            for block_id in blocks:
                del self._batch_of[block_id]

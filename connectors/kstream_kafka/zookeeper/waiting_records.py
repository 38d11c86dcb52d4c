"""WaitingRecords: the records of a read that have not entered a block yet, because a rate limit lets in some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from kstream.offsets.offset_range import Partition
from kstream_kafka.zookeeper.group_reader import Chunk, Record
from kstream_kafka.zookeeper.zookeeper_layout import Offsets


class WaitingRecords:
    """The records of one chunk, which are taken from the front. Used by one thread.

    If all are taken at once, their order is that of the chunk, and nothing is computed for a record. Otherwise the partitions take turns,
    a record each, so that a full partition does not keep back the others. The records of a partition keep their order.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._left: deque[tuple[Record, Partition, int]] | None = None
        """Each record with its partition and offset, in the order of the turns; None as long as none was taken."""

    def __len__(self) -> int:
        return len(self._chunk.records) if self._left is None else len(self._left)

    def take(self, count: int) -> tuple[list[Record], Offsets]:
        """Remove the first records.

        Args:
            count: how many; no more than wait.

        Returns:
            The records, and the next offset of each partition that has some among them.
        """
        if self._left is None and count == len(self):
            chunk, self._chunk = self._chunk, Chunk()
            return chunk.records, chunk.offsets
        left = self._in_turn()
        taken = [left.popleft() for _ in range(count)]
        return [record for record, _, _ in taken], {partition: offset + 1 for _, partition, offset in taken}

    def keep(self, partitions: Collection[Partition]) -> None:
        """Drop the records of all other partitions. Their offsets were handed to nobody, so they are read again."""
        if len(self):
            self._left = deque(entry for entry in self._in_turn() if entry[1] in partitions)

    def _in_turn(self) -> deque[tuple[Record, Partition, int]]:
        """Return what waits, in the order of the turns."""
        if self._left is None:
            chunk, self._chunk = self._chunk, Chunk()
            lines = dict[Partition, deque[tuple[Record, Partition, int]]]()
            for record, (partition, offset) in zip(chunk.records, chunk.places(), strict=True):
                lines.setdefault(partition, deque()).append((record, partition, offset))
            self._left, waiting = deque(), deque(lines.values())
            while waiting:
                line = waiting.popleft()
                self._left.append(line.popleft())
                if line:
                    waiting.append(line)
        return self._left

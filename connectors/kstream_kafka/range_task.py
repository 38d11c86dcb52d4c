"""What a Spark task does for its part of a batch: borrow a consumer, read, decode. Pickled by reference into the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from kstream_kafka import consumer_cache, params
from kstream_kafka.decoding import Decoding
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.packing import NOT_PACKED, Packing, Piece, TaskPieces, pack
from kstream_kafka.reader import read_pieces, read_range

SMALL_RANGE = 1_000
"""Up to so many records a range is read with small fetches, and together with other small ones of its task."""
MOST_TOGETHER = 1_000
"""Small ranges read at once: their records wait in memory until it is their turn."""


@dataclass(frozen=True)
class RangeReads:
    """What each task reads; `executor` are complete consumer properties but for fetch sizes."""

    tasks: tuple[TaskPieces, ...]
    executor: Mapping[str, Any]
    poll_timeout_ms: int

    @staticmethod
    def of(
        ranges: Sequence[OffsetRange],
        leader_epochs: Sequence[int | None],
        executor: Mapping[str, Any],
        poll_timeout_ms: int,
        packing: Packing = NOT_PACKED,
    ) -> RangeReads:
        """The reads of these ranges, one task a range unless packed otherwise."""
        return RangeReads(pack(ranges, leader_epochs, packing), executor, poll_timeout_ms)

    def __len__(self) -> int:
        """The number of tasks."""
        return len(self.tasks)

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """The messages of task `index`, each chunk with the range it is of, in the order of its pieces; offsets rise within each.

        Lazy; runs in a Spark task and blocks on the broker. An empty range asks nothing of Kafka.
        """
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Spark does not tell Python the attempt number of a stage; a task of a repeated stage starts anew by being re-assigned.
        retry = bool(context and context.attemptNumber() > 0)
        for group in groups(self.tasks[index]):
            sized = params.small if group[0].range.count() <= SMALL_RANGE else params.bulk
            with consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry) as consumer:
                if len(group) > 1:
                    yield from read_pieces(consumer, group, self.poll_timeout_ms)
                else:
                    wanted = group[0].range
                    for messages in read_range(consumer, wanted, self.poll_timeout_ms, group[0].leader_epoch):
                        yield wanted, messages


def groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces to read at once: small neighbours together, a large one alone, empty ones not at all."""
    together: list[Piece] = []
    for piece in pieces:
        small = 0 < piece.range.count() <= SMALL_RANGE
        if together and (not small or len(together) == MOST_TOGETHER) and piece.range.count() > 0:
            yield together
            together = []
        if small:
            together.append(piece)
        elif piece.range.count() > 0:
            yield [piece]
    if together:
        yield together


@dataclass(frozen=True)
class RangeTask:
    """The elements of an RDD: what is read, decoded."""

    reads: RangeReads
    decoding: Decoding

    def __call__(self, index: int) -> Iterable[Any]:
        """The elements of partition `index`, lazily."""
        return itertools.chain.from_iterable(self._decoded(index))

    def _decoded(self, index: int) -> Iterator[list[Any]]:
        for where, messages in self.reads.chunks(index):
            yield self.decoding.of_chunk(where)(messages)

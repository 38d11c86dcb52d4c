"""What a Spark task does for its part of a batch: borrow a consumer, read, decode. Pickled by reference into the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from kstream_kafka import consumer_cache, params
from kstream_kafka.decoding import Decoding
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.packing import NOT_PACKED, Packing, Piece, TaskPieces, groups, is_small, pack
from kstream_kafka.ports import RangeConsumer
from kstream_kafka.reader import read_pieces


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

    def __reduce__(self) -> Any:
        """Pickled as rows of plain values: a thousand ranges go to each task in a tenth of the time that their objects would take."""
        rows = [[(*p.range.to_json(), p.leader_epoch) for p in task] for task in self.tasks]
        return (_unpickled, (rows, self.executor, self.poll_timeout_ms))

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """The messages of task `index`, each chunk with the range it is of, in the order of its pieces; offsets rise within each.

        Lazy; runs in a Spark task and blocks on the broker. An empty range asks nothing of Kafka. Chunks are never empty; those of
        small ranges are small.
        """
        with ExitStack() as loans:
            lent: dict[bool, RangeConsumer] = {}
            last: RangeConsumer | None = None
            for group in groups(self.tasks[index]):
                small = is_small(group[0])
                if small not in lent:
                    lent[small] = loans.enter_context(self._borrowed(small))
                consumer = lent[small]
                if last is not None and last is not consumer:
                    last.unassign()  # or it goes on fetching what nobody wants
                last = consumer
                yield from read_pieces(consumer, group, self.poll_timeout_ms)

    def _borrowed(self, small: bool) -> AbstractContextManager[RangeConsumer]:
        """A consumer for the length of this task, with fetches for small ranges or for large ones."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Spark does not tell Python the attempt number of a stage; a task of a repeated stage starts anew by being re-assigned.
        retry = bool(context and context.attemptNumber() > 0)
        sized = params.small if small else params.bulk
        return consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry)


def _unpickled(rows: list[list[Any]], executor: Mapping[str, Any], poll_timeout_ms: int) -> RangeReads:
    tasks = tuple(tuple(Piece(OffsetRange(*where), epoch) for *where, epoch in task) for task in rows)
    return RangeReads(tasks, executor, poll_timeout_ms)


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

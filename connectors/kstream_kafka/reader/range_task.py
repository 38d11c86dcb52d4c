"""What a Spark task does for its part of a batch: borrow a consumer, read, decode. Pickled by reference into the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark import TaskContext

from kstream_kafka.client import params
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import NOT_PACKED, Packing, Piece, TaskPieces, groups, is_small, pack
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reader import read_pieces
from kstream_kafka.reader.read_report import Findings, Plain


class FindingsReceiver(Protocol):
    """Where tasks send what they found, by batch time in ms: a Spark accumulator."""

    def add(self, term: dict[int, Plain]) -> None: ...


@dataclass(frozen=True)
class Watch:
    """How the reads of one batch are watched over. `topic_ids`: those of the plan. `tolerant`: what is lost is reported, not raised."""

    time_ms: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerant: bool = False
    report_to: FindingsReceiver | None = None


UNWATCHED = Watch()
"""An RDD of no stream: losses are raised, nobody counts."""


@dataclass(frozen=True)
class RangeReads:
    """What each task reads; `executor` are complete consumer properties but for fetch sizes."""

    tasks: tuple[TaskPieces, ...]
    executor: Mapping[str, Any]
    poll_timeout_ms: int
    watch: Watch = UNWATCHED

    @staticmethod
    def of(
        pieces: Sequence[Piece], executor: Mapping[str, Any], poll_timeout_ms: int, packing: Packing = NOT_PACKED, watch: Watch = UNWATCHED
    ) -> RangeReads:
        """The reads of these ranges, one task a range unless packed otherwise."""
        return RangeReads(pack(pieces, packing), executor, poll_timeout_ms, watch)

    def __len__(self) -> int:
        """The number of tasks."""
        return len(self.tasks)

    def __reduce__(self) -> Any:
        """Pickled as rows of plain values: a thousand ranges go to each task in a tenth of the time that their objects would take."""
        rows = [[(*p.range.to_json(), p.leader_epoch, p.from_epoch) for p in task] for task in self.tasks]
        return (_unpickled, (rows, self.executor, self.poll_timeout_ms, self.watch))

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """The messages of task `index`, each chunk with the range it is of, in the order of its pieces; offsets rise within each.

        Lazy; runs in a Spark task and blocks on the broker. An empty range asks nothing of Kafka. Chunks are never empty; those of
        small ranges are small. At the end, or when the task wants no more, what was found is reported; not when it failed.
        """
        findings = Findings(self.watch.tolerant)
        try:
            yield from self._read(index, findings)
        except GeneratorExit:
            self._report(findings)
            raise
        self._report(findings)

    def _report(self, findings: Findings) -> None:
        found = findings.plain()
        if found and self.watch.report_to is not None:
            self.watch.report_to.add({self.watch.time_ms: found})

    def _read(self, index: int, findings: Findings) -> Iterator[tuple[OffsetRange, list[Any]]]:
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
                yield from read_pieces(consumer, group, self.poll_timeout_ms, findings=findings, topic_ids=self.watch.topic_ids)

    def _borrowed(self, small: bool) -> AbstractContextManager[RangeConsumer]:
        """A consumer for the length of this task, with fetches for small ranges or for large ones."""
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Spark does not tell Python the attempt number of a stage; a task of a repeated stage starts anew by being re-assigned.
        retry = bool(context and context.attemptNumber() > 0)
        sized = params.small if small else params.bulk
        return consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry)


def _unpickled(rows: list[list[Any]], executor: Mapping[str, Any], poll_timeout_ms: int, watch: Watch) -> RangeReads:
    tasks = tuple(tuple(Piece(OffsetRange(*where), epoch, begun) for *where, epoch, begun in task) for task in rows)
    return RangeReads(tasks, executor, poll_timeout_ms, watch)


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

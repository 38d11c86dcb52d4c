"""What a Spark task does for its part of a batch: borrow a consumer, read, decode. Pickled by reference into the tasks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from kstream_kafka import consumer_cache, params
from kstream_kafka.decoding import Decoding
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.reader import read_range

SMALL_RANGE = 1_000
"""Up to so many records a range is read with small fetches."""


@dataclass(frozen=True)
class RangeReads:
    """What each task reads. `leader_epochs[i]` belongs to `ranges[i]`; `executor` are complete consumer properties but for fetch sizes."""

    ranges: tuple[OffsetRange, ...]
    leader_epochs: tuple[int | None, ...]
    executor: Mapping[str, Any]
    poll_timeout_ms: int

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        """The messages of task `index`, each chunk with the range it is of; offsets rise within a partition.

        Lazy; runs in a Spark task and blocks on the broker. An empty range asks nothing of Kafka.
        """
        wanted = self.ranges[index]
        if wanted.fromOffset >= wanted.untilOffset:
            return
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else -1
        # Spark does not tell Python the attempt number of a stage; a task of a repeated stage starts anew by being re-assigned.
        retry = bool(context and context.attemptNumber() > 0)
        sized = params.small if wanted.count() <= SMALL_RANGE else params.bulk
        with consumer_cache.of_this_process().lend(sized(self.executor), attempt, retry) as consumer:
            for messages in read_range(consumer, wanted, self.poll_timeout_ms, self.leader_epochs[index]):
                yield wanted, messages


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

"""KafkaRDD: partition i holds the records of `offsetRanges()[i]`, read by the worker when the partition is computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from kstream.spark.worker_rdd import WorkerRDD
from kstream_kafka.decoding import Decoding
from kstream_kafka.offset_range import OffsetRange
from kstream_kafka.range_task import RangeReads, RangeTask


class KafkaRDD(WorkerRDD):
    """The RDD of planned ranges; computed again it gives the same records, as long as the brokers have them.

    `exact_counts` says that offsets have no gaps: then `count`, `isEmpty` and the partitions that `take` visits come from the
    ranges, without a job where possible. With `spark.streaming.kafka.allowNonConsecutiveOffsets` real records are counted.
    """

    def __init__(
        self,
        sc: Any,
        ranges: Sequence[OffsetRange],
        executor: dict[str, Any],
        decoding: Decoding,
        *,
        leader_epochs: Sequence[int | None] | None = None,
        poll_timeout_ms: int = 120_000,
        exact_counts: bool = True,
    ) -> None:
        self._ranges = tuple(ranges)
        self._exact_counts = exact_counts
        epochs = tuple(leader_epochs) if leader_epochs is not None else (None,) * len(self._ranges)
        reads = RangeReads(self._ranges, epochs, executor, poll_timeout_ms)
        super().__init__(sc, len(self._ranges), RangeTask(reads, decoding))

    def offsetRanges(self) -> list[OffsetRange]:
        """The ranges, in the order of the partitions."""
        return list(self._ranges)

    def count(self) -> int:
        """Number of records; from the ranges where offsets have no gaps."""
        return sum(r.count() for r in self._ranges) if self._exact_counts else super().count()

    def isEmpty(self) -> bool:
        """Whether there is no record; from the ranges where offsets have no gaps."""
        return self.count() == 0 if self._exact_counts else super().isEmpty()

    def take(self, num: int) -> list[Any]:
        """The first `num` records, fewer when there are not so many. One job over just the partitions needed, if offsets have no gaps."""
        if not self._exact_counts:
            return super().take(num)
        needed: list[int] = []
        left = num
        for index, r in enumerate(self._ranges):
            if left > 0 and r.count() > 0:
                needed.append(index)
                left -= r.count()
        if not needed:
            return []

        def first(records: Iterable[Any]) -> Iterable[Any]:
            return itertools.islice(records, num)

        return list(self.context.runJob(self, first, needed))[:num]

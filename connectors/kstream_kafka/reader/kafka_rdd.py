"""KafkaRDD: the records of planned ranges, read by the workers when a partition is computed; one range a partition, unless packed.

Whether ranges are wholly on the brokers, asked before anything is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kstream.spark.worker_rdd import WorkerRDD
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import RangesNotAvailableError
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.packing import NOT_PACKED, Packing, Piece
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_task import UNWATCHED, RangeReads, RangeTask, Watch


class KafkaRDD(WorkerRDD):
    """The RDD of planned ranges; computed again it gives the same records in the same order, as long as the brokers have them.

    Partition i holds the records of `offsetRanges()[i]`. That is so without `packing` only: with it, `offsetRangesOf(i)` tells, and
    records of one Kafka partition still come in the order of their offsets, over all partitions of the RDD. `locations[i]` are the
    places RDD partition i prefers.

    `pieces` are the ranges with the leader epochs of their plan, where there was one; `watch` is what that stream wants to know of the
    reads.

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
        pieces: Sequence[Piece] | None = None,
        poll_timeout_ms: int = 120_000,
        exact_counts: bool = True,
        packing: Packing = NOT_PACKED,
        locations: Sequence[Sequence[str]] | None = None,
        watch: Watch = UNWATCHED,
    ) -> None:
        self._ranges = tuple(ranges)
        self._exact_counts = exact_counts
        known = pieces if pieces is not None else [Piece(r) for r in self._ranges]
        self.reads = RangeReads.of(known, executor, poll_timeout_ms, packing, watch)
        """What the tasks read, for whoever wants other elements of the same records."""
        super().__init__(sc, len(self.reads.tasks), RangeTask(self.reads, decoding), locations=locations)

    def offsetRanges(self) -> list[OffsetRange]:
        """The planned ranges. In the order of the RDD's partitions, one each, unless packed or split."""
        return list(self._ranges)

    def offsetRangesOf(self, partition: int) -> list[OffsetRange]:
        """What this partition of the RDD reads: ranges, or parts of them, in this order. Packed, empty ranges are in none."""
        return [piece.range for piece in self.reads.tasks[partition]]

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
        for index, task in enumerate(self.reads.tasks):
            records = sum(piece.range.count() for piece in task)
            if left > 0 and records > 0:
                needed.append(index)
                left -= records
        if not needed:
            return []

        def first(records: Iterable[Any]) -> Iterable[Any]:
            return itertools.islice(records, num)

        return list(self.context.runJob(self, first, needed))[:num]


def check_available(
    params: KafkaParams, ranges: Sequence[OffsetRange], make_client: Callable[[KafkaParams], DriverClient] | None = None
) -> None:
    """RangesNotAvailableError unless every range lies within its log, as createRDD of Spark 2.4 does. Blocks: two questions a broker."""
    if not ranges:
        return
    if make_client is None:
        from kstream_kafka.client.driver_client import KafkaDriverClient  # only who asks loads librdkafka

        make_client = KafkaDriverClient
    client = make_client(params)
    try:
        partitions = {(r.topic, r.partition) for r in ranges}
        begin, end = client.earliest(partitions), client.latest(partitions)
    finally:
        client.close()
    bad = [
        (r.topic, r.partition, r.fromOffset, r.untilOffset, begin[p].offset, end[p].offset)
        for r in ranges
        if not (begin[p := (r.topic, r.partition)].offset <= r.fromOffset <= r.untilOffset <= end[p].offset)
    ]
    if bad:
        raise RangesNotAvailableError(bad)

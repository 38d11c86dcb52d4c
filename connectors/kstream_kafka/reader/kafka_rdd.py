"""KafkaRDD: the records of planned ranges. The workers read them when a partition is computed. Unless packed, a partition is one range."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kstream.offsets.offset_range import OffsetRange
from kstream.spark.worker_rdd import WorkerRDD
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import RangesNotAvailableError
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.reader.range_task import RangeTask


class KafkaRDD(WorkerRDD):
    """The RDD of the records of planned offset ranges.

    Each computation reads the brokers again. It yields the same records in the same order, as long as the brokers have them. Lost records
    raise DataLossError in the task, unless the batch tolerates losses.

    Without packing, partition i holds the records of `offsetRanges()[i]`. With packing, `offsetRangesOf(i)` returns the ranges of partition
    i, and records of one Kafka partition still come in the order of their offsets, over all partitions of the RDD.

    `KafkaUtils.createRDD` returns a KafkaRDD, and each batch of a direct stream is one:

        stream.foreachRDD(lambda rdd: print(rdd.offsetRanges(), rdd.count()))
    """

    def __init__(
        self,
        sc: Any,
        ranges: Sequence[OffsetRange],
        reads: RangeReads,
        decoding: Decoding,
        *,
        exact_counts: bool = True,
        locations: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Create the RDD. Sends no request.

        Args:
            sc: the SparkContext.
            ranges: the planned ranges.
            reads: what the tasks read of these ranges, and how.
            decoding: makes the elements from the messages.
            exact_counts: whether offsets have no gaps, so that a range has as many records as offsets. Then `count` and `isEmpty` run no
                job, and `take` visits only the partitions that it needs. With `spark.streaming.kafka.allowNonConsecutiveOffsets` it is
                False, and jobs count the records.
            locations: the preferred locations of each partition, in Spark's notation; None for no preference.
        """
        self._ranges = tuple(ranges)
        self._exact_counts = exact_counts
        self.reads = reads
        """The splits that the tasks read. `foreachBatch` makes a DataFrame of the same records from them."""
        super().__init__(sc, len(reads), RangeTask(reads, decoding), locations=locations)

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the planned ranges. Range i is partition i of the RDD, unless ranges are packed or split."""
        return list(self._ranges)

    def offsetRangesOf(self, partition: int) -> list[OffsetRange]:
        """Return the ranges that a partition of the RDD reads, in their order.

        Args:
            partition: the index of a partition of the RDD.

        Returns:
            Ranges, or parts of ranges. An RDD with a limit of tasks has no empty ones.
        """
        return [split.range for split in self.reads.tasks[partition]]

    def count(self) -> int:
        """Return the number of records. Runs no job if offsets have no gaps; otherwise a job counts."""
        return sum(split.range.count() for task in self.reads.tasks for split in task) if self._exact_counts else super().count()

    def isEmpty(self) -> bool:
        """Return whether there is no record. Runs no job if offsets have no gaps; otherwise a job looks for a record."""
        return self.count() == 0 if self._exact_counts else super().isEmpty()

    def take(self, num: int) -> list[Any]:
        """Return the first records. Blocks: if offsets have no gaps, one job reads only the partitions needed.

        Args:
            num: how many.

        Returns:
            `num` elements, or all if there are fewer.
        """
        if not self._exact_counts:
            return super().take(num)
        needed: list[int] = []
        left = num
        for index, task in enumerate(self.reads.tasks):
            records = sum(split.range.count() for split in task)
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
    """Check that every range lies within its log, as createRDD of Spark 2.4 does. Blocks: two requests to each broker, and retries.

    Args:
        params: the user's Kafka parameters.
        ranges: the ranges. Without any, no request is sent.
        make_client: creates the client; None for `KafkaDriverClient`.

    Raises:
        RangesNotAvailableError: a range lies partly or wholly outside of its log, or ends before it begins.
        BrokerUnreachableError: no broker answered.
        UnknownTopicError: a topic does not exist.
        KafkaError: another error of the client, such as LeaderNotAvailableError, NotAuthorizedError or KafkaConfigError.
    """
    if not ranges:
        return
    if make_client is None:
        from kstream_kafka.client.driver_client import KafkaDriverClient  # imported late: not every process needs librdkafka

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

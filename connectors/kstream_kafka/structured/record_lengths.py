"""RecordLengths: how long the records are that a query reads next, by a look at some of them. For `maxBytesPerTrigger`.

The tasks of a Python data source tell the planner nothing, so the planner reads some records by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from kstream.offsets.admission_control import LARGEST_RECORD
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.range_reader import mean_length, read_splits

logger = logging.getLogger("kstream.kafka")

PARTITIONS = 5
"""The most partitions that are looked at: those with most unread records."""
RECORDS = 20
"""The most records of each."""
TIMEOUT_MS = 5_000
"""Milliseconds after which a look without an answer is given up."""


class RecordLengths:
    """The lengths of the next records of a query. Not thread-safe: the planner's thread calls it."""

    def __init__(self, params: KafkaParams, make_consumer: Callable[[Mapping[str, Any]], RangeConsumer] | None = None) -> None:
        """Note the parameters. The consumer is created at the first look.

        Args:
            params: the Kafka parameters.
            make_consumer: creates a consumer from its properties, for tests; None for KafkaRangeConsumer.
        """
        self._params = params
        self._make_consumer = make_consumer or _real_consumer
        self._consumer: RangeConsumer | None = None
        self._mean = float(LARGEST_RECORD)

    def mean(self, current: Mapping[Partition, int], ends: Mapping[Partition, int]) -> float:
        """Return the mean bytes of key and value of the next records. Blocks on the brokers, up to TIMEOUT_MS.

        Without an answer it is the mean of the last look, and before any the largest record that Kafka allows by default.

        Args:
            current: the next offset of each partition.
            ends: the end of each partition's log.
        """
        longest = sorted(((end - current[p], p) for p, end in ends.items() if end > current[p]), reverse=True)[:PARTITIONS]
        splits = [RangeSplit(OffsetRange(*p, current[p], min(ends[p], current[p] + RECORDS))) for _, p in longest]
        try:
            messages = self._look(splits)
        except KafkaError as e:
            logger.info("the planner could not read records to see how long they are; it takes them for %.0f bytes: %s", self._mean, e)
        else:
            if messages:
                self._mean = max(1.0, mean_length(messages))
        return self._mean

    def _look(self, splits: list[RangeSplit]) -> list[Any]:
        """Return all messages of some splits, read by the planner's own consumer. Blocks. KafkaError, also after TIMEOUT_MS in silence."""
        if self._consumer is None:
            self._consumer = self._make_consumer(small(self._params.executor()))
        try:
            chunks = read_splits(self._consumer, splits, TIMEOUT_MS)
            return [message for _, messages in chunks for message in messages]
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _real_consumer(settings: Mapping[str, Any]) -> RangeConsumer:
    """Create a KafkaRangeConsumer. May block."""
    from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # imported late: only this option needs it in the planner

    return KafkaRangeConsumer(settings)

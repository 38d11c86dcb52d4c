"""KafkaStreamReader and KafkaBatchReader: the Kafka source as Spark calls it. Each process of Spark has one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from kstream.clock import Clock, SystemClock
from kstream.errors import CheckpointError
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.topic_offsets import TopicOffsets, by_partition, by_topic
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.structured.bounds import MakeClient, driver_client, partitions_of, patiently, resolved
from kstream_kafka.structured.columns import Columns
from kstream_kafka.structured.micro_batches import MicroBatches, Offsets
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.partition_reads import KafkaInputPartition, PartitionReads, input_partitions

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # before Spark 4.2, which stops at the offsets of its first question by itself

        class SupportsTriggerAvailableNow:
            pass


NO_LIMIT = (1 << 63) - 1


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of a streaming query. The planner process calls all methods but `read`, from one thread; the tasks call `read`.

    Spark 4.0 and 4.1 call `latestOffset` without arguments. They know no limits of a source, and do not tell it that a query has one batch.
    """

    def __init__(
        self, options: SourceOptions, columns: Columns, make_client: MakeClient = driver_client, clock: Clock | None = None
    ) -> None:
        """Note the options. Sends no request: Spark makes a reader for the tasks, too.

        Args:
            options: the options of a stream, after `of_stream`.
            columns: the columns of the query.
            make_client: creates the planner's client, for tests.
            clock: the clock, for tests; None for the system's.
        """
        self._options = options
        self._reads = PartitionReads.of(options, columns)
        self._make_client = make_client
        self._clock = clock

    @cached_property
    def _batches(self) -> MicroBatches:
        """The plans of the query, made when the planner process asks for the first time. The tasks have none."""
        return MicroBatches(self._options, self._make_client, self._clock)

    def initialOffset(self) -> TopicOffsets:
        """Return where a query without a checkpoint begins. Blocks on the brokers."""
        return by_topic(self._batches.begin())

    def latestOffset(self, start: Any = None, limit: Any = None) -> TopicOffsets:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return where the next batch ends. Blocks on the brokers.

        Args:
            start: the offsets where it begins; None before Spark 4.2.
            limit: the limit of Spark, of which only one counts: ReadAllAvailable, for a query of one batch.
        """
        is_once = type(limit).__name__ == "ReadAllAvailable"
        return by_topic(self._batches.latest(None if start is None else _offsets(start), is_once))

    def getDefaultReadLimit(self) -> Any:
        """Return a limit for `latestOffset` that it ignores: the limits of the options are applied by MicroBatches. Spark 4.2 asks for it.

        Without it Spark would give ReadAllAvailable for every batch, and not only to a query of one batch.
        """
        from pyspark.sql.streaming.datasource import ReadMaxRows  # Spark 4.2

        return ReadMaxRows(self._options.max_offsets or NO_LIMIT)

    def reportLatestOffset(self) -> TopicOffsets | None:
        """Return the ends of the logs at the last answer, for the progress of the query. Sends no request."""
        ends = self._batches.log_ends
        return None if ends is None else by_topic(ends)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the ends of the logs, where the query ends. Blocks on the brokers."""
        self._batches.prepare_available_now()

    def partitions(self, start: TopicOffsets, end: TopicOffsets) -> Sequence[KafkaInputPartition]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what the tasks of a batch read. May block on the brokers. Raises as `MicroBatches.plan`.

        At a restart Spark asks with equal offsets. They only tell where the query is, and no task reads anything.
        """
        begin, until = _offsets(start), _offsets(end)
        if begin == until:
            self._batches.seen(until)
            return []
        return input_partitions(self._batches.plan(begin, until), self._options)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: its reads, and no option besides."""
        return {"_reads": self._reads}

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read the records of a partition, in a task. Lazy; blocks on the broker."""
        return self._reads.read(partition)

    def commit(self, end: TopicOffsets) -> None:
        """Do nothing: the offsets of a query are in its checkpoint."""

    def stop(self) -> None:
        """Close the clients of the planner."""
        self._batches.close()


class KafkaBatchReader(DataSourceReader):
    """The source of a batch query. Spark calls `partitions` in a process of its own, when it plans the query; the tasks call `read`."""

    def __init__(
        self, options: SourceOptions, columns: Columns, make_client: MakeClient = driver_client, clock: Clock | None = None
    ) -> None:
        """Note the options. Sends no request.

        Args:
            options: the options of a batch, after `of_batch`.
            columns: the columns of the query.
            make_client: creates the client, for tests.
            clock: the clock, for tests; None for the system's.
        """
        self._options = options
        self._reads = PartitionReads.of(options, columns)
        self._make_client = make_client
        self._clock = clock or SystemClock()

    def partitions(self) -> list[InputPartition]:
        """Return what the tasks read: from the start of each partition to its end, both as of now. Blocks on the brokers.

        Raises:
            SourceOptionError: the bounds do not fit the partitions.
            KafkaError: an error of the client.
        """
        client = self._make_client(self._options)
        try:
            return [*input_partitions(patiently(lambda: self._plan(client), self._clock), self._options)]
        finally:
            client.close()

    def _plan(self, client: DriverClient) -> KafkaPlan:
        """Return the plan of the query. A partition whose end is before its start is not read, as in Spark."""
        options, now = self._options, self._clock.time_ms
        assert options.starts is not None and options.ends is not None
        known = partitions_of(client, options.topics)
        ids = client.topic_ids({topic for topic, _ in known})  # first, so that the offsets of a newer topic are refused
        starts = resolved(client, options.starts, known, now, options.late_start)
        ends = resolved(client, options.ends, known, now)
        ranges = [OffsetRange(*p, starts[p], max(starts[p], ends[p])) for p in sorted(known)]
        return KafkaPlan.without_epochs(ranges, ids)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: its reads, and no option besides."""
        return {"_reads": self._reads}

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read the records of a partition, in a task. Lazy; blocks on the broker."""
        return self._reads.read(partition)


def _offsets(value: TopicOffsets) -> Offsets:
    """Return the offsets that Spark gives. CheckpointError if they are no offsets of Kafka, as in a checkpoint of another source."""
    found = by_partition(value)
    if found is None:
        raise CheckpointError(f"the checkpoint of the query has {value!r}, which is no offset of Kafka: another source wrote it", path="")
    return found

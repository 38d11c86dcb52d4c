"""What the tasks of a query do: KafkaInputPartition names the records, PartitionReads reads them as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReportData, lost_ranges
from kstream_kafka.planning.packing import Packing, RangeSplit, TaskSplits, pack
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.reader.data_frame import no_cycle_collection
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads
from kstream_kafka.reader.range_task import lend_in_task
from kstream_kafka.structured.columns import Columns
from kstream_kafka.structured.limits import tasks_of
from kstream_kafka.structured.losses import log_lost
from kstream_kafka.structured.options import SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True)
class KafkaInputPartition(InputPartition):
    """What one task reads. Immutable; pickled into the task.

    Attributes:
        splits: the ranges.
        topic_ids: topic → topic id of the plan.
    """

    splits: TaskSplits
    topic_ids: Mapping[str, str]

    def __reduce__(self) -> Any:
        """Pickle the splits as rows of plain values. A trigger may have a thousand partitions, which Spark pickles one by one."""
        rows = [(*split.range.to_json(), split.leader_epoch, split.from_epoch) for split in self.splits]
        return (_unpickled, (rows, dict(self.topic_ids)))


def _unpickled(rows: Sequence[Sequence[Any]], topic_ids: Mapping[str, str]) -> KafkaInputPartition:
    """Return the partition of pickled rows. Called by pickle in the tasks."""
    return KafkaInputPartition(tuple(RangeSplit(OffsetRange(*where), epoch, begun) for *where, epoch, begun in rows), topic_ids)


def input_partitions(plan: KafkaPlan, options: SourceOptions) -> list[KafkaInputPartition]:
    """Return what each task of a plan reads, by the options for the number of tasks. Pure."""
    whole = tasks_of(plan.splits, options.min_tasks, options.max_records_per_task)
    ids = plan.topic_ids
    return [
        KafkaInputPartition(splits, {topic: ids[topic] for topic in {s.range.topic for s in splits} if topic in ids})
        for splits in pack(whole, Packing(max_tasks=options.max_tasks or 0))
    ]


def log_losses(report: ReportData) -> None:
    """Log a warning for each loss in the report of this task's read. A task of a Python data source has no other way to tell it."""
    log_lost(lost_ranges(report.get("lost", {})))


@dataclass(frozen=True)
class PartitionReads:
    """Reads the partitions of a query. Immutable; pickled into the tasks.

    Attributes:
        executor: complete consumer properties, except for fetch sizes.
        poll_timeout_ms: how long a task waits for the next record, in ms.
        tolerate_loss: whether the read goes on if records are gone; otherwise that fails the task.
        columns: the columns, in the order of the query's schema.
    """

    executor: Mapping[str, Any]
    poll_timeout_ms: int
    tolerate_loss: bool
    columns: Columns

    @staticmethod
    def of(options: SourceOptions, columns: Columns) -> PartitionReads:
        """Return the reads of a query."""
        return PartitionReads(options.params.executor(), options.poll_timeout_ms, not options.fail_on_data_loss, columns)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Read the records of a partition. Lazy; runs in a Spark task, and blocks on the broker.

        Yields:
            Record batches with the columns of the query. Without a record there is none.

        Raises:
            DataLossError: records are gone, and that fails the query.
            MalformedValueError: a value does not fit the schema, and the mode is "fail".
            PollTimeoutError: no message came in `poll_timeout_ms`.
            KafkaError: another error of the client.
        """
        from kstream_kafka.reader.arrow import record_batches  # the planner loads no pyarrow for it

        if not isinstance(partition, KafkaInputPartition):  # Spark's stand-in for a batch query without partitions
            return
        context = BatchReadContext(partition.topic_ids, self.tolerate_loss, log_losses)
        reads = RangeReads((partition.splits,), self.executor, self.poll_timeout_ms, context)
        chunks = reads.chunks(0, lend_in_task)
        with no_cycle_collection():
            if isinstance(self.columns, tuple):
                yield from record_batches(chunks, self.columns)
            else:
                yield from self.columns.record_batches(chunks)

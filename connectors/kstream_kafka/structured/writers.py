"""KafkaStreamWriter and KafkaBatchWriter: the Kafka sink as Spark calls it.

Spark makes a writer for each batch of a query in a process of its own, and pickles it into the tasks, which call `write`. Another process
beside the driver makes another writer, and calls `commit` with all messages of the tasks. Only it knows the id of the batch. So it writes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kstream.clock import SystemClock
from kstream.worker.process import freeze_gc
from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import CommitUnknownError, SourceOptionError
from kstream_kafka.sink.at_least_once import AtLeastOnceWriter
from kstream_kafka.sink.frame_columns import check_columns, encoded, kept
from kstream_kafka.sink.query_batches import QueryBatches, write_at_once
from kstream_kafka.sink.query_sources import QuerySources
from kstream_kafka.structured.bounds import patiently
from kstream_kafka.structured.sink_options import SinkOptions
from kstream_kafka.structured.spools import SpooledPartition, batch_of_task, query_of, remove_spools, spooled
from kstream_kafka.structured.value_encoders import ValueEncoding

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
    except ImportError:  # before Spark 4.1, which gives rows
        DataSourceArrowWriter, DataSourceStreamArrowWriter = DataSourceWriter, DataSourceStreamWriter

logger = logging.getLogger("kstream.kafka")
Messages = Sequence[WriterCommitMessage | None]


class _Writer:
    """What the writers of streaming and of batch queries do alike. Pickled into the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check the frame. Sends no request.

        Args:
            options: the options of the sink.
            schema: that of the frame.

        Raises:
            SourceOptionError: a column is missing or has another type.
        """
        self._options = options
        self._frame = uuid.uuid4().hex
        is_encoded = options.value_format is not None
        self._columns = check_columns(
            schema, options.topic, SourceOptionError, is_encoded, "Set the option value.format, which encodes it."
        )
        self._encoding = ValueEncoding.of(options, schema["value"].dataType)
        freeze_gc()  # Spark makes a writer for each batch in two processes, which collect garbage beside the tasks

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Spool the rows of a task; under at-least-once, write them. Blocks on the brokers then, and on a schema registry.

        Raises:
            RowEncodingError: a value cannot be encoded.
            SourceOptionError: the column `value` does not fit the schema of the registry.
            KafkaError: an error of a client.
        """
        freeze_gc()
        encoder = None if self._encoding is None else self._encoding.open()
        batches, told = kept(iterator, self._columns, encoder), batch_of_task()
        if self._options.is_exactly_once:
            return spooled(batches, told, self._options.place, self._frame)
        AtLeastOnceWriter(self._options.params.sink())(self._encoded(batches))
        return SpooledPartition(*told)

    def _records(self, spools: Iterable[SpooledPartition]) -> Iterator[Encoded]:
        """Return the records of spools. Lazy."""
        return self._encoded(batch for spool in spools for batch in spool.read(self._options.place))

    def _write_once(self, spools: Sequence[SpooledPartition], query: str, batch: int) -> None:
        """Write the spools of a batch in one transaction with a receipt. Blocks on the brokers; an outage is waited out.

        If Kafka has the batch already, nothing is written, and the log says so.

        Args:
            spools: those of all tasks.
            query: the id of the query, or of one of its outputs.
            batch: the id of the batch.

        Raises:
            KafkaError, OutputChangedError: as `QueryBatches.write`.
        """
        options, sources = self._options, QuerySources(self._options.checkpoint)
        batches = QueryBatches(
            options.params, options.prefix, query, options.topic, keeps=options.keeps, audit=options.audit, notes=options.notes
        )
        size, is_empty = sum(spool.num_bytes for spool in spools), not any(spool.num_records for spool in spools)
        is_new = _certainly(lambda: batches.write(batch, lambda: self._records(spools), size, sources, is_empty=is_empty))
        if not is_new and not is_empty:
            logger.info("batch %d of query %s is in Kafka already, and was not written again", batch, query)

    def _encoded(self, batches: Iterable[Any]) -> Iterator[Encoded]:
        """Return the records that rows become, of record batches as `kept` gives them. Lazy."""
        return encoded(batches, self._options.topic, self._options.params.max_record_bytes)


class KafkaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def commit(self, messages: Messages, batchId: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write a batch in one transaction, unless Kafka has it. Blocks on the brokers; an outage is waited out.

        Under at-least-once it does nothing: the tasks have written.

        Args:
            messages: those of all tasks.
            batchId: the id of the batch. The same batch has the same one after a restart.

        Raises:
            ReceiptsLostError: the query had a receipt, and it is gone.
            OutputChangedError: a receipt tells of a later batch, or of this one with other sources or other records.
            KafkaError: as `QueryBatches.write`.
        """
        spools = _spools(messages)
        if not self._options.is_exactly_once or not spools:
            return
        self._write_once(spools, query_of(spools, batchId), batchId)
        self._forget(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Remove the spools of a batch that has failed. Its next try spools anew."""
        self._forget(messages, batchId)

    def _forget(self, messages: Messages, batch: int) -> None:
        """Remove the spools of a batch and of earlier ones. Blocks; raises nothing."""
        if self._options.place is not None:
            remove_spools(self._options.place, _spools(messages), batch)


class KafkaBatchWriter(_Writer, DataSourceArrowWriter):
    """The sink of a batch query. No restart runs it again, so it leaves no receipt, unless it is a frame of `foreachBatch` with a name."""

    def commit(self, messages: Messages) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Write the frame in one transaction. Blocks on the brokers; with a name an outage is waited out.

        Under at-least-once it does nothing: the tasks have written.

        Raises:
            SourceOptionError: the frame has a name, and belongs to no batch of a query.
            OutputChangedError: as `KafkaStreamWriter.commit`, for a frame with a name.
            KafkaError: that fails, or nobody knows whether it did.
        """
        options = self._options
        if options.name is not None and options.is_exactly_once:
            self._write_named(_spools(messages), options.name)
            return
        spools = [spool for spool in _spools(messages) if spool.num_records]
        if spools:
            size = sum(spool.num_bytes for spool in spools)
            write_at_once(options.params, f"{options.prefix}-batch-{uuid.uuid4()}", self._records(spools), size)
            self._forget(messages)

    def _write_named(self, spools: Sequence[SpooledPartition], name: str) -> None:
        """Write a frame of `foreachBatch` once. Errors as `commit`."""
        batch = spools[0].batch if spools else None
        if batch is None:
            raise SourceOptionError("name", f"is {name!r}, and this frame belongs to no batch of a query", "Leave it out.")
        self._write_once(spools, f"{query_of(spools, batch)}/{name}", batch)
        self._forget(spools)

    def abort(self, messages: Messages) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Remove the spools of a frame that has failed."""
        self._forget(messages)

    def _forget(self, messages: Messages) -> None:
        """Remove the spools of the frame, and in `foreachBatch` those of earlier batches. Blocks; raises nothing.

        Another frame of the same batch may be about to write its spools.
        """
        if self._options.place is not None:
            spools = _spools(messages)
            batch = next((spool.batch for spool in spools if spool.batch is not None), None)
            remove_spools(self._options.place, spools, None if batch is None else batch - 1, self._frame)


def _spools(messages: Messages) -> list[SpooledPartition]:
    """Return the messages of the tasks that have ended."""
    return [message for message in messages if isinstance(message, SpooledPartition)]


def _certainly(write: Callable[[], bool]) -> bool:
    """Write a batch, and look once whether it is there if the commit had no answer. Waits for brokers that are away.

    An error that leaves `commit` ends the query.
    """

    def twice() -> bool:
        try:
            return write()
        except CommitUnknownError as e:
            logger.warning("%s", e)
            return write()

    return patiently(twice, SystemClock())

"""once: an output that writes each record to a database exactly once. The driver's half; the tasks' half is `receipts`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kstream.batch import Json
from kstream.batch_time import Time
from kstream.dstream.arguments import check_function
from kstream.dstream.output import Output, OutputBatch, Writer
from kstream.errors import ConfigurationError
from kstream.public_call import refused
from kstream.sinks.receipts import Connection, Ledger, PartitionWriter, Receipt, take_over, to_write

if TYPE_CHECKING:
    from pyspark import RDD

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


def once(
    connect: Callable[[], Connection],
    write: Callable[[Connection, Iterator[Any]], object],
    *,
    name: str = "once",
    table: str = "kstream_receipts",
) -> Output:
    """Write each record of a stream to SQLite or PostgreSQL exactly once, whatever fails and however often a batch runs.

        def write(connection, records):
            connection.executemany("INSERT INTO orders VALUES (?, ?)", records)

        stream.foreachRDD(once(lambda: sqlite3.connect("shop.db"), write))

    Each partition of a batch is one transaction. It has the records and a receipt: a row of `table` that names the batch. A batch that
    runs again finds the receipts, and writes only the partitions that have none. The job needs a checkpoint directory.

    Batches are written in order: a batch waits for the older ones, and so do all outputs of the job.

    Args:
        connect: connect() returns a connection of sqlite3, psycopg or psycopg2. It runs in the workers and on the driver. A worker uses a
            connection again for later batches.
        write: write(connection, records) writes the records of a partition. It runs in the workers. It must neither commit nor roll back.
            An error fails the batch, and nothing of the partition is written.
        name: the name of the output. Receipts belong to it: keep it when the code changes. Outputs of one job need different names.
        table: the table of the receipts. It is made if there is none.

    Returns:
        An output for `foreachRDD`.

    Raises:
        TypeError: `connect` or `write` is no function, or a generator function.
        ValueError: `name` is empty or has a comma, or `table` is no name of a table.
    """
    for argument, function in (("connect", connect), ("write", write)):
        check_function("once", argument, function)
    if not name or "," in name:
        raise refused(ValueError(f"once: name is {name!r}; give some text without commas"))
    if not _NAME.fullmatch(table):
        raise refused(ValueError(f"once: table is {table!r}; give the name of a table, such as kstream_receipts or shop.kstream_receipts"))
    return OnceOutput(connect, write, name, table)


class OnceOutput(Output):
    """The output that `once` returns."""

    is_ordered = True
    keeps_layout = True

    def __init__(self, connect: Callable[[], Connection], write: Callable[[Connection, Iterator[Any]], object], name: str, table: str):
        self.name = name
        self._connect = connect
        self._write = write
        self._table = table
        self._ledger: Ledger | None = None
        self._last_planned: Time | None = None
        self._has_taken_over = False
        self._known: dict[int, int] = {}
        """The number of records of each partition of the batch that is being written, as far as they are written."""
        self._written: dict[Time, int] = {}
        """The number of records of each batch that is written and whose completion is not stored."""

    def worker_functions(self) -> Sequence[Any]:
        return self._connect, self._write

    def restore(self, writer: Writer, stored: Json) -> None:
        """See the base class. The database is asked when the first batch is written, in its job: there an outage fails only a try."""
        if not writer.job:
            raise ConfigurationError(
                f"output {self.name} needs a checkpoint directory: without it no restart knows which batches have run. Set one "
                "(ssc.checkpoint)",
                key="spark.streaming.checkpoint.directory",
                value=None,
            )
        self._ledger = Ledger(self._table, writer.job, self.name, writer.epoch, writer.nonce)
        self._last_planned = writer.last_planned

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int] | None:
        """Ask the database for receipts, if a try of the batch may have run before. Before the first batch let no earlier driver write."""
        self._known = {}
        if self._has_taken_over and batch.is_first_try:
            return None
        assert self._ledger is not None
        with closing(self._connect()) as connection:
            receipts = take_over(connection, self._ledger)
        self._has_taken_over = True
        newest = batch.time if self._last_planned is None else max(batch.time, self._last_planned)
        partitions = to_write(receipts, batch.time.milliseconds, batch.epoch, rdd.getNumPartitions(), newest.milliseconds, self.name)
        self._known = _counts(receipts, batch.time)
        return partitions

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> None:
        assert self._ledger is not None
        number = rdd.getNumPartitions()
        chosen = range(number) if partitions is None else partitions
        writer = PartitionWriter(self._ledger, self._connect, self._write, batch.time.milliseconds, batch.epoch, number)
        if chosen:
            counts = rdd.context.runJob(rdd.mapPartitionsWithIndex(writer), list, chosen)
            self._known.update({p: count for p, count in zip(chosen, counts, strict=True) if count is not None})
        self._written[batch.time] = sum(self._known.values())

    def outcome(self, time: Time) -> Json:
        """Return the number of records that a batch has written."""
        return {"records": self._written[time]} if time in self._written else None

    def committed(self, time: Time) -> None:
        self._written.pop(time, None)


def _counts(receipts: Collection[Receipt], time: Time) -> dict[int, int]:
    """Return the number of records of each partition of a batch that is written. Pure."""
    return {receipt.partition: receipt.num_records for receipt in receipts if receipt.time_ms == time.milliseconds}

"""once: an output that writes each record to a database exactly once. The driver's half; the tasks' half is `receipt_table`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kstream.batch import Json
from kstream.dstream.arguments import check_function
from kstream.output import Output, OutputBatch, Writer
from kstream.public_call import refused
from kstream.sinks.dialects import Connection
from kstream.sinks.exactly_once import ExactlyOnceOutput
from kstream.sinks.receipt import Receipt, WrittenBatch, to_write
from kstream.sinks.receipt_table import PartitionWriter, ReceiptTable, check_is_there, closed, take_over

if TYPE_CHECKING:
    from pyspark import RDD

_REMEDY = (
    "If that cannot be, because blocks of a receiver are lost, remove the records of these partitions, and give the output another name: "
    "the batch is written anew"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


def once(
    connect: Callable[[], Connection],
    write: Callable[[Connection, Iterator[Any]], object],
    *,
    name: str = "once",
    table: str = "kstream_receipts",
) -> Output:
    """Write each record of a stream to SQLite or PostgreSQL exactly once, however often a batch runs.

        def write(connection, records):
            connection.executemany("INSERT INTO orders VALUES (?, ?)", records)

        stream.foreachRDD(once(lambda: sqlite3.connect("shop.db"), write))

    Each partition of a batch is one transaction. It has the records and a receipt: a row of `table` that names the batch. A batch that
    runs again finds the receipts, and writes only the partitions that have none. The job needs a checkpoint directory.

    Batches are written in order: a batch waits for the older ones, and so do all outputs of the job.

    Args:
        connect: connect() returns a connection of sqlite3 or psycopg. It runs in the workers and on the driver. A worker uses a
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


class OnceOutput(ExactlyOnceOutput):
    """The output that `once` returns."""

    def __init__(self, connect: Callable[[], Connection], write: Callable[[Connection, Iterator[Any]], object], name: str, table: str):
        super().__init__(name)
        self._connect = connect
        self._write = write
        self._table = table
        self._has_taken_over = False
        self._receipts: Sequence[Receipt] = ()
        """Those of the batch that is being written, from its earlier tries."""
        self._wanted: Sequence[int] | None = None
        """The partitions of that batch that are to be written; None for all."""

    def worker_functions(self) -> Sequence[Any]:
        return self._connect, self._write

    def restore(self, writer: Writer, stored: Json) -> None:
        """See ExactlyOnceOutput. The database is asked at the first batch, not now."""
        super().restore(writer, stored)
        self._has_taken_over = False

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int] | None:
        """Return the partitions that have no receipt; None for all. Blocks on the database.

        The database is asked only if a try of the batch may have run before, and at the first batch, to take over from earlier drivers.
        """
        self._receipts, self._wanted = (), None
        if self._has_taken_over and batch.is_first_try:
            return None
        table, time_ms, driver = self._receipt_table(), batch.time.milliseconds, self._driver
        wanted: list[list[int] | None] = []

        def check(receipts: list[Receipt]) -> None:
            check_is_there(receipts, self._newest, table)
            known = closed(receipts, table)
            wanted.append(to_write(known, time_ms, batch.nonce, rdd.getNumPartitions(), driver.knows, self.name, _REMEDY))

        is_known = self._has_taken_over or self._newest is not None
        with closing(self._connect()) as connection:
            receipts = take_over(connection, table, driver.nonce_of, check, is_known)
        self._has_taken_over = True
        self._receipts, self._wanted = [receipt for receipt in receipts if receipt.time_ms == time_ms], wanted[0]
        return self._wanted

    def _receipt_table(self) -> ReceiptTable:
        return ReceiptTable(self._table, self._driver.job, self.name, self._driver.epoch, self._driver.nonce)

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> None:
        """Write a batch by a Spark job, each of its partitions in a transaction of its task. Blocks on the job, whose error is raised.

        Of `partitions` those are only computed that have a receipt already.
        """
        number, time_ms = rdd.getNumPartitions(), batch.time.milliseconds
        chosen = range(number) if partitions is None else partitions
        counts = {receipt.partition: receipt.num_records for receipt in self._receipts}
        if chosen:
            writer = PartitionWriter(
                table=self._receipt_table(),
                connect=self._connect,
                write=self._write,
                time_ms=time_ms,
                nonce=batch.nonce,
                num_partitions=number,
                newest=self._newest,
                wanted=None if self._wanted is None else frozenset(self._wanted),
                hashing=next((receipt.hashing for receipt in self._receipts), None),
            )
            found = rdd.context.runJob(rdd.mapPartitionsWithIndex(writer), list, chosen)
            counts.update({p: count for p, count in zip(chosen, found, strict=True) if count is not None})
        is_newest = number and (self._newest is None or self._newest.time_ms < time_ms)
        self._note(batch.time, sum(counts.values()), WrittenBatch(time_ms, number) if is_newest else None)

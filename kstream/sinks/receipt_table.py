"""ReceiptTable: what a database knows of the batches that an output has written to it.

For each partition there is one row, the receipt. It names the newest batch of which that partition is written, and it is written in the
transaction of the records: so a receipt is there exactly if the records are. One more row, the fence, names the driver that may write.
Each transaction reads it and keeps it from changing. So a transaction of an earlier driver commits before the fence changes, or never.

For SQLite and PostgreSQL. The driver calls `take_over`. Tasks call a `PartitionWriter`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kstream.dstream.arguments import check_output_has_run
from kstream.errors import FencedError, IllegalStateError, OutputChangedError
from kstream.sinks.dialects import Connection, Dialect, dialect_of
from kstream.sinks.receipt import (
    Receipt,
    WrittenBatch,
    changed,
    check_fence,
    check_hashing,
    check_is_of_checkpoint,
    hashing,
    lost_partition,
)

_FENCE = -1
"""The partition number of the fence."""
_OPEN = -1
"""The number of records in a receipt whose transaction has not ended. Nobody else sees it, unless the user's function has committed."""
_REMOVED = -2
"""The number of records in a receipt whose records the user has removed by hand. The partition is written again."""


@dataclass(frozen=True, slots=True)
class ReceiptTable:
    """The receipts of one output of one job, and the driver that may write.

    Attributes:
        name: its name in the database.
        job: identifies the job.
        output: the name of the output.
        epoch: of the driver.
        writer: the nonce of the driver's epoch.
    """

    name: str
    job: str
    output: str
    epoch: int
    writer: str

    def changed(self, words: str) -> OutputChangedError:
        """Return the error that says what the database has and should not have."""
        return changed(self.output, words)

    def in_part(self, partition: int, time_ms: int) -> OutputChangedError:
        """Return the error about a receipt that is open and that others can see."""
        return self.changed(
            f"partition {partition} of batch {time_ms} ms is written in part, because the function has committed. Correct the function, "
            f"remove the records of the partition, then let it be written again: UPDATE {self.name} SET num_records = {_REMOVED} "
            f"WHERE job = '{self.job}' AND output = '{self.output}' AND partition_id = {partition}"
        )


# -- on the driver


def take_over(
    connection: Connection,
    table: ReceiptTable,
    nonce_of: Callable[[int], str | None],
    check: Callable[[list[Receipt]], None],
    is_known: bool,
) -> list[Receipt]:
    """Let this driver write from now on, and no earlier one. Makes the table if there is none. Idempotent.

    Blocks until the transactions of earlier drivers have ended. If it raises, only an empty table may be new.

    Args:
        connection: a new connection.
        table: names the receipts and this driver.
        nonce_of: nonce_of(epoch) returns the nonce of an epoch of this checkpoint; None if it has no such epoch.
        check: check(receipts) raises an error if this driver must not write.
        is_known: whether a driver of this checkpoint has written before. Then the fence must be there.

    Returns:
        The receipts of the output.

    Raises:
        FencedError: a later driver may write.
        OutputChangedError: the rows are not those of this checkpoint.
        Exception: an error of `check`, or of the database.
    """
    dialect = dialect_of(connection)
    dialect.ready(connection)
    if not _has_table(connection, dialect, table.name):
        if is_known:
            raise table.changed(f"the table {table.name} is gone, so nobody knows which batches are written")
        _make_table(connection, dialect, table.name)
    dialect.begin(connection)
    try:
        dialect.limit_waits(connection)
        _take_fence(connection, dialect, table, nonce_of, is_known)
        receipts = _receipts(connection, dialect, table)
        check(receipts)
        dialect.commit(connection)
    finally:
        dialect.rollback(connection)
    return receipts


def _take_fence(
    connection: Connection, dialect: Dialect, table: ReceiptTable, nonce_of: Callable[[int], str | None], is_known: bool
) -> None:
    """Write this driver into the fence, if the driver that is there now belongs to this checkpoint and is not a later one.

    Call this in a transaction. Arguments and errors as for `take_over`.
    """
    values = (table.job, table.output, _FENCE, 0, 0, "", table.epoch, 0, 0, table.writer)
    if not is_known:
        _execute(connection, dialect, _upsert(table.name, dialect, None), values)
    before = _read_fence(connection, dialect, table, " FOR UPDATE" if dialect.for_share else "")
    if before == (table.epoch, table.writer):
        return
    check_is_of_checkpoint(table.output, before, nonce_of)
    if before[0] > table.epoch:
        check_fence(table.output, table.name, (table.epoch, table.writer), before)
    _execute(connection, dialect, _upsert(table.name, dialect, "epoch"), values)


def check_is_there(receipts: Sequence[Receipt], newest: WrittenBatch | None, table: ReceiptTable) -> None:
    """Raise OutputChangedError if the database has lost the newest written batch or a part of it. Arguments as for `lost_partition`."""
    lost = lost_partition(receipts, newest)
    if newest is not None and lost is not None:
        raise table.changed(
            f"batch {newest.time_ms} ms was written, and partition {lost} of it is not there: the database was restored from a backup, "
            "or has lost transactions. Restore its newest state. Or replay what is missing, and give the output another name"
        )


def closed(receipts: Sequence[Receipt], table: ReceiptTable) -> list[Receipt]:
    """Return the receipts whose records are there, and not those that the user has marked as removed.

    OutputChangedError if a partition is written in part.
    """
    if broken := [receipt for receipt in receipts if receipt.num_records == _OPEN]:
        raise table.in_part(broken[0].partition, broken[0].time_ms)
    return [receipt for receipt in receipts if receipt.num_records != _REMOVED]


# -- in a task


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes the partitions of a batch in tasks, each in one transaction with its receipt.

    Attributes:
        table: where the receipts are.
        connect: returns a new connection.
        write: write(connection, records) writes records. It must neither commit nor roll back.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many it has.
        newest: the newest batch that is written. A new connection must find it. None without one.
        wanted: the partitions that are to be written; None for all. The others are only computed.
        hashing: that of the receipts of this batch; None without any.
    """

    table: ReceiptTable
    connect: Callable[[], Connection]
    write: Callable[[Connection, Iterator[Any]], object]
    time_ms: int
    nonce: str
    num_partitions: int
    newest: WrittenBatch | None = None
    wanted: frozenset[int] | None = None
    hashing: int | None = None

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[int | None]:
        """Write a partition. Yield the number of its records; None if it was written before and is only computed."""
        count: int | None = None
        if self.wanted is None or partition in self.wanted:
            with _transaction(self.table, self.connect, self.newest) as (connection, dialect):
                count = self._write_once(connection, dialect, partition, records)
        if count is None:
            for _ in records:  # inputs report on all records of a batch
                pass
        yield count

    def _write_once(self, connection: Connection, dialect: Dialect, partition: int, records: Iterable[Any]) -> int | None:
        """Write the receipt and the records. Return their number; None if another attempt has written them."""
        check_hashing(self.hashing, self.table.output, self.time_ms)
        key = (self.table.job, self.table.output, partition)
        values = (*key, self.num_partitions, self.time_ms, self.nonce, self.table.epoch, _OPEN, hashing(), self.table.writer)
        if _execute(connection, dialect, _upsert(self.table.name, dialect, "batch_time"), values) != 1:
            query = f"SELECT batch_time, num_records FROM {self.table.name} WHERE {_where(dialect)}"
            ((time_ms, num_records),) = _rows(connection, dialect, query, key)
            if num_records == _OPEN:
                raise self.table.in_part(partition, time_ms)
            return None
        count = self._called(connection, dialect, partition, records)
        update = f"UPDATE {self.table.name} SET num_records = {dialect.mark} WHERE {_where(dialect)}"
        if _execute(connection, dialect, update, (count, *key)) != 1:
            raise self._ended(partition)
        return count

    def _called(self, connection: Connection, dialect: Dialect, partition: int, records: Iterable[Any]) -> int:
        """Call the user's function. Return the number of the records that it has taken.

        A savepoint exists only in its transaction. So it shows whether the function has ended the transaction.
        """
        count = 0

        def counted() -> Iterator[Any]:
            nonlocal count
            for record in records:
                count += 1
                yield record

        connection.execute("SAVEPOINT kstream_once")
        with dialect.guarded(connection) as refused:
            try:
                result = self.write(connection, counted())
            except Exception as e:
                if refused:
                    raise self._refused(partition) from e
                raise
        if refused:
            raise self._refused(partition)
        check_output_has_run(f"output {self.table.output}", result)
        try:
            connection.execute("RELEASE SAVEPOINT kstream_once")
        except Exception as e:
            if dialect.has_ended(e):
                raise self._ended(partition) from e
            if dialect.is_broken(e):
                raise self._broken(partition) from e
            raise
        return count

    def _place(self, partition: int) -> str:
        return f"in partition {partition} of batch {self.time_ms} ms"

    def _refused(self, partition: int) -> IllegalStateError:
        return IllegalStateError(
            f"the function of output {self.table.output} begins, commits or rolls back a transaction {self._place(partition)}: leave that "
            "to once. Nothing of the partition is written",
            state="in a transaction",
        )

    def _ended(self, partition: int) -> IllegalStateError:
        return IllegalStateError(
            f"the function of output {self.table.output} has committed or rolled back {self._place(partition)}: leave that to once. What "
            "it has committed is there, and each try adds to it: remove these records",
            state="no transaction",
        )

    def _broken(self, partition: int) -> IllegalStateError:
        return IllegalStateError(
            f"the function of output {self.table.output} has caught an error of the database {self._place(partition)}, after which the "
            "transaction can do nothing more. Let the error go up, or run what may fail in `with connection.transaction():`. Nothing of "
            "the partition is written",
            state="a failed transaction",
        )


_connections: dict[tuple[str, str], Connection] = {}
"""The connections of this worker process, by job and output. A transaction takes one out, and puts it back when it has committed."""


@contextmanager
def _transaction(
    table: ReceiptTable, connect: Callable[[], Connection], newest: WrittenBatch | None
) -> Generator[tuple[Connection, Dialect]]:
    """Run the body in a transaction of this driver, which commits at the end of the body, and rolls back after an error.

    A connection of an earlier partition is used again. If it is broken, a new one is made, which must find the newest written batch.

    Raises:
        FencedError: another driver may write.
        OutputChangedError: another driver may write, or the database has lost the newest written batch.
    """
    key = (table.job, table.output)
    connection, dialect = _begun(_connections.pop(key, None), table, connect, newest)
    try:
        yield connection, dialect
        dialect.commit(connection)
    except BaseException:
        _close(connection)
        raise
    _connections[key] = connection


def _begun(
    idle: Connection | None, table: ReceiptTable, connect: Callable[[], Connection], newest: WrittenBatch | None
) -> tuple[Connection, Dialect]:
    """Begin a transaction in which this driver may write, on the idle connection or on a new one. Errors as for `_transaction`.

    `idle`: a connection of an earlier partition; None without one. If it is broken, it is closed. A new one must find `newest`.
    """
    if idle is not None:
        try:
            return idle, _begin(idle, table)
        except Exception as e:
            _close(idle)
            if isinstance(e, (FencedError, OutputChangedError)):
                raise
    connection = connect()
    try:
        dialect_of(connection).ready(connection)
        dialect = _begin(connection, table)
        check_is_there(_receipts(connection, dialect, table), newest, table)  # the database may have gone back since
        return connection, dialect
    except BaseException:
        _close(connection)
        raise


def _begin(connection: Connection, table: ReceiptTable) -> Dialect:
    """Begin a transaction, and read the fence. FencedError, OutputChangedError: another driver may write."""
    dialect = dialect_of(connection)
    dialect.begin(connection)
    found = _read_fence(connection, dialect, table, dialect.for_share)
    check_fence(table.output, table.name, (table.epoch, table.writer), found)
    return dialect


def _close(connection: Connection) -> None:
    """Close a connection. That rolls back, too. An error of it does not count: another one came first."""
    with suppress(Exception):
        connection.close()


# -- statements


_KEY = ("job", "output", "partition_id")
_OF_A_RECEIPT = ("partition_id", "num_partitions", "batch_time", "nonce", "num_records", "hashing")
_COLUMNS = (*_KEY, "num_partitions", "batch_time", "nonce", "epoch", "num_records", "hashing", "writer")


def _where(dialect: Dialect) -> str:
    return " AND ".join(f"{column} = {dialect.mark}" for column in _KEY)


def _has_table(connection: Connection, dialect: Dialect, table: str) -> bool:
    """Return whether the table can be read. A user who may not make tables can use one that is there."""
    dialect.begin(connection)
    try:
        _rows(connection, dialect, f"SELECT job FROM {table} WHERE 1 = 0", ())
    except Exception:
        return False
    finally:
        dialect.rollback(connection)
    return True


def _make_table(connection: Connection, dialect: Dialect, table: str) -> None:
    """Make the table of the receipts, in a transaction of its own, unless it is there by now."""
    dialect.begin(connection)
    _execute(
        connection,
        dialect,
        f"CREATE TABLE IF NOT EXISTS {table} (job TEXT NOT NULL, output TEXT NOT NULL, partition_id INTEGER NOT NULL, "
        "num_partitions INTEGER NOT NULL, batch_time BIGINT NOT NULL, nonce TEXT NOT NULL, epoch INTEGER NOT NULL, "
        "num_records BIGINT NOT NULL, hashing BIGINT NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (job, output, partition_id))",
        (),
    )
    dialect.commit(connection)


def _upsert(table: str, dialect: Dialect, rising: str | None) -> str:
    """Return the statement that writes a row if there is none, if the column `rising` rises, or if the records of the row are removed."""
    marks = ", ".join([dialect.mark] * len(_COLUMNS))
    insert = f"INSERT INTO {table} AS r ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT ({', '.join(_KEY)}) DO"
    if rising is None:
        return f"{insert} NOTHING"
    values = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[len(_KEY) :])
    return f"{insert} UPDATE SET {values} WHERE r.{rising} < excluded.{rising} OR r.num_records = {_REMOVED}"


def _receipts(connection: Connection, dialect: Dialect, table: ReceiptTable) -> list[Receipt]:
    """Return the receipts of the output, by partition, without the fence. For the current transaction."""
    query = (
        f"SELECT {', '.join(_OF_A_RECEIPT)} FROM {table.name} "
        f"WHERE job = {dialect.mark} AND output = {dialect.mark} AND partition_id <> {_FENCE} ORDER BY partition_id"
    )
    return [Receipt(*row) for row in _rows(connection, dialect, query, (table.job, table.output))]


def _read_fence(connection: Connection, dialect: Dialect, table: ReceiptTable, lock: str) -> tuple[int, str]:
    """Return epoch and nonce of the driver that may write. OutputChangedError if the row is gone."""
    query = f"SELECT epoch, writer FROM {table.name} WHERE {_where(dialect)}{lock}"
    rows = _rows(connection, dialect, query, (table.job, table.output, _FENCE))
    if not rows:
        raise table.changed(f"the table {table.name} has lost its rows, so nobody knows which batches are written")
    return rows[0][0], rows[0][1]


def _execute(connection: Connection, dialect: Dialect, statement: str, values: Sequence[object]) -> int:
    """Run a statement. Return how many rows it has changed."""
    cursor = dialect.cursor(connection)
    try:
        cursor.execute(statement, values)
        return cursor.rowcount
    finally:
        cursor.close()


def _rows(connection: Connection, dialect: Dialect, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run a query. Return all of its rows."""
    cursor = dialect.cursor(connection)
    try:
        cursor.execute(statement, values)
        return cursor.fetchall()
    finally:
        cursor.close()

"""Receipts: what a database knows of the batches that an output has written to it.

A receipt is a row for each partition: the newest batch of which that partition is written. It is written in the transaction of the records,
so one is there exactly if the others are. One more row, the fence, names the driver that may write. Each transaction reads it, so a
transaction of an earlier driver ends before the fence changes, or does not commit.

For SQLite and PostgreSQL. The driver calls `take_over`, tasks call `PartitionWriter`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.errors import ConfigurationError, FencedError, IllegalStateError, OutputChangedError

Connection = Any
"""A connection of Python's database API (PEP 249)."""
_FENCE = -1
"""The partition number of the fence."""
_SQLITE_WAIT_MS = 600_000
"""How long a task waits for the transaction of another one: SQLite has one writer at a time."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A partition of a batch that is written. `epoch`: of the plan of the batch."""

    partition: int
    num_partitions: int
    time_ms: int
    epoch: int
    num_records: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The receipts of one output of one job, and the driver that may write.

    Attributes:
        table: the name of the table.
        job: identifies the job.
        output: the name of the output.
        epoch: of the driver.
        writer: identifies the driver among those of copies of the checkpoint.
    """

    table: str
    job: str
    output: str
    epoch: int
    writer: str


class _Dialect(Protocol):
    """What differs between databases."""

    mark: str
    """The placeholder of a parameter."""
    for_share: str
    """Keeps a row that a transaction reads from changing until its end."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction."""
        ...

    def commit(self, connection: Connection) -> None: ...

    def rollback(self, connection: Connection) -> None:
        """End the transaction without effect, if there is one."""
        ...

    def transaction(self, connection: Connection) -> object:
        """Return what identifies the transaction; None outside of one."""
        ...


class _SQLite:
    mark = "?"
    for_share = ""  # BEGIN IMMEDIATE lets no other transaction write

    def begin(self, connection: sqlite3.Connection) -> None:
        if getattr(connection, "autocommit", -1) is False:  # since Python 3.12: the module would begin transactions by itself
            connection.autocommit = True  # pyright: ignore[reportAttributeAccessIssue]
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_SQLITE_WAIT_MS}")
        connection.execute("BEGIN IMMEDIATE")

    def commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def rollback(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def transaction(self, connection: sqlite3.Connection) -> object:
        return True if connection.in_transaction else None


class _PostgreSQL:
    mark = "%s"
    for_share = " FOR SHARE"

    def begin(self, connection: Connection) -> None:
        connection.rollback()
        connection.autocommit = False  # the first statement begins the transaction

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def rollback(self, connection: Connection) -> None:
        connection.rollback()

    def transaction(self, connection: Connection) -> object:
        return _rows(connection, "SELECT txid_current()", ())[0][0]


def _dialect_of(connection: Connection) -> _Dialect:
    """Return the dialect of a connection. ConfigurationError for a database that is not supported."""
    if isinstance(connection, sqlite3.Connection):
        return _SQLite()
    module = type(connection).__module__.partition(".")[0]
    if module in ("psycopg", "psycopg2"):
        return _PostgreSQL()
    raise ConfigurationError(
        "once writes to SQLite (sqlite3) and PostgreSQL (psycopg, psycopg2): connect returned a "
        f"{type(connection).__module__}.{type(connection).__qualname__}",
        key="connect",
        value=module,
    )


# -- on the driver


def take_over(connection: Connection, ledger: Ledger) -> list[Receipt]:
    """Let this driver write from now on, and no earlier one. Makes the table if there is none. Idempotent.

    Blocks until the transactions of earlier drivers have ended.

    Returns:
        The receipts of the output.

    Raises:
        FencedError: a later driver may write.
        OutputChangedError: the driver of a copy of the checkpoint may write.
        Exception: an error of the database.
    """
    dialect = _dialect_of(connection)
    if not _has_table(connection, dialect, ledger.table):
        _make_table(connection, dialect, ledger.table)
    dialect.begin(connection)
    try:
        _execute(
            connection,
            _upsert(ledger.table, dialect, "epoch"),
            (ledger.job, ledger.output, _FENCE, 0, 0, ledger.epoch, 0, ledger.writer),
        )
        _check_fence(connection, dialect, ledger)
        rows = _rows(
            connection,
            f"SELECT partition_id, num_partitions, batch_time, epoch, num_records FROM {ledger.table} "
            f"WHERE job = {dialect.mark} AND output = {dialect.mark} AND partition_id > {_FENCE} ORDER BY partition_id",
            (ledger.job, ledger.output),
        )
        dialect.commit(connection)
    finally:
        dialect.rollback(connection)
    return [Receipt(*row) for row in rows]


def to_write(receipts: Sequence[Receipt], time_ms: int, epoch: int, num_partitions: int, newest_ms: int, output: str) -> list[int] | None:
    """Return the partitions of a batch that are not written; None if no partition is. Pure.

    Batches are written in order. So a receipt of a later batch means that this one is written.

    Args:
        receipts: those of the output.
        time_ms: the batch.
        epoch: of its plan.
        num_partitions: how many it has now.
        newest_ms: the newest batch that was ever planned.
        output: the name of the output, for messages.

    Raises:
        OutputChangedError: the receipts are of another plan, of another number of partitions, or of later batches than were ever planned.
    """
    newest = max((receipt.time_ms for receipt in receipts), default=time_ms)
    if newest > newest_ms:
        raise OutputChangedError(
            f"output {output}: the sink has batch {newest} ms, and the newest batch of this checkpoint is {newest_ms} ms: the "
            "checkpoint is older than what was written. Use the newest checkpoint. Or give the output another name: then it writes all "
            "batches from here on, and those that are there a second time",
            output=output,
            time=time_ms,
        )
    if newest > time_ms:
        return []
    written = [receipt for receipt in receipts if receipt.time_ms == time_ms]
    if other := [receipt for receipt in written if receipt.epoch != epoch]:
        raise OutputChangedError(
            f"output {output}: batch {time_ms} ms was written by another plan, of epoch {other[0].epoch}, and has one of epoch {epoch} now",
            output=output,
            time=time_ms,
        )
    if other := [receipt for receipt in written if receipt.num_partitions != num_partitions]:
        raise OutputChangedError(
            f"output {output}: batch {time_ms} ms is written in part, divided into {other[0].num_partitions} partitions, and has "
            f"{num_partitions} now. Start the job with the number of cores and the settings that it had, until this batch has ended",
            output=output,
            time=time_ms,
        )
    there = {receipt.partition for receipt in written}
    return [number for number in range(num_partitions) if number not in there] if there else None


# -- in a task


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes the partitions of a batch in tasks, each in one transaction with its receipt.

    Attributes:
        ledger: where the receipts are.
        connect: returns a new connection.
        write: write(connection, records) writes records. It must neither commit nor roll back.
        time_ms: the batch.
        epoch: of its plan.
        num_partitions: how many it has.
    """

    ledger: Ledger
    connect: Callable[[], Connection]
    write: Callable[[Connection, Iterator[Any]], object]
    time_ms: int
    epoch: int
    num_partitions: int

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[int | None]:
        """Write a partition. Yield the number of its records; None if it was written before, then the records are only computed."""
        with _transaction(self.ledger, self.connect) as (connection, dialect):
            receipt = (self.ledger.job, self.ledger.output, partition, self.num_partitions, self.time_ms, self.epoch, 0, self.ledger.writer)
            is_new = _execute(connection, _upsert(self.ledger.table, dialect, "batch_time"), receipt) == 1
            count = self._written(connection, dialect, partition, records) if is_new else None
        if not is_new:
            for _ in records:  # inputs report on all records of a batch
                pass
        yield count

    def _written(self, connection: Connection, dialect: _Dialect, partition: int, records: Iterable[Any]) -> int:
        """Call the user's function, and write the number of the records into the receipt. Return it."""
        before, count = dialect.transaction(connection), 0

        def counted() -> Iterator[Any]:
            nonlocal count
            for record in records:
                count += 1
                yield record

        self.write(connection, counted())
        if dialect.transaction(connection) != before:
            raise IllegalStateError(
                f"the function of output {self.ledger.output} has committed or rolled back: leave that to once. The records of partition "
                f"{partition} of batch {self.time_ms} ms may be there without their receipt, or their receipt without them",
                state="no transaction",
            )
        _execute(
            connection,
            f"UPDATE {self.ledger.table} SET num_records = {dialect.mark} "
            f"WHERE job = {dialect.mark} AND output = {dialect.mark} AND partition_id = {dialect.mark}",
            (count, self.ledger.job, self.ledger.output, partition),
        )
        return count


_connections: dict[tuple[str, str], Connection] = {}
"""The connections of this worker process, by job and output. A transaction takes one out, and puts it back when it has committed."""


@contextmanager
def _transaction(ledger: Ledger, connect: Callable[[], Connection]) -> Generator[tuple[Connection, _Dialect]]:
    """Return a transaction of this driver as a context manager. It commits at its end, and rolls back after an error.

    A connection of an earlier partition is used again. If it is broken, a new one is made.

    Raises:
        FencedError, OutputChangedError: another driver may write.
    """
    key = (ledger.job, ledger.output)
    connection = _connections.pop(key, None)
    if connection is None or not _is_alive(connection):
        connection = connect()
    try:
        dialect = _dialect_of(connection)
        dialect.begin(connection)
        _check_fence(connection, dialect, ledger)
        yield connection, dialect
        dialect.commit(connection)
    except BaseException:
        _close(connection)
        raise
    _connections[key] = connection


def _is_alive(connection: Connection) -> bool:
    """Return whether a connection that has been idle can be used. Else it is closed. Blocks: one request."""
    try:
        _rows(connection, "SELECT 1", ())
    except Exception:
        _close(connection)
        return False
    return True


def _close(connection: Connection) -> None:
    """Close a connection. That rolls back, too. An error of it does not count: another one came first."""
    with suppress(Exception):
        connection.close()


# -- statements


def _has_table(connection: Connection, dialect: _Dialect, table: str) -> bool:
    """Return whether the table can be read. A user who may not make tables can use one that is there."""
    dialect.begin(connection)
    try:
        _rows(connection, f"SELECT job FROM {table} WHERE 1 = 0", ())
    except Exception:
        return False
    finally:
        dialect.rollback(connection)
    return True


def _make_table(connection: Connection, dialect: _Dialect, table: str) -> None:
    dialect.begin(connection)
    _execute(
        connection,
        f"CREATE TABLE IF NOT EXISTS {table} (job TEXT NOT NULL, output TEXT NOT NULL, partition_id INTEGER NOT NULL, "
        "num_partitions INTEGER NOT NULL, batch_time BIGINT NOT NULL, epoch INTEGER NOT NULL, num_records BIGINT NOT NULL, "
        "writer TEXT NOT NULL, PRIMARY KEY (job, output, partition_id))",
        (),
    )
    dialect.commit(connection)


def _upsert(table: str, dialect: _Dialect, rising: str) -> str:
    """Return the statement that writes a row, if there is none or if the column `rising` rises."""
    marks = ", ".join([dialect.mark] * len(_COLUMNS))
    values = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[len(_KEY) :])
    return (
        f"INSERT INTO {table} ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET {values} "
        f"WHERE {table}.{rising} < excluded.{rising}"
    )


_KEY = ("job", "output", "partition_id")
_COLUMNS = (*_KEY, "num_partitions", "batch_time", "epoch", "num_records", "writer")


def _check_fence(connection: Connection, dialect: _Dialect, ledger: Ledger) -> None:
    """Raise an error unless this driver may write, and let no other take over before the transaction ends."""
    rows = _rows(
        connection,
        f"SELECT epoch, writer FROM {ledger.table} WHERE job = {dialect.mark} AND output = {dialect.mark} AND partition_id = {_FENCE}"
        f"{dialect.for_share}",
        (ledger.job, ledger.output),
    )
    if not rows:
        raise OutputChangedError(
            f"output {ledger.output}: the table {ledger.table} has lost its rows, so nobody knows which batches are written",
            output=ledger.output,
        )
    epoch, writer = rows[0]
    if epoch > ledger.epoch:
        raise FencedError(
            f"output {ledger.output}: another driver writes (epoch {epoch}, this one has {ledger.epoch})",
            path=ledger.table,
            epoch=ledger.epoch,
            newer_epoch=epoch,
        )
    if writer != ledger.writer:
        raise OutputChangedError(
            f"output {ledger.output}: a driver of another copy of this checkpoint writes (epoch {epoch}). Use one of the copies only",
            output=ledger.output,
        )


def _execute(connection: Connection, statement: str, values: Sequence[object]) -> int:
    """Run a statement. Return how many rows it has changed."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement, values)
        return cursor.rowcount
    finally:
        cursor.close()


def _rows(connection: Connection, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    try:
        cursor.execute(statement, values)
        return [tuple(row) for row in cursor.fetchall()]
    finally:
        cursor.close()

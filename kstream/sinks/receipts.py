"""Receipts: what a database knows of the batches that an output has written to it.

For each partition there is one row, the receipt. It names the newest batch of which that partition is written, and it is written in the
transaction of the records: so a receipt is there exactly if the records are. One more row, the fence, names the driver that may write.
Each transaction reads it and keeps it from changing. So a transaction of an earlier driver commits before the fence changes, or never.

For SQLite and PostgreSQL. The driver calls `take_over`. Tasks call a `PartitionWriter`.
"""

from __future__ import annotations

import os
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
_OPEN = -1
"""The number of records in a receipt whose transaction has not ended. Nobody else sees it, unless the user's function has committed."""
_SQLITE_WAIT_MS = 600_000
"""How long a transaction waits for another one in SQLite, which has one writer at a time."""
_LOCK_WAIT = "60s"
"""How long a driver of PostgreSQL waits for the transactions of an earlier one."""
_WORD = "kstream"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A partition of a batch that is written.

    Attributes:
        partition: its number.
        num_partitions: how many the batch has.
        time_ms: the batch.
        nonce: that of the plan of the batch.
        num_records: how many records the partition has.
        hashing: the worker's hash of a fixed word. Another one means that keys go to other partitions.
    """

    partition: int
    num_partitions: int
    time_ms: int
    nonce: str
    num_records: int
    hashing: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The receipts of one output of one job, and the driver that may write.

    Attributes:
        table: the name of the table.
        job: identifies the job.
        output: the name of the output.
        epoch: of the driver.
        writer: the nonce of the driver's epoch.
    """

    table: str
    job: str
    output: str
    epoch: int
    writer: str

    def changed(self, words: str) -> OutputChangedError:
        """Return the error that says what the database has and should not have."""
        return OutputChangedError(f"output {self.output}: {words}", output=self.output)

    def in_part(self, partition: int, time_ms: int) -> OutputChangedError:
        """Return the error about a receipt that is open and that others can see."""
        return self.changed(
            f"partition {partition} of batch {time_ms} ms is written in part, because the function has committed. Remove its records and "
            f"its row in {self.table}, and let the function neither commit nor roll back"
        )


# -- databases


class _Dialect(Protocol):
    """What differs between databases."""

    mark: str
    """The placeholder of a parameter."""
    for_share: str
    """Keeps a row that a transaction reads from changing until its end."""

    def ready(self, connection: Connection) -> None:
        """Prepare a new connection, so that each statement of a transaction sees what is committed before it."""
        ...

    def begin(self, connection: Connection) -> None:
        """Begin a transaction."""
        ...

    def be_patient(self, connection: Connection) -> None:
        """Let the statements of this transaction wait for other ones, but not without end."""
        ...

    def commit(self, connection: Connection) -> None: ...

    def rollback(self, connection: Connection) -> None:
        """End the transaction without effect, if there is one."""
        ...

    def cursor(self, connection: Connection) -> Any:
        """Return a cursor whose rows are tuples, whatever the user has set."""
        ...


class _SQLite:
    mark = "?"
    for_share = ""  # BEGIN IMMEDIATE lets no other transaction write

    def ready(self, connection: sqlite3.Connection) -> None:
        if getattr(connection, "autocommit", -1) is False:  # since Python 3.12: the module would begin transactions by itself
            connection.autocommit = True  # pyright: ignore[reportAttributeAccessIssue]
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_SQLITE_WAIT_MS}")

    def begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def be_patient(self, connection: sqlite3.Connection) -> None:
        return

    def commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    def rollback(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def cursor(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        cursor = connection.cursor()
        cursor.row_factory = None
        return cursor


class _PostgreSQL:
    mark = "%s"
    for_share = " FOR SHARE"

    def ready(self, connection: Connection) -> None:
        connection.rollback()
        connection.autocommit = False  # the first statement begins a transaction
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED")
        # A worker whose machine is gone keeps its locks until the server notices: soon, and not after hours.
        for setting, value in (("idle", 20), ("interval", 5), ("count", 4)):
            connection.execute(f"SET tcp_keepalives_{setting} = {value}")
        connection.commit()

    def begin(self, connection: Connection) -> None:
        connection.rollback()  # the first statement begins the transaction

    def be_patient(self, connection: Connection) -> None:
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def rollback(self, connection: Connection) -> None:
        connection.rollback()

    def cursor(self, connection: Connection) -> Any:
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)


def _dialect_of(connection: Connection) -> _Dialect:
    """Return the dialect of a connection. ConfigurationError for a database that is not supported."""
    if isinstance(connection, sqlite3.Connection):
        return _SQLite()
    if any(cls.__module__.partition(".")[0] == "psycopg" for cls in type(connection).__mro__):
        return _PostgreSQL()
    raise ConfigurationError(
        "once writes to SQLite (sqlite3) and PostgreSQL (psycopg): connect returned a "
        f"{type(connection).__module__}.{type(connection).__qualname__}",
        key="connect",
        value=type(connection).__qualname__,
    )


# -- on the driver


def take_over(
    connection: Connection,
    ledger: Ledger,
    nonce_of: Callable[[int], str | None],
    check: Callable[[list[Receipt]], None],
    is_known: bool,
) -> list[Receipt]:
    """Let this driver write from now on, and no earlier one. Makes the table if there is none. Idempotent.

    Blocks until the transactions of earlier drivers have ended. If it raises, only an empty table may be new.

    Args:
        connection: a new connection.
        ledger: names the receipts and this driver.
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
    dialect = _dialect_of(connection)
    dialect.ready(connection)
    if not _has_table(connection, dialect, ledger.table):
        if is_known:
            raise ledger.changed(f"the table {ledger.table} is gone, so nobody knows which batches are written")
        _make_table(connection, dialect, ledger.table)
    dialect.begin(connection)
    try:
        dialect.be_patient(connection)
        _fence(connection, dialect, ledger, nonce_of, is_known)
        rows = _rows(
            connection,
            dialect,
            f"SELECT {', '.join(_OF_A_RECEIPT)} FROM {ledger.table} "
            f"WHERE job = {dialect.mark} AND output = {dialect.mark} AND partition_id <> {_FENCE} ORDER BY partition_id",
            (ledger.job, ledger.output),
        )
        receipts = [Receipt(*row) for row in rows]
        check(receipts)
        dialect.commit(connection)
    finally:
        dialect.rollback(connection)
    return receipts


def _fence(connection: Connection, dialect: _Dialect, ledger: Ledger, nonce_of: Callable[[int], str | None], is_known: bool) -> None:
    """Write this driver into the fence, if the driver that is there now belongs to this checkpoint and is not a later one."""
    values = (ledger.job, ledger.output, _FENCE, 0, 0, "", ledger.epoch, 0, 0, ledger.writer)
    if not is_known:
        _execute(connection, dialect, _upsert(ledger.table, dialect, None), values)
    before = _read_fence(connection, dialect, ledger, " FOR UPDATE" if dialect.for_share else "")
    if before == (ledger.epoch, ledger.writer):
        return
    epoch, writer = before
    if nonce_of(epoch) != writer and epoch <= ledger.epoch:
        raise ledger.changed(f"a driver of another copy of this checkpoint has written (epoch {epoch}). Use one of the copies only")
    if epoch > ledger.epoch:
        raise _fenced(ledger, epoch)
    _execute(connection, dialect, _upsert(ledger.table, dialect, "epoch"), values)


def to_write(
    receipts: Sequence[Receipt], time_ms: int, nonce: str, num_partitions: int, knows: Callable[[int, str], bool], ledger: Ledger
) -> list[int] | None:
    """Return the partitions of a batch that are not written; None if no partition is. Pure.

    Batches are written in order. So a receipt of a later batch means that this one is written.

    Args:
        receipts: those of the output.
        time_ms: the batch.
        nonce: of its plan.
        num_partitions: how many it has now.
        knows: knows(time in ms, nonce) returns whether this checkpoint has that plan of a later batch.
        ledger: names the output, for messages.

    Raises:
        OutputChangedError: the receipts do not fit the batch or the checkpoint.
    """
    if strange := [receipt for receipt in receipts if receipt.time_ms > time_ms and not knows(receipt.time_ms, receipt.nonce)]:
        raise ledger.changed(
            f"batch {strange[0].time_ms} ms is written there, and this checkpoint has no such batch: the checkpoint is older than what "
            "was written. Use the newest checkpoint. Or give the output another name: then it writes all batches from here on, and those "
            "that are there a second time"
        )
    if broken := [receipt for receipt in receipts if receipt.num_records == _OPEN]:
        raise ledger.in_part(broken[0].partition, broken[0].time_ms)
    if any(receipt.time_ms > time_ms for receipt in receipts):
        return []
    written = [receipt for receipt in receipts if receipt.time_ms == time_ms]
    if any(receipt.nonce != nonce for receipt in written):
        raise ledger.changed(f"batch {time_ms} ms was written by another plan than this checkpoint has of it")
    if other := [receipt for receipt in written if receipt.num_partitions != num_partitions]:
        raise ledger.changed(
            f"batch {time_ms} ms is half-written, divided into {other[0].num_partitions} partitions, and has {num_partitions} now. Start "
            "the job with the code and the settings that it had, until this batch has ended"
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
        nonce: of its plan.
        num_partitions: how many it has.
        wanted: the partitions that are to be written; None for all. The others are only computed.
        hashing: that of the receipts of this batch; None without any.
    """

    ledger: Ledger
    connect: Callable[[], Connection]
    write: Callable[[Connection, Iterator[Any]], object]
    time_ms: int
    nonce: str
    num_partitions: int
    wanted: frozenset[int] | None = None
    hashing: int | None = None

    def __call__(self, partition: int, records: Iterable[Any]) -> Iterator[int | None]:
        """Write a partition. Yield the number of its records; None if it was written before and is only computed."""
        count: int | None = None
        if self.wanted is None or partition in self.wanted:
            with _transaction(self.ledger, self.connect) as (connection, dialect):
                count = self._write_once(connection, dialect, partition, records)
        if count is None:
            for _ in records:  # inputs report on all records of a batch
                pass
        yield count

    def _write_once(self, connection: Connection, dialect: _Dialect, partition: int, records: Iterable[Any]) -> int | None:
        """Write the receipt and the records. Return their number; None if another attempt has written them."""
        mine = hashing()
        if self.hashing not in (None, mine):
            raise self.ledger.changed(
                f"batch {self.time_ms} ms is half-written, and the workers divide keys otherwise now: start the job with the Python "
                "version and the PYTHONHASHSEED that it had, until this batch has ended"
            )
        key = (self.ledger.job, self.ledger.output, partition)
        values = (*key, self.num_partitions, self.time_ms, self.nonce, self.ledger.epoch, _OPEN, mine, self.ledger.writer)
        if _execute(connection, dialect, _upsert(self.ledger.table, dialect, "batch_time"), values) != 1:
            query = f"SELECT batch_time, num_records FROM {self.ledger.table} WHERE {_where(dialect)}"
            ((time_ms, num_records),) = _rows(connection, dialect, query, key)
            if num_records == _OPEN:
                raise self.ledger.in_part(partition, time_ms)
            return None
        count = self._called(connection, partition, records)
        update = f"UPDATE {self.ledger.table} SET num_records = {dialect.mark} WHERE {_where(dialect)}"
        if _execute(connection, dialect, update, (count, *key)) != 1:
            raise self._ended(partition)
        return count

    def _called(self, connection: Connection, partition: int, records: Iterable[Any]) -> int:
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
        self.write(connection, counted())
        try:
            connection.execute("RELEASE SAVEPOINT kstream_once")
        except Exception as e:
            raise self._ended(partition) from e
        return count

    def _ended(self, partition: int) -> IllegalStateError:
        return IllegalStateError(
            f"the function of output {self.ledger.output} has committed or rolled back in partition {partition} of batch {self.time_ms} "
            "ms: leave that to once",
            state="no transaction",
        )


def hashing() -> int:
    """Return this process's hash of a fixed word; 0 if each process has another hash seed: then Spark partitions nothing by it."""
    return hash(_WORD) if os.environ.get("PYTHONHASHSEED", "random") != "random" else 0


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
    connection, dialect = _begun(_connections.pop(key, None), ledger, connect)
    try:
        yield connection, dialect
        dialect.commit(connection)
    except BaseException:
        _close(connection)
        raise
    _connections[key] = connection


def _begun(idle: Connection | None, ledger: Ledger, connect: Callable[[], Connection]) -> tuple[Connection, _Dialect]:
    """Begin a transaction in which this driver may write. `idle`: a connection of an earlier partition; None without one."""
    if idle is not None:
        try:
            return idle, _begin(idle, ledger)
        except Exception as e:
            _close(idle)
            if isinstance(e, (FencedError, OutputChangedError)):
                raise
    connection = connect()
    try:
        _dialect_of(connection).ready(connection)
        return connection, _begin(connection, ledger)
    except BaseException:
        _close(connection)
        raise


def _begin(connection: Connection, ledger: Ledger) -> _Dialect:
    """Begin a transaction, and read the fence. FencedError, OutputChangedError: another driver may write."""
    dialect = _dialect_of(connection)
    dialect.begin(connection)
    epoch, writer = _read_fence(connection, dialect, ledger, dialect.for_share)
    if epoch > ledger.epoch:
        raise _fenced(ledger, epoch)
    if writer != ledger.writer:
        raise ledger.changed("a driver of another copy of this checkpoint writes. Use one of the copies only")
    return dialect


def _close(connection: Connection) -> None:
    """Close a connection. That rolls back, too. An error of it does not count: another one came first."""
    with suppress(Exception):
        connection.close()


# -- statements


_KEY = ("job", "output", "partition_id")
_OF_A_RECEIPT = ("partition_id", "num_partitions", "batch_time", "nonce", "num_records", "hashing")
_COLUMNS = (*_KEY, "num_partitions", "batch_time", "nonce", "epoch", "num_records", "hashing", "writer")


def _where(dialect: _Dialect) -> str:
    return " AND ".join(f"{column} = {dialect.mark}" for column in _KEY)


def _has_table(connection: Connection, dialect: _Dialect, table: str) -> bool:
    """Return whether the table can be read. A user who may not make tables can use one that is there."""
    dialect.begin(connection)
    try:
        _rows(connection, dialect, f"SELECT job FROM {table} WHERE 1 = 0", ())
    except Exception:
        return False
    finally:
        dialect.rollback(connection)
    return True


def _make_table(connection: Connection, dialect: _Dialect, table: str) -> None:
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


def _upsert(table: str, dialect: _Dialect, rising: str | None) -> str:
    """Return the statement that writes a row if there is none, or if the column `rising` rises."""
    marks = ", ".join([dialect.mark] * len(_COLUMNS))
    insert = f"INSERT INTO {table} AS r ({', '.join(_COLUMNS)}) VALUES ({marks}) ON CONFLICT ({', '.join(_KEY)}) DO"
    if rising is None:
        return f"{insert} NOTHING"
    values = ", ".join(f"{column} = excluded.{column}" for column in _COLUMNS[len(_KEY) :])
    return f"{insert} UPDATE SET {values} WHERE r.{rising} < excluded.{rising}"


def _read_fence(connection: Connection, dialect: _Dialect, ledger: Ledger, lock: str) -> tuple[int, str]:
    """Return epoch and nonce of the driver that may write. OutputChangedError if the row is gone."""
    query = f"SELECT epoch, writer FROM {ledger.table} WHERE {_where(dialect)}{lock}"
    rows = _rows(connection, dialect, query, (ledger.job, ledger.output, _FENCE))
    if not rows:
        raise ledger.changed(f"the table {ledger.table} has lost its rows, so nobody knows which batches are written")
    return rows[0][0], rows[0][1]


def _fenced(ledger: Ledger, epoch: int) -> FencedError:
    return FencedError(
        f"output {ledger.output}: another driver writes (epoch {epoch}, this one has {ledger.epoch})",
        path=ledger.table,
        epoch=ledger.epoch,
        newer_epoch=epoch,
    )


def _execute(connection: Connection, dialect: _Dialect, statement: str, values: Sequence[object]) -> int:
    """Run a statement. Return how many rows it has changed."""
    cursor = dialect.cursor(connection)
    try:
        cursor.execute(statement, values)
        return cursor.rowcount
    finally:
        cursor.close()


def _rows(connection: Connection, dialect: _Dialect, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    cursor = dialect.cursor(connection)
    try:
        cursor.execute(statement, values)
        return cursor.fetchall()
    finally:
        cursor.close()

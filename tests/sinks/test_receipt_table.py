"""The rows of a batch and its receipts are written together, once, and only by the driver that may write. On SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstream.errors import ConfigurationError, FencedError, IllegalStateError, OutputChangedError
from kstream.sinks import receipt_table
from kstream.sinks.receipt import Receipt, WrittenBatch, hashing
from kstream.sinks.receipt_table import PartitionWriter, ReceiptTable, check_is_there, closed, take_over

TABLE = ReceiptTable("kstream_receipts", "job", "once", epoch=2, writer="second")
EPOCHS = {1: "first", 2: "second", 3: "third"}


class Database:
    """A database with a table of numbers."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.run("CREATE TABLE numbers (number INTEGER)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def run(self, statement: str) -> list[Any]:
        connection = self.connect()
        try:
            rows = connection.execute(statement).fetchall()
            connection.commit()
            return rows
        finally:
            connection.close()

    def numbers(self) -> list[int]:
        return [number for (number,) in self.run("SELECT number FROM numbers ORDER BY number")]

    def take_over(self, table: ReceiptTable = TABLE, is_known: bool = False, check: Any = lambda _: None) -> list[Receipt]:
        connection = self.connect()
        try:
            return take_over(connection, table, EPOCHS.get, check, is_known)
        finally:
            connection.close()

    def writer(self, time_ms: int, num_partitions: int = 2, table: ReceiptTable = TABLE, write: Any = None) -> PartitionWriter:
        return PartitionWriter(table, self.connect, write or insert, time_ms, f"plan of {time_ms}", num_partitions)


def insert(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in records))


def receipt(partition: int, time_ms: int = 2000, num_partitions: int = 3, records: int = 10) -> Receipt:
    return Receipt(partition, num_partitions, time_ms, f"plan of {time_ms}", records, hashing())


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "sink.db")


def test_a_partition_and_its_receipt_are_written_together_and_a_second_try_writes_nothing(database: Database) -> None:
    assert database.take_over() == []
    assert list(database.writer(1000)(0, iter([1, 2, 3]))) == [3]
    assert list(database.writer(1000)(1, iter([]))) == [0]
    assert database.take_over() == [receipt(0, 1000, 2, 3), receipt(1, 1000, 2, 0)]
    assert list(database.writer(1000)(0, iter([1, 2, 3]))) == [None]
    assert database.numbers() == [1, 2, 3]


def test_the_records_of_a_partition_that_is_not_to_be_written_are_computed_nevertheless(database: Database) -> None:
    database.take_over()
    records = iter([1])
    assert list(replace(database.writer(1000), wanted=frozenset([1]))(0, records)) == [None] and list(records) == []
    assert database.numbers() == [] and database.take_over() == []


def test_a_later_batch_takes_the_place_of_the_receipt_of_an_older_one(database: Database) -> None:
    database.take_over()
    for time, numbers in ((1000, [1]), (2000, [2, 3])):
        list(database.writer(time, num_partitions=1)(0, iter(numbers)))
    assert database.take_over() == [receipt(0, 2000, 1, 2)]
    assert list(database.writer(1000, num_partitions=1)(0, iter([1]))) == [None], "batches are written in order"
    assert database.numbers() == [1, 2, 3]


def test_nothing_of_a_partition_is_there_whose_function_has_failed(database: Database) -> None:
    database.take_over()

    def fails(connection: sqlite3.Connection, records: Iterator[int]) -> None:
        insert(connection, records)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        list(database.writer(1000, write=fails)(0, iter([1])))
    assert database.numbers() == [] and database.take_over() == []
    assert list(database.writer(1000)(0, iter([1]))) == [1]


def commits(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    insert(connection, records)
    connection.commit()


def rolls_back_and_goes_on(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.rollback()
    insert(connection, records)


def swallows_the_refusal(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    insert(connection, records)
    with suppress(sqlite3.Error):
        connection.commit()


def runs_a_script(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.executescript("".join(f"INSERT INTO numbers VALUES ({number});" for number in records))  # commits first


@pytest.mark.parametrize("write", [commits, rolls_back_and_goes_on, swallows_the_refusal, runs_a_script], ids=lambda write: write.__name__)
def test_a_function_that_ends_the_transaction_is_refused_and_writes_nothing(database: Database, write: Any) -> None:
    database.take_over()
    for _ in range(2):
        with pytest.raises(
            IllegalStateError, match="commits or rolls back a transaction in partition 0 of batch 1000 ms: leave that to once"
        ):
            list(database.writer(1000, write=write)(0, iter([1])))
    assert database.numbers() == [] and database.take_over() == []
    assert list(database.writer(1000)(0, iter([1]))) == [1]


def rolls_back_by_a_conflict(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.execute("CREATE UNIQUE INDEX one ON numbers (number)")
    insert(connection, records)
    with suppress(sqlite3.IntegrityError):
        connection.execute("INSERT OR ROLLBACK INTO numbers VALUES (1)")


def test_a_transaction_that_has_ended_unseen_is_no_success(database: Database) -> None:
    database.take_over()
    with pytest.raises(IllegalStateError, match="has committed or rolled back in partition 0"):
        list(database.writer(1000, write=rolls_back_by_a_conflict)(0, iter([1])))
    assert database.numbers() == [] and database.take_over() == []


@pytest.mark.parametrize("write", [lambda _, records: map(print, records), lambda _, records: (record for record in records)])
def test_a_function_that_has_not_done_its_work_fails_its_batch(database: Database, write: Any) -> None:
    database.take_over()
    with pytest.raises(TypeError, match=r"output once: the function returned a (map|generator), so nothing of its work has been done"):
        list(database.writer(1000, write=write)(0, iter([1])))
    assert database.take_over() == []


def test_a_partition_that_is_written_in_part_is_written_again_once_the_user_says_that_its_records_are_removed(database: Database) -> None:
    """The error has the statement that says so."""
    database.take_over()
    list(database.writer(1000, 1)(0, iter([1])))
    database.run("UPDATE kstream_receipts SET batch_time = 2000, num_records = -1, nonce = 'plan of 2000' WHERE partition_id = 0")
    (found,) = database.take_over()
    for asks in (lambda: closed([found], TABLE), lambda: list(database.writer(2000, 1)(0, iter([2])))):
        with pytest.raises(OutputChangedError, match="partition 0 of batch 2000 ms is written in part") as raised:
            asks()
    database.run(str(raised.value).partition("written again: ")[2])
    (found,) = database.take_over(check=lambda found: check_is_there(found, WrittenBatch(1000, 1), TABLE))
    assert closed([found], TABLE) == []
    for written in (1, None):
        assert list(database.writer(2000, 1)(0, iter([2]))) == [written]
    assert database.numbers() == [1, 2]


@pytest.mark.parametrize(
    ("found", "lost"), [([], 0), ([receipt(0), receipt(1)], 2), ([receipt(0), receipt(1, 1000), receipt(2, 3000)], 1)], ids=repr
)
def test_a_database_that_has_lost_a_partition_of_the_newest_batch_is_refused(found: list[Receipt], lost: int) -> None:
    with pytest.raises(OutputChangedError, match=f"batch 2000 ms was written, and partition {lost} of it is not there"):
        check_is_there(found, WrittenBatch(2000, 3), TABLE)


def test_a_later_batch_stands_for_the_newest_one() -> None:
    check_is_there([receipt(0, 3000), receipt(1), receipt(2)], WrittenBatch(2000, 3), TABLE)
    check_is_there([], None, TABLE)


def test_a_new_connection_that_finds_an_older_state_of_the_database_writes_nothing(database: Database) -> None:
    database.take_over()
    list(database.writer(1000, 1)(0, iter([1])))
    database.run("DELETE FROM numbers")
    database.run("UPDATE kstream_receipts SET batch_time = 0 WHERE partition_id = 0")  # as a restored backup has it
    for connection in receipt_table._connections.values():
        connection.close()
    with pytest.raises(OutputChangedError, match="batch 1000 ms was written, and partition 0 of it is not there"):
        list(replace(database.writer(2000, 1), newest=WrittenBatch(1000, 1))(0, iter([2])))
    assert database.numbers() == []


def test_an_earlier_driver_writes_nothing_once_a_later_one_has_taken_over(database: Database) -> None:
    earlier = replace(TABLE, epoch=1, writer="first")
    database.take_over(earlier)
    list(database.writer(1000, table=earlier)(0, iter([1])))
    assert database.take_over() == [receipt(0, 1000, 2, 1)]
    with pytest.raises(FencedError, match="another driver writes"):
        list(database.writer(1000, table=earlier)(1, iter([2])))
    with pytest.raises(FencedError):
        database.take_over(earlier)
    assert database.numbers() == [1]


@pytest.mark.parametrize("epoch", [2, 3, 7])
def test_the_driver_of_a_copy_of_the_checkpoint_is_refused(database: Database, epoch: int) -> None:
    database.take_over()
    copy = replace(TABLE, epoch=epoch, writer="the copy's")
    connection = database.connect()
    with pytest.raises(OutputChangedError, match="not one of this checkpoint"):
        take_over(connection, copy, {1: "first", 2: "the copy's second", epoch: "the copy's"}.get, lambda _: None, False)
    connection.close()


def test_an_older_checkpoint_is_no_driver_that_was_fenced(database: Database) -> None:
    """No other driver runs, and a restart would not help."""
    database.take_over()
    older = replace(TABLE, epoch=1, writer="first")
    connection = database.connect()
    with pytest.raises(OutputChangedError, match="the checkpoint is older than what was written"):
        take_over(connection, older, {1: "first"}.get, lambda _: None, False)
    connection.close()


def test_a_driver_that_is_refused_does_not_fence_the_one_that_writes(database: Database) -> None:
    def refuse(_receipts: list[Receipt]) -> None:
        raise TABLE.changed("not this one")

    database.take_over()
    with pytest.raises(OutputChangedError, match="not this one"):
        database.take_over(replace(TABLE, epoch=3, writer="third"), check=refuse)
    assert list(database.writer(1000)(0, iter([1]))) == [1]


@pytest.mark.parametrize("how", ["DELETE FROM kstream_receipts", "DROP TABLE kstream_receipts"])
def test_a_table_that_was_emptied_is_refused_however_often_the_batch_is_tried(database: Database, how: str) -> None:
    database.take_over()
    list(database.writer(1000)(0, iter([1])))
    database.run(how)
    with pytest.raises((OutputChangedError, sqlite3.OperationalError)):
        list(database.writer(1000)(1, iter([2])))
    for _ in range(2):
        with pytest.raises(OutputChangedError, match="nobody knows which batches are written"):
            database.take_over(is_known=True)
    assert database.numbers() == [1]


def test_jobs_and_outputs_share_a_table_and_know_only_their_own_receipts(database: Database) -> None:
    other, job = replace(TABLE, output="other"), replace(TABLE, job="another job")
    for table in (TABLE, other, job):
        database.take_over(table)
    list(database.writer(1000)(0, iter([1])))
    list(database.writer(1000, table=other)(0, iter([2])))
    assert database.numbers() == [1, 2]
    assert [len(database.take_over(table)) for table in (TABLE, other, job)] == [1, 1, 0]


def test_a_connection_is_used_again_and_a_broken_one_is_replaced(database: Database) -> None:
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        made.append(database.connect())
        return made[-1]

    database.take_over()
    for time in (1000, 2000):
        list(PartitionWriter(TABLE, connect, insert, time, "p", 1)(0, iter([time])))
    assert len(made) == 1
    made[0].close()
    list(PartitionWriter(TABLE, connect, insert, 3000, "p", 1)(0, iter([3000])))
    assert len(made) == 2 and database.numbers() == [1000, 2000, 3000]


def test_a_half_written_batch_is_refused_where_workers_divide_keys_otherwise(database: Database) -> None:
    database.take_over()
    with pytest.raises(OutputChangedError, match="the workers divide keys otherwise now"):
        list(replace(database.writer(1000), hashing=hashing() + 1)(0, iter([1])))
    assert database.numbers() == []


def test_rows_of_another_kind_are_no_matter(database: Database) -> None:
    def connect() -> sqlite3.Connection:
        connection = database.connect()
        connection.row_factory = lambda cursor, row: {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
        return connection

    connection = connect()
    assert take_over(connection, TABLE, EPOCHS.get, lambda _: None, False) == []
    connection.close()
    assert list(PartitionWriter(TABLE, connect, insert, 1000, "p", 1)(0, iter([1]))) == [1]


class BeginsByItself(sqlite3.Connection):
    """As sqlite3.connect(…, autocommit=False) returns since Python 3.12."""

    autocommit = False


def test_a_connection_that_begins_transactions_by_itself_no_longer_does(database: Database) -> None:
    connect = partial(sqlite3.connect, database.path, factory=BeginsByItself)
    database.take_over()
    assert list(PartitionWriter(TABLE, connect, insert, 1000, "p", 1)(0, iter([1]))) == [1]
    (connection,) = receipt_table._connections.values()
    assert connection.autocommit and database.numbers() == [1]


def test_another_database_is_refused_by_name(database: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"SQLite \(sqlite3\) and PostgreSQL \(psycopg\): connect returned a .*Database"):
        take_over(database, TABLE, EPOCHS.get, lambda _: None, False)

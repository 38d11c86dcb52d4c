"""The rows of a batch and its receipts are written together, once, and only by the driver that may write. On SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstream.errors import ConfigurationError, FencedError, IllegalStateError, OutputChangedError
from kstream.sinks import receipts
from kstream.sinks.receipts import Ledger, PartitionWriter, Receipt, take_over, to_write

LEDGER = Ledger("kstream_receipts", "job", "once", epoch=2, writer="second")


class Database:
    """A database with a table of numbers."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with sqlite3.connect(self.path) as connection:
            connection.execute("CREATE TABLE numbers (number INTEGER)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def numbers(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]

    def take_over(self, ledger: Ledger = LEDGER) -> list[Receipt]:
        connection = self.connect()
        try:
            return take_over(connection, ledger)
        finally:
            connection.close()

    def writer(self, time_ms: int, epoch: int = 2, num_partitions: int = 2, ledger: Ledger = LEDGER, write: Any = None) -> PartitionWriter:
        return PartitionWriter(ledger, self.connect, write or insert, time_ms, epoch, num_partitions)


def insert(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in records))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    yield Database(tmp_path / "sink.db")
    for connection in receipts._connections.values():
        connection.close()
    receipts._connections.clear()


def test_a_partition_and_its_receipt_are_written_together_and_a_second_try_writes_nothing(database: Database) -> None:
    assert database.take_over() == []
    assert list(database.writer(1000)(0, iter([1, 2, 3]))) == [3]
    assert list(database.writer(1000)(1, iter([]))) == [0]
    assert database.take_over() == [Receipt(0, 2, 1000, 2, 3), Receipt(1, 2, 1000, 2, 0)]
    assert list(database.writer(1000)(0, iter([1, 2, 3]))) == [None]
    assert database.numbers() == [1, 2, 3]


def test_the_records_of_a_partition_that_is_written_are_computed_nevertheless(database: Database) -> None:
    database.take_over()
    list(database.writer(1000)(0, iter([1])))
    records = iter([1])
    assert list(database.writer(1000)(0, records)) == [None] and list(records) == []


def test_a_later_batch_takes_the_place_of_the_receipt_of_an_older_one(database: Database) -> None:
    database.take_over()
    for time, numbers in ((1000, [1]), (2000, [2, 3])):
        list(database.writer(time, num_partitions=1)(0, iter(numbers)))
    assert database.take_over() == [Receipt(0, 1, 2000, 2, 2)]
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


def test_a_function_that_commits_is_refused(database: Database) -> None:
    database.take_over()

    def commits(connection: sqlite3.Connection, records: Iterator[int]) -> None:
        insert(connection, records)
        connection.commit()

    with pytest.raises(IllegalStateError, match="has committed or rolled back: leave that to once"):
        list(database.writer(1000, write=commits)(0, iter([1])))


def test_an_earlier_driver_writes_nothing_once_a_later_one_has_taken_over(database: Database) -> None:
    earlier = replace(LEDGER, epoch=1, writer="first")
    database.take_over(earlier)
    list(database.writer(1000, 1, ledger=earlier)(0, iter([1])))
    assert database.take_over() == [Receipt(0, 2, 1000, 1, 1)]
    with pytest.raises(FencedError, match="another driver writes"):
        list(database.writer(1000, 1, ledger=earlier)(1, iter([2])))
    with pytest.raises(FencedError):
        database.take_over(earlier)
    assert database.numbers() == [1]


def test_the_driver_of_a_copy_of_the_checkpoint_is_refused(database: Database) -> None:
    database.take_over()
    with pytest.raises(OutputChangedError, match="another copy of this checkpoint"):
        database.take_over(replace(LEDGER, writer="the copy's"))


def test_a_table_that_was_emptied_is_refused_and_not_taken_for_nothing_written(database: Database) -> None:
    database.take_over()
    with sqlite3.connect(database.path) as connection:
        connection.execute("DELETE FROM kstream_receipts")
    with pytest.raises(OutputChangedError, match="has lost its rows"):
        list(database.writer(1000)(0, iter([1])))
    assert database.numbers() == []


def test_jobs_and_outputs_share_a_table_and_know_only_their_own_receipts(database: Database) -> None:
    other, job = replace(LEDGER, output="other"), replace(LEDGER, job="another job")
    for ledger in (LEDGER, other, job):
        database.take_over(ledger)
    list(database.writer(1000)(0, iter([1])))
    list(database.writer(1000, ledger=other)(0, iter([2])))
    assert database.numbers() == [1, 2]
    assert [len(database.take_over(ledger)) for ledger in (LEDGER, other, job)] == [1, 1, 0]


def test_a_connection_is_used_again_and_a_broken_one_is_replaced(database: Database) -> None:
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        made.append(database.connect())
        return made[-1]

    database.take_over()
    for time in (1000, 2000):
        list(PartitionWriter(LEDGER, connect, insert, time, 2, 1)(0, iter([time])))
    assert len(made) == 1
    made[0].close()
    list(PartitionWriter(LEDGER, connect, insert, 3000, 2, 1)(0, iter([3000])))
    assert len(made) == 2 and database.numbers() == [1000, 2000, 3000]


@pytest.mark.skipif(not hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"), reason="Python 3.12 has this attribute")
def test_a_connection_that_begins_transactions_by_itself_is_used_nevertheless(database: Database) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(database.path, autocommit=False)  # pyright: ignore[reportCallIssue]

    database.take_over()
    assert list(PartitionWriter(LEDGER, connect, insert, 1000, 2, 1)(0, iter([1]))) == [1]
    assert database.numbers() == [1]


def test_another_database_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"SQLite \(sqlite3\) and PostgreSQL .* connect returned a .*Database"):
        take_over(Database.__new__(Database), LEDGER)


# -- which partitions are still to be written


def receipt(partition: int, time_ms: int = 2000, num_partitions: int = 3, epoch: int = 1) -> Receipt:
    return Receipt(partition, num_partitions, time_ms, epoch, 10)


def missing(found: list[Receipt], time_ms: int = 2000, epoch: int = 1, num_partitions: int = 3, newest_ms: int = 5000) -> list[int] | None:
    return to_write(found, time_ms, epoch, num_partitions, newest_ms, "once")


def test_all_partitions_are_written_of_a_batch_without_receipts() -> None:
    assert missing([]) is None
    assert missing([receipt(0, 1000), receipt(1, 1000)]) is None, "these are of the batch before"


def test_the_partitions_without_receipts_are_written_of_a_batch_that_has_some() -> None:
    assert missing([receipt(1), receipt(0, 1000)]) == [0, 2]
    assert missing([receipt(0), receipt(1), receipt(2)]) == []


def test_nothing_is_written_of_a_batch_that_a_later_one_follows() -> None:
    assert missing([receipt(0, 3000), receipt(1)]) == []


def test_a_batch_that_is_divided_otherwise_than_its_receipts_is_refused() -> None:
    with pytest.raises(OutputChangedError, match="divided into 3 partitions, and has 4 now"):
        missing([receipt(1)], num_partitions=4)


def test_the_receipt_of_another_plan_is_refused() -> None:
    with pytest.raises(OutputChangedError, match="by another plan, of epoch 1, and has one of epoch 2 now"):
        missing([receipt(1)], epoch=2)


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused() -> None:
    with pytest.raises(OutputChangedError, match="the checkpoint is older than what was written"):
        missing([receipt(0, 6000)])

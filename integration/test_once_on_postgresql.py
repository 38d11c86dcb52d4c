"""`once` on a real PostgreSQL: transactions that meet each other, answers that are lost, connections as users set them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from integration.postgres_server import Postgres
from kstream.errors import FencedError, IllegalStateError, OutputChangedError
from kstream.sinks.receipt import Receipt
from kstream.sinks.receipt_table import PartitionWriter, ReceiptTable, take_over
from tests.kept_connections import closed_at_the_end

PATIENCE_S = 60
pytestmark = pytest.mark.postgres


class Sink:
    """A table of numbers in a new schema, with its receipts."""

    def __init__(self, url: str) -> None:
        self.url, self.schema = url, f"s{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE SCHEMA {self.schema}; CREATE TABLE {self.schema}.numbers (number INTEGER)")

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def numbers(self) -> list[int]:
        return [number for (number,) in self.run(f"SELECT number FROM {self.schema}.numbers ORDER BY number")]

    def table(self, epoch: int = 1) -> ReceiptTable:
        return ReceiptTable(f"{self.schema}.kstream_receipts", "job", "once", epoch, f"nonce {epoch}")

    def take_over(self, epoch: int = 1, **options: Any) -> list[Receipt]:
        with psycopg.connect(self.url, **options) as connection:
            return take_over(connection, self.table(epoch), lambda number: f"nonce {number}", lambda _: None, epoch > 1)

    def insert(self, connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        connection.cursor().executemany(f"INSERT INTO {self.schema}.numbers VALUES (%s)", [(number,) for number in records])

    def writer(self, epoch: int = 1, write: Any = None, connect: Any = None) -> PartitionWriter:
        return PartitionWriter(self.table(epoch), connect or partial(psycopg.connect, self.url), write or self.insert, 1000, "plan", 2)

    def wait_for_a_lock(self) -> None:
        """Return when a transaction waits for another one."""
        end = time.monotonic() + PATIENCE_S
        while not self.run("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"):
            assert time.monotonic() < end, "no transaction waits"


class Paused:
    """A write that stands still in the middle of its transaction."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        self._sink.insert(connection, records)
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)


class Task(threading.Thread):
    """Runs something in a thread of its own, and keeps its result."""

    def __init__(self, what: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._what, self.result = what, None
        self.start()

    def run(self) -> None:
        self.result = self._what()

    def ended(self) -> Any:
        self.join(PATIENCE_S)
        return self.result


@pytest.fixture
def sink(postgres: Postgres) -> Iterator[Sink]:
    with closed_at_the_end():
        yield Sink(postgres.url)


def test_a_driver_waits_for_the_transactions_of_its_predecessor(sink: Sink) -> None:
    sink.take_over(1)
    paused = Paused(sink)
    zombie = Task(lambda: list(sink.writer(1, paused)(0, iter([1]))))
    assert paused.begun.wait(PATIENCE_S)
    successor = Task(lambda: sink.take_over(2))
    sink.wait_for_a_lock()
    paused.go_on.set()
    assert zombie.ended() == [1]
    assert [(receipt.partition, receipt.num_records) for receipt in successor.ended()] == [(0, 1)]
    with pytest.raises(FencedError):
        list(sink.writer(1)(1, iter([2])))
    assert sink.numbers() == [1]


def test_of_two_attempts_at_a_partition_the_second_waits_and_writes_nothing(sink: Sink) -> None:
    sink.take_over()
    paused = Paused(sink)
    first = Task(lambda: list(sink.writer(1, paused)(0, iter([1, 2]))))
    assert paused.begun.wait(PATIENCE_S)
    second = Task(lambda: list(sink.writer()(0, iter([1, 2]))))
    sink.wait_for_a_lock()
    paused.go_on.set()
    assert (first.ended(), second.ended()) == ([2], [None])
    assert sink.numbers() == [1, 2]


class LosesAnAnswer(psycopg.Connection[Any]):
    """Breaks when the server has committed, before its answer comes."""

    def commit(self) -> None:
        super().commit()
        if self.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'broken'").fetchone() == (0,):
            self.execute("CREATE TABLE broken ()")
            super().commit()
            self.close()
            raise psycopg.OperationalError("the connection was lost")


def test_a_commit_whose_answer_is_lost_is_not_written_again(sink: Sink) -> None:
    sink.take_over()
    connect = partial(LosesAnAnswer.connect, sink.url, options=f"-c search_path={sink.schema}")
    ready = connect()
    ready.execute("CREATE TABLE broken ()")  # the set-up of a connection commits, too
    psycopg.Connection.commit(ready)

    def write_then_let_it_break(connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        sink.insert(connection, records)
        connection.execute("DROP TABLE broken")

    with pytest.raises(psycopg.OperationalError, match="the connection was lost"):
        list(sink.writer(1, write_then_let_it_break, connect)(0, iter([1])))
    ready.close()
    assert list(sink.writer()(0, iter([1]))) == [None]
    assert sink.numbers() == [1]


def test_a_function_that_commits_fails_its_batch_until_the_user_has_removed_what_it_has_committed(sink: Sink) -> None:
    def commits(connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        sink.insert(connection, records)
        connection.commit()

    sink.take_over()
    with pytest.raises(IllegalStateError, match="has committed or rolled back in partition 0 of batch 1000 ms"):
        list(sink.writer(1, commits)(0, iter([1])))
    for _ in range(2):
        with pytest.raises(OutputChangedError, match="partition 0 of batch 1000 ms is written in part") as raised:
            list(sink.writer()(0, iter([1])))
    assert sink.numbers() == [1], "however often it is tried"
    sink.run(f"DELETE FROM {sink.schema}.numbers")
    sink.run(str(raised.value).partition("written again: ")[2])
    assert list(sink.writer()(0, iter([1]))) == [1]
    assert list(sink.writer()(0, iter([1]))) == [None]
    assert sink.numbers() == [1]


def test_a_function_that_catches_an_error_of_the_database_is_told_that_its_transaction_is_broken(sink: Sink) -> None:
    def catches(connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        sink.insert(connection, records)
        with suppress(psycopg.Error):
            connection.execute("SELECT 1 / 0")

    def catches_behind_a_savepoint(connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        sink.insert(connection, records)
        with suppress(psycopg.Error), connection.transaction():
            connection.execute("SELECT 1 / 0")

    sink.take_over()
    with pytest.raises(IllegalStateError, match="has caught an error of the database in partition 0 of batch 1000 ms"):
        list(sink.writer(1, catches)(0, iter([1])))
    assert sink.numbers() == []
    assert list(sink.writer(1, catches_behind_a_savepoint)(0, iter([1]))) == [1]
    assert sink.numbers() == [1]


def serializable(url: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url)
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    return connection


def test_the_isolation_level_of_a_connection_gives_way_to_that_of_once(sink: Sink) -> None:
    levels: list[Any] = []

    def notes(connection: psycopg.Connection[Any], records: Iterator[int]) -> None:
        levels.append(connection.execute("SHOW transaction_isolation").fetchone())
        sink.insert(connection, records)

    sink.take_over()
    list(sink.writer(1, notes, partial(serializable, sink.url))(0, iter([1])))
    assert levels == [("read committed",)]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("options", [{}, {"autocommit": True}, {"row_factory": dict_row}], ids=["plain", "autocommit", "rows as dicts"])
def test_connections_are_used_as_once_needs_them_however_the_user_sets_them(sink: Sink, options: dict[str, Any], isolation: str) -> None:
    words = isolation.replace(" ", "\\ ")
    options = {**options, "options": f"-c default_transaction_isolation={words}"}
    sink.take_over(**options)
    paused = Paused(sink)
    first = Task(lambda: list(sink.writer(1, paused, partial(psycopg.connect, sink.url, **options))(0, iter([1]))))
    assert paused.begun.wait(PATIENCE_S)
    successor = Task(lambda: sink.take_over(2, **options))
    sink.wait_for_a_lock()
    paused.go_on.set()
    assert first.ended() == [1]
    assert [receipt.num_records for receipt in successor.ended()] == [1], "it reads what was committed while it waited"

"""A database as the sink of a driver that is killed: a table that `once` writes, and one that a naive output writes."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg

from kstream import DStream
from kstream.sinks import once

DIE_IN_WRITE = "KSTREAM_TEST_DIE_IN_WRITE"
"""`N`: the Nth write of a worker kills the driver in the middle of its transaction."""
ONCE, NAIVE = "once_rows", "naive_rows"
"""The names of both tables, or topics."""
_calls = 0


def connect(url: str) -> Any:
    """A connection to PostgreSQL for `postgresql://…`, else to the SQLite database in that file."""
    return psycopg.connect(url) if url.startswith("postgresql://") else sqlite3.connect(url, timeout=60)


def make_tables(url: str) -> None:
    with closing(connect(url)) as connection:
        for table in (ONCE, NAIVE):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (place TEXT NOT NULL)")
        connection.commit()


def rows(url: str, table: str) -> Counter[str]:
    """How often each place is in a table."""
    with closing(connect(url)) as connection:
        return Counter(place for (place,) in connection.execute(f"SELECT place FROM {table}").fetchall())


def insert(table: str, connection: Any, places: Iterable[str]) -> None:
    """Insert a row for each place."""
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO {table} VALUES ({mark})", [(place,) for place in places])


def insert_or_die(driver: int, connection: Any, places: Iterable[str]) -> None:
    """Insert a row for each place. Kills the driver after that, if it is to."""
    global _calls
    insert(ONCE, connection, places)
    _calls += 1
    if _calls == int(os.environ.get(DIE_IN_WRITE, 0)):
        os.kill(driver, signal.SIGKILL)
        signal.pause()  # until the JVM has ended, and Spark's daemon ends this worker


def insert_naively(url: str, places: Iterator[str]) -> None:
    with closing(connect(url)) as connection:
        insert(NAIVE, connection, places)
        connection.commit()


def write_to(stream: DStream[str], url: str) -> None:
    """Write a stream of places to both tables."""
    make_tables(url)
    stream.foreachRDD(lambda rdd: rdd.foreachPartition(partial(insert_naively, url)))
    stream.foreachRDD(once(partial(connect, url), partial(insert_or_die, os.getpid())))

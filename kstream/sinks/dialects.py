"""Dialects: what differs between the databases that `once` writes to."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from kstream.errors import ConfigurationError

Connection = Any
"""A connection of Python's database API (PEP 249)."""
_SQLITE_WAIT_MS = 600_000
"""How long a transaction waits for another one in SQLite, which has one writer at a time."""
_LOCK_WAIT = "60s"
"""How long a driver of PostgreSQL waits for the transactions of an earlier one."""


class Dialect(Protocol):
    """What differs between databases."""

    mark: str
    """The placeholder of a parameter."""
    for_share: str
    """Keeps a row that a transaction reads from changing until its end."""

    def ready(self, connection: Connection) -> None:
        """Prepare a new connection, so that each statement of a transaction sees what is committed before it."""
        ...

    def begin(self, connection: Connection) -> None: ...

    def limit_waits(self, connection: Connection) -> None:
        """Let the statements of this transaction wait for other ones, but not without end."""
        ...

    def commit(self, connection: Connection) -> None: ...

    def rollback(self, connection: Connection) -> None:
        """End the transaction without effect, if there is one."""
        ...

    def cursor(self, connection: Connection) -> Any:
        """Return a cursor whose rows are tuples, whatever the user has set."""
        ...

    def guarded(self, connection: Connection) -> AbstractContextManager[list[str]]:
        """Refuse, where the database can, the user's statements that begin or end a transaction. Return a list that gets those refused."""
        ...

    def has_ended(self, error: Exception) -> bool:
        """Return whether a savepoint could not be released because its transaction has ended."""
        ...

    def is_broken(self, error: Exception) -> bool:
        """Return whether a savepoint could not be released because an earlier statement of the transaction has failed."""
        ...


class SQLite:
    """The Dialect of sqlite3."""

    mark = "?"
    for_share = ""  # BEGIN IMMEDIATE lets no other transaction write

    def ready(self, connection: sqlite3.Connection) -> None:
        """Let the module begin no transactions by itself, and let statements wait long for another writer."""
        if getattr(connection, "autocommit", -1) is False:  # since Python 3.12: the module would begin transactions by itself
            connection.autocommit = True  # pyright: ignore[reportAttributeAccessIssue]
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {_SQLITE_WAIT_MS}")

    def begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def limit_waits(self, connection: sqlite3.Connection) -> None:
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

    @contextmanager
    def guarded(self, connection: sqlite3.Connection) -> Generator[list[str]]:
        """Refuse the user's statements in the body that begin or end a transaction. Yield a list that gets those refused."""
        refused: list[str] = []

        def authorize(action: int, statement: str | None, *_: str | None) -> int:
            if action != sqlite3.SQLITE_TRANSACTION:
                return sqlite3.SQLITE_OK
            refused.append(str(statement))
            return sqlite3.SQLITE_DENY

        connection.set_authorizer(authorize)
        try:
            yield refused
        finally:
            connection.set_authorizer(lambda *_: sqlite3.SQLITE_OK)  # Python 3.10 knows no None

    def has_ended(self, error: Exception) -> bool:
        return "no such savepoint" in str(error)

    def is_broken(self, error: Exception) -> bool:
        return False  # a statement that fails leaves the transaction as it was


class PostgreSQL:
    """The Dialect of psycopg."""

    mark = "%s"
    for_share = " FOR SHARE"

    def ready(self, connection: Connection) -> None:
        """End what has begun, read what others commit, and let the server notice soon that a worker is gone."""
        from psycopg import IsolationLevel

        connection.rollback()
        connection.autocommit = False  # the first statement begins a transaction
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        # A worker whose machine is gone keeps its locks until the server notices: soon, and not after hours.
        for setting, value in (("idle", 20), ("interval", 5), ("count", 4)):
            connection.execute(f"SET tcp_keepalives_{setting} = {value}")
        connection.commit()

    def begin(self, connection: Connection) -> None:
        connection.rollback()  # the first statement begins the transaction

    def limit_waits(self, connection: Connection) -> None:
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def rollback(self, connection: Connection) -> None:
        connection.rollback()

    def cursor(self, connection: Connection) -> Any:
        from psycopg.rows import tuple_row

        return connection.cursor(row_factory=tuple_row)

    @contextmanager
    def guarded(self, connection: Connection) -> Generator[list[str]]:
        yield []  # PostgreSQL cannot refuse them

    def has_ended(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in ("3B001", "25P01")  # no such savepoint, no transaction

    def is_broken(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "25P02"  # in a failed transaction


def dialect_of(connection: Connection) -> Dialect:
    """Return the dialect of a connection. ConfigurationError for a database that is not supported."""
    if isinstance(connection, sqlite3.Connection):
        return SQLite()
    if any(cls.__module__.partition(".")[0] == "psycopg" for cls in type(connection).__mro__):
        return PostgreSQL()
    raise ConfigurationError(
        "once writes to SQLite (sqlite3) and PostgreSQL (psycopg): connect returned a "
        f"{type(connection).__module__}.{type(connection).__qualname__}",
        key="connect",
        value=type(connection).__qualname__,
    )

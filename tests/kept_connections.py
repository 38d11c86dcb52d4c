"""The connections that a worker process keeps between the tasks of `once`, closed at the end of a test."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from kstream.sinks import receipt_table


@contextmanager
def closed_at_the_end() -> Generator[None]:
    try:
        yield
    finally:
        for connection in receipt_table._connections.values():
            connection.close()
        receipt_table._connections.clear()

"""DriverLedger: the ledger of a driver that runs, read from its checkpoint when the page asks, and kept for a few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from kstream.checkpoint.history import LedgerEntry, read_newest_entries
from kstream.clock import Clock
from kstream.connectors import installed_tools
from kstream.errors import CheckpointError, StorageError
from kstream.storage import FileStore
from kstream.ui.forms import LedgerForm
from kstream.ui.ledger_forms import RangesOf, ledger_forms

logger = logging.getLogger(__name__)
FRESH_MS = 5000
"""For how long a reading serves those who ask for the ledger, also one that has failed."""
COUNT_FRESH_MS = 30_000
"""For how long it serves those who ask for the number alone: the page asks for that every two seconds."""
MOST = 500
"""The most records of the ledger that are read."""
_PATIENCE_S = 5.0
"""Seconds for which a request waits for the first reading, which another one makes."""


def connectors_ranges() -> RangesOf:
    """Return the function that finds the ranges in plan data, by the tools of the installed connectors. Imports the connectors."""
    tools = tuple(installed_tools())
    return lambda data: next((ranges for known in tools if (ranges := known.ranges(data)) is not None), None)


class DriverLedger:
    """Any thread. One reads at a time, and the others get the last reading, or its error, at once. A batch neither reads nor waits.

    Args:
        store: the checkpoint; None without one.
        clock: tells how old a reading is.
    """

    def __init__(self, store: FileStore | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._has_read = threading.Event()
        self._lock = threading.Lock()
        self._is_reading = False
        self._entries: Sequence[LedgerEntry] = ()
        self._count: int | None = 0 if store is None else None
        self._error: StorageError | CheckpointError | None = None
        self._read_ms: int | None = None
        self._counter: threading.Thread | None = None

    def forms(self) -> list[LedgerForm]:
        """Return the entries, newest first.

        Blocks on the store if the last reading is too old and nobody reads. While another one makes the first reading, it blocks for a few
        seconds.

        Raises:
            CheckpointError: an entry is damaged.
            StorageError: the store failed, or has not answered yet.
        """
        if self._store is None:
            return []
        if self._begins_reading(FRESH_MS):
            self._read(self._store)
        elif not self._has_read.wait(_PATIENCE_S):
            raise StorageError("the ledger is being read: the store has not answered yet")
        with self._lock:
            entries, error = self._entries, self._error
        if error is not None:
            raise error.with_traceback(None)  # each raise would make the traceback of a kept error longer
        if not entries:
            return []
        ranges_of = connectors_ranges()
        return [form for entry in reversed(entries) for form in ledger_forms(entry, ranges_of)]

    def count(self) -> int | None:
        """Return how many entries nobody has acknowledged or asked for; None before the first reading. Never blocks.

        A number that is too old makes another thread read the ledger.
        """
        if self._store is not None and self._begins_reading(COUNT_FRESH_MS):
            self._read_on_a_thread(self._store)
        with self._lock:
            return self._count

    def wait(self, timeout: float) -> None:
        """Wait for a reading that runs for the number, up to `timeout` seconds."""
        with self._lock:
            counter = self._counter
        if counter is not None:
            counter.join(timeout)

    def _begins_reading(self, milliseconds: int) -> bool:
        """Return whether the caller is to read: nobody does, and the last reading is older, or there was none."""
        with self._lock:
            is_fresh = self._read_ms is not None and self._clock.monotonic_ms() - self._read_ms < milliseconds
            begins = not is_fresh and not self._is_reading
            self._is_reading |= begins
            return begins

    def _read_on_a_thread(self, store: FileStore) -> None:
        """Read the ledger on a thread of its own. Call it after `_begins_reading`."""
        made = threading.Thread(target=self._read, args=(store,), name="UiServer-ledger", daemon=True)
        with self._lock:
            self._counter = made
        try:
            made.start()
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                self._is_reading, self._counter = False, None
            raise

    def _read(self, store: FileStore) -> None:
        """Read the ledger, and keep it or the error. Blocks on the store. Call it after `_begins_reading`."""
        entries: Sequence[LedgerEntry] | None = None
        error: StorageError | CheckpointError | None = None
        older = 0
        try:
            entries, older = read_newest_entries(store, MOST)
        except (StorageError, CheckpointError) as e:
            error = e
            logger.debug("the ledger was not read for the page: %s", e)
        finally:
            self._keep(entries, older, error)

    def _keep(self, entries: Sequence[LedgerEntry] | None, older: int, error: StorageError | CheckpointError | None) -> None:
        """Note what a reading has found. An error leaves the number as it is; a bug, which is neither, lets the next one read."""
        with self._lock:
            self._is_reading = False
            if entries is None and error is None:
                return
            self._error = error
            self._read_ms = self._clock.monotonic_ms()
            if entries is not None:
                self._entries = entries
                self._count = older + sum(not entry.is_acknowledged and not entry.is_asked_for for entry in entries)
        self._has_read.set()

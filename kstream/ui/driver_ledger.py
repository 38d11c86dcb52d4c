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
"""For how long a reading serves those who ask for the ledger."""
COUNT_FRESH_MS = 30_000
"""For how long it serves those who ask for the number alone: the page asks for that every two seconds."""
MOST = 500
"""The most records of the ledger that are read."""


def connectors_ranges() -> RangesOf:
    """Return the function that finds the ranges in plan data, by the tools of the installed connectors. Imports the connectors."""
    tools = tuple(installed_tools())
    return lambda data: next((ranges for known in tools if (ranges := known.ranges(data)) is not None), None)


class DriverLedger:
    """Any thread. A batch neither reads it nor waits for it.

    Args:
        store: the checkpoint; None without one.
        clock: tells how old a reading is.
    """

    def __init__(self, store: FileStore | None, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._entries: Sequence[LedgerEntry] = ()
        self._count: int | None = 0 if store is None else None
        self._read_ms: int | None = None
        self._counter: threading.Thread | None = None

    def forms(self) -> list[LedgerForm]:
        """Return the entries, newest first. Blocks on the store if the last reading is too old.

        Raises:
            CheckpointError: an entry is damaged.
            StorageError: the store failed.
        """
        if self._store is None:
            return []
        with self._reading:  # those who ask meanwhile get the same reading
            if self._is_older_than(FRESH_MS):
                self._read(self._store)
        with self._lock:
            entries = self._entries
        if not entries:
            return []
        ranges_of = connectors_ranges()
        return [form for entry in reversed(entries) for form in ledger_forms(entry, ranges_of)]

    def count(self) -> int | None:
        """Return how many entries nobody has acknowledged or asked for; None before the first reading. Never blocks.

        A number that is too old makes another thread read the ledger.
        """
        with self._lock:
            count, counter = self._count, self._counter
        if self._store is not None and self._is_older_than(COUNT_FRESH_MS) and (counter is None or not counter.is_alive()):
            made = threading.Thread(target=self._read_to_count, args=(self._store,), name="UiServer-ledger", daemon=True)
            with self._lock:
                self._counter = made
            made.start()
        return count

    def wait(self, timeout: float) -> None:
        """Wait for a reading that runs, up to `timeout` seconds."""
        with self._lock:
            counter = self._counter
        if counter is not None:
            counter.join(timeout)

    def _is_older_than(self, milliseconds: int) -> bool:
        """Return whether the last reading is older, or there was none."""
        with self._lock:
            return self._read_ms is None or self._clock.monotonic_ms() - self._read_ms >= milliseconds

    def _read_to_count(self, store: FileStore) -> None:
        """Read the ledger on a thread of its own. An error leaves the number as it is."""
        try:
            with self._reading:
                self._read(store)
        except (StorageError, CheckpointError) as e:
            logger.debug("the ledger was not read for the page: %s", e)
            with self._lock:
                self._read_ms = self._clock.monotonic_ms()

    def _read(self, store: FileStore) -> None:
        """Read the ledger and keep it. Blocks on the store, and raises its errors."""
        entries, older = read_newest_entries(store, MOST)
        with self._lock:
            self._entries = entries
            self._count = older + sum(not entry.is_acknowledged and not entry.is_asked_for for entry in entries)
            self._read_ms = self._clock.monotonic_ms()

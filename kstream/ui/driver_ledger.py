"""DriverLedger: the ledger of a driver that runs, read from its checkpoint when the page asks, and kept for a few seconds."""

from __future__ import annotations

from kstream.checkpoint.history import read_newest_entries
from kstream.clock import Clock
from kstream.connectors import installed_tools
from kstream.errors import StorageError
from kstream.storage import FileStore
from kstream.ui.forms import LedgerForm
from kstream.ui.last_reading import LastReading
from kstream.ui.ledger_forms import RangesOf, ledger_forms

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
    """The ledger of a driver that runs, read from its checkpoint when somebody asks. Any thread; no batch waits for it.

    One thread reads at a time, and the others get the last reading, or its error, at once.

    Args:
        store: the checkpoint; None without one.
        clock: tells how old a reading is.
    """

    def __init__(self, store: FileStore | None, clock: Clock) -> None:
        self._reading = None if store is None else LastReading(lambda: read_newest_entries(store, MOST), clock)

    def forms(self) -> list[LedgerForm]:
        """Return the entries, newest first.

        Blocks on the store if the last reading is too old and nobody reads. While another one makes the first reading, it blocks for a few
        seconds.

        Raises:
            CheckpointError: an entry is damaged.
            StorageError: the store failed, or has not answered yet.
        """
        if self._reading is None:
            return []
        if self._reading.is_due(FRESH_MS):
            self._reading.renew()
        elif not self._reading.has_tried.wait(_PATIENCE_S):
            raise StorageError("the ledger is being read: the store has not answered yet")
        found, error = self._reading.last()
        if error is not None:
            raise error.with_traceback(None)  # each raise would make the traceback of a kept error longer
        if found is None or not found[0]:
            return []
        ranges_of = connectors_ranges()
        return [form for entry in reversed(found[0]) for form in ledger_forms(entry, ranges_of)]

    def count(self) -> int | None:
        """Return how many entries nobody has acknowledged or asked for; None before the first reading. Never blocks.

        A number that is too old makes another thread read the ledger. An error leaves the number as it is.
        """
        if self._reading is None:
            return 0
        if self._reading.is_due(COUNT_FRESH_MS):
            self._reading.renew_on_a_thread("UiServer-ledger")
        found, _ = self._reading.last()
        return None if found is None else found[1] + sum(not entry.is_acknowledged and not entry.is_asked_for for entry in found[0])

    def wait(self, timeout: float) -> None:
        """Wait for a reading that runs for the number, up to `timeout` seconds."""
        if self._reading is not None:
            self._reading.wait(timeout)

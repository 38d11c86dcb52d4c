"""The ledger of a driver that runs, when its store is slow or away: who looks at it does not wait for others."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.checkpoint.history import LedgerEntry
from kstream.errors import StorageError
from kstream.storage import MemoryFileStore
from kstream.testing import ManualClock
from kstream.ui import driver_ledger
from kstream.ui.driver_ledger import FRESH_MS, DriverLedger


class Readings:
    """What the store answers: a number of entries, or an error; a reading may be made to wait."""

    def __init__(self) -> None:
        self.entries = 2
        self.error: Exception | None = None
        self.made = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.has_begun = threading.Event()

    def read(self, store: Any, most: int) -> tuple[list[LedgerEntry], int]:
        self.made += 1
        self.has_begun.set()
        assert self.may_end.wait(20)
        if self.error is not None:
            raise self.error
        return [LedgerEntry("given-up", Time(1000 * n), n, 1, {}) for n in range(self.entries)], 0

    def wait(self) -> None:
        """Make the next reading wait until `may_end` is set."""
        self.has_begun.clear()
        self.may_end.clear()


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    made = Readings()
    monkeypatch.setattr(driver_ledger, "read_newest_entries", made.read)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def ledger(readings: Readings, clock: ManualClock) -> DriverLedger:
    return DriverLedger(MemoryFileStore("memory://ledger"), clock)


def test_a_store_that_is_away_is_asked_once_in_five_seconds_however_many_look(
    readings: Readings, clock: ManualClock, ledger: DriverLedger
) -> None:
    readings.error = StorageError("away")
    for _ in range(3):
        with pytest.raises(StorageError, match="away"):
            ledger.forms()
    assert readings.made == 1
    readings.error = None
    clock.advance(FRESH_MS)
    assert len(ledger.forms()) == 2 and readings.made == 2


def test_while_one_waits_for_a_slow_store_the_others_get_the_last_reading_at_once(
    readings: Readings, clock: ManualClock, ledger: DriverLedger
) -> None:
    ledger.forms()
    clock.advance(FRESH_MS)
    readings.wait()
    slow = threading.Thread(target=ledger.forms)
    slow.start()
    assert readings.has_begun.wait(20)
    readings.entries = 0
    assert len(ledger.forms()) == 2
    readings.may_end.set()
    slow.join(20)
    assert ledger.forms() == [] and readings.made == 2


def test_who_asks_during_the_first_reading_gets_it_and_after_some_seconds_an_error(
    readings: Readings, ledger: DriverLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings.wait()
    assert ledger.count() is None  # it makes a thread read
    assert readings.has_begun.wait(20)
    with monkeypatch.context() as impatient, pytest.raises(StorageError, match="has not answered yet"):
        impatient.setattr(driver_ledger, "_PATIENCE_S", 0)
        ledger.forms()
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(len(ledger.forms())))
    waiting.start()
    readings.may_end.set()
    waiting.join(20)
    assert found == [2] and readings.made == 1 and ledger.count() == 2


def test_after_a_bug_in_a_reading_the_next_one_reads(readings: Readings, ledger: DriverLedger) -> None:
    readings.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        ledger.forms()
    readings.error = None
    assert len(ledger.forms()) == 2

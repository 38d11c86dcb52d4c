"""How many records a batch may have to end in a given time."""

from __future__ import annotations

import pytest

from kstream.offsets.batch_speed import GROWTH, RECENT, BatchCost, BatchSpeed

BUDGET, INTERVAL = 850, 1000


def speed(*costs: tuple[int, int]) -> BatchSpeed:
    """The speed after batches of (records, milliseconds)."""
    made = BatchSpeed(BUDGET, INTERVAL)
    for records, processing_ms in costs:
        made.add(BatchCost(records, processing_ms))
    return made


def test_after_one_batch_all_its_time_counts_as_that_of_its_records() -> None:
    assert not speed().is_known
    assert speed((100, 200)).is_known and speed((100, 200)).fitting() == 425
    assert speed((1, 10_000)).fitting() == 1, "never none"


def test_two_batches_that_differ_tell_the_overhead() -> None:
    """300 ms, and 1 ms a record."""
    assert speed((100, 400), (200, 500)).fitting() == pytest.approx(550, abs=150 + 1)
    assert speed((100, 400), (200, 500), (400, 700)).fitting() == 550


def test_an_overhead_of_most_of_the_interval_lets_a_batch_run_twice_as_long() -> None:
    found = speed((100, 900), (200, 1000))
    assert found.target_ms == 1600 and found.fitting() == 400, "not more than twice the last one"
    found.add(BatchCost(400, 1200))
    assert found.fitting() == 800


def test_pauses_of_the_machine_are_no_overhead_that_lets_a_batch_run_longer() -> None:
    """The smaller batches took longer, so no record seems to cost anything. No batch is faster than its overhead: 400 ms at most."""
    assert speed((200, 400), (100, 900), (100, 900)).target_ms == BUDGET


def test_records_that_cost_nothing_that_can_be_seen_are_doubled() -> None:
    assert speed((100, 600), (200, 600)).fitting() == GROWTH * 200


def test_batches_of_equal_size_are_followed_by_a_larger_one_that_tells_more() -> None:
    assert speed(*[(50, 850)] * (RECENT // 2 - 1)).fitting() == 50
    assert speed(*[(50, 850)] * (RECENT // 2)).fitting() == 75


def test_a_pause_in_one_batch_does_not_make_the_next_one_small() -> None:
    steady = [(100, 200), (400, 500), (750, 850), (750, 850)]
    assert speed(*steady, (750, 3850)).fitting() == speed(*steady).fitting() == 750


def test_a_machine_that_has_become_slower_gets_fewer_records() -> None:
    steady = [(100, 200), (400, 500), (750, 850)]
    assert speed(*steady, (750, 1700), (750, 1700)).fitting() == pytest.approx(350, abs=30)

"""The demo's proof: it holds for what is exact and fails, saying why, for everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kstream_kafka.demo.proof import Attempt, CountedOrder, Evidence, prove

from kstream.offsets.offset_range import PlannedRange

TRUTH = [CountedOrder(n, "north" if n % 2 else "south", n * 100) for n in range(1, 31)]


def one_range(number: int) -> tuple[PlannedRange, ...]:
    """Of the nth batch: ten orders each."""
    return (PlannedRange("orders", 0, number * 10 - 10, number * 10),)


def totals(orders: list[CountedOrder]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for order in orders:
        count, cents = found.get(order.region, (0, 0))
        found[order.region] = (count + 1, cents + order.cents)
    return found


def exact() -> Evidence:
    """Three batches of ten orders, the second run twice, windows of two batches."""
    batches = {n * 1000: TRUTH[n * 10 - 10 : n * 10] for n in (1, 2, 3)}
    windows = {1000: totals(TRUTH[:10]), 2000: totals(TRUTH[:20]), 3000: totals(TRUTH[10:30])}
    attempts = [Attempt(t, driver, one_range(t // 1000)) for t, driver in ((1000, 1), (2000, 1), (2000, 2), (3000, 2))]
    return Evidence(TRUTH, {0: 30}, batches, windows, attempts, {2000: one_range(2)}, 1000, 2000)


def test_an_exact_run_is_proved() -> None:
    verdict = prove(exact())
    assert verdict.failures == [] and verdict.proved
    assert (verdict.acknowledged, verdict.counted, verdict.windows) == (30, 30, 3)
    assert verdict.re_run == {2000: one_range(2)}


def altered(**changes: Any) -> list[str]:
    return prove(replace(exact(), **changes)).failures


def test_an_order_that_is_missing_is_named() -> None:
    batches = {**exact().batches, 1000: TRUTH[1:10]}
    assert "missing: 1 orders (1)" in altered(batches=batches)


def test_an_order_counted_twice_is_named() -> None:
    batches = {**exact().batches, 3000: [*TRUTH[20:29], TRUTH[4]]}
    failures = altered(batches=batches)
    assert "twice: 1 orders (5)" in failures and "missing: 1 orders (30)" in failures


def test_an_order_that_was_never_sent_or_has_changed_is_named() -> None:
    batches = {**exact().batches, 3000: [*TRUTH[20:28], TRUTH[28]._replace(cents=1), CountedOrder(99, "north", 1)]}
    failures = altered(batches=batches)
    assert "changed: 1 orders (29)" in failures and "unknown: 1 orders (99)" in failures


def test_a_re_run_with_other_ranges_is_found() -> None:
    attempts = [*exact().attempts[:2], Attempt(2000, 2, (PlannedRange("orders", 0, 10, 21),)), exact().attempts[3]]
    failures = altered(attempts=attempts)
    assert any(f.startswith("batch 2000 was tried with different ranges") for f in failures)
    assert "batch 2000 ran again with other ranges than its plan" in failures


@pytest.mark.parametrize("begin", [9, 11])
def test_an_overlap_and_a_hole_between_batches_are_found(begin: int) -> None:
    attempts = [*exact().attempts[:3], Attempt(3000, 2, (PlannedRange("orders", 0, 10 + begin, 30),))]
    assert f"batch 3000 reads partition 0 from {10 + begin}, not 20" in altered(attempts=attempts)


def test_batches_that_end_before_the_log_are_found() -> None:
    assert "the batches end at {0: 30}, the log at {0: 31}" in altered(ends={0: 31})


def test_a_pending_batch_that_never_ran_again_is_found() -> None:
    assert "batch 2500 was pending at the kill and never ran again" in altered(pending={2500: one_range(9)})


def test_a_window_that_differs_from_its_batches_is_found() -> None:
    windows = {**exact().windows, 3000: totals(TRUTH[20:30])}
    assert any(f.startswith("the window that ends at 3000 has totals") for f in altered(windows=windows))
    windows = {t: w for t, w in exact().windows.items() if t != 1000}
    assert "batch 1000 has no window totals" in altered(windows=windows)


def test_a_kill_that_hit_nothing_proves_nothing() -> None:
    attempts = [a for a in exact().attempts if (a.batch, a.driver) != (2000, 1)]
    assert altered(attempts=attempts) == ["no batch was running when the driver was killed: nothing was shown"]


def test_no_orders_prove_nothing() -> None:
    assert "Kafka acknowledged no order: nothing was shown" in prove(Evidence([], {}, {}, {}, [], {}, 1000, 2000)).failures

"""Values are counted by their bounds, and no sum falls."""

from __future__ import annotations

import pytest

from kstream.monitoring.histogram import BATCH_BOUNDS, STORE_BOUNDS, Histogram


def test_a_value_is_in_the_bucket_of_its_bound_and_in_all_above() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.1, 0.11, 5.0):
        histogram.observe(value)
    assert histogram.buckets() == [("0.1", 1), ("1.0", 2), ("+Inf", 3)]
    assert histogram.sum == pytest.approx(5.21)


def test_a_delay_across_a_step_back_of_the_clock_lets_no_sum_fall() -> None:
    """Prometheus takes a counter that falls for one that has begun again, and adds all of it."""
    histogram = Histogram((0.1, 1.0))
    histogram.observe(2.0)
    histogram.observe(-3600.0)
    assert histogram.sum == 2.0 and histogram.buckets() == [("0.1", 1), ("1.0", 1), ("+Inf", 2)]


@pytest.mark.parametrize("bounds", [BATCH_BOUNDS, STORE_BOUNDS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))

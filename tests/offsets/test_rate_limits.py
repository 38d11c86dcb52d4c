"""The rate limits of a batch: Spark behaviours KD7–KD13."""

from __future__ import annotations

import pytest

from kstream.offsets.admission_control import RateLimits, clamp, estimated_rate, max_messages, share_by_lag


def parts(*ends: int) -> dict[tuple[str, int], int]:
    return {("t", i): end for i, end in enumerate(ends)}


def at_most(*rates: int):
    return lambda partition: rates[partition[1]]


def test_KD7_without_backpressure_each_partition_gets_the_maximum_rate():
    limits = RateLimits(batch_ms=100, max_rate=at_most(100, 100))
    assert max_messages(parts(0, 0), parts(50, 50), limits) == parts(10, 10)


def test_a_maximum_of_zero_is_no_limit_for_its_partition_alone():
    limits = RateLimits(batch_ms=100, max_rate=at_most(100, 0))
    assert max_messages(parts(0, 0), parts(50, 50), limits) == parts(10, 50)


def test_KD8_no_lag_at_all_means_no_limit_rather_than_a_division_by_zero():
    limits = RateLimits(batch_ms=100, max_rate=at_most(100, 100), estimate=100)
    assert max_messages(parts(0, 0), parts(0, 0), limits) is None


def test_KD9_the_maximum_of_each_partition_caps_its_share_of_the_rate():
    limits = RateLimits(batch_ms=100, max_rate=at_most(50, 100), estimate=1000)
    assert max_messages(parts(0, 0), parts(1000, 1000), limits) == parts(5, 10)


def test_KD10_the_rate_is_shared_by_lag_and_a_partition_without_lag_still_gets_the_minimum():
    limits = RateLimits(batch_ms=60_000, max_rate=at_most(100, 100, 100, 100), min_rate=lambda _: 5, estimate=1)
    assert max_messages(parts(0, 0, 0, 0), parts(0, 100, 200, 300), limits) == parts(5, 10, 20, 30)


def test_KD10_with_a_minimum_of_one_as_in_0_8():
    limits = RateLimits(batch_ms=60_000, max_rate=at_most(100, 100, 100, 100), estimate=1)
    assert max_messages(parts(0, 0, 0, 0), parts(0, 100, 200, 300), limits) == parts(1, 10, 20, 30)


@pytest.mark.parametrize(("initial", "most", "expected"), [(500, 1000, 250), (1000, 300, 150)])
def test_KD11_the_initial_rate_holds_until_something_is_measured(initial: int, most: int, expected: int):
    limits = RateLimits(batch_ms=500, max_rate=lambda _: most, estimate=estimated_rate(True, None, initial))
    assert max_messages(parts(0), parts(10_000), limits) == parts(expected)


def test_KD11_an_initial_rate_of_zero_is_not_used():
    assert estimated_rate(True, None, 0) is None
    assert estimated_rate(False, 100, 100) is None
    assert estimated_rate(True, 7, 100) == 7


@pytest.mark.parametrize(("batch_ms", "expected"), [(500, [50, 25, 10]), (100, [10, 5, 2])])
def test_KD12_the_batch_follows_the_measured_rate(batch_ms: int, expected: list[int]):
    taken = [max_messages(parts(0), parts(10_000), RateLimits(batch_ms, estimate=rate)) for rate in (100.0, 50.0, 20.0)]
    assert taken == [parts(n) for n in expected]


def test_KD13_a_share_is_truncated_then_raised_to_the_minimum_then_clamped_to_the_end_of_the_log():
    limits = RateLimits(batch_ms=1000, min_rate=lambda _: 2, estimate=10)
    shares = share_by_lag(10, parts(1, 2), lambda _: 0)
    assert shares == {("t", 0): pytest.approx(10 / 3), ("t", 1): pytest.approx(20 / 3)}
    assert max_messages(parts(0, 0), parts(1, 2), limits) == parts(3, 6)
    assert clamp(parts(0, 0), parts(1, 2), limits) == parts(1, 2)


def test_a_partition_with_a_minimum_never_reads_past_its_end():
    limits = RateLimits(batch_ms=1000, max_rate=lambda _: 1, min_rate=lambda _: 50)
    assert clamp(parts(0), parts(20), limits) == parts(20)


def test_offsets_beyond_64_bit_floats_are_kept_exactly():
    big = 2**62 + 1
    assert clamp(parts(big), parts(big + 10), RateLimits(1000, max_rate=lambda _: 3)) == parts(big + 3)

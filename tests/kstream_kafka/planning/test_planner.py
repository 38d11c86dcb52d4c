"""The offset planner: Spark behaviours KD7–KD13, and what must never come out of it."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.offset_range import OffsetRange
from kstream_kafka.planning.planner import RateLimits, clamp, estimated_rate, max_messages, plan_ranges, share_by_lag


def parts(*ends: int) -> dict[tuple[str, int], int]:
    return {("t", i): end for i, end in enumerate(ends)}


def at_most(*rates: int):
    return lambda partition: rates[partition[1]]


def test_KD7_without_backpressure_each_partition_gets_the_maximum_rate():
    limits = RateLimits(batch_ms=100, max_rate=at_most(100, 100))
    assert max_messages(parts(0, 0), parts(50, 50), limits) == parts(10, 10)


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


def test_KD13_a_partition_that_is_gone_raises_with_its_name():
    with pytest.raises(PartitionRevokedError, match="t-1") as caught:
        plan_ranges(parts(0, 5), parts(10), RateLimits(1000))
    assert caught.value.partitions == [("t", 1)]  # pyright: ignore[reportAttributeAccessIssue]


def test_without_any_limit_a_range_goes_to_the_end_of_the_log():
    assert plan_ranges(parts(3, 4), parts(10, 4), RateLimits(1000)) == [OffsetRange("t", 0, 3, 10), OffsetRange("t", 1, 4, 4)]


def test_ranges_come_by_topic_and_number_whatever_the_order_of_the_brokers_answer():
    current = {("b", 0): 0, ("a", 10): 0, ("a", 2): 0}
    assert [(r.topic, r.partition) for r in plan_ranges(current, dict.fromkeys(current, 1), RateLimits(1000))] == [
        ("a", 2), ("a", 10), ("b", 0),
    ]  # fmt: skip


def test_a_log_that_ends_before_the_next_offset_is_an_error_never_a_negative_range():
    with pytest.raises(LogShrankError, match="next to read is 9, the log ends at 4"):
        plan_ranges(parts(0, 9), parts(5, 4), RateLimits(1000, max_rate=lambda _: 1))


def test_a_start_given_past_the_end_waits_with_an_empty_range():
    assert plan_ranges(parts(11), parts(10), RateLimits(1000), ahead=[("t", 0)]) == [OffsetRange("t", 0, 11, 11)]


def test_a_partition_with_a_minimum_never_reads_past_its_end():
    limits = RateLimits(batch_ms=1000, max_rate=lambda _: 1, min_rate=lambda _: 50)
    assert plan_ranges(parts(0), parts(20), limits) == [OffsetRange("t", 0, 0, 20)]


def test_offsets_beyond_64_bit_floats_are_kept_exactly():
    big = 2**62 + 1
    assert plan_ranges(parts(big), parts(big + 10), RateLimits(1000, max_rate=lambda _: 3)) == [OffsetRange("t", 0, big, big + 3)]

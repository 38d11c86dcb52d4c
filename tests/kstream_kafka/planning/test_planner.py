"""The offset planner: the ranges that come out of it, and those that never must."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.planner import plan_ranges

from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.rate_limits import RateLimits


def parts(*ends: int) -> dict[tuple[str, int], int]:
    return {("t", i): end for i, end in enumerate(ends)}


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

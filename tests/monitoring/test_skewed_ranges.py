"""Which partitions give a batch far more records than the others of their topic."""

from __future__ import annotations

from kstream.monitoring.skewed_ranges import FACTOR, LEAST_RECORDS, MOST, SkewedRange, skewed_ranges


def of(*records: int | None, topic: str = "orders") -> list[tuple[str, int, int | None]]:
    return [(topic, partition, number) for partition, number in enumerate(records)]


def test_a_range_with_far_more_records_than_the_median_is_named_with_its_factor() -> None:
    (found,) = skewed_ranges(of(1000, 900, 1100, 12_000))
    assert found == SkewedRange("orders", 3, 12_000, 1050.0) and found.factor == 11.4
    assert skewed_ranges(of(1000, 900, 1100, 2000)) == []


def test_a_range_at_the_threshold_is_not_skewed() -> None:
    assert skewed_ranges(of(1000, 1000, 1000, FACTOR * 1000)) == []
    assert len(skewed_ranges(of(1000, 1000, 1000, FACTOR * 1000 + 1))) == 1
    assert skewed_ranges(of(1, 1, 1, LEAST_RECORDS - 1)) == []
    assert len(skewed_ranges(of(1, 1, 1, LEAST_RECORDS))) == 1


def test_a_topic_whose_other_partitions_are_empty_has_a_skewed_one_without_a_factor() -> None:
    (found,) = skewed_ranges(of(0, 0, 5000))
    assert (found.partition, found.median, found.factor) == (2, 0.0, None)


def test_topics_are_compared_each_by_itself_and_two_ranges_say_nothing() -> None:
    assert skewed_ranges([*of(10, 12, 9), *of(50_000, 60_000, 55_000, topic="audit")]) == []
    assert skewed_ranges(of(10, 50_000)) == []


def test_a_range_that_was_not_counted_is_left_out() -> None:
    assert skewed_ranges(of(10, 50_000, None)) == []
    assert [one.partition for one in skewed_ranges(of(10, 50_000, None, 10))] == [1]


def test_few_are_named_and_the_longest_first() -> None:
    found = skewed_ranges(of(*[1] * 20, *range(2000, 2008)))
    assert len(found) == MOST and [one.records for one in found] == [2007, 2006, 2005, 2004, 2003]

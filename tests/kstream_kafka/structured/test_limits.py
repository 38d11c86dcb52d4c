"""Limits and tasks of a micro-batch are those of Spark's Kafka source."""

from __future__ import annotations

import pytest
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.structured.limits import shared_by_lag, tasks_of

from kstream.offsets.offset_range import OffsetRange

A, B, C = ("t", 0), ("t", 1), ("t", 2)


def splits(*ends: int) -> list[RangeSplit]:
    return [RangeSplit(OffsetRange("t", n, 0, end), 7) for n, end in enumerate(ends)]


def lengths(tasks: list[RangeSplit]) -> list[tuple[int, int]]:
    return [(task.range.partition, task.range.count()) for task in tasks]


def test_a_limit_is_shared_in_proportion_to_the_lags() -> None:
    assert shared_by_lag({A: 10, B: 0, C: 5}, {A: 40, B: 60, C: 5}, 30) == {A: 20, B: 20, C: 5}


def test_no_partition_with_records_starves_and_none_passes_its_end() -> None:
    assert shared_by_lag({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}
    assert shared_by_lag({A: 3, B: 0}, {A: 5, B: 1}, 100) == {A: 5, B: 1}
    assert shared_by_lag({A: 3}, {A: 3}, 100) == {A: 3}


def test_a_range_is_a_task_and_an_empty_one_is_none() -> None:
    assert lengths(tasks_of(splits(5, 0, 7), None, None)) == [(0, 5), (2, 7)]
    assert tasks_of(splits(0, 0), 4, 10) == []


@pytest.mark.parametrize("least", [1, 2])
def test_enough_ranges_are_not_divided(least: int) -> None:
    assert lengths(tasks_of(splits(5, 1_000), least, None)) == [(0, 5), (1, 1_000)]


def test_with_too_few_ranges_the_long_ones_are_divided() -> None:
    assert lengths(tasks_of(splits(10, 90), 4, None)) == [(0, 10), (1, 30), (1, 30), (1, 30)]
    assert lengths(tasks_of(splits(100), 3, None)) == [(0, 33), (0, 33), (0, 34)]
    assert lengths(tasks_of(splits(2), 5, None)) == [(0, 1), (0, 1)]


def test_no_task_has_more_records_than_it_may_and_the_parts_are_the_whole() -> None:
    parts = tasks_of(splits(10, 25), None, 10)
    assert lengths(parts) == [(0, 10), (1, 8), (1, 8), (1, 9)]
    edges = [(part.range.fromOffset, part.range.untilOffset) for part in parts[1:]]
    assert edges == [(0, 8), (8, 16), (16, 25)] and all(part.leader_epoch == 7 for part in parts)

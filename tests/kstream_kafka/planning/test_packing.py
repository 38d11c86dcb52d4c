"""Which task reads what: every offset once and in order, however ranges are packed and split."""

from __future__ import annotations

import pickle
import random
from itertools import pairwise

import pytest
from kstream_kafka.planning.packing import (
    MOST_RECORDS_TOGETHER,
    MOST_TOGETHER,
    RANGE_COST,
    SMALL_RANGE,
    Packing,
    RangeSplit,
    TaskSplits,
    groups,
    pack,
)
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads

from kstream.offsets.offset_range import OffsetRange

SEEDS = range(25)


def any_ranges(dice: random.Random) -> list[OffsetRange]:
    """One range for each of some partitions, in no order, many of them short or empty, as a batch has them."""
    ranges: list[OffsetRange] = []
    for topic in ("a", "b"):
        for number in range(dice.randint(0, 12)):
            start = dice.choice([0, dice.randint(0, 10**6)])
            ranges.append(OffsetRange(topic, number, start, start + dice.choice([0, 1, dice.randint(0, 30), dice.randint(0, 900)])))
    dice.shuffle(ranges)
    return ranges


def packed(ranges: list[OffsetRange], max_tasks: int = 0, max_records_per_task: int = 0) -> tuple[TaskSplits, ...]:
    return pack([RangeSplit(r) for r in ranges], Packing(max_tasks, max_records_per_task))


def offsets(*ranges: OffsetRange) -> list[tuple[str, int, int]]:
    return [(r.topic, r.partition, at) for r in ranges for at in range(r.fromOffset, r.untilOffset)]


def read_by(tasks: tuple[TaskSplits, ...]) -> list[tuple[str, int, int]]:
    """Everything that is read, in the order of the RDD."""
    return offsets(*(split.range for task in tasks for split in task))


def cost(splits: TaskSplits) -> int:
    return sum(RANGE_COST + split.range.count() for split in splits)


# -- nothing asked for, and splitting


def test_unless_asked_otherwise_task_i_reads_range_i_and_an_empty_range_has_its_task():
    ranges = [OffsetRange("t", 2, 5, 9), OffsetRange("t", 0, 7, 7), OffsetRange("s", 1, 0, 10**9)]
    splits = [RangeSplit(r, epoch) for r, epoch in zip(ranges, [3, None, 4], strict=True)]
    assert pack(splits, Packing()) == tuple((split,) for split in splits)
    assert packed([]) == ()


def test_a_long_range_is_split_evenly_into_consecutive_tasks():
    tasks = packed([OffsetRange("t", 1, 100, 110), OffsetRange("t", 0, 0, 4)], max_records_per_task=4)
    assert [(p.range.partition, p.range.fromOffset, p.range.untilOffset) for (p,) in tasks] == [
        (1, 100, 103), (1, 103, 106), (1, 106, 110), (0, 0, 4),
    ]  # fmt: skip


def test_ranges_that_are_short_enough_stay_where_they_are_also_empty_ones():
    ranges = [OffsetRange("t", 1, 0, 4), OffsetRange("t", 0, 3, 3)]
    assert packed(ranges, max_records_per_task=4) == packed(ranges)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_parts_of_a_range_are_the_range_none_too_long_none_shorter_than_the_others_by_two(seed: int):
    dice = random.Random(seed)
    ranges, most = any_ranges(dice), dice.randint(1, 500)
    tasks = packed(ranges, max_records_per_task=most)
    assert read_by(tasks) == offsets(*ranges)
    for r in ranges:
        parts = [p.range.count() for (p,) in tasks if p.range.topicAndPartition == r.topicAndPartition]
        assert max(parts) <= most and max(parts) - min(parts) <= 1


# -- packing


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_tasks_read_every_offset_once_in_the_order_of_topic_partition_and_offset(seed: int):
    dice = random.Random(seed)
    ranges = any_ranges(dice)
    tasks = packed(ranges, dice.randint(1, 30), dice.choice([0, 1, dice.randint(1, 500)]))
    assert read_by(tasks) == sorted(offsets(*ranges))


@pytest.mark.parametrize("seed", SEEDS)
def test_there_are_never_more_tasks_than_asked_for_and_none_without_records(seed: int):
    dice = random.Random(seed)
    most = dice.randint(1, 30)
    tasks = packed(any_ranges(dice), most, dice.choice([0, dice.randint(1, 500)]))
    assert len(tasks) <= most
    assert all(split.range.count() > 0 for task in tasks for split in task) and all(tasks)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_task_weighs_more_than_an_equal_share_and_one_piece(seed: int):
    dice = random.Random(seed)
    ranges, most, split = any_ranges(dice), dice.randint(1, 30), dice.choice([0, dice.randint(1, 500)])
    splits = [task for task in packed(ranges, max_records_per_task=split) if task[0].range.count()]
    share, dearest = sum(map(cost, splits)) / most, max(map(cost, splits), default=0)
    assert all(cost(task) <= share + dearest for task in packed(ranges, most, split))


def test_equal_ranges_are_shared_out_evenly():
    tasks = packed([OffsetRange("t", i, 7, 8) for i in range(1000)], max_tasks=4)
    assert [len(task) for task in tasks] == [250] * 4


def test_many_ranges_of_one_record_weigh_more_than_as_many_records_of_one_range():
    tasks = packed([*(OffsetRange("t", i, 0, 1) for i in range(100)), OffsetRange("t", 100, 0, 100)], max_tasks=2)
    assert [len(task) for task in tasks] == [51, 50]


def test_no_records_at_all_are_no_task_at_all():
    assert packed([OffsetRange("t", i, 4, 4) for i in range(3)], max_tasks=2) == ()
    assert packed([], max_tasks=2) == ()


def test_parts_that_come_together_again_are_one_piece():
    assert packed([OffsetRange("t", 0, 0, 100)], 2, 10) == packed([OffsetRange("t", 0, 0, 50), OffsetRange("t", 0, 50, 100)])


def test_a_piece_keeps_the_leader_epoch_of_its_range_and_ranges_of_two_epochs_stay_two_pieces():
    one, other = OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 9)
    assert pack([RangeSplit(other, 4), RangeSplit(one, 3)], Packing(max_tasks=1)) == ((RangeSplit(one, 3), RangeSplit(other, 4)),)
    parts = [p for (p,) in pack([RangeSplit(one, 3, 1)], Packing(0, 2))]
    assert [p.leader_epoch for p in parts] == [3] * len(parts)
    assert [p.from_epoch for p in parts] == [1] + [3] * (len(parts) - 1)


# -- what is read at once


def grouped(*ranges: OffsetRange) -> list[list[OffsetRange]]:
    return [[split.range for split in group] for group in groups(map(RangeSplit, ranges))]


def test_small_neighbours_are_read_together_a_large_range_alone_and_an_empty_one_not_at_all():
    small, empty, large = OffsetRange("t", 0, 0, SMALL_RANGE), OffsetRange("t", 1, 5, 5), OffsetRange("t", 2, 0, SMALL_RANGE + 1)
    more = OffsetRange("t", 3, 0, 1)
    assert grouped(small, empty, more, large, large, more) == [[small, more], [large], [large], [more]]
    assert grouped(empty) == []


def test_two_pieces_of_one_partition_are_never_read_at_once():
    before, after, other = OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 7, 9), OffsetRange("t", 1, 0, 5)
    assert grouped(before, other, after) == [[before, other], [after]]
    assert grouped(before, before) == [[before], [before]]


def test_what_is_read_at_once_is_bounded_in_partitions_and_in_records():
    ones = [OffsetRange("t", i, 0, 1) for i in range(2 * MOST_TOGETHER + 1)]
    assert [len(group) for group in grouped(*ones)] == [MOST_TOGETHER, MOST_TOGETHER, 1]
    dice = random.Random(1)
    ranges = [OffsetRange("t", i, 0, dice.randint(1, SMALL_RANGE)) for i in range(200)]
    together = [sum(r.count() for r in group) for group in grouped(*ranges)]
    assert max(together) <= MOST_RECORDS_TOGETHER
    assert all(one + other > MOST_RECORDS_TOGETHER for one, other in pairwise(together))
    assert [r for group in grouped(*ranges) for r in group] == ranges


def test_reads_are_pickled_whole():
    reads = RangeReads.of(
        [RangeSplit(OffsetRange("t", 0, 3, 9), 4, 2), RangeSplit(OffsetRange("s", 1, 0, 2))], {"group.id": "g"}, 500, Packing(1),
        BatchReadContext({"t": "id"}, True),
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(reads)) == reads and len(reads) == 1


def test_a_plan_that_keeps_its_packing_stores_it() -> None:
    plan = KafkaPlan([OffsetRange("a", 0, 5, 9)], [1], [1], packing=Packing(3, 40))
    assert plan.encode()["packing"] == [3, 40]
    assert KafkaPlan.decode(plan.encode()).packing == Packing(3, 40)
    without = KafkaPlan([OffsetRange("a", 0, 5, 9)], [1], [1])
    assert "packing" not in without.encode() and KafkaPlan.decode(without.encode()).packing is None

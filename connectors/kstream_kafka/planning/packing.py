"""Packing: the splits that each task reads. On request, small ranges share a task and large ones are split. Pure.

A Python task costs 30 ms or more. A small range that is read together with others costs a tenth of that. So a few tasks read a thousand
partitions with a few records each much faster than a thousand tasks. A range of millions of records, on the other hand, keeps one core busy
while other cores wait. The splits of packed tasks are in the order of (topic, partition, offset), within a task and from task to task. So
the order inside a Kafka partition is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from kstream.batch import SkippedRecord
from kstream.offsets.offset_range import OffsetRange

RANGE_COST = 100
"""The cost of a range besides its records, in records. To assign a range and to serve it in a fetch takes client and broker about as long
as so many records. Without this cost, a task with hundreds of ranges of one record would weigh less than a task with one short range."""

SMALL_RANGE = 1_000
"""The most records of a small range. Small ranges are read with small fetches, together with other small ranges of the same task."""
MOST_TOGETHER = 250
"""The most ranges that are read at once. The client's work for each assigned partition grows with the number of partitions. Above some
hundreds that costs more than the saved fetches. And a fetch brings up to 64 KiB of each partition, even if fewer bytes are needed."""
MOST_RECORDS_TOGETHER = 10_000
"""The most records of all ranges that are read at once, because records may wait in memory for their turn."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The limits for the distribution of ranges over tasks.

    Attributes:
        max_tasks: the most tasks of a batch; 0 is no limit.
        max_records_per_task: the length above which ranges are split; 0 is no limit.
    """

    max_tasks: int = 0
    max_records_per_task: int = 0


NOT_PACKED = Packing()
"""No limits: task i reads range i."""


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """An offset range, or a part of one, that one task reads. Immutable.

    Attributes:
        range: the offsets.
        leader_epoch: the leader epoch of the log's end when the range was planned; None if it is unknown.
        from_epoch: the leader epoch under which the first offset was reached; None if it is unknown.
    """

    range: OffsetRange
    leader_epoch: int | None = None
    from_epoch: int | None = None


TaskSplits: TypeAlias = tuple[RangeSplit, ...]
"""The splits of one task, in the order in which the task yields them."""


def pack(splits: Sequence[RangeSplit], packing: Packing) -> tuple[TaskSplits, ...]:
    """Distribute whole ranges over tasks.

    Without limits, task i reads range i, empty ranges included. With `max_records_per_task` alone, the parts of a range have consecutive
    tasks, and a shorter range has its own task. With `max_tasks`, there are at most so many tasks, and none is empty. Their splits are in
    the order of topic, partition and offset. If there are no records, there is no task. With both limits, ranges are split first. Parts
    that meet again in a task are one split.

    Args:
        splits: the whole ranges.
        packing: the limits.

    Returns:
        The splits of each task, by the task's index.
    """
    if packing.max_records_per_task > 0:
        splits = [part for split in splits for part in parts_of_at_most(split, packing.max_records_per_task)]
    if packing.max_tasks <= 0:
        return tuple((split,) for split in splits)
    full = sorted((p for p in splits if p.range.count() > 0), key=lambda p: (p.range.topic, p.range.partition, p.range.fromOffset))
    return tuple(tuple(_merged(task)) for task in _cut(full, packing.max_tasks))


def divided(split: RangeSplit, parts: int) -> list[RangeSplit]:
    """Return so many parts of a range, as even as possible. Without a record for each part, some are empty.

    Only a part at the begin of the range has its `from_epoch`. The others begin under its `leader_epoch`, as far as anybody knows.
    """
    r = split.range
    edges = [r.fromOffset + r.count() * i // parts for i in range(parts + 1)]
    epoch = split.leader_epoch
    return [
        RangeSplit(OffsetRange(r.topic, r.partition, a, b), epoch, split.from_epoch if a == r.fromOffset else epoch)
        for a, b in pairwise(edges)
    ]


def parts_of_at_most(split: RangeSplit, most: int) -> list[RangeSplit]:
    """Return the parts of a range: at most `most` offsets each, as even as possible."""
    return divided(split, max(1, -(-split.range.count() // most)))


def _cut(splits: Sequence[RangeSplit], most: int) -> list[list[RangeSplit]]:
    """Cut the splits into at most `most` runs of neighbours. A split goes to the run in which its middle lies, by weight.

    The weight of a split is its number of records plus RANGE_COST. No run weighs more than an equal share plus one split.
    """
    if len(splits) <= most:
        return [[split] for split in splits]
    ends = list(accumulate(split.range.count() + RANGE_COST for split in splits))
    runs: dict[int, list[RangeSplit]] = {}
    for split, begin, end in zip(splits, [0, *ends], ends, strict=False):
        runs.setdefault((begin + end) * most // (2 * ends[-1]), []).append(split)
    return list(runs.values())


def _merged(splits: Iterable[RangeSplit]) -> list[RangeSplit]:
    """Return the splits with neighbouring parts of one range joined, so that a task reads them as one split."""
    merged: list[RangeSplit] = []
    for split in splits:
        if merged and _continues(merged[-1], split):
            r = split.range
            first = merged[-1]
            whole = OffsetRange(r.topic, r.partition, first.range.fromOffset, r.untilOffset)
            merged[-1] = RangeSplit(whole, split.leader_epoch, first.from_epoch)
        else:
            merged.append(split)
    return merged


def _continues(one: RangeSplit, other: RangeSplit) -> bool:
    """Return whether `other` begins where `one` ends, in the same partition and with the same leader epoch."""
    a, b = one.range, other.range
    return (a.topic, a.partition, a.untilOffset, one.leader_epoch) == (b.topic, b.partition, b.fromOffset, other.leader_epoch)


def leave_out(task: TaskSplits, skipped: Collection[SkippedRecord]) -> TaskSplits:
    """Return the splits of a task without some records: a split that has any becomes the parts between them. Pure.

    `RangeReads.of` calls it for the records of `kstream skip`, after packing, so that a task keeps its ranges. A split of which nothing is
    left is gone.
    """
    parts: list[RangeSplit] = []
    for split in task:
        r = split.range
        for part in r.without({record.offset for record in skipped if (record.topic, record.partition) == (r.topic, r.partition)}):
            begun = split.from_epoch if part.fromOffset == r.fromOffset else split.leader_epoch
            parts.append(RangeSplit(part, split.leader_epoch, begun))
    return tuple(parts)


def is_small(split: RangeSplit) -> bool:
    """Return whether the split has at most SMALL_RANGE records, so that it is read with small fetches."""
    return split.range.count() <= SMALL_RANGE


def groups(splits: Iterable[RangeSplit]) -> Iterator[tuple[RangeSplit, ...]]:
    """Yield the groups of splits that a task reads at once, in the order of the splits.

    Small neighbours share a group, up to MOST_TOGETHER splits and MOST_RECORDS_TOGETHER records. A large split is a group of its own. Empty
    splits are in no group. No two splits of a group are of one partition, because a client reads a partition from one offset at a time. Two
    splits of one partition may have a gap between them or overlap, if the user gave such ranges.
    """
    together: dict[tuple[str, int], RangeSplit] = {}
    records = 0
    for split in splits:
        r = split.range
        if r.count() <= 0:
            continue
        full = len(together) == MOST_TOGETHER or records + r.count() > MOST_RECORDS_TOGETHER or (r.topic, r.partition) in together
        if together and (full or not is_small(split)):
            yield tuple(together.values())
            together, records = {}, 0
        if is_small(split):
            together[r.topic, r.partition] = split
            records += r.count()
        else:
            yield (split,)
    if together:
        yield tuple(together.values())

"""Packing: the splits that each task reads. Small ranges share a task, large ones are split, both only on request. Pure.

A Python task costs some 30 ms and more, a small range that is read together with others a tenth of that: a few tasks read a thousand
partitions with a few records each far sooner. A range of millions of records, on the other hand, keeps one core busy while others wait.
Packed tasks hold splits in the order of (topic, partition, offset) and follow each other in that order, so the order inside a Kafka
partition is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from kstream_kafka.planning.offset_range import OffsetRange

RANGE_COST = 100
"""The cost of a range besides its records, in records: client and broker need about as long to assign a range and to serve it in a fetch.
Without it a task with hundreds of ranges of one record would count for less than one with a short range."""

SMALL_RANGE = 1_000
"""Up to so many records a range is small: it is read with small fetches, together with other small ranges of its task."""
MOST_TOGETHER = 250
"""Most ranges read at once. The client's work for each assigned partition grows with their number; above some hundreds that costs more than
the saved fetches. And a fetch brings up to 64 KiB of each partition, wanted or not."""
MOST_RECORDS_TOGETHER = 10_000
"""Most records of ranges read at once, because they may wait in memory for their turn."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The wanted distribution of ranges over tasks.

    Attributes:
        max_tasks: most tasks a batch; 0 is no limit.
        max_records_per_task: longer ranges are split; 0 is no limit.
    """

    max_tasks: int = 0
    max_records_per_task: int = 0


NOT_PACKED = Packing()
"""Task i reads range i."""


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """A range that one task reads, or a part of a range.

    Attributes:
        range: the offsets.
        leader_epoch: the leader epoch of its end when it was planned; None if it is unknown.
        from_epoch: the leader epoch under which its first offset was reached; None if it is unknown.
    """

    range: OffsetRange
    leader_epoch: int | None = None
    from_epoch: int | None = None


TaskSplits: TypeAlias = tuple[RangeSplit, ...]


def pack(splits: Sequence[RangeSplit], packing: Packing) -> tuple[TaskSplits, ...]:
    """Distribute whole ranges over tasks.

    Without limits task i reads range i, empty ranges included. With `max_records_per_task` alone the parts of a range have consecutive
    tasks, and a shorter range has its own task. With `max_tasks` there are no more tasks than that, none of them empty: without records
    there is no task. With both, ranges are split first, and a task may hold more than one part.

    Args:
        splits: the whole ranges.
        packing: the limits.

    Returns:
        The splits of each task.
    """
    if packing.max_records_per_task > 0:
        splits = [part for split in splits for part in _split(split, packing.max_records_per_task)]
    if packing.max_tasks <= 0:
        return tuple((split,) for split in splits)
    full = sorted((p for p in splits if p.range.count() > 0), key=lambda p: (p.range.topic, p.range.partition, p.range.fromOffset))
    return tuple(tuple(_merged(task)) for task in _cut(full, packing.max_tasks))


def _split(split: RangeSplit, most: int) -> list[RangeSplit]:
    """Return parts of at most `most` records, as even as possible."""
    r = split.range
    parts = max(1, -(-r.count() // most))
    edges = [r.fromOffset + r.count() * i // parts for i in range(parts + 1)]
    epoch = split.leader_epoch  # no other epoch is known for the begin of the later parts
    return [
        RangeSplit(OffsetRange(r.topic, r.partition, a, b), epoch, split.from_epoch if a == r.fromOffset else epoch)
        for a, b in pairwise(edges)
    ]


def _cut(splits: Sequence[RangeSplit], most: int) -> list[list[RangeSplit]]:
    """Cut the splits into at most `most` runs of neighbours. A split goes to the run in which its middle lies, by weight.

    So no run weighs more than an equal share and one split.
    """
    if len(splits) <= most:
        return [[split] for split in splits]
    ends = list(accumulate(split.range.count() + RANGE_COST for split in splits))
    runs: dict[int, list[RangeSplit]] = {}
    for split, begin, end in zip(splits, [0, *ends], ends, strict=False):
        runs.setdefault((begin + end) * most // (2 * ends[-1]), []).append(split)
    return list(runs.values())


def _merged(splits: Iterable[RangeSplit]) -> list[RangeSplit]:
    """Join neighbouring parts of one range, so that they are read as one split."""
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
    a, b = one.range, other.range
    return (a.topic, a.partition, a.untilOffset, one.leader_epoch) == (b.topic, b.partition, b.fromOffset, other.leader_epoch)


def is_small(split: RangeSplit) -> bool:
    """Return whether the split is read with small fetches."""
    return split.range.count() <= SMALL_RANGE


def groups(splits: Iterable[RangeSplit]) -> Iterator[tuple[RangeSplit, ...]]:
    """Group the splits of a task as they are read: small neighbours together, as far as memory allows, a large one alone, empty ones not.

    No two splits of a group are of one partition, because a client reads a partition from one offset at a time. A user's ranges may leave
    gaps or overlap.
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

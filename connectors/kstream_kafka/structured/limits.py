"""The shares of a limit, and the division of a micro-batch into tasks, as Spark's Kafka source computes them. Pure.

`shared_by_lag` is `rateLimit` of Spark's KafkaMicroBatchStream, and `tasks_of` its KafkaOffsetRangeCalculator. So a query has the same
batches with either source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from kstream.offsets.offset_range import Partition
from kstream_kafka.planning.packing import RangeSplit, divided, parts_of_at_most


def shared_by_lag(current: Mapping[Partition, int], ends: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Return where a batch ends that may have so many offsets: each partition gets a share in proportion to its lag.

    A partition with a lag gets at least one offset, so that none starves. So a batch can have a few offsets more than `most`.

    Args:
        current: the next offset of each partition.
        ends: the offset of each partition that the batch may reach.
        most: the most offsets of the batch.
    """
    lags = {p: end - current[p] for p, end in ends.items() if end > current[p]}
    total = sum(lags.values())
    until = dict(ends)
    for p, lag in lags.items():
        share = most * (lag / total)
        until[p] = min(ends[p], current[p] + (math.ceil(share) if share < 1 else math.floor(share)))
    return until


def tasks_of(splits: Sequence[RangeSplit], min_tasks: int | None, max_records: int | None) -> list[RangeSplit]:
    """Return what each task reads: a whole range, or a part of one. No task is empty.

    Args:
        splits: the whole ranges.
        min_tasks: the fewest tasks. With fewer ranges, long ones are divided in proportion to their lengths.
        max_records: the most offsets of a task.
    """
    full = [split for split in splits if split.range.count() > 0]
    if max_records is not None:
        full = list(chain.from_iterable(parts_of_at_most(split, max_records) for split in full))
    if min_tasks is None or len(full) >= min_tasks:
        return full
    total = sum(split.range.count() for split in full)
    whole = [split for split in full if _parts(split, total, min_tasks) == 1]
    left, tasks_left = total - sum(split.range.count() for split in whole), min_tasks - len(whole)
    return [
        part
        for split in full
        for part in (divided(split, _parts(split, left, tasks_left)) if split not in whole else [split])
        if part.range.count() > 0
    ]


def _parts(split: RangeSplit, total: int, tasks: int) -> int:
    """Return in how many parts a range is divided if so many offsets are shared by so many tasks."""
    return max(1, math.floor(split.range.count() / total * tasks + 0.5))

"""RDD operations of streams for which pyspark's RDD has no single call, and functions on records that tasks run for them.

Functions that take RDDs are called on the driver and start no job, except `print_first`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.resultiterable import ResultIterable

if TYPE_CHECKING:
    from pyspark import RDD


def reduce_to_one(rdd: RDD[Any], func: Callable[[Any, Any], Any]) -> RDD[Any]:
    """Return an RDD of one record: all records of `rdd` combined by `func`. If `rdd` is empty, so is the result."""
    return rdd.map(lambda x: (None, x)).reduceByKey(func, 1).map(lambda pair: pair[1])


def count(rdd: RDD[Any]) -> RDD[int]:
    """Return an RDD of one record: the number of records of `rdd`. It is 0 also for an RDD without partitions."""
    if rdd.getNumPartitions() == 0:
        return rdd.ctx.parallelize([0], 1)
    return reduce_to_one(rdd.mapPartitions(_count_partition), operator.add)


def _count_partition(records: Iterable[Any]) -> Iterator[int]:
    yield sum(1 for _ in records)


def count_unless_empty(records: Iterable[Any]) -> Iterator[int]:
    """Yield the number of a partition's records; nothing for an empty partition."""
    number = sum(1 for _ in records)
    if number:
        yield number


def under_one_key(record: Any) -> tuple[int, Any]:
    """Return (1, record): a pair whose key is the same for all records."""
    return 1, record


def value_of(pair: tuple[Any, Any]) -> Any:
    """Return the value of a (key, value) pair."""
    return pair[1]


def above_zero(pair: tuple[Any, int]) -> bool:
    """Return whether the count in a (value, count) pair is above zero."""
    return pair[1] > 0


def group_with_time(rdd: RDD[Any], time_ms: int, partitions: int) -> RDD[Any]:
    """Return an RDD of (key, [(time in ms, values)]) of one batch. `in_order_of_time` later merges the lists of several batches.

    Args:
        rdd: (key, value) records of the batch.
        time_ms: the batch time.
        partitions: the number of partitions of the result.
    """
    return rdd.groupByKey(partitions).mapValues(lambda values: [(time_ms, list(values))])


def in_order_of_time(groups: list[tuple[int, list[Any]]]) -> ResultIterable[Any]:
    """Return the values of one key from the (time, values) groups of several batches, the earliest batch first."""
    return ResultIterable([value for _, values in sorted(groups, key=lambda group: group[0]) for value in values])


def with_one(record: Any) -> tuple[Any, int]:
    """Return (record, 1), a pair for counting records by `reduceByKey`."""
    return record, 1


def co_grouped(rdds: Sequence[RDD[Any]], partitions: int) -> RDD[Any]:
    """Return an RDD of (key, lists): a tuple with one list for each RDD, which has the key's values in that RDD. Hashed by key.

    RDDs that are hashed into this number of partitions already are not shuffled. A task holds all values of a key in memory.

    Args:
        rdds: one or more RDDs of (key, value).
        partitions: the number of partitions of the result.
    """
    placed = [rdd.partitionBy(partitions) for rdd in rdds]  # returns an RDD as it is if it is partitioned so already
    tagged = [rdd.mapValues(_tagger(number)) for number, rdd in enumerate(placed)]
    together: RDD[Any] = reduce(lambda one, other: one.union(other), tagged)
    count = len(rdds)

    def untag(values: Iterable[tuple[int, Any]]) -> tuple[list[Any], ...]:
        lists: tuple[list[Any], ...] = tuple([] for _ in range(count))
        for number, value in values:
            lists[number].append(value)
        return lists

    return together.groupByKey(partitions).mapValues(untag)


def _tagger(number: int) -> Callable[[Any], tuple[int, Any]]:
    return lambda value: (number, value)


def print_first(time: datetime, rdd: RDD[Any], num: int) -> None:
    """Print a batch in pyspark's form: a line, the time, the first records, `...` if there are more. Blocks: runs Spark jobs.

    Args:
        time: the batch time.
        rdd: the records.
        num: the number of records to print.
    """
    taken = rdd.take(num + 1)
    lines = ["-" * 43, f"Time: {time}", "-" * 43, *(str(record) for record in taken[:num])]
    if len(taken) > num:
        lines.append("...")
    print("\n".join(lines), "", sep="\n", flush=True)


def file_name(prefix: str, suffix: str | None, time_ms: int) -> str:
    """Return the path under which a batch is saved: `prefix-TIME`, or `prefix-TIME.suffix`."""
    return f"{prefix}-{time_ms}" if suffix is None else f"{prefix}-{time_ms}.{suffix}"

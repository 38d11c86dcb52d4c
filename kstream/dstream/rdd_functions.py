"""Operations on one RDD for which pyspark's RDD has no single call. They run on the driver."""

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
    """An RDD of one record, all of `rdd` combined; empty if `rdd` is."""
    return rdd.map(lambda x: (None, x)).reduceByKey(func, 1).map(lambda pair: pair[1])


def count(rdd: RDD[Any]) -> RDD[int]:
    """An RDD of one record, the number of records; 0 also for an RDD without partitions."""
    if rdd.getNumPartitions() == 0:
        return rdd.ctx.parallelize([0], 1)
    return reduce_to_one(rdd.mapPartitions(_count_partition), operator.add)


def _count_partition(records: Iterable[Any]) -> Iterator[int]:
    yield sum(1 for _ in records)


def count_unless_empty(records: Iterable[Any]) -> Iterator[int]:
    """The number of a partition's records, if there are any."""
    number = sum(1 for _ in records)
    if number:
        yield number


def under_one_key(record: Any) -> tuple[int, Any]:
    """All records under the same key."""
    return 1, record


def value_of(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def above_zero(pair: tuple[Any, int]) -> bool:
    """Whether a counted value occurs at all."""
    return pair[1] > 0


def group_with_time(rdd: RDD[Any], time_ms: int, partitions: int) -> RDD[Any]:
    """(key, [(time, values)]): a batch's groups, to be put in order with those of other batches."""
    return rdd.groupByKey(partitions).mapValues(lambda values: [(time_ms, list(values))])


def in_order_of_time(groups: list[tuple[int, list[Any]]]) -> ResultIterable[Any]:
    """The values of several batches' groups, the earliest batch first."""
    return ResultIterable([value for _, values in sorted(groups, key=lambda group: group[0]) for value in values])


def with_one(record: Any) -> tuple[Any, int]:
    """To be counted by key."""
    return record, 1


def co_grouped(rdds: Sequence[RDD[Any]], partitions: int) -> RDD[Any]:
    """(key, a list per RDD of the key's values in it, in a tuple), hashed by key into so many partitions. All values are in memory at once.

    RDDs that are hashed so already are not shuffled: all of it is one step of the task that reads them.
    """
    placed = [rdd.partitionBy(partitions) for rdd in rdds]  # those that are there already as they are
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
    """Prints a batch in pyspark's form: a rule, the time, the first records, `...` if there are more."""
    taken = rdd.take(num + 1)
    lines = ["-" * 43, f"Time: {time}", "-" * 43, *(str(record) for record in taken[:num])]
    if len(taken) > num:
        lines.append("...")
    print("\n".join(lines), "", sep="\n", flush=True)


def file_name(prefix: str, suffix: str | None, time_ms: int) -> str:
    """Where a batch is saved: `prefix-TIME`, or `prefix-TIME.suffix`."""
    return f"{prefix}-{time_ms}" if suffix is None else f"{prefix}-{time_ms}.{suffix}"

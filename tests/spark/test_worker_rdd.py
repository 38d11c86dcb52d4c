"""WorkerRDD: partitions made in the workers, behaving like any RDD."""

from __future__ import annotations

import gc
import os
from typing import Any

from kstream.spark.worker_rdd import WorkerRDD


def ten_each(index: int) -> list[int]:
    return list(range(10 * index, 10 * index + 10))


def test_each_partition_is_what_make_gives_for_its_number(sc: Any):
    rdd = WorkerRDD(sc, 3, ten_each)
    assert rdd.getNumPartitions() == 3
    assert rdd.glom().collect() == [ten_each(0), ten_each(1), ten_each(2)]
    assert rdd.count() == 30 and rdd.take(12) == list(range(12)) and rdd.first() == 0


def test_it_works_with_later_operators_and_other_rdds(sc: Any):
    rdd = WorkerRDD(sc, 2, ten_each)
    assert rdd.map(lambda n: n + 1).filter(lambda n: n % 10 == 0).collect() == [10, 20]
    assert rdd.union(sc.parallelize([99], 1)).union(rdd).count() == 41
    assert sc.union([rdd, rdd]).getNumPartitions() == 4
    assert rdd.map(lambda n: (n % 2, 1)).reduceByKey(lambda a, b: a + b).collectAsMap() == {0: 10, 1: 10}
    assert rdd.repartition(3).count() == 20 and rdd.coalesce(1).glom().map(len).collect() == [20]


def test_a_cached_one_is_made_once(sc: Any):
    made = sc.accumulator(0)

    def make(index: int) -> list[int]:
        made.add(1)
        return [index]

    rdd = WorkerRDD(sc, 2, make).cache()
    assert rdd.collect() == rdd.map(lambda n: n).collect() == [0, 1]
    assert made.value == 2
    rdd.unpersist()


def test_no_partitions_is_an_empty_rdd(sc: Any):
    rdd = WorkerRDD(sc, 0, ten_each)
    assert rdd.getNumPartitions() == 0 and rdd.collect() == [] and rdd.isEmpty()
    assert rdd.union(WorkerRDD(sc, 1, ten_each)).count() == 10


def test_the_empty_base_is_made_once_for_each_number_of_partitions(sc: Any):
    one, other, third = WorkerRDD(sc, 5, ten_each), WorkerRDD(sc, 5, ten_each), WorkerRDD(sc, 6, ten_each)
    assert one._prev_jrdd is other._prev_jrdd  # pyright: ignore[reportPrivateUsage]
    assert one._prev_jrdd is not third._prev_jrdd  # pyright: ignore[reportPrivateUsage]
    assert one.id() != other.id()


def test_the_next_job_finds_the_workers_of_the_last(sc: Any):
    """A worker whose input is left unread is thrown away by Spark, and with it the consumer it keeps."""

    def pids() -> set[int]:
        return set(WorkerRDD(sc, 2, lambda _: iter([os.getpid()])).collect())

    known: set[int] = set()  # Spark hands out its idle workers in turn, also those that other tests left behind
    for _ in range(10):
        known |= pids()
    for _ in range(5):
        assert pids() <= known


def test_the_collector_of_a_worker_passes_over_what_was_loaded_before_its_first_task_of_ours(sc: Any):
    """PySpark's workers collect after every task: all modules each time, unless they are frozen."""

    def frozen(index: int) -> list[tuple[int, int]]:
        return [(gc.get_freeze_count(), len(gc.get_objects()))]

    WorkerRDD(sc, 2, frozen).collect()
    for kept, watched in WorkerRDD(sc, 2, frozen).collect():
        assert kept > 10_000 > watched
    assert gc.get_freeze_count() == 0, "the driver's own is left alone"

"""The simulated Spark does what Spark does: it computes late, keeps what is persisted, and loses what was on an executor."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.storagelevel import StorageLevel

from kstream.batch import KeyHash
from kstream.batch_time import Time
from kstream.checkpoint.state_format import decode_state
from kstream.errors import MissingFileError
from kstream.scheduler.state_checkpointer import is_lost_state
from kstream.storage import MemoryFileStore
from tests.simulator.states.application import Application, JobAbortedError
from tests.simulator.states.files import SimulatedStateFiles
from tests.simulator.states.rdds import SimulatedRDD


class Spark(Application):
    """Two partitions, one executor. `at_point` is called before and after each try of a task."""

    def __init__(self, executors: int = 1) -> None:
        self.at_point: Callable[[], object] = lambda: None
        self.errors: list[Exception] = []
        self.computed: list[int] = []
        super().__init__(random.Random(0), 2, executors, lambda: self.at_point(), self.errors.append)

    def counted(self, rdd: SimulatedRDD) -> SimulatedRDD:
        """As `rdd`; `computed` gets the index of each partition that is computed."""

        def note(index: int, records: Any) -> Any:
            self.computed.append(index)
            return records

        return rdd.mapPartitionsWithIndex(note, True)


@pytest.fixture
def spark() -> Spark:
    return Spark()


def test_nothing_is_computed_before_a_job_and_only_the_partitions_it_asks_for(spark: Spark) -> None:
    rdd = spark.counted(spark.parallelize(range(6))).map(lambda n: n * 2)
    assert spark.computed == []
    assert rdd.take(2) == [0, 2] and spark.computed == [0]
    assert rdd.collect() == [0, 2, 4, 6, 8, 10] and spark.computed == [0, 0, 1]


def test_a_persisted_partition_is_computed_once_until_it_is_unpersisted(spark: Spark) -> None:
    rdd = spark.counted(spark.parallelize(range(4))).persist()
    later = rdd.map(str)
    assert later.collect() == later.collect() == ["0", "1", "2", "3"]
    assert spark.computed == [0, 1]
    rdd.unpersist()
    later.collect()
    assert spark.computed == [0, 1, 0, 1]


def test_a_lost_executor_takes_its_blocks_and_lineage_brings_them_back(spark: Spark) -> None:
    rdd = spark.counted(spark.parallelize(range(4))).persist()
    rdd.collect()
    assert spark.lose_executor() == "executor 0 is lost with 2 blocks"
    assert rdd.collect() == [0, 1, 2, 3]
    assert spark.computed == [0, 1, 0, 1]


def test_short_memory_pushes_out_only_blocks_that_are_not_on_disk(spark: Spark) -> None:
    kept = spark.parallelize(range(4)).persist(StorageLevel.MEMORY_AND_DISK)
    kept.collect()
    assert spark.push_out() == "no block is pushed out"
    spark.parallelize(range(4)).persist(StorageLevel.MEMORY_ONLY).collect()
    assert spark.push_out().endswith("is pushed out of memory")


def test_a_task_whose_executor_is_lost_runs_again_and_nothing_of_it_is_kept() -> None:
    spark = Spark(executors=1)
    rdd = spark.counted(spark.parallelize(range(4))).persist()
    points: list[int] = []

    def lose_at_the_second() -> None:
        points.append(len(points))
        if len(points) == 2:
            spark.lose_executor()

    spark.at_point = lose_at_the_second
    assert rdd.collect() == [0, 1, 2, 3]
    assert spark.computed == [0, 0, 1] and spark.errors == []


def test_a_local_checkpoint_cuts_the_lineage_at_the_first_job_and_its_lost_block_is_told_in_sparks_words(spark: Spark) -> None:
    marked = spark.counted(spark.parallelize(range(4))).persist()
    marked.localCheckpoint()
    later = marked.map(lambda n: n + 1)
    assert later.take(1) == [1]
    assert spark.computed == [0, 1], "the job reads one partition, and the checkpoint takes all"
    assert later.collect() == [1, 2, 3, 4] and spark.computed == [0, 1]
    spark.lose_executor()
    with pytest.raises(JobAbortedError, match=r"failed 4 times.* Checkpoint block rdd_2_0 not found") as caught:
        later.collect()
    assert "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(caught.value) and is_lost_state(caught.value)
    assert len(spark.errors) == 4


def test_a_local_checkpoint_that_no_job_has_made_can_still_be_computed(spark: Spark) -> None:
    marked = spark.parallelize(range(4))
    marked.localCheckpoint()
    spark.lose_executor()
    assert marked.collect() == [0, 1, 2, 3]


def test_a_shuffle_places_pairs_by_key_and_keeps_what_its_tasks_have_written_until_the_executor_is_lost(spark: Spark) -> None:
    placed = spark.counted(spark.parallelize([(n % 3, n) for n in range(6)])).partitionBy(2)
    assert placed.glom_collect() == [[(0, 0), (2, 2), (0, 3), (2, 5)], [(1, 1), (1, 4)]]
    assert spark.computed == [0, 1]
    assert placed.partitionBy(2) is placed
    placed.collect()
    assert spark.computed == [0, 1]
    spark.lose_executor()
    placed.collect()
    assert spark.computed == [0, 1, 0, 1]


def test_a_union_of_rdds_with_one_partitioner_needs_no_shuffle(spark: Spark) -> None:
    one, other = (spark.parallelize([(n, n) for n in numbers]).partitionBy(2) for numbers in (range(4), range(4, 6)))
    both = one.union(other)
    assert (both.partitions, both.partitioner) == (2, one.partitioner)
    assert dict(both.groupByKey(2).collect()) == {n: [n] for n in range(6)}
    assert spark.parallelize([1]).union(spark.parallelize([2])).partitions == 4


def test_a_state_is_a_file_for_each_partition_and_a_task_that_misses_one_tells_which(spark: Spark) -> None:
    store = MemoryFileStore("memory://states")
    numbers = iter(range(10))
    files = SimulatedStateFiles(spark, store, 3, lambda: None, lambda: None, lambda: f"{next(numbers):x}")
    state = spark.parallelize([(n, n) for n in range(4)]).partitionBy(2)
    checkpoint = files.write(Time(5000), {"s0": state})["s0"]
    assert list(checkpoint.files) == [f"state/000000000005000-000003-s0-0000{index}-{index}" for index in (0, 1)]
    assert list(decode_state(store.read(checkpoint.files[1]), "", pickle.loads)) == [(1, 1), (3, 3)]
    read = files.read(checkpoint, KeyHash.PYSPARK)
    assert read.collect() == state.collect() and read.partitioner == state.partitioner
    store.delete(checkpoint.files[1])
    assert read.take(2) == [(0, 0), (2, 2)], "the other file is there"
    with pytest.raises(JobAbortedError) as caught:
        read.collect()
    assert is_lost_state(caught.value) and all(isinstance(e, MissingFileError) for e in spark.errors)


def test_a_state_that_cannot_be_written_is_told(spark: Spark) -> None:
    told: list[str] = []

    def refuse() -> None:
        raise OSError("full")

    files = SimulatedStateFiles(spark, MemoryFileStore("memory://full"), 1, refuse, lambda: told.append("not written"), lambda: "a")
    with pytest.raises(JobAbortedError, match="full"):
        files.write(Time(1), {"s0": spark.parallelize([1])})
    assert told == ["not written"]

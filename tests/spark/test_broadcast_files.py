"""The files of broadcast variables go with the variables: a driver that runs for months does not fill its disk."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from pyspark import SparkContext

from kstream.spark.broadcast_files import remove_unused_broadcast_files

BIG = os.urandom(2_000_000)
"""A function with it is sent to the workers as a broadcast variable."""
MOST_COLLECTIONS = 200
"""Spark removes a variable on a thread of its own, some time after the JVM has collected the last RDD that has it."""


@pytest.fixture
def spark(sc: SparkContext) -> Any:
    remove_unused_broadcast_files(sc)
    return sc


def files(spark: Any) -> set[str]:
    return set(os.listdir(spark._temp_dir))


def with_a_big_function(spark: Any) -> Any:
    data = BIG + os.urandom(1)  # in the function itself: the tests' module is imported by workers
    return spark.parallelize([1, 2], 1).map(lambda n: n + len(data))


def collect_garbage(spark: Any, expected: set[str]) -> None:
    """Let the JVM collect, and make small variables, until no files but the expected ones and theirs are left."""
    own: set[str] = set()
    for _ in range(MOST_COLLECTIONS):
        gc.collect()
        spark._jvm.System.gc()
        own.add(os.path.basename(spark.broadcast(0)._path))
        if files(spark) <= expected | own:
            return
    raise AssertionError(f"{len(files(spark) - expected - own)} files are left")


def test_the_files_of_functions_that_no_rdd_has_any_more_are_removed(spark: Any) -> None:
    before = files(spark)
    for _ in range(5):
        assert with_a_big_function(spark).collect() == [2_000_002, 2_000_003]
    made = files(spark) - before
    assert len(made) == 5
    collect_garbage(spark, before)
    assert not made & files(spark)


def test_a_variable_and_a_function_that_are_still_used_keep_their_files(spark: Any) -> None:
    before = files(spark)
    held, rdd = spark.broadcast(BIG), with_a_big_function(spark)
    rdd.collect()
    used = files(spark) - before
    assert len(used) == 2
    with_a_big_function(spark).collect()
    collect_garbage(spark, before | used)
    assert used <= files(spark)
    assert rdd.collect() == [2_000_002, 2_000_003] and held.value == BIG
    assert spark.parallelize([1], 1).map(lambda n: len(held.value) + n).collect() == [2_000_001]


def test_a_variable_that_the_user_destroys_is_forgotten(spark: Any) -> None:
    before = files(spark)
    gone = spark.broadcast(BIG)
    gone.destroy(blocking=True)
    del gone
    assert files(spark) <= before
    collect_garbage(spark, before)


def test_it_is_done_once_for_each_context(spark: Any) -> None:
    known = spark.broadcast
    remove_unused_broadcast_files(spark)
    assert spark.broadcast is known

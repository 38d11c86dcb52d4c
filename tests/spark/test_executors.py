"""The executors of a SparkContext, and where the tasks of batches run beside receivers; without a JVM."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka import OffsetRange
from kstream_kafka.planning.packing import NOT_PACKED
from kstream_kafka.reader.location_strategy import LocationStrategies, executor_locations

from kstream.receiver.block_reading import BlockLocations, Replica
from kstream.rpc import RpcCredentials
from kstream.spark import receivers
from kstream.spark.executors import Executor, executors, free_executors, known_executor_count, known_executors, set_receivers
from kstream.spark.receivers import SparkBlockReader
from tests.spark.fake_executors import FakeSparkContext

A, B, C = Executor("host1", "a", 1), Executor("host2", "b", 1), Executor("host3", "c", 1)


def context(*living: Executor, **conf: str) -> Any:
    return FakeSparkContext(list(living), {key.replace("_", "."): value for key, value in conf.items()})


def block(name: str, *holders: str) -> BlockLocations:
    return BlockLocations(name, 1, tuple(Replica(holder, "store-host", 1) for holder in holders))


@pytest.fixture
def locations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The preferred locations of each RDD of blocks that is made."""
    made: list[Any] = []
    monkeypatch.setattr(receivers, "WorkerRDD", lambda _sc, _partitions, _make, locations: made.append(locations))
    return made


def test_the_list_of_executors_is_asked_for_in_full_only_when_executors_have_come_or_gone() -> None:
    sc = context(A, B)
    assert executors(sc) == [A, B] and sc.calls == ["isLocal", "getExecutorIds", "executorList"]
    sc.calls.clear()
    assert executors(sc) == [A, B] and sc.calls == ["isLocal", "getExecutorIds"]
    sc.living.append(C)
    assert executors(sc) == known_executors(sc) == [A, B, C]


def test_no_executor_is_told_from_executors_that_nobody_has_looked_for() -> None:
    sc = context(A)
    assert known_executor_count(sc) is None
    executors(sc)
    sc.living.clear()
    assert known_executor_count(sc) == 1, "the last look counts"
    executors(sc)
    assert known_executor_count(sc) == 0


def test_the_tasks_of_blocks_prefer_no_executor_that_receivers_fill_and_this_costs_no_call_to_the_jvm(locations: list[Any]) -> None:
    sc = context(A, B, C)
    executors(sc)  # by the tracker, every few seconds
    on = {"a": 1, "b": 1}
    set_receivers(sc, lambda: on)
    reader = SparkBlockReader(sc, RpcCredentials(""))
    blocks = [block("1", "a", "c"), block("2", "a", "b"), block("3", "driver")]
    reader.rdd(blocks, False)
    sc.calls.clear()
    reader.rdd(blocks, False)
    assert sc.calls == []
    on.clear()
    reader.rdd(blocks[1:2], False)
    assert locations == [[["executor_host3_c"], [], []]] * 2 + [[["executor_host1_a", "executor_host2_b"]]]


def test_the_cores_that_a_task_takes_count() -> None:
    big = Executor("host1", "big", 3)
    for cpus, free in ("1", [big]), ("2", []):
        sc = context(big, spark_task_cpus=cpus)
        set_receivers(sc, lambda: {"big": 1})
        assert free_executors(sc, executors(sc)) == free


def test_kafka_partitions_prefer_no_executor_that_receivers_fill() -> None:
    sc = context(A, B, C)
    ranges = [OffsetRange("t", partition, 0, 1) for partition in range(6)]

    def preferred(strategy: Any, leaders: dict[Any, str] | None = None) -> set[str]:
        return {name for names in executor_locations(sc, strategy, ranges, NOT_PACKED, leaders or {}) or [] for name in names}

    everywhere = {"executor_host1_a", "executor_host2_b", "executor_host3_c"}
    leaders = {("t", partition): "host1" for partition in range(6)}
    assert preferred(LocationStrategies.PreferConsistent) == everywhere
    assert preferred(LocationStrategies.PreferBrokers, leaders) == {"executor_host1_a"}
    set_receivers(sc, lambda: {"a": 1})
    assert preferred(LocationStrategies.PreferConsistent) == everywhere - {"executor_host1_a"}
    assert preferred(LocationStrategies.PreferBrokers, leaders) == everywhere - {"executor_host1_a"}
    set_receivers(sc, lambda: {"a": 1, "b": 1, "c": 1})
    assert preferred(LocationStrategies.PreferConsistent) == set()
    set_receivers(sc, None)
    assert preferred(LocationStrategies.PreferConsistent) == everywhere


def test_a_job_without_receivers_asks_spark_nothing_more_for_the_locations_of_kafka_partitions() -> None:
    sc = context(A, B)
    executor_locations(sc, LocationStrategies.PreferConsistent, [OffsetRange("t", 0, 0, 1)], NOT_PACKED, {})
    assert sc.calls == ["isLocal", "getExecutorIds", "executorList"]

"""queueStream: elements of the caller's list, one a batch or all at once. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.dstream import QueueInputDStream
from kstream.errors import NotRecoverableError
from tests.fakes import FakeHost, FakeRDD
from tests.harness import START, Driver, World


def as_rdd(element: Any) -> Any:
    return element if isinstance(element, FakeRDD) else FakeRDD(element)


def driver_of(world: World, queue: list[Any], one_at_a_time: bool = True, default: Any = None, streams: int = 1) -> Driver:
    def build(host: FakeHost, driver: Driver) -> None:
        made = [QueueInputDStream(host, queue, one_at_a_time, default, as_rdd) for _ in range(streams)]
        driver.output(made[0] if streams == 1 else made[0].union(*made[1:]))

    return Driver(world, build=build).start()


def seen(world: World) -> list[list[Any]]:
    return [list(attempt.records) for attempt in world.attempts]


def test_one_at_a_time_in_order_and_what_is_appended_is_seen() -> None:
    """IS8: two pushed a tick, five single batches in order."""
    world, queue = World(), []
    driver = driver_of(world, queue)
    for number in range(1, 6):
        if number <= 3:
            queue.extend([[2 * number - 1], FakeRDD([2 * number])])
        driver.tick()
    assert seen(world) == [[1], [2], [3], [4], [5]]


def test_all_that_wait_are_one_batch() -> None:
    """IS8: [1, 2, 3], [4, 5]."""
    world, queue = World(), [[1], [2], [3]]
    driver = driver_of(world, queue, one_at_a_time=False)
    driver.tick()
    queue.extend([[4], [5]])
    driver.tick()
    assert seen(world) == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize(("default", "then"), [(None, []), (FakeRDD([9]), [9])])
def test_an_empty_queue_gives_the_default_or_an_empty_rdd(default: Any, then: list[Any]) -> None:
    """Spark behaviour IS8."""
    world = World()
    driver = driver_of(world, [[1]], default=default)
    for _ in range(3):
        driver.tick()
    assert seen(world) == [[1], then, then]


def test_the_callers_list_is_left_as_it_is_and_may_feed_two_streams() -> None:
    world, queue = World(), [[1], [2]]
    driver = driver_of(world, queue, streams=2)
    driver.tick()
    driver.tick()
    assert seen(world) == [[1, 1], [2, 2]] and queue == [[1], [2]]


def test_listeners_are_told_no_number_of_records() -> None:
    """Spark behaviour SL2."""
    world = World()
    driver = driver_of(world, [[1, 2, 3]])
    driver.tick()
    info = driver.listener.named("onBatchCompleted")[0].batchInfo()
    assert info.numRecords() == 0 and not info.streamIdToInputInfo()


def test_with_a_checkpoint_it_starts_and_writes_plans_but_is_not_recovered() -> None:
    """Spark behaviour SC18."""
    world = World()
    driver = driver_of(world, [[1], [2]])
    driver.tick()
    driver.stop()
    assert len(world.store.list("plans")) >= 1
    with pytest.raises(
        NotRecoverableError,
        match=r"queueStream doesn't support checkpointing\. Please don't use queueStream when checkpointing is enabled\.",
    ):
        driver_of(world, [[1], [2]])


def test_a_batch_of_a_failed_plan_is_taken_by_the_next() -> None:
    stream = QueueInputDStream(FakeHost({}), [[1]], True, None, as_rdd)
    assert stream.plan(Time(START)) == stream.plan(Time(START + 1000))

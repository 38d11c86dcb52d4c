"""restart_produces_the_same_batches finds what differs, and nothing where nothing does."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.crash_point import BEFORE_PLAN, CRASH_POINTS, JOB_DONE, PLAN_DURABLE, RUNNING
from kstream.errors import IllegalStateError
from kstream.testing import ManualClock, TestInputStream, restart_produces_the_same_batches

NUMBERS = [[1, 2], [3], [], [4, 5, 6], [7], [8]]


def windowed() -> StreamingContext:
    ssc = StreamingContext(SparkContext.getOrCreate(), 1)
    numbers = TestInputStream(ssc, NUMBERS, 1)
    numbers.map(lambda x: (x % 2, x)).reduceByKeyAndWindow(operator.add, None, 2, numPartitions=1).pprint()
    return ssc


@pytest.mark.usefixtures("sc")
def test_a_job_killed_at_every_step_of_a_batch_gives_what_its_twin_gave() -> None:
    assert restart_produces_the_same_batches(windowed, 3) == [(point, 2) for point in CRASH_POINTS]


@pytest.mark.usefixtures("sc")
def test_batches_that_were_due_while_it_was_down_are_made_up_for() -> None:
    kills = [(BEFORE_PLAN, 1), (JOB_DONE, 2), (PLAN_DURABLE, 4)]
    assert restart_produces_the_same_batches(windowed, 4, kills=kills, down=2) == kills


@pytest.mark.usefixtures("sc")
def test_a_point_that_is_never_reached_kills_nobody() -> None:
    assert restart_produces_the_same_batches(windowed, 1, kills=[(RUNNING, 100)]) == []


class Forgetful:
    """A function of the driver that counts in its own memory: what it knows dies with the driver."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, rdd: Any) -> Any:
        self.count += 1
        count = self.count
        return rdd.map(lambda x: (count, x))


@pytest.mark.usefixtures("sc")
def test_a_job_that_keeps_something_in_the_drivers_memory_is_found_out() -> None:
    def setup() -> StreamingContext:
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        TestInputStream(ssc, NUMBERS).transform(Forgetful()).pprint()
        return ssc

    with pytest.raises(AssertionError, match=r"killed at job-done, reached for the 2\. time: output 0 of batch .* was handed \[\(1, "):
        restart_produces_the_same_batches(setup, 3, kills=[(JOB_DONE, 2)])


def test_a_job_that_fails_says_so(sc: SparkContext) -> None:
    def setup() -> StreamingContext:
        ssc = StreamingContext(sc, 1)
        TestInputStream(ssc, NUMBERS).map(lambda x: 1 // (x - 3)).pprint()
        return ssc

    with pytest.raises(Exception, match="ZeroDivisionError"):
        restart_produces_the_same_batches(setup, kills=[])


def test_a_context_that_is_active_is_in_the_way(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1, clock=ManualClock())
    TestInputStream(ssc, []).pprint()
    ssc.start()
    with pytest.raises(IllegalStateError, match="active"):
        restart_produces_the_same_batches(windowed)
    ssc.stop(stopSparkContext=False)

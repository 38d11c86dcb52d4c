"""ManualClock under a StreamingContext: moving it returns when everything that was due has run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import StreamingContext, StreamingListener
from kstream.errors import ConfigurationError
from kstream.testing import CollectedOutput, ManualClock, TestInputStream

Setting = Callable[[str, str], None]


def context(sc: SparkContext, clock: ManualClock | None = None) -> StreamingContext:
    return StreamingContext(sc, 1, clock=clock or ManualClock(5000))


def test_when_advance_returns_every_batch_that_was_due_has_run_and_its_listeners_have_heard(sc: SparkContext) -> None:
    clock, told = ManualClock(5000), []

    class Ear(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            told.append(batchCompleted.batchInfo().batchTime().milliseconds())

    ssc = context(sc, clock)
    output = CollectedOutput(TestInputStream(ssc, [[1], [2, 3], [], [4]]).map(lambda x: x * 10))
    ssc.addStreamingListener(Ear())
    ssc.start()
    clock.advance(1000)
    assert (output.batches, told) == ([[10]], [6000])
    clock.advance(3000)
    assert (output.batches, told) == ([[10], [20, 30], [], [40]], [6000, 7000, 8000, 9000])
    clock.advance(500)
    assert len(told) == 4
    ssc.stop(stopSparkContext=False)
    clock.advance(5000)
    assert len(output.batches) == 4 and [t.timestamp() for t in output.times] == [6, 7, 8, 9]


def test_a_batch_that_fails_has_run_too(sc: SparkContext) -> None:
    ssc = context(sc)
    TestInputStream(ssc, [[0], [1]]).foreachRDD(lambda rdd: [1 / x for x in rdd.collect()])
    ssc.start()
    ssc.clock.advance(1000)  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        ssc.awaitTermination(0)
    ssc.stop(stopSparkContext=False)


def test_a_job_may_move_the_clock_which_makes_it_slow(sc: SparkContext) -> None:
    clock, delays = ManualClock(5000), []

    class Ear(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            delays.append(batchCompleted.batchInfo().processingDelay())

    ssc = context(sc, clock)
    TestInputStream(ssc, [[1], [], []]).foreachRDD(lambda rdd: clock.advance(2500) if rdd.count() else None)
    ssc.addStreamingListener(Ear())
    ssc.start()
    clock.advance(1000)
    assert delays == [2500, 0, 0], "the batches that became due meanwhile have run, too"
    ssc.stop(stopSparkContext=False)


def test_a_job_that_hangs_is_told_and_without_waiting_it_is_not(sc: SparkContext) -> None:
    clock, gate = ManualClock(5000, patience=0.2), threading.Event()
    ssc = context(sc, clock)
    TestInputStream(ssc, []).foreachRDD(lambda rdd: gate.wait(60) and None)
    ssc.start()
    clock.advance(1000, wait=False)
    with pytest.raises(TimeoutError, match=r"had not ended within 0\.2 s"):
        clock.advance(1000)
    gate.set()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)


@pytest.mark.parametrize("name", ["kstream.testing.ManualClock", "org.apache.spark.util.ManualClock"])
def test_the_clock_may_be_a_setting_as_in_sparks_own_suites(sc: SparkContext, setting: Setting, name: str) -> None:
    setting("spark.streaming.clock", name)
    ssc = StreamingContext(sc, 1)
    output = CollectedOutput(TestInputStream(ssc, [[1]]))
    ssc.start()
    clock: Any = ssc.clock
    assert isinstance(clock, ManualClock) and clock.time_ms() == 0
    clock.advance(1000)
    assert output.batches == [[1]]
    ssc.stop(stopSparkContext=False)


@pytest.mark.parametrize("name", ["nowhere.Clock", "kstream.testing.NoClock", "Clock", "kstream.batch_time.Time"])
def test_a_clock_that_cannot_be_made_is_refused(sc: SparkContext, setting: Setting, name: str) -> None:
    setting("spark.streaming.clock", name)
    with pytest.raises(ConfigurationError, match="no clock can be made"):
        StreamingContext(sc, 1)


def test_a_restart_may_jump_to_so_long_after_the_last_batch(sc: SparkContext, setting: Setting, tmp_path: Any) -> None:
    """As Spark's recovery tests say how long a driver was down: the clock of the new process stands at zero."""
    setting("spark.streaming.manualClock.jump", "3500")
    setting("spark.streaming.clock", "kstream.testing.ManualClock")
    outputs: list[CollectedOutput] = []

    def setup() -> StreamingContext:
        ssc = StreamingContext(sc, 1)
        outputs.append(CollectedOutput(TestInputStream(ssc, [[1], [2], [3], [4], [5], [6]])))
        return ssc

    def live(milliseconds: int) -> list[list[int]]:
        ssc = StreamingContext.getOrCreate(str(tmp_path), setup)
        ssc.start()
        clock: Any = ssc.clock
        clock.advance(milliseconds)
        ssc.stop(stopSparkContext=False)
        return [batch for output in outputs for batch in output.batches]

    assert live(2000) == [[1], [2]]
    assert live(500) == [[1], [2], [3], [4], [5], [6]]
    assert len(outputs) == 2, "setup is called at every start"

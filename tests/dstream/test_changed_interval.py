"""Windows with an inverse and states of mapWithState over a change of the batch interval, on Spark."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from kstream import DStream, StateSpec, StreamingContext
from kstream.context.factories import services_of_context
from kstream.context.settings import RECOVERY_ALLOW
from kstream.testing import ManualClock
from tests.harness import START
from tests.streams import Stream, numbers

Results = dict[int, Any]


def live(
    sc: SparkContext, clock: ManualClock, path: Path, interval: int, ticks: int, build: Callable[[DStream, int], DStream], allow: str = ""
) -> Results:
    """One life of a job that counts two numbers a batch: batch time in seconds after START → its records."""
    found: Results = {}
    ssc = StreamingContext(sc, interval, clock=clock)
    ssc.checkpoint(str(path))
    services_of_context(ssc).settings.override(RECOVERY_ALLOW, allow)
    stream = Stream(sc, clock, ssc)
    build(numbers(ssc), interval).foreachRDD(lambda time, rdd: found.update({(time.milliseconds - START) // 1000: sorted(rdd.collect())}))
    stream.start()
    for _ in range(ticks):
        clock.wait_for_waiters()
        clock.advance(interval * 1000)
    stream.counter.wait(ticks)
    stream.stop()
    return found


def total(source: DStream, interval: int) -> DStream:
    return source.map(lambda n: (0, n)).reduceByKeyAndWindow(operator.add, operator.sub, 6, interval, 1)


def test_the_totals_of_a_window_with_an_inverse_begin_anew(sc: SparkContext, tmp_path: Path) -> None:
    clock = ManualClock(START)
    before = live(sc, clock, tmp_path, 1, 4, total)
    assert before[4] == [(0, sum(range(8)))]
    after = live(sc, clock, tmp_path, 3, 3, total, f"interval:{START + 4000}")
    again = live(sc, clock, tmp_path, 3, 2, total)
    sums = [8 + 9, 8 + 9 + 10 + 11, 10 + 11 + 12 + 13, 12 + 13 + 14 + 15, 14 + 15 + 16 + 17]
    assert {**after, **again} == {5 + 3 * n: [(0, value)] for n, value in enumerate(sums)}


def counted(source: DStream, interval: int) -> DStream:
    def count(_key: Any, value: Any, state: Any) -> int:
        state.update((state.getOption() or 0) + 1)
        return state.get()

    return source.map(lambda n: (0, n)).mapWithState(StateSpec.function(count).numPartitions(1)).checkpoint(interval)


def test_the_states_of_map_with_state_go_on(sc: SparkContext, tmp_path: Path) -> None:
    clock = ManualClock(START)
    assert live(sc, clock, tmp_path, 1, 4, counted)[4] == [7, 8]
    after = live(sc, clock, tmp_path, 3, 2, counted, f"interval:{START + 4000}")
    again = live(sc, clock, tmp_path, 3, 1, counted)
    assert {**after, **again} == {5: [9, 10], 8: [11, 12], 11: [13, 14]}

"""slice, and how long RDDs are remembered for it and for windows (Spark behaviours BO18, BO19, BO20)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream, Seconds, Time
from kstream.batch import JsonPlan
from kstream.dstream.arguments import as_time
from kstream.dstream.base import node_of
from kstream.errors import IllegalStateError
from kstream.output import OutputBatch
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import Stream


class Batches:
    """A graph without a JVM or threads, driven batch by batch from zero time 0: batch n holds the number n."""

    def __init__(self, build: Callable[[DStream], DStream], remember: float | None = None) -> None:
        self.host = FakeHost({})
        self.input = LogInput(self.host, list(range(100)))
        self.stream = build(self.input)
        self.stream.foreachRDD(lambda rdd: None)
        if remember is not None:
            self.host.graph.remember(Seconds(remember))

    def run(self, batches: int) -> Batches:
        self.host.graph.initialize(Time(0))
        for n in range(1, batches + 1):
            self.plan(n)
            self.host.graph.generate_jobs(OutputBatch(Time(1000 * n), "nonce", is_first_try=True))
            self.host.graph.clear_metadata(Time(1000 * n))
        return self

    def plan(self, n: int) -> None:
        self.input.remember_plan(Time(1000 * n), JsonPlan({"from": n, "until": n + 1}))


def records(rdds: list[Any]) -> list[list[Any]]:
    return [rdd.records for rdd in rdds]


def held(stream: DStream) -> list[int]:
    return [time.milliseconds // 1000 for time in node_of(stream).generated_times]


# -- slice


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 1, [1]), (0, 2, [1, 2]), (1, 2, [1, 2]), (2, 4, [2, 3, 4]), (-5, 0, []), (4, 99, [4]), (3, 2, []), (2, 2, [2])],
)
def test_a_slice_has_the_batches_of_both_ends_and_between(begin: int, end: int, expected: list[int]) -> None:
    """Spark behaviour BO18."""
    stream = Batches(lambda s: s.map(lambda x: x), remember=10).run(4).stream
    assert records(stream.slice(begin, end)) == [[n] for n in expected]
    assert records(stream.slice(Time(1000 * begin), Time(1000 * end))) == [[n] for n in expected]
    assert records(stream.slice(datetime.fromtimestamp(begin), datetime.fromtimestamp(end))) == [[n] for n in expected]


def test_a_moment_between_two_batches_counts_as_the_one_before() -> None:
    """BO18; Spark moves both ends so."""
    stream = Batches(lambda s: s, remember=10).run(4).stream
    assert records(stream.slice(1.5, 3.999)) == [[1], [2], [3]]
    slow = Batches(lambda s: s.window(2, 2), remember=10).run(6).stream
    assert records(slow.slice(3, 5)) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("moment", "milliseconds"),
    [
        (1.001, 1001), (7, 7000), (Time(5), 5), (datetime.fromtimestamp(1.5), 1500),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
    ],
)  # fmt: skip
def test_a_moment_is_a_datetime_seconds_or_a_time(moment: Any, milliseconds: int) -> None:
    assert as_time(moment) == Time(milliseconds)


def test_a_slice_of_a_stream_that_has_not_started_or_feeds_no_output_is_an_error() -> None:
    """Spark behaviour BO19."""
    batches = Batches(lambda s: s.map(lambda x: x))
    with pytest.raises(IllegalStateError, match="has not been initialized"):
        batches.stream.slice(0, 1)
    aside = batches.input.map(lambda x: -x)
    batches.run(1)
    with pytest.raises(IllegalStateError, match="has not been initialized"):
        aside.slice(0, 1)


def test_a_slice_makes_no_window_of_batches_that_are_still_to_come() -> None:
    batches = Batches(lambda s: s.window(3), remember=10).run(2)
    assert records(batches.stream.slice(0, 9)) == [[1], [1, 2]]
    batches.plan(3)
    batches.host.graph.generate_jobs(OutputBatch(Time(3000), "nonce", is_first_try=True))
    assert records(batches.stream.slice(3, 3)) == [[1, 2, 3]]


def test_a_slice_makes_no_window_of_batches_that_are_forgotten() -> None:
    batches = Batches(lambda s: s.window(3), remember=2).run(9)
    assert records(batches.stream.slice(0, 99)) == [[6, 7, 8], [7, 8, 9]]
    assert records(batches.input.slice(0, 99)) == [[5], [6], [7], [8], [9]]


def test_a_slice_before_the_first_batch_is_empty() -> None:
    batches = Batches(lambda s: s.map(lambda x: x))
    batches.host.graph.initialize(Time(0))
    assert batches.stream.slice(0, 10) == []


def test_a_slice_from_the_beginning_of_time_looks_at_what_is_remembered_only() -> None:
    batches = Batches(lambda s: s.map(lambda x: x), remember=2)
    batches.host.graph.initialize(Time(0))
    late = 10**9  # a million seconds of batches later
    batches.plan(late)
    batches.host.graph.generate_jobs(OutputBatch(Time(1000 * late), "nonce", is_first_try=True))
    assert len(batches.stream.slice(0, 10**12)) == 1


def test_the_times_that_outputs_are_handed_slice_the_stream(sc: SparkContext) -> None:
    """BO18, on a running context, from the user's thread."""
    stream, times = Stream(sc), []
    source = stream.ssc.queueStream([[1], [2], [3], [4]])
    source.foreachRDD(lambda time, rdd: times.append(time))
    stream.ssc.remember(10)
    stream.start()
    for _ in range(4):
        stream.tick()
    begin = times[0]

    def sliced(first: int, last: int) -> list[int]:
        rdds = source.slice(begin + timedelta(seconds=first), begin + timedelta(seconds=last))
        return [x for rdd in rdds for x in rdd.collect()]

    assert (sliced(0, 0), sliced(1, 2), sliced(1, 4), sliced(0, 4)) == ([1], [2, 3], [2, 3, 4], [1, 2, 3, 4])
    stream.stop()
    assert sliced(3, 3) == [4]


# -- what is remembered


def test_streams_without_windows_remember_as_long_as_the_context_does() -> None:
    """Spark behaviour BO20."""
    batches = Batches(lambda s: s.map(lambda x: x), remember=3).run(10)
    assert node_of(batches.stream).remember_duration == Seconds(3)
    assert held(batches.stream) == held(batches.input) == [8, 9, 10]
    assert held(Batches(lambda s: s.map(lambda x: x)).run(10).stream) == [10]


def test_a_chain_of_windows_remembers_for_all_of_them_and_no_longer() -> None:
    """Spark behaviour BO20."""
    batches = Batches(lambda s: s.map(lambda x: x).window(2, 1).window(4, 2), remember=3).run(10)
    outer = node_of(batches.stream)
    (inner,) = outer.dependencies
    (mapped,) = inner.dependencies
    assert [s.remember_duration for s in (outer, inner, mapped)] == [Seconds(3), Seconds(7), Seconds(9)]
    held_by = [[time.milliseconds // 1000 for time in s.generated_times] for s in (outer, inner, mapped)]
    assert held_by == [[8, 10], list(range(4, 11)), list(range(2, 11))]


def test_persisted_batches_are_let_go_when_no_window_needs_them_any_more() -> None:
    """Spark behaviour BO20."""
    made: list[Any] = []
    batches = Batches(lambda s: s.transform(lambda rdd: (made.append(rdd.map(lambda x: x)), made[-1])[1]).window(3)).run(6)
    assert node_of(batches.stream).remember_duration == Seconds(1)
    assert [rdd.unpersisted for rdd in made] == [True, True, False, False, False, False]

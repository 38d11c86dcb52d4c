"""What is counted, reduced and grouped over windows (Spark behaviours WO11, WO12, WO13, and that each batch is reduced once)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel

from kstream import DStream
from kstream.dstream import WindowedDStream
from kstream.dstream.base import node_of
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import Build, Stream, run, run_all

PLAIN = DStream.reduceByKeyAndWindow


def ones(text: str) -> list[tuple[str, int]]:
    return [(letter, 1) for letter in text]


BIG = [ones(text) for text in ("a", "ab", "abc", "ab", "a", "")]
GROUPED: dict[str, Build] = {
    "2 every 1": lambda _c, s: s.groupByKeyAndWindow(2, 1),
    "into 3": lambda _c, s: s.groupByKeyAndWindow(2, 1, 3).glom(),
    "numbered": lambda c, s: c.queueStream([[("a", n)] for n in range(5)] + [[]]).groupByKeyAndWindow(3, 1),
    "from two partitions": lambda c, s: c.queueStream([[("a", n), ("a", n), ("b", n)] for n in range(6)]).groupByKeyAndWindow(4, 2),
}


@pytest.fixture(scope="module")
def grouped(sc: SparkContext) -> dict[str, list[Any]]:
    return run_all(sc, BIG, GROUPED)


def test_values_are_grouped_over_a_window_and_keys_that_fell_out_are_gone(grouped: dict[str, list[Any]]) -> None:
    """Spark behaviour WO11."""
    assert [{key: list(values) for key, values in batch} for batch in grouped["2 every 1"]] == [
        {"a": [1]},
        {"a": [1, 1], "b": [1]},
        {"a": [1, 1], "b": [1, 1], "c": [1]},
        {"a": [1, 1], "b": [1, 1], "c": [1]},
        {"a": [1, 1], "b": [1]},
        {"a": [1]},
    ]
    assert [len(batch) for batch in grouped["into 3"]] == [3] * 6


def test_values_grouped_over_a_window_come_in_the_order_of_their_batches(grouped: dict[str, list[Any]]) -> None:
    """Spark behaviour WO11."""
    seen = [[(key, list(values)) for key, values in batch] for batch in grouped["numbered"]]
    assert seen == [[("a", v)] for v in ([0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4])]
    slow = [{key: list(values) for key, values in batch} for batch in grouped["from two partitions"]]
    assert slow == [
        {"a": [0, 0, 1, 1], "b": [0, 1]},
        {"a": [0, 0, 1, 1, 2, 2, 3, 3], "b": [0, 1, 2, 3]},
        {"a": [2, 2, 3, 3, 4, 4, 5, 5], "b": [2, 3, 4, 5]},
    ]


def test_a_group_of_a_window_may_be_gone_through_twice(grouped: dict[str, list[Any]]) -> None:
    ((_key, values),) = grouped["numbered"][1]
    assert list(values) == list(values) == [0, 1] and len(values) == 2


def test_records_are_counted_over_a_window(sc: SparkContext, tmp_path: Path) -> None:
    """Spark behaviour WO12."""
    batches = [[1], [1], [1, 2], [0], [], []]
    assert run(sc, batches, lambda _c, s: s.countByWindow(2, 1), checkpoint=tmp_path) == [[1], [2], [3], [3], [1], [0]]


def test_values_are_counted_over_a_window_and_forgotten_when_they_fell_out(sc: SparkContext, tmp_path: Path) -> None:
    """Spark behaviour WO13."""
    batches = [["a"], ["b", "b"], ["a", "b"]]
    seen = run_all(
        sc, batches,
        {"counts": lambda _c, s: s.countByValueAndWindow(2, 1), "parts": lambda _c, s: s.countByValueAndWindow(2, 1, 3).glom()},
        checkpoint=tmp_path,
    )  # fmt: skip
    assert [dict(batch) for batch in seen["counts"]] == [{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3}]
    assert [len(batch) for batch in seen["parts"]] == [3, 3, 3]


def test_all_records_of_a_window_are_reduced_to_one_and_nothing_comes_of_an_empty_window(sc: SparkContext) -> None:
    batches = [[], [1, 2], [3], [], []]
    assert run(sc, batches, lambda _c, s: s.reduceByWindow(operator.add, None, 2, 1)) == [[], [3], [6], [3], []]


INVERSE: dict[str, tuple[Callable[[DStream], DStream], tuple[Any, ...]]] = {
    "reduceByWindow": (lambda s: s.reduceByWindow(operator.mul, operator.floordiv, 4, 2), (operator.mul, operator.floordiv, 4, 2, 1)),
    "countByWindow": (lambda s: s.countByWindow(4, 2), (operator.add, operator.sub, 4, 2, 1)),
    "countByValueAndWindow": (lambda s: s.countByValueAndWindow(4, 2, 3), (operator.add, operator.sub, 4, 2, 3)),
}


@pytest.mark.parametrize("name", list(INVERSE))
def test_counts_and_reductions_over_windows_go_by_the_inverse_function(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(DStream, "reduceByKeyAndWindow", lambda s, *args: (asked.append(args), PLAIN(s, args[0], None, *args[2:]))[1])
    call, expected = INVERSE[name]
    call(LogInput(FakeHost({}), []))
    assert [args[: len(expected)] for args in asked] == [expected]


WINDOWED: dict[str, Callable[[DStream], DStream]] = {
    "reduceByKeyAndWindow": lambda s: s.reduceByKeyAndWindow(operator.add, None, 2, 1),
    "reduceByWindow": lambda s: s.reduceByWindow(operator.add, None, 2, 1),
    "groupByKeyAndWindow": lambda s: s.groupByKeyAndWindow(2, 1),
}


@pytest.mark.parametrize("name", list(WINDOWED))
def test_it_is_the_reduced_batches_that_a_window_keeps(name: str) -> None:
    """Spark behaviour WO5."""
    source = LogInput(FakeHost({}), [])
    stream = node_of(WINDOWED[name](source))
    while not isinstance(stream, WindowedDStream):
        (stream,) = stream.dependencies
    (kept,) = stream.dependencies
    assert kept.operator in {"reduceByKey", "groupByKey"} and kept.storage_level == StorageLevel.MEMORY_ONLY
    assert stream.storage_level is None and source.storage_level is None


@pytest.mark.parametrize("name", list(WINDOWED))
def test_each_batch_is_reduced_once_however_many_windows_it_is_in(sc: SparkContext, name: str) -> None:
    stream, looked_at, shuffles = Stream(sc), sc.accumulator(0), []
    source = stream.ssc.queueStream([[("a", n), ("b", n)] for n in range(5)])
    watched = source.map(lambda pair: (looked_at.add(1), pair)[1])
    WINDOWED[name](watched).foreachRDD(lambda rdd: (rdd.count(), shuffles.append(rdd.toDebugString().decode().count("ShuffledRDD"))))
    stream.start()
    for _ in range(5):
        stream.tick()
    stream.stop()
    assert looked_at.value == 10
    assert shuffles == [1, 2, 2, 2, 2]  # one for each batch of the window, none for the window: its batches are partitioned alike


def test_an_inverse_that_is_no_function_is_refused_at_the_call_with_the_order_of_the_arguments() -> None:
    """In Scala's order the window comes second."""
    stream: Any = LogInput(FakeHost({}), [])
    with pytest.raises(
        TypeError, match=r"invFunc must be a function or None, it is 10\. .*\(func, invFunc, windowDuration, slideDuration\)"
    ):
        stream.reduceByKeyAndWindow(operator.add, 10, 2)
    with pytest.raises(TypeError, match=r"invReduceFunc must be a function or None, it is 10\. .*invReduceFunc=None"):
        stream.reduceByWindow(operator.add, 10, 2, 2)


@pytest.mark.parametrize("window", [0.1, 1], ids=repr)
@pytest.mark.parametrize("reduced", ["reduceByKeyAndWindow", "reduceByWindow"])
def test_a_window_that_cannot_be_is_refused_before_a_function_that_is_none(reduced: str, window: float) -> None:
    """As pyspark's own suite has it (test_reduce_by_invalid_window): batches of half a second."""
    stream: Any = LogInput(FakeHost({}, 500), [])
    with pytest.raises(ValueError, match=r"duration of a windowed stream \(100 ms\) must be a positive multiple"):
        getattr(stream, reduced)(None, None, window, 0.1)

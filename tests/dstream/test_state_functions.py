"""What the functions of state streams are handed, and what their RDDs are made of. No JVM."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from kstream import Duration
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import ForEachDStream, windowed_dstreams
from kstream.dstream.arguments import with_time_and_key
from kstream.dstream.base import node_of
from kstream.dstream.windowed_dstreams import ReducedWindowedDStream
from tests.fakes import FakeHost, FakeRDD
from tests.harness import INTERVAL, LogInput

STEP = Duration(INTERVAL)
ZERO = Time(0)


def of_four(time: Time, key: str, values: list[int], state: int | None) -> tuple[Any, ...]:
    return time, key, values, state


def with_defaults(values: list[int], state: int | None, step: int = 1, more: int = 2) -> int:
    return sum(values) + (state or 0) + step + more


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda values, state: (values, state), ([1], 2)),
        (of_four, (Time(5), "k", [1], 2)),
        (with_defaults, 6),
        (max, [1, 3]),
        (lambda *both: both, ([1], 2)),
    ],
)
def test_an_update_function_gets_two_arguments_or_four_by_what_it_must_be_given(function: Callable[..., Any], result: Any) -> None:
    """Spark behaviour BO16."""
    state: Any = [1, 3] if function is max else 2
    assert with_time_and_key(function)(Time(5), "k", [1], state) == result


def test_an_update_function_of_three_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="values, state"):
        with_time_and_key(lambda a, b, c: None)


class Grouped(FakeRDD):
    def mapPartitions(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> FakeRDD:
        return FakeRDD(list(f(self.records)))


def grouped(rdds: list[FakeRDD], partitions: int) -> Grouped:
    keys = {key for rdd in rdds for key, _ in rdd.records}
    return Grouped([(key, tuple([v for k, v in rdd.records if k == key] for rdd in rdds)) for key in sorted(keys)])


def window(
    batches: list[list[tuple[str, int]]], length: int, without: set[int], keep: Any = None, below: int = 1
) -> ReducedWindowedDStream:
    """A window with an inverse over batches, those in `without` never planned; batch i + 1 has batches[i].

    With `below` above 1 it is a window over the windows of so many batches, each reduced by key.
    """
    host = FakeHost({})
    source = LogInput(host, [pair for batch in batches for pair in batch])
    parent = source if below == 1 else node_of(source.window(below).reduceByKey(operator.add, 1))
    stream = ReducedWindowedDStream(parent, operator.add, operator.sub, STEP * length, STEP, 2, keep)
    host.graph.add_output_stream(ForEachDStream(stream, lambda _time, _rdd: None))
    host.graph.initialize(ZERO)
    begin = 0
    for number, batch in enumerate(batches, start=1):
        if number not in without:
            source.remember_plan(ZERO + STEP * number, JsonPlan({"from": begin, "until": begin + len(batch)}))
        begin += len(batch)
    return stream


@pytest.mark.parametrize("length", [10, 60])
def test_a_window_with_an_inverse_is_made_of_three_rdds_however_long_it_is(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    monkeypatch.setattr(windowed_dstreams, "co_grouped", lambda rdds, n: parts.append(len(rdds)) or grouped(rdds, n))
    stream = window([[("a", 1)]] * 100, length, set())
    rdd: Any = stream.getOrCompute(ZERO + STEP * 100)
    assert rdd.records == [("a", length)]
    assert set(parts) == {2, 3}


@pytest.mark.parametrize("without", [set[int](), {4}, {4, 5, 6, 7}, {5, 6, 7, 8, 9}])
def test_a_window_with_an_inverse_has_the_totals_of_what_was_planned_in_it(without: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where batch times were never planned, fewer or more of them than the window has."""
    monkeypatch.setattr(windowed_dstreams, "co_grouped", grouped)
    batches = [[("a", n)] for n in range(1, 15)]
    stream = window(batches, 3, without, keep=lambda pair: pair[1] != 0)
    for number in range(1, 15):
        rdd: Any = stream.getOrCompute(ZERO + STEP * number)
        if number not in without:
            total = sum(n for n in range(max(1, number - 2), number + 1) if n not in without)
            assert rdd.records == ([("a", total)] if total else []), number


@pytest.mark.parametrize("without", [{5, 6}, {5, 6, 7, 8, 9, 10}], ids=["shorter than the window", "longer"])
def test_a_window_takes_out_nothing_that_came_while_it_had_no_batch(without: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A window below has records also at the batch times that were never planned: those of the batches before."""
    monkeypatch.setattr(windowed_dstreams, "co_grouped", grouped)
    numbers = range(1, 16)
    stream = window([[("a", n)] for n in numbers], 3, without, below=4)

    def below(at: int) -> int:
        return sum(n for n in numbers if at - 4 < n <= at and n not in without)

    for number in sorted(set(numbers) - without):
        rdd: Any = stream.getOrCompute(ZERO + STEP * number)
        assert rdd.records == [("a", sum(below(at) for at in range(number - 2, number + 1)))], number


def test_a_key_that_was_let_go_while_its_values_are_in_the_window_is_not_subtracted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed_dstreams, "co_grouped", grouped)
    stream = window([[("a", 1)], [("a", -1)], [], [("a", 5)]], 2, set(), keep=lambda pair: pair[1] != 0)
    results = [stream.getOrCompute(ZERO + STEP * n) for n in range(1, 5)]
    assert [rdd.records for rdd in results if rdd is not None] == [[("a", 1)], [], [], [("a", 5)]]


def test_window_and_slide_of_a_window_with_an_inverse_must_be_multiples_of_the_parents() -> None:
    source = LogInput(FakeHost({}), [])
    with pytest.raises(ValueError, match="window duration"):
        ReducedWindowedDStream(source, operator.add, operator.sub, Duration(1500), STEP, 2, None)

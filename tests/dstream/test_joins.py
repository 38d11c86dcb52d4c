"""Two or more streams together, batch by batch (Spark behaviours BO10, BO11, BO13, WO15)."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream, StreamingContext
from kstream.errors import NoRDDError
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import Build, Stream, run, run_all

HERE = ["ab", ["a", ""], [""], []]
THERE = ["ab", ["b", ""], [], [""]]


def keyed(batches: list[Any], value: Any) -> list[Any]:
    return [[(key, value) for key in batch] for batch in batches]


def there(ssc: StreamingContext) -> DStream:
    return ssc.queueStream(keyed(THERE, "x"))


BUILDS: dict[str, Build] = {
    "join": lambda c, s: s.join(there(c)),
    "leftOuterJoin": lambda c, s: s.leftOuterJoin(there(c), 3),
    "rightOuterJoin": lambda c, s: s.rightOuterJoin(there(c)),
    "fullOuterJoin": lambda c, s: s.fullOuterJoin(there(c), numPartitions=1),
}
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "join": [{"a": (1, "x"), "b": (1, "x")}, {"": (1, "x")}, {}, {}],
    "leftOuterJoin": [{"a": (1, "x"), "b": (1, "x")}, {"": (1, "x"), "a": (1, None)}, {"": (1, None)}, {}],
    "rightOuterJoin": [{"a": (1, "x"), "b": (1, "x")}, {"": (1, "x"), "b": (None, "x")}, {}, {"": (None, "x")}],
    "fullOuterJoin": [
        {"a": (1, "x"), "b": (1, "x")},
        {"": (1, "x"), "a": (1, None), "b": (None, "x")},
        {"": (1, None)},
        {"": (None, "x")},
    ],
}


@pytest.fixture(scope="module")
def joined(sc: SparkContext) -> dict[str, list[list[Any]]]:
    """Every join over the same four batches, in one context."""
    return run_all(sc, keyed(HERE, 1), BUILDS)


@pytest.mark.parametrize("kind", list(BUILDS))
def test_a_join_pairs_the_values_of_a_key_within_a_batch(joined: dict[str, list[list[Any]]], kind: str) -> None:
    """Spark behaviour BO13."""
    assert [len(batch) for batch in joined[kind]] == [len(batch) for batch in EXPECTED[kind]]
    assert [dict(batch) for batch in joined[kind]] == EXPECTED[kind]


def test_a_cogroup_has_all_values_of_both_sides_duplicates_too(sc: SparkContext) -> None:
    """Spark behaviour BO13."""

    def build(ssc: StreamingContext, stream: DStream) -> DStream:
        other = ssc.queueStream([[("a", "x"), ("a", "x"), ("b", "y")], [("", "x")], [("", "x")], []])
        return stream.cogroup(other).mapValues(lambda sides: tuple(sorted(side) for side in sides))

    seen = run(sc, [[("a", 1), ("a", 1), ("b", 2)], [("a", 1), ("", 1)], [], []], build)
    assert [dict(batch) for batch in seen] == [
        {"a": ([1, 1], ["x", "x"]), "b": ([2], ["y"])},
        {"a": ([1], []), "": ([1], ["x"])},
        {"": ([], ["x"])},
        {},
    ]  # fmt: skip


def test_a_join_shuffles_once_into_the_default_number_of_partitions_or_the_given(sc: SparkContext) -> None:
    """Spark behaviour BO13."""
    stream, plans = Stream(sc), []
    source = stream.ssc.queueStream(keyed(["ab"], 1))
    for one in (source.join(source), source.fullOuterJoin(source, 5), source.cogroup(source, numPartitions=4)):
        one.foreachRDD(lambda rdd: plans.append((rdd.toDebugString().decode().count("ShuffledRDD"), rdd.getNumPartitions())))
    stream.start()
    stream.tick()
    stream.stop()
    assert plans == [(1, sc.defaultParallelism), (1, 5), (1, 4)]


def test_transform_with_gets_both_rdds_and_the_batch_time_if_asked(sc: SparkContext) -> None:
    stream, seen = Stream(sc), []
    a, b = stream.ssc.queueStream([[1], [2]]), stream.ssc.queueStream([[10], [20]])
    a.transformWith(lambda x, y: x.union(y), b).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stamped = a.transformWith(lambda time, x, y: x.union(y).map(lambda n, t=time: (t.timestamp() * 1000, n)), b, keepSerializer=True)
    stamped.foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stream.start()
    stream.tick()
    stream.tick()
    stream.stop()
    first, second = stream.counter.completed
    assert seen == [[1, 10], [(first, 1), (first, 10)], [2, 20], [(second, 2), (second, 20)]]


@pytest.mark.parametrize("func", [lambda: None, lambda a: None, lambda t, a, b, c: None])
def test_transform_with_refuses_a_function_it_cannot_call(func: Any) -> None:
    stream = LogInput(FakeHost({}), [])
    with pytest.raises(TypeError, match=r"\(rdd1, rdd2\) or \(time, rdd1, rdd2\)"):
        stream.transformWith(func, stream)


def test_any_callable_may_transform_two_streams(sc: SparkContext) -> None:
    class Both:
        def zip(self, a: Any, b: Any) -> Any:
            return a.zip(b)

    assert run(sc, [[1, 2]], lambda _c, s: s.transformWith(Both().zip, s.map(operator.neg))) == [[(1, -1), (2, -2)]]


def test_a_context_transforms_many_streams_with_one_function(sc: SparkContext) -> None:
    """Spark behaviour BO10."""

    def build(ssc: StreamingContext, stream: DStream) -> DStream:
        streams = [stream, stream.map(lambda x: x + 4), stream.map(lambda x: x + 8)]
        return ssc.transform(streams, lambda rdds: sc.union(list(rdds)) if isinstance(rdds, tuple) else None)

    assert run(sc, [[1, 2], [3]], build) == [[1, 2, 5, 6, 9, 10], [3, 7, 11]]


@pytest.mark.parametrize("below", ["transform", "union", "transformWith", "join", "ssc.union", "ssc.transform"])
def test_a_parent_without_an_rdd_fails_the_batch_below_every_operator(sc: SparkContext, below: str) -> None:
    """Spark behaviour BO11."""

    def build(ssc: StreamingContext, stream: DStream) -> DStream:
        nothing = LogInput(ssc, [])
        nothing.rdd = lambda _time, _data: None
        return {
            "transform": lambda: nothing.transform(lambda rdd: rdd),
            "union": lambda: stream.union(nothing),
            "transformWith": lambda: stream.transformWith(lambda a, b: a, nothing),
            "join": lambda: nothing.join(stream),
            "ssc.union": lambda: ssc.union(nothing, stream),
            "ssc.transform": lambda: ssc.transform([stream, nothing], lambda rdds: rdds[0]),
        }[below]()

    with pytest.raises(NoRDDError, match="no RDD for batch"):
        run(sc, [[1]], build)


@pytest.mark.parametrize("together", ["union", "join", "cogroup", "transformWith"])
def test_streams_that_slide_apart_or_belong_apart_do_not_go_together(together: str) -> None:
    """Spark behaviour WO15."""

    def combine(a: DStream, b: DStream) -> DStream:
        return a.transformWith(lambda x, y: x, b) if together == "transformWith" else getattr(a, together)(b)

    stream = LogInput(FakeHost({}), [])
    with pytest.raises(ValueError, match="slide"):
        combine(stream, stream.window(2, 2))
    with pytest.raises(ValueError, match="contexts"):
        combine(stream, LogInput(FakeHost({}), []))


def test_a_context_unites_and_transforms_at_least_one_stream_and_only_streams_that_slide_together(sc: SparkContext) -> None:
    """Spark behaviour WO15."""
    ssc = StreamingContext(sc, 1)
    stream = ssc.queueStream([[1]])
    for unable in (lambda: ssc.union(), lambda: ssc.transform([], lambda rdds: rdds[0])):
        with pytest.raises(ValueError, match="at least one"):
            unable()
    slow = stream.window(2, 2)
    for unable in (lambda: ssc.union(stream, slow), lambda: ssc.transform([stream, slow], lambda rdds: rdds[0])):
        with pytest.raises(ValueError, match="slide"):
            unable()
    elsewhere = StreamingContext(sc, 1).queueStream([[1]])
    with pytest.raises(ValueError, match="contexts"):
        ssc.union(stream, elsewhere)
    assert ssc.union(stream) is stream

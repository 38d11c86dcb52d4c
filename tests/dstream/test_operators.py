"""The operators do to each batch what Spark's do (Spark behaviours BO1 … BO12, WO1 … WO9)."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel

from kstream import DStream, Seconds
from kstream.dstream.base import node_of
from kstream.errors import NoRDDError
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import Build, Stream, run, run_all

THREE = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def pairs(text: str) -> list[tuple[str, int]]:
    return [(letter, 1) for letter in text]


def counts(batches: list[list[Any]]) -> list[dict[Any, Any]]:
    for batch in batches:
        assert len(dict(batch)) == len(batch), f"a key twice in {batch}"
    return [dict(batch) for batch in batches]


def shifted(by: int) -> Build:
    return lambda _c, s: s.map(lambda x: x + by)


BUILDS: dict[str, Build] = {
    "map": lambda _c, s: s.map(str),
    "filter": lambda _c, s: s.filter(lambda x: x % 2 == 0),
    "flatMap": lambda _c, s: s.flatMap(lambda x: (x, 2 * x)),
    "transform": lambda _c, s: s.transform(lambda rdd: rdd.map(lambda x: -x)),
    "mapPartitions": lambda _c, s: s.mapPartitions(lambda it: [sum(it)]),
    "glom": lambda _c, s: s.glom(),
    "mapPartitionsWithIndex": lambda _c, s: s.mapPartitionsWithIndex(lambda i, it: [(i, sum(it))]),
    "reduce": lambda _c, s: s.reduce(operator.add),
    "union": lambda c, s: s.union(shifted(4)(c, s)),
    "union of three": lambda c, s: c.union(s, shifted(4)(c, s), shifted(8)(c, s)),
    "transform of three": lambda c, s: c.transform(
        [s, shifted(4)(c, s), shifted(8)(c, s)], lambda rdds: rdds[0].union(rdds[1]).union(rdds[2])
    ),
    "union of one": lambda c, s: c.union(s),
}
IN_THREE = [[*batch, *(x + 4 for x in batch), *(x + 8 for x in batch)] for batch in THREE]
EXPECTED: dict[str, list[list[Any]]] = {
    "map": [["1", "2", "3", "4"], ["5", "6", "7", "8"], ["9", "10", "11", "12"]],
    "filter": [[2, 4], [6, 8], [10, 12]],
    "flatMap": [[y for x in batch for y in (x, 2 * x)] for batch in THREE],
    "transform": [[-x for x in batch] for batch in THREE],
    "mapPartitions": [[3, 7], [11, 15], [19, 23]],
    "glom": [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]],
    "mapPartitionsWithIndex": [[(0, 3), (1, 7)], [(0, 11), (1, 15)], [(0, 19), (1, 23)]],
    "reduce": [[10], [26], [42]],
    "union": [[*batch, *(x + 4 for x in batch)] for batch in THREE],
    "union of three": IN_THREE,
    "transform of three": IN_THREE,
    "union of one": THREE,
}


@pytest.fixture(scope="module")
def of_three(sc: SparkContext) -> dict[str, list[list[Any]]]:
    """Every operator over the same three batches, in one context."""
    return run_all(sc, THREE, BUILDS)


@pytest.mark.parametrize("name", list(BUILDS))
def test_an_operator_is_applied_to_every_batch_in_order(of_three: dict[str, list[list[Any]]], name: str) -> None:
    """Spark behaviours BO1, BO2, BO3, BO6 and BO10."""
    assert of_three[name] == EXPECTED[name]


def test_counting_gives_one_number_a_batch_and_zero_for_an_empty_one(sc: SparkContext) -> None:
    """Spark behaviour BO7."""
    batches = [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], sc.emptyRDD()]
    assert run(sc, batches, lambda _c, s: s.count()) == [[0], [1], [2], [3], [4], [0]]


def test_reducing_an_empty_batch_gives_nothing_and_no_error(sc: SparkContext) -> None:
    """Spark behaviour BO6."""
    assert run(sc, [[1, 2], [], [3]], lambda _c, s: s.reduce(operator.add)) == [[3], [], [3]]


KEYED: dict[str, Build] = {
    "reduceByKey": lambda _c, s: s.reduceByKey(operator.add),
    "mapValues": lambda _c, s: s.reduceByKey(operator.add).mapValues(lambda x: x + 10),
    "flatMapValues": lambda _c, s: s.reduceByKey(operator.add).flatMapValues(lambda x: (x, x + 10)),
    "groupByKey": lambda _c, s: s.groupByKey().mapValues(sorted),
    "combineByKey": lambda _c, s: s.combineByKey(str, lambda a, x: f"{a}{x}", lambda a, b: a + b, 1),
}


@pytest.fixture(scope="module")
def keyed(sc: SparkContext) -> dict[str, list[list[Any]]]:
    """Every operator of pairs over the same batches, in one context."""
    return run_all(sc, [pairs("aab"), [("", 1), ("", 1)], []], KEYED)


def test_reducing_by_key_gives_each_key_once_and_nothing_for_an_empty_batch(keyed: dict[str, list[list[Any]]]) -> None:
    """Spark behaviour BO5."""
    assert counts(keyed["reduceByKey"]) == [{"a": 2, "b": 1}, {"": 2}, {}]


def test_values_are_mapped_and_flat_mapped_under_their_keys(keyed: dict[str, list[list[Any]]]) -> None:
    """Spark behaviour BO9."""
    assert counts(keyed["mapValues"]) == [{"a": 12, "b": 11}, {"": 12}, {}]
    flat = [sorted(batch) for batch in keyed["flatMapValues"]]
    assert flat == [[("a", 2), ("a", 12), ("b", 1), ("b", 11)], [("", 2), ("", 12)], []]


def test_grouping_and_combining_by_key(keyed: dict[str, list[list[Any]]]) -> None:
    assert counts(keyed["groupByKey"]) == [{"a": [1, 1], "b": [1]}, {"": [1, 1]}, {}]
    assert counts(keyed["combineByKey"]) == [{"a": "11", "b": "1"}, {"": "11"}, {}]


def test_values_are_counted_in_every_batch(sc: SparkContext) -> None:
    """Spark behaviour BO8."""
    seen = run(sc, [[1], [1, 1, 1], [1, 2], [1, 1, 2, 2], []], lambda _c, s: s.countByValue())
    assert counts(seen) == [{1: 1}, {1: 3}, {1: 1, 2: 1}, {1: 2, 2: 2}, {}]


def test_repartitioned_batches_have_exactly_so_many_partitions_and_the_same_records(sc: SparkContext) -> None:
    """Spark behaviour BO4."""
    hundred = [list(range(100)), list(range(100, 200)), []]
    for before, after in ((2, 5), (5, 2)):
        seen = run(sc, hundred, lambda _c, s, after=after: s.repartition(after).glom(), partitions=before)
        assert [len(batch) for batch in seen] == [after] * 3
        assert [sorted(x for part in batch for x in part) for batch in seen] == hundred


def test_a_partitioner_says_where_each_key_goes(sc: SparkContext) -> None:
    batches = [[(n, str(n)) for n in range(6)], []]
    seen = run(sc, batches, lambda _c, s: s.partitionBy(3, lambda key: key + 1).glom())
    assert [sorted(part) for part in seen[0]] == [[(2, "2"), (5, "5")], [(0, "0"), (3, "3")], [(1, "1"), (4, "4")]]
    assert seen[1] == [[], [], []]
    assert len(run(sc, batches, lambda _c, s: s.partitionBy(numPartitions=4).glom())[0]) == 4


def test_a_transform_and_an_output_may_ask_for_the_batch_time(sc: SparkContext) -> None:
    stream = Stream(sc)
    seen: list[tuple[Any, list[Any]]] = []
    source = stream.ssc.queueStream([[1], [2]])
    stamped = source.transform(lambda time, rdd: rdd.map(lambda x, t=time: (t, x)))
    stamped.foreachRDD(lambda time, rdd: seen.append((time, rdd.collect())))
    stream.start()
    stream.tick()
    stream.tick()
    stream.stop()
    times = [time.timestamp() * 1000 for time, _ in seen]
    assert times == stream.counter.completed
    assert [records for _, records in seen] == [[(time, n)] for (time, _), n in zip(seen, (1, 2), strict=True)]


@pytest.mark.parametrize(("returned", "said"), [(None, "returned None"), ([1], "returned a list")])
def test_a_transform_that_returns_no_rdd_fails_the_batch(sc: SparkContext, returned: Any, said: str) -> None:
    """Spark behaviour BO12."""
    with pytest.raises(NoRDDError, match=said):
        run(sc, [[1]], lambda _c, s: s.transform(lambda rdd: returned))


# -- windows

SIX = [[n] for n in range(6)]


WINDOWS: dict[str, Build] = {
    "2 every 1": lambda _c, s: s.window(2, 1),
    "2 every 2": lambda _c, s: s.window(2, 2),
    "4 every 2": lambda _c, s: s.window(4, 2),
    "2 every 3": lambda _c, s: s.window(2, 3),
    "2": lambda _c, s: s.window(Seconds(2)),
    "2 in 4 every 2": lambda _c, s: s.map(lambda x: x).window(2).window(4, 2),
}
SEEN_IN_WINDOWS = {
    "2 every 1": [[0], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5]],
    "2 every 2": [[0, 1], [2, 3], [4, 5]],
    "4 every 2": [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5]],
    "2 every 3": [[1, 2], [4, 5]],
    "2": [[0], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5]],
    "2 in 4 every 2": [[0, 0, 1], [0, 0, 1, 1, 2, 2, 3], [1, 2, 2, 3, 3, 4, 4, 5]],
}


@pytest.fixture(scope="module")
def windows(sc: SparkContext) -> dict[str, list[list[Any]]]:
    """Every window over the same six batches, in one context."""
    return run_all(sc, SIX, WINDOWS, partitions=1)


@pytest.mark.parametrize("name", list(WINDOWS))
def test_a_window_has_the_last_batches_every_slide(windows: dict[str, list[list[Any]]], name: str) -> None:
    """Spark behaviours WO1, WO2, WO3 and WO4."""
    assert windows[name] == SEEN_IN_WINDOWS[name]


def test_sums_over_a_window_forget_keys_that_fell_out(sc: SparkContext) -> None:
    """Spark behaviour WO6."""
    batches = [pairs("a"), pairs("a"), [], []]
    seen = run(sc, batches, lambda _c, s: s.reduceByKeyAndWindow(operator.add, None, 2, 1))
    assert counts(seen) == [{"a": 1}, {"a": 2}, {"a": 1}, {}]


def test_sums_over_a_sliding_window(sc: SparkContext) -> None:
    """WO9, without inverse."""
    batches = [[("a", n)] for n in range(1, 7)] + [[], []]
    seen = run(sc, batches, lambda _c, s: s.reduceByKeyAndWindow(operator.add, None, 4, 2))
    assert counts(seen) == [{"a": 3}, {"a": 10}, {"a": 18}, {"a": 11}]


def test_sums_over_a_window_may_be_filtered(sc: SparkContext) -> None:
    seen = run(
        sc, [pairs("aab"), pairs("b")],
        lambda _c, s: s.reduceByKeyAndWindow(operator.add, None, 2, 1, 1, lambda pair: pair[1] > 1),
    )  # fmt: skip
    assert counts(seen) == [{"a": 2}, {"a": 2, "b": 2}]


def host_stream() -> DStream:
    return LogInput(FakeHost({}), [])


@pytest.mark.parametrize(("window", "slide"), [(1.5, 1), (2, 0.5), (0, 1), (2, 0), (-2, 1)])
def test_window_and_slide_must_be_positive_multiples_of_the_parents_slide(window: float, slide: float) -> None:
    """Spark behaviour WO14."""
    with pytest.raises(ValueError, match="multiple"):
        host_stream().window(window, slide)


def test_windows_of_a_window_count_in_its_slides() -> None:
    """Spark behaviour WO14."""
    slow = host_stream().window(4, 2)
    assert node_of(slow).slide_duration == Seconds(2)
    with pytest.raises(ValueError, match="multiple"):
        slow.window(3)
    assert node_of(slow.window(4)).slide_duration == Seconds(2)


def test_a_window_is_stored_in_its_parent() -> None:
    """Spark behaviour WO5."""
    parent = host_stream().map(lambda x: x)
    window = parent.window(2)
    assert node_of(window).storage_level is None and node_of(parent).storage_level == StorageLevel.MEMORY_ONLY
    assert window.persist(StorageLevel.DISK_ONLY) is window
    assert node_of(window).storage_level is None and node_of(parent).storage_level == StorageLevel.DISK_ONLY


# -- outputs and storage


def test_pprint_prints_the_first_records_as_pyspark_does(sc: SparkContext, capsys: pytest.CaptureFixture[str]) -> None:
    stream = Stream(sc)
    stream.ssc.queueStream([[1, 2, 3]]).pprint(2)
    stream.start()
    stream.tick()
    stream.stop()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[2] == "-" * 43
    assert lines[1].startswith("Time: ") and lines[3:] == ["1", "2", "...", ""]


def test_persisted_rdds_live_as_long_as_they_are_remembered(sc: SparkContext) -> None:
    stream = Stream(sc)
    rdds: list[Any] = []
    mapped = stream.ssc.queueStream([[1], [2], [3], [4]]).map(lambda x: x).cache()
    mapped.foreachRDD(lambda rdd: (rdds.append(rdd), rdd.count()))
    stream.start()
    for _ in range(4):
        stream.tick()
    stream.stop()
    assert rdds[-1].is_cached and not rdds[0].is_cached


def test_a_stream_is_cached_or_checkpointed_when_it_was_told_to_be() -> None:
    """WO5; pyspark's two attributes say what was asked of this very stream, not what a window or a state stores of its own accord."""
    parent = host_stream().map(lambda x: (x, x))
    window, state = parent.window(2), parent.updateStateByKey(lambda _values, state: state)
    assert not any((stream.is_cached, stream.is_checkpointed) != (False, False) for stream in (parent, window, state))
    assert window.cache().is_cached and state.checkpoint(2).is_checkpointed and not parent.is_cached


def test_a_queue_that_has_run_dry_gives_a_partition_without_records(sc: SparkContext) -> None:
    """IS8: what works on whole partitions (glom, mapPartitions) runs once, as in Spark."""
    assert run(sc, [[1], [], []], lambda ssc, _s: ssc.queueStream([[5]]).glom()) == [[[], [5]], [[]], [[]]]


def test_a_queue_may_be_emptied_at_once_and_then_gives_its_default(sc: SparkContext) -> None:
    stream, seen = Stream(sc), []
    stream.ssc.queueStream([[1, 2], [3]], oneAtATime=False, default=[9]).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stream.start()
    for _ in range(3):
        stream.tick()
    stream.stop()
    assert seen == [[1, 2, 3], [9], [9]]


def test_a_queue_is_the_callers_list_and_may_grow(sc: SparkContext) -> None:
    stream, seen, queue = Stream(sc), [], [sc.parallelize([1])]
    stream.ssc.queueStream(queue).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stream.start()
    stream.tick()
    queue.append(sc.parallelize([2]))
    stream.tick()
    stream.tick()
    stream.stop()
    assert seen == [[1], [2], []]


def test_call_sites_are_the_users_own(sc: SparkContext) -> None:
    """Spark behaviour SC21."""
    stream = host_stream().map(lambda x: x).filter(bool)
    assert node_of(stream).creation_site.function == "filter"
    assert node_of(stream).creation_site.file == __file__
    assert f"{__file__}:" in repr(stream)


@pytest.mark.parametrize("operation", ["foreachRDD", "transform"])
def test_what_is_no_function_is_refused_at_the_call(operation: str) -> None:
    """As the result of `foreachRDD(print("x"))`, a call in the place of a function."""
    stream: Any = LogInput(FakeHost({}), [])
    with pytest.raises(TypeError, match=r"func must be a function of \(rdd\) or \(time, rdd\), it is None\. Give the function itself"):
        getattr(stream, operation)(None)

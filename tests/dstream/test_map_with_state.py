"""mapWithState on real RDDs (behaviours MS2 … MS7, MR2)."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pyspark import RDD, SparkContext, StorageLevel

import kstream
from kstream import DStream, Milliseconds, Minutes, Seconds, State, StateSpec
from kstream.dstream import MapWithStateDStream
from kstream.dstream.recipe import Replay
from kstream.rdd.map_with_state import MapWithState, snapshot
from kstream.rdd.state_map import EMPTY, StateMap
from kstream.spark.map_with_state_rdd import MapWithStateRDD
from kstream.spark.state_rdds import SparkStateRDDs, aligned, states_from
from tests.harness import INTERVAL, FakeHost, LogInput
from tests.streams import Stream

LETTERS = ["", "a", "ab", "abc", "ab", "a", ""]


def running_count(key: str, value: int | None, state: State) -> int:
    total = (state.getOption() or 0) + (value or 0)
    state.update(total)
    return total


class Outcome:
    """What a mapWithState gave: `mapped[i]` and `snapshots[i]` of batch i, and how its stream was made."""

    def __init__(self, sc: SparkContext, batches: list[Any], spec: StateSpec) -> None:
        self.stream = Stream(sc)
        self.batches = [batch if isinstance(batch, RDD) else sc.parallelize(batch, 3) for batch in batches]
        self.mapped: list[list[Any]] = []
        self.snapshots: list[dict[Any, Any]] = []
        self.made = self.stream.ssc.queueStream(self.batches).mapWithState(spec)
        self.made.foreachRDD(lambda rdd: self.mapped.append(sorted(rdd.collect(), key=repr)))
        self.made.stateSnapshots().foreachRDD(lambda rdd: self.snapshots.append(dict(rdd.collect())))

    def run(self, count: int) -> Outcome:
        self.stream.start()
        for _ in range(count):
            self.stream.tick(wait=False)
        self.stream.clock.wait_for_waiters()
        self.stream.stop()
        self.stream.ssc.awaitTermination(1)
        return self

    def last_states(self) -> RDD[bytes]:
        internal = self.made.states
        return internal._generated[max(internal.generated_times)]


def outcome(sc: SparkContext, batches: list[Any], spec: StateSpec) -> Outcome:
    return Outcome(sc, batches, spec).run(len(batches))


def ones(texts: list[str]) -> list[list[tuple[str, int]]]:
    return [[(letter, 1) for letter in text] for text in texts]


def states_of(text: str) -> dict[str, int]:
    """`a4 b3` as a dict."""
    return {pair[0]: int(pair[1:]) for pair in text.split()}


COUNTED = ["", "a1", "a2 b1", "a3 b2 c1", "a4 b3 c1", "a5 b3 c1", "a5 b3 c1"]


@pytest.fixture(scope="module")
def counted(sc: SparkContext) -> Outcome:
    return outcome(sc, ones(LETTERS), StateSpec.function(running_count))


def test_a_running_count_is_mapped_for_the_keys_of_the_batch_only(counted: Outcome) -> None:
    """MS2"""
    assert counted.mapped == [[], [1], [1, 2], [1, 2, 3], [3, 4], [5], []]


def test_a_snapshot_has_every_key_after_every_batch(counted: Outcome) -> None:
    """MS2"""
    assert counted.snapshots == [states_of(text) for text in COUNTED]


def test_the_states_are_one_record_of_bytes_a_partition(counted: Outcome) -> None:
    """MR2: and an empty partition is one, too"""
    partitions = counted.last_states().glom().collect()
    assert [len(records) for records in partitions] == [1, 1]
    assert {k: v for (data,) in partitions for k, v, _ in StateMap(data).items()} == states_of("a5 b3 c1")


def test_states_keep_their_partitioner_so_that_no_batch_moves_them(counted: Outcome) -> None:
    """MR2: partitioner kept"""
    states = counted.last_states()
    assert aligned(states, 2) is states
    assert states._jrdd.rdd().partitioner().isDefined()
    plan = states._jrdd.rdd().toDebugString()
    assert "PartitionerAwareUnionRDD" in plan and " UnionRDD" not in plan


def test_a_snapshot_is_joined_with_what_is_partitioned_like_it_in_place(sc: SparkContext, counted: Outcome) -> None:
    states = counted.last_states().flatMap(snapshot, preservesPartitioning=True)
    other = sc.parallelize([("a", "x"), ("z", "y")]).partitionBy(2, states.partitioner.partitionFunc)
    assert states.join(other).collect() == [("a", (5, "x"))]


def nothing(_key: str, value: int, state: State) -> None:
    state.update((state.getOption() or 0) + value)


@pytest.mark.parametrize("as_rdd", [False, True], ids=["pairs", "rdd"])
def test_an_initial_state_shows_in_the_first_snapshot_and_a_function_may_emit_nothing(sc: SparkContext, as_rdd: bool) -> None:
    """MS3"""
    pairs = [("a", 5), ("b", 10), ("c", -20), ("d", 0)]
    spec = StateSpec.function(nothing).initialState(sc.parallelize(pairs, 3) if as_rdd else pairs)
    seen = outcome(sc, ones(LETTERS[:4]), spec)
    assert seen.mapped == [[], [], [], []]
    assert seen.snapshots == [
        {"a": 5, "b": 10, "c": -20, "d": 0},
        {"a": 6, "b": 10, "c": -20, "d": 0},
        {"a": 7, "b": 11, "c": -20, "d": 0},
        {"a": 8, "b": 12, "c": -19, "d": 0},
    ]


def removing(key: str, _value: int, state: State) -> str | None:
    if state.exists():
        state.remove()
        return key
    state.update(True)
    return None


def test_a_removed_key_that_comes_again_starts_anew(sc: SparkContext) -> None:
    """MS4"""
    seen = outcome(sc, ones([*LETTERS[:4], "ab", "a", "a", ""]), StateSpec.function(removing))
    assert seen.mapped == [[], [], ["a"], ["b"], ["a"], [], ["a"], []]
    assert [sorted(snapshot) for snapshot in seen.snapshots] == [
        [],
        ["a"],
        ["b"],
        ["a", "c"],
        ["b", "c"],
        ["a", "b", "c"],
        ["b", "c"],
        ["b", "c"],
    ]


def with_timeout(time: Any, key: str, value: int | None, state: State) -> Any:
    if state.isTimingOut():
        return key, value, state.get(), time.timestamp()
    state.update((state.getOption() or 0) + 1)
    return None


def test_a_key_that_is_idle_for_longer_than_the_timeout_is_given_once_more_and_goes(sc: SparkContext) -> None:
    """MS5: a is refreshed by data, b and c are not; idle for exactly the timeout is not too long"""
    seen = outcome(sc, ones(["abc", "ab", *["a"] * 5]), StateSpec.function(with_timeout).timeout(Seconds(3)))
    start = seen.stream.counter.completed[0] // 1000
    out = [record for batch in seen.mapped for record in batch]
    assert out == [("c", None, 1, start + 4), ("b", None, 2, start + 5)]
    assert [sorted(snapshot) for snapshot in seen.snapshots] == [*[["a", "b", "c"]] * 4, ["a", "b"], ["a"], ["a"]]


def test_keys_time_out_in_batches_without_data_too(sc: SparkContext) -> None:
    """MS5"""
    seen = outcome(sc, [[("a", 1)], [], sc.emptyRDD(), []], StateSpec.function(with_timeout).timeout(2))
    assert [len(batch) for batch in seen.mapped] == [0, 0, 0, 1] and seen.snapshots[-1] == {}


def test_the_function_runs_once_a_record_whatever_reads_its_results(sc: SparkContext) -> None:
    """MR2"""
    calls = sc.accumulator(0)

    def counting(key: str, _value: int, state: State) -> str:
        calls.add(1)
        state.update(1)
        return key

    seen = Outcome(sc, ones(["ab", "abc"]), StateSpec.function(counting))
    seen.made.count().foreachRDD(lambda rdd: rdd.collect())
    seen.made.stateSnapshots().foreachRDD(lambda rdd: rdd.collect())
    seen.run(2)
    assert calls.value == 5


# -- recovery, as far as lineage and stored bytes go


def test_states_that_were_lost_are_made_again_from_what_is_left(sc: SparkContext) -> None:
    """MS7: an executor's blocks are gone half way"""
    seen = Outcome(sc, ones(LETTERS), StateSpec.function(running_count))
    seen.stream.start()
    for number in range(len(LETTERS)):
        if number == 4:
            for rdd in sc._jsc.getPersistentRDDs().values():
                rdd.unpersist(True)
        seen.stream.tick()
    seen.stream.stop()
    assert seen.snapshots == [states_of(text) for text in COUNTED]


@pytest.fixture(scope="module")
def whole(sc: SparkContext) -> tuple[Outcome, list[list[bytes]]]:
    """A stream that never stopped, and the bytes of its states after each batch."""
    seen, stored = Outcome(sc, ones(LETTERS), StateSpec.function(with_timeout).timeout(2)), []
    seen.made.states.foreachRDD(lambda rdd: stored.append(rdd.collect()))
    return seen.run(len(LETTERS)), stored


RESTORED: dict[str, tuple[int, Callable[[SparkContext, list[bytes]], RDD[bytes]]]] = {
    "by any RDD": (2, lambda sc, stored: sc.parallelize(stored, len(stored))),
    "with other partitions": (5, lambda sc, stored: sc.parallelize(stored, len(stored))),
    "by workers": (2, lambda sc, stored: states_from(sc, len(stored), lambda index: stored[index])),
}


@pytest.mark.parametrize("how", list(RESTORED))
def test_another_driver_goes_on_from_the_stored_bytes_to_the_same_snapshots(sc: SparkContext, whole: Any, how: str) -> None:
    """MS7"""
    first, stored = whole
    partitions, restored = RESTORED[how]
    second = Outcome(sc, ones(LETTERS[4:]), StateSpec.function(with_timeout).timeout(2).numPartitions(partitions))
    states, previous = restored(sc, stored[3]), second.made.states.previous
    second.made.states.previous = lambda time: previous(time) or states
    second.stream.clock.advance(4 * INTERVAL)
    second.run(3)
    assert second.snapshots == first.snapshots[4:] and second.mapped == first.mapped[4:]
    assert second.last_states().getNumPartitions() == partitions


def test_states_that_workers_read_lie_where_the_data_goes(sc: SparkContext) -> None:
    read = states_from(sc, 2)
    assert aligned(read, 2) is read and read.collect() == [EMPTY, EMPTY]


# -- errors in words


def one_batch(sc: SparkContext, function: Callable[..., Any], records: list[Any]) -> MapWithStateRDD:
    rdds = SparkStateRDDs(sc)
    update = MapWithState(function, 1000, datetime.fromtimestamp(1))
    return rdds.updated(sc.parallelize(records, 2), rdds.initial([], 2, 0), 2, update)


def test_a_state_that_cannot_be_pickled_fails_the_batch_and_names_its_key(sc: SparkContext) -> None:
    with pytest.raises(Exception, match=r"the state of key \('shop', 5\) cannot be stored"):
        one_batch(sc, lambda _k, _v, state: state.update(threading.Lock()), [(("shop", 5), 1)]).mapped.count()


@pytest.mark.parametrize(("function", "says"), [(lambda _k, _v, _s: 1 / 0, "ZeroDivisionError"), (lambda _k, _v, s: s.get(), "exists")])
def test_an_error_of_the_function_is_the_users_own(sc: SparkContext, function: Any, says: str) -> None:
    with pytest.raises(Exception, match=says):
        one_batch(sc, function, [("a", 1)]).mapped.count()


def test_a_key_that_could_not_be_found_again_is_named(sc: SparkContext) -> None:
    with pytest.raises(Exception, match=r"\['a'\] cannot be the key of a state, unhashable"):
        one_batch(sc, running_count, [(["a"], 1)]).mapped.count()


def test_many_results_and_states_of_any_size_come_through(sc: SparkContext) -> None:
    def sized(key: int, value: int, state: State) -> tuple[int, str]:
        state.update("s" * value)
        return key, "m" * value

    records = [(n, 300_000 if n == 500 else n % 50) for n in range(3000)]
    made = one_batch(sc, sized, records)
    assert sorted(made.mapped.collect()) == [(n, "m" * size) for n, size in records]
    assert sorted(made.flatMap(snapshot).collect()) == [(n, "s" * size) for n, size in records]


# -- the spec and the stream, without Spark


def host_stream(interval_ms: int = 1000) -> DStream:
    return LogInput(FakeHost({}, interval_ms), [])


@pytest.mark.parametrize(("interval_ms", "every"), [(100, Seconds(1)), (1000, Seconds(10)), (10_000, Seconds(100))])
def test_states_are_stored_every_ten_batches_unless_told_otherwise(interval_ms: int, every: Any) -> None:
    """MS6"""
    stream = host_stream(interval_ms).mapWithState(StateSpec.function(running_count))
    assert stream.states.checkpoint_duration == every
    assert getattr(stream, "checkpoint_duration", None) is None
    assert stream.checkpoint(Milliseconds(3 * interval_ms)) is stream
    assert stream.states.checkpoint_duration == Milliseconds(3 * interval_ms)
    assert getattr(stream, "checkpoint_duration", None) is None


@pytest.mark.parametrize("interval", [0.5, 1.5, 0])
def test_a_checkpoint_interval_must_be_a_multiple_of_the_slide(interval: float) -> None:
    """MS6"""
    with pytest.raises(ValueError, match="multiple"):
        host_stream().mapWithState(StateSpec.function(running_count)).checkpoint(interval)


def test_what_is_persisted_is_the_stream_of_states() -> None:
    stream = host_stream().mapWithState(StateSpec.function(running_count))
    assert stream.storage_level is None and stream.states.storage_level.useMemory
    assert stream.persist(StorageLevel.DISK_ONLY) is stream
    assert stream.storage_level is None and stream.states.storage_level == StorageLevel.DISK_ONLY


def test_a_spec_takes_its_options_in_any_order_and_returns_itself() -> None:
    spec = StateSpec.function(running_count)
    assert spec.timeout(Minutes(1)) is spec.numPartitions(7) is spec.initialState({("a", 1)}) is spec
    assert (spec.timeout_duration, spec.partitions, spec.initial) == (Minutes(1), 7, [("a", 1)])
    assert spec.timeout(1.5).timeout_duration == Milliseconds(1500)


@pytest.mark.parametrize("option", [lambda s: s.timeout(0), lambda s: s.timeout(Seconds(-1)), lambda s: s.numPartitions(0)])
def test_a_spec_refuses_what_cannot_work(option: Callable[[StateSpec], Any]) -> None:
    with pytest.raises(ValueError):
        option(StateSpec.function(running_count))


def test_a_function_of_another_number_of_arguments_is_refused() -> None:
    for function in (lambda: 0, lambda key, value: 0, lambda a, b, c, d, e: 0):
        with pytest.raises(TypeError, match=r"\(key, value, state\)"):
            StateSpec.function(function)
    assert not StateSpec.function(lambda key, value, state, more=1: 0).pass_time
    assert not StateSpec.function(lambda *args: 0).pass_time
    assert StateSpec.function(lambda time, key, value, state: 0).pass_time


def test_the_graph_with_its_spec_is_made_again_from_its_record() -> None:
    source = host_stream()
    source.recorder.add_input(source, None, "test")
    source.mapWithState(StateSpec.function(running_count).timeout(5).initialState([("a", 1)])).checkpoint(20).count()
    functions = pickle.loads(pickle.dumps(source.recorder.functions))
    other = host_stream()
    replay = Replay(other.ssc, functions, lambda _recipe: other)
    replay._streams.append(other)
    replay.run(source.recorder.calls[1:])
    made = replay.streams[1]
    assert isinstance(made, MapWithStateDStream) and made.states.checkpoint_duration == Seconds(20)
    assert made.states._spec.timeout_duration == Seconds(5) and made.states._spec.initial == [("a", 1)]


def test_a_graph_that_begins_with_an_rdd_is_made_by_setup_again(sc: SparkContext) -> None:
    source = host_stream()
    spec = StateSpec.function(running_count).initialState(sc.parallelize([("a", 1)]))
    source.mapWithState(spec)
    assert "RDD" in (source.recorder.why_not or "") and pickle.loads(pickle.dumps(spec)).initial == []


def test_a_stream_may_go_through_two_states_in_a_row(sc: SparkContext) -> None:
    stream, seen = Stream(sc), []
    first = stream.ssc.queueStream([sc.parallelize(batch) for batch in ones(["ab", "a", "ab"])])
    totals = first.mapWithState(StateSpec.function(lambda k, v, s: (k, running_count(k, v, s))))
    highest = totals.mapWithState(StateSpec.function(lambda k, v, s: s.update(max(v, s.getOption() or 0))))
    highest.stateSnapshots().foreachRDD(lambda rdd: seen.append(dict(rdd.collect())))
    stream.start()
    for _ in range(3):
        stream.tick()
    stream.stop()
    assert seen == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2}]


def test_the_names_of_the_api_are_public() -> None:
    assert {"State", "StateSpec"} <= set(kstream.__all__) and kstream.State is State and kstream.StateSpec is StateSpec

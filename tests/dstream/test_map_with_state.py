"""mapWithState as a stream (Spark behaviours MS2 … MS7, MR2), on stand-ins for RDDs; tests/spark has what Spark does to them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import StorageLevel

import kstream
from kstream import DStream, Milliseconds, Minutes, Seconds, State, StateSpec
from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.dstream import InputDStream, MapWithStateDStream
from kstream.dstream.base import node_of
from kstream.dstream.node import DStreamNode
from kstream.dstream.recipe import Replay
from kstream.errors import ConfigurationError, NoRDDError
from tests.fakes import FakeHost, FakeRDD
from tests.harness import INTERVAL, START, LogInput

LETTERS = ["", "a", "ab", "abc", "ab", "a", ""]
COUNTED = ["", "a1", "a2 b1", "a3 b2 c1", "a4 b3 c1", "a5 b3 c1", "a5 b3 c1"]


class Batches(InputDStream[JsonPlan]):
    """An input that gives one list a batch; None stands for a batch without an RDD."""

    def __init__(self, batches: list[Any], first: int = START + INTERVAL) -> None:
        super().__init__(FakeHost({}))
        self.batches = {Time(first + n * INTERVAL): batch for n, batch in enumerate(batches)}

    def plan(self, time: Time) -> JsonPlan:
        return JsonPlan({})

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        batch = self.batches[time]
        return None if batch is None else FakeRDD(batch)

    def run(self, stream: DStream[Any] | DStreamNode, form: Callable[[list[Any]], Any] = sorted) -> list[Any]:
        """What `stream` has in each batch. Each batch ends before the next begins; what is not remembered is forgotten."""
        node = stream if isinstance(stream, DStreamNode) else node_of(stream)
        node.initialize(Time(min(self.batches).milliseconds - INTERVAL))
        seen: list[Any] = []
        for time in self.batches:
            self.remember_plan(time, JsonPlan({}))
            rdd: Any = node.getOrCompute(time)
            seen.append(form(rdd.records))
            node.clear_metadata(time)
        return seen


def state_stream(stream: DStream[Any]) -> Any:
    """The stream of states behind a mapWithState."""
    node: Any = node_of(stream)
    return node.states


def outcome(batches: list[Any], spec: StateSpec) -> tuple[list[list[Any]], list[dict[Any, Any]]]:
    """(mapped, snapshots), batch by batch."""
    mapped, snapshots = Batches(batches), Batches(batches)
    return mapped.run(mapped.mapWithState(spec)), snapshots.run(snapshots.mapWithState(spec).stateSnapshots(), dict)


def ones(texts: list[str]) -> list[list[tuple[str, int]]]:
    return [[(letter, 1) for letter in text] for text in texts]


def states_of(text: str) -> dict[str, int]:
    """`a4 b3` as a dict."""
    return {pair[0]: int(pair[1:]) for pair in text.split()}


def running_count(key: str, value: int | None, state: State) -> int:
    total = (state.getOption() or 0) + (value or 0)
    state.update(total)
    return total


def test_a_running_count_is_mapped_for_the_keys_of_the_batch_and_every_snapshot_has_all_keys() -> None:
    """Spark behaviour MS2."""
    mapped, snapshots = outcome(ones(LETTERS), StateSpec.function(running_count))
    assert mapped == [[], [1], [1, 2], [1, 2, 3], [3, 4], [5], []]
    assert snapshots == [states_of(text) for text in COUNTED]


def nothing(_key: str, value: int, state: State) -> None:
    state.update((state.getOption() or 0) + value)


def test_an_initial_state_shows_in_the_first_snapshot_and_a_function_may_emit_nothing() -> None:
    """Spark behaviour MS3."""
    spec = StateSpec.function(nothing).initialState([("a", 5), ("b", 10), ("c", -20), ("d", 0)])
    mapped, snapshots = outcome(ones(LETTERS[:4]), spec)
    assert mapped == [[], [], [], []]
    assert snapshots == [states_of(text) for text in ("a5 b10 c-20 d0", "a6 b10 c-20 d0", "a7 b11 c-20 d0", "a8 b12 c-19 d0")]


def removing(key: str, _value: int, state: State) -> str | None:
    if state.exists():
        state.remove()
        return key
    state.update(True)
    return None


def test_a_removed_key_that_comes_again_starts_anew() -> None:
    """Spark behaviour MS4."""
    mapped, snapshots = outcome(ones([*LETTERS[:4], "ab", "a", "a", ""]), StateSpec.function(removing))
    assert ["".join(batch) for batch in mapped] == ["", "", "a", "b", "a", "", "a", ""]
    assert ["".join(sorted(snapshot)) for snapshot in snapshots] == ["", "a", "b", "ac", "bc", "abc", "bc", "bc"]


def with_timeout(time: Any, key: str, value: int | None, state: State) -> Any:
    if state.isTimingOut():
        return key, value, state.get(), time.timestamp() * 1000
    state.update((state.getOption() or 0) + 1)
    return None


def test_a_key_that_is_idle_for_longer_than_the_timeout_is_given_once_more_and_goes() -> None:
    """MS5: a is refreshed by data, b and c are not; idle for exactly the timeout is not too long"""
    mapped, snapshots = outcome(ones(["abc", "ab", *["a"] * 5]), StateSpec.function(with_timeout).timeout(Seconds(3)))
    assert mapped[:4] == [[]] * 4 and mapped[6] == []
    assert mapped[4:6] == [[("c", None, 1, START + 5 * INTERVAL)], [("b", None, 2, START + 6 * INTERVAL)]]
    assert ["".join(sorted(snapshot)) for snapshot in snapshots] == ["abc"] * 4 + ["ab", "a", "a"]


def test_keys_time_out_in_batches_without_data_and_in_those_without_an_rdd() -> None:
    """Spark behaviour MS5."""
    mapped, snapshots = outcome([[("a", 1)], [], None, None], StateSpec.function(with_timeout).timeout(2))
    assert [len(batch) for batch in mapped] == [0, 0, 0, 1] and snapshots == [{"a": 1}, {"a": 1}, {"a": 1}, {}]


def test_the_function_runs_once_a_record_whatever_reads_its_results() -> None:
    """Spark behaviour MR2."""
    calls: list[str] = []
    batches = Batches(ones(["ab", "abc"]))
    made = batches.mapWithState(StateSpec.function(lambda key, _v, _s: calls.append(key)))
    both = made.union(made.map(str)).union(made.stateSnapshots())
    assert batches.run(both) == [[], []]
    assert sorted(calls) == sorted("ab" + "abc")


@pytest.mark.parametrize("after", range(1, len(LETTERS)))
def test_another_driver_goes_on_from_the_stored_bytes_to_the_same_batches(after: int) -> None:
    """MS7: stopped after any batch"""
    spec = StateSpec.function(with_timeout).timeout(2)
    whole = Batches(ones(LETTERS))
    expected = whole.run(whole.mapWithState(spec))
    first = Batches(ones(LETTERS[:after]))
    stored = pickle.dumps(first.run(state_stream(first.mapWithState(spec)), list)[-1])
    second = Batches(ones(LETTERS[after:]), START + (after + 1) * INTERVAL)
    made = second.mapWithState(spec)
    states = state_stream(made)
    previous: Any = states.previous
    states.previous = lambda time: previous(time) or FakeRDD(pickle.loads(stored))
    assert second.run(made) == expected[after:]


def test_what_the_function_returned_is_not_known_of_a_batch_of_which_only_the_states_are() -> None:
    made = Batches(ones(["a"])).mapWithState(StateSpec.function(running_count))
    node_of(made).initialize(Time(START))
    state_stream(made)._generated[Time(START + INTERVAL)] = FakeRDD([b""])
    with pytest.raises(NoRDDError, match="no longer known"):
        node_of(made).getOrCompute(Time(START + INTERVAL))


def test_a_window_that_slides_by_two_finds_what_the_function_returned_before_the_state_was_written() -> None:
    batches = Batches(ones(["a", "ab", "a", "b"]))
    made = batches.mapWithState(StateSpec.function(running_count)).checkpoint(1)
    snapshots, window = node_of(made.stateSnapshots()), node_of(made.window(2, 2))
    zero = Time(min(batches.batches).milliseconds - INTERVAL)
    window.initialize(zero)
    snapshots.initialize(zero)
    seen: list[Any] = []
    for time in batches.batches:
        batches.remember_plan(time, JsonPlan({}))
        assert snapshots.getOrCompute(time) is not None
        rdd: Any = window.getOrCompute(time)
        seen.append(None if rdd is None else sorted(rdd.records))
        states: Any = state_stream(made).state_to_write(time)
        state_stream(made).written(time, lambda states=states: FakeRDD(states.records))
    assert seen == [None, [1, 1, 2], None, [2, 3]]


# -- the spec and the stream


def host_stream(interval_ms: int = 1000) -> Any:
    return LogInput(FakeHost({}, interval_ms), [])


@pytest.mark.parametrize(("interval_ms", "every"), [(100, Seconds(1)), (1000, Seconds(10)), (10_000, Seconds(100))])
def test_states_are_stored_every_ten_batches_unless_told_otherwise(interval_ms: int, every: Any) -> None:
    """Spark behaviour MS6."""
    stream = host_stream(interval_ms).mapWithState(StateSpec.function(running_count))
    assert state_stream(stream).checkpoint_duration == every
    assert node_of(stream).checkpoint_duration is None
    assert stream.checkpoint(Milliseconds(3 * interval_ms)) is stream
    assert state_stream(stream).checkpoint_duration == Milliseconds(3 * interval_ms)
    assert node_of(stream).checkpoint_duration is None


@pytest.mark.parametrize("interval", [0.5, 1.5, 0])
def test_a_checkpoint_interval_must_be_a_multiple_of_the_slide(interval: float) -> None:
    """Spark behaviour MS6."""
    with pytest.raises(ConfigurationError, match="multiple"):
        host_stream().mapWithState(StateSpec.function(running_count)).checkpoint(interval)


def test_what_is_persisted_is_the_stream_of_states() -> None:
    stream = host_stream().mapWithState(StateSpec.function(running_count))
    assert node_of(stream).storage_level is None and state_stream(stream).storage_level.useMemory
    assert stream.persist(StorageLevel.DISK_ONLY) is stream
    assert node_of(stream).storage_level is None and state_stream(stream).storage_level == StorageLevel.DISK_ONLY


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
    functions = pickle.loads(pickle.dumps([function.value for function in source.recorder.functions]))
    other = host_stream()
    replay = Replay(other.ssc, functions, lambda _recipe: other)
    replay._streams.append(other)
    replay.run(source.recorder.calls[1:])
    made = replay.streams[1]
    assert isinstance(made, MapWithStateDStream) and state_stream(made).checkpoint_duration == Seconds(20)
    assert state_stream(made)._spec.timeout_duration == Seconds(5) and state_stream(made)._spec.initial == [("a", 1)]


def test_a_stream_may_go_through_two_states_in_a_row() -> None:
    batches = Batches(ones(["ab", "a", "ab"]))
    totals = batches.mapWithState(StateSpec.function(lambda k, v, s: (k, running_count(k, v, s))))
    highest = totals.mapWithState(StateSpec.function(lambda k, v, s: s.update(max(v, s.getOption() or 0))))
    assert batches.run(highest.stateSnapshots(), dict) == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2}]


def test_the_names_of_the_api_are_public() -> None:
    assert {"State", "StateSpec"} <= set(kstream.__all__) and kstream.State is State and kstream.StateSpec is StateSpec

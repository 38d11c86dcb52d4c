"""What a batch does to the states of a partition (Spark behaviours MS1, MR1, MR2)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kstream import State
from kstream.errors import StateError
from kstream.rdd.map_with_state import MapWithState, initial_states, snapshot
from kstream.rdd.state_map import EMPTY, StateMap

NOW = 1000
Function = Callable[[Any, Any, State], Any]


def entries(data: bytes) -> dict[Any, tuple[Any, int]]:
    return {key: (value, updated) for key, value, updated in StateMap(data).items()}


def run(
    function: Function, records: list[tuple[Any, Any]], states: list[tuple[Any, Any, int]] | None = None, idle_before: int | None = None
) -> tuple[dict[Any, tuple[Any, int]], list[Any]]:
    """(states with their times, mapped) after one batch at NOW."""
    before = StateMap.of(states or []).to_bytes()
    after, mapped = MapWithState(function, NOW, datetime.fromtimestamp(NOW / 1000), idle_before).update(before, iter(records))
    return entries(after), mapped


# -- State


def test_a_state_that_is_not_set_exists_after_an_update() -> None:
    """Spark behaviour MS1."""
    state = State()
    assert not state.exists() and state.getOption() is None and not state.isTimingOut() and not state.is_updated
    with pytest.raises(StateError, match="no state"):
        state.get()
    state.update(5)
    assert state.exists() and state.get() == state.getOption() == 5 and state.is_updated and not state.is_removed


def test_a_state_that_is_set_can_be_updated_again() -> None:
    """Spark behaviour MS1."""
    state = State(1)
    assert state.exists() and state.get() == 1 and not state.is_updated
    state.update(2)
    state.update(3)
    assert state.get() == 3 and state.is_updated and not state.isTimingOut()


def test_a_removed_state_takes_no_update_and_no_second_removal() -> None:
    """Spark behaviour MS1."""
    state = State(1)
    state.update(2)
    state.remove()
    assert not state.exists() and state.is_removed and not state.is_updated and state.getOption() is None
    for call in (lambda: state.update(1), state.remove):
        with pytest.raises(StateError, match=r"remove\(\)"):
            call()
    with pytest.raises(StateError, match="no state"):
        state.get()


def test_a_state_that_is_timing_out_can_only_be_read() -> None:
    """Spark behaviour MS1."""
    state = State(1, timing_out=True)
    assert state.exists() and state.get() == state.getOption() == 1 and state.isTimingOut()
    for call in (lambda: state.update(1), state.remove):
        with pytest.raises(StateError, match="timing out"):
            call()
    assert not state.is_updated and not state.is_removed


def test_a_state_prints_as_what_it_holds() -> None:
    """Spark behaviour MS1."""
    assert repr(State()) == "<state not set>" and str(State("x")) == "'x'" and repr(State(None)) == "None"


def test_an_update_to_none_is_an_update() -> None:
    after, _ = run(lambda _k, _v, state: state.update(None), [("a", 1)])
    assert after == {"a": (None, NOW)}


# -- one batch


def noop(_key: Any, _value: Any, _state: State) -> str:
    return "called"


def test_without_data_the_function_is_not_called() -> None:
    """Spark behaviour MR1."""
    assert run(noop, [], [("a", 1, 0)]) == ({"a": (1, 0)}, [])


def test_with_data_the_function_is_called_whether_there_is_a_state_or_not() -> None:
    """Spark behaviour MR1."""
    assert run(noop, [("a", 1)]) == ({}, ["called"])
    assert run(noop, [("a", 1)], [("a", 5, 0)]) == ({"a": (5, 0)}, ["called"])


def test_an_update_sets_state_and_time() -> None:
    """Spark behaviour MR1."""

    def function(key: str, value: int, state: State) -> tuple[str, int, int]:
        old = state.get() if state.exists() else 0
        state.update(old + value)
        return key, value, old

    assert run(function, [("a", 1)]) == ({"a": (1, NOW)}, [("a", 1, 0)])
    assert run(function, [("a", 1)], [("a", 5, 0), ("b", 7, 3)]) == ({"a": (6, NOW), "b": (7, 3)}, [("a", 1, 5)])


def test_a_removal_drops_the_state_also_of_a_key_that_has_none() -> None:
    """Spark behaviour MR1."""
    assert run(lambda _k, _v, state: state.remove(), [("a", 1)], [("a", 5, 0)]) == ({}, [])
    assert run(lambda _k, _v, state: state.remove(), [("a", 1)]) == ({}, [])


def test_a_key_with_data_is_fresh_while_a_timeout_is_set_and_keeps_its_time_without_one() -> None:
    """Spark behaviour MR1."""
    assert run(noop, [("a", 1)], [("a", 5, 10)])[0] == {"a": (5, 10)}
    assert run(noop, [("a", 1)], [("a", 5, 10)], idle_before=0)[0] == {"a": (5, NOW)}


def test_what_was_changed_in_place_and_not_given_to_update_is_not_kept() -> None:
    after, _ = run(lambda _k, _v, state: state.get().append(1), [("a", 1)], [("a", [], 10)], idle_before=0)
    assert after == {"a": ([], NOW)}


def timing_out(key: Any, value: Any, state: State) -> Any:
    return (key, value, state.get(), "out") if state.isTimingOut() else None


@pytest.mark.parametrize(("idle_before", "goes"), [(1000, False), (1001, True)])
def test_only_what_is_strictly_older_than_the_threshold_times_out(idle_before: int, goes: bool) -> None:
    """Spark behaviour MR1."""
    after, mapped = run(timing_out, [], [("a", 5, 1000)], idle_before)
    assert (after, mapped) == (({}, [("a", None, 5, "out")]) if goes else ({"a": (5, 1000)}, []))


def test_without_a_timeout_nothing_times_out() -> None:
    """Spark behaviour MR1."""
    assert run(timing_out, [], [("a", 5, 1)])[0] == {"a": (5, 1)}


def test_a_key_without_a_state_does_not_time_out() -> None:
    """Spark behaviour MR1."""
    assert run(timing_out, [("a", 1)], [], idle_before=1 << 40) == ({}, [])


def test_a_key_with_data_does_not_time_out_in_that_batch() -> None:
    """MR1: its data is looked at first"""
    assert run(timing_out, [("a", 1)], [("a", 5, 1), ("b", 6, 1)], idle_before=NOW) == ({"a": (5, NOW)}, [("b", None, 6, "out")])


def test_a_key_that_was_removed_in_the_batch_does_not_time_out() -> None:
    """Spark behaviour MR1."""
    calls: list[bool] = []

    def remove(_key: Any, _value: Any, state: State) -> None:
        calls.append(state.isTimingOut())
        state.remove()

    assert run(remove, [("a", 1)], [("a", 5, 1)], idle_before=NOW) == ({}, []) and calls == [False]


def test_an_update_of_a_state_that_is_timing_out_fails_the_batch() -> None:
    """Spark behaviour MS1."""
    with pytest.raises(StateError, match="timing out"):
        run(lambda _k, _v, state: state.update(1), [], [("a", 5, 1)], idle_before=NOW)


def test_the_function_is_called_once_a_record_also_for_a_key_that_comes_twice() -> None:
    """Spark behaviour MR2."""

    def add(key: str, value: int, state: State) -> tuple[str, int]:
        state.update((state.getOption() or 0) + value)
        return key, state.get()

    after, mapped = run(add, [("k2", 1), ("k1", 1), ("k2", 1)], [("k1", 0, 0), ("k2", 0, 0), ("k3", 0, 0)])
    assert after == {"k1": (1, NOW), "k2": (2, NOW), "k3": (0, 0)}
    assert mapped == [("k2", 1), ("k1", 1), ("k2", 2)]


def test_the_states_of_the_batch_before_stay_as_they_were() -> None:
    """Spark behaviour MR2."""
    before = initial_states([("a", [1])], 0)
    kept = bytes(before)

    def append(_key: str, value: int, state: State) -> None:
        state.update([*state.get(), value])

    update = MapWithState(append, NOW, datetime.fromtimestamp(1))
    assert update.update(before, [("a", 2)]) == update.update(before, [("a", 2)])
    assert before == kept and entries(before) == {"a": ([1], 0)}


def test_none_is_emitted_by_no_call_and_everything_else_is() -> None:
    """Spark behaviour MS3."""
    _, mapped = run(lambda key, value, _s: value, [("a", None), ("a", 0), ("a", ""), ("a", False), ("a", [])])
    assert mapped == [0, "", False, []]


def test_a_function_of_four_gets_the_batch_time() -> None:
    seen: list[Any] = []
    time = datetime(2026, 11, 21, 12)
    MapWithState(lambda *args: seen.append(args[:3]), NOW, time, pass_time=True).update(EMPTY, [("a", 1)])
    assert seen == [(time, "a", 1)]


def test_initial_states_are_as_old_as_their_batch_and_the_last_of_a_key_counts() -> None:
    """Spark behaviour MS3."""
    data = initial_states([("a", 1), ("b", 2), ("a", 3)], 70)
    assert entries(data) == {"a": (3, 70), "b": (2, 70)} and sorted(snapshot(data)) == [("a", 3), ("b", 2)]
    assert initial_states([], 70) is EMPTY


def test_an_empty_state_goes_through_a_batch_without_data_as_it_is() -> None:
    """MR2: an empty state is stored like another"""
    update = MapWithState(noop, NOW, datetime.fromtimestamp(1), 0)
    states, mapped = update.update(EMPTY, [])
    assert states == EMPTY and mapped == [] and pickle.loads(pickle.dumps(states)) == EMPTY

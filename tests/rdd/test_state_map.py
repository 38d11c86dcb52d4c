"""The states of a partition are a dict over its bytes (Spark behaviours SM1, SM2)."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from kstream.errors import CorruptRecordError, FormatVersionError, StateNotStorableError
from kstream.rdd import state_map
from kstream.rdd.state_map import EMPTY, NOTHING, StateMap


def stored(states: StateMap) -> StateMap:
    """The map as the next batch has it."""
    return StateMap(states.to_bytes())


def content(states: StateMap) -> dict[Any, tuple[Any, int]]:
    items = list(states.items())
    found = {key: (value, updated) for key, value, updated in items}
    assert len(items) == len(found) == len(states)
    return found


def numbers(count: int, updated: int = 0) -> StateMap:
    return stored(StateMap.of((n, n * 10, updated) for n in range(count)))


class Watched:
    """A state that counts how often it is unpickled."""

    loads: ClassVar[int] = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Watched.loads += 1


def watched(count: int) -> StateMap:
    states = stored(StateMap.of((n, Watched(n), n) for n in range(count)))
    Watched.loads = 0
    return states


def test_an_empty_map_has_nothing_lets_everything_be_removed_and_is_its_own_copy() -> None:
    """Spark behaviour SM1."""
    states = StateMap()
    assert states.get(1) is NOTHING
    states.remove(1)
    assert len(states) == len(states.copy()) == 0 and list(states.items()) == states.older_than(1 << 60) == []
    assert states.copy().to_bytes() is EMPTY


@pytest.mark.parametrize("between", [lambda states: states, stored], ids=["as put", "as stored"])
def test_what_was_put_is_got_until_it_is_removed(between: Callable[[StateMap], StateMap]) -> None:
    """Spark behaviour SM2."""
    states = StateMap()
    states.put(1, 100, 10)
    states = between(states)
    assert states.get(1) == 100 and states.get(2) is NOTHING and len(states) == 1
    states.put(2, 200, 20)
    states = between(states)
    assert content(states) == {1: (100, 10), 2: (200, 20)}
    states.remove(1)
    states = between(states)
    assert states.get(1) is NOTHING and content(states) == {2: (200, 20)}
    states.put(1, 1000, 30)
    assert content(between(states)) == {1: (1000, 30), 2: (200, 20)}


@pytest.mark.parametrize("between", [lambda states: states, stored], ids=["as put", "as stored"])
def test_older_than_a_time_means_strictly_older(between: Callable[[StateMap], StateMap]) -> None:
    """Spark behaviour SM2."""
    states = StateMap()
    states.put(1, 100, 10)
    states = between(states)
    assert states.older_than(11) == [(1, 100, 10)] and states.older_than(10) == states.older_than(9) == []
    states.put(2, 200, 20)
    states = between(states)
    assert sorted(states.older_than(21)) == [(1, 100, 10), (2, 200, 20)] and states.older_than(20) == [(1, 100, 10)]
    states.touch(1, 30)
    assert between(states).older_than(21) == [(2, 200, 20)]
    states.remove(2)
    assert between(states).older_than(21) == []


def test_copies_do_not_see_what_is_done_to_one_another() -> None:
    """Spark behaviour SM2."""
    one = stored(StateMap.of([(1, 100, 1), (2, 200, 2)]))
    one.put(3, 300, 3)
    other = one.copy()
    one.put(1, 101, 4)
    one.remove(2)
    other.remove(1)
    other.put(4, 400, 5)
    other.touch(3, 6)
    assert content(one) == content(stored(one)) == {1: (101, 4), 3: (300, 3)}
    assert content(other) == content(stored(other)) == {2: (200, 2), 3: (300, 6), 4: (400, 5)}


@pytest.mark.parametrize("renewed", [StateMap.copy, stored], ids=["copied", "stored"])
def test_every_sequence_of_puts_and_removals_over_three_copies_is_that_of_a_dict(renewed: Callable[[StateMap], StateMap]) -> None:
    """SM2: all 2⁹ of them, on one key and beside others"""
    for sequence in itertools.product((True, False), repeat=9):
        states, model = StateMap.of([("other", 0, 0)]), {"other": (0, 0)}
        for number, put in enumerate(sequence, 1):
            if put:
                states.put("key", number, number)
                model["key"] = (number, number)
            else:
                states.remove("key")
                model.pop("key", None)
            if number % 3 == 0:
                before, states = states, renewed(states)
                assert content(before) == content(states) == model
        assert content(stored(states)) == model


KEYS: list[Any] = [
    None, "", "a", b"a", 0, 1, 2.5, -1, True, (), ("a", 1), ("a", ("b", None)), frozenset("ab"), Decimal("0.1"), *range(100, 160),
    *(f"user-{n}" for n in range(60)),
]  # fmt: skip


def test_any_operations_on_keys_of_any_kind_are_those_of_a_dict() -> None:
    """Spark behaviour SM2."""
    for seed in range(30):
        chance = random.Random(seed)
        states, model = StateMap(), dict[Any, tuple[Any, int]]()
        for now in range(1, 400):
            key = chance.choice(KEYS)
            what = chance.random()
            if what < 0.5:
                value = chance.choice([now, "x" * chance.randrange(300), [key, {"now": now}], None])
                states.put(key, value, now)
                model[key] = (value, now)
            elif what < 0.7:
                states.remove(key)
                model.pop(key, None)
            elif what < 0.8 and key in model:
                states.touch(key, now)
                model[key] = (model[key][0], now)
            elif what < 0.9:
                assert states.get(key) == model.get(key, (NOTHING, 0))[0]
            elif what < 0.95:
                old = now - chance.randrange(200)
                assert {k: (v, t) for k, v, t in states.older_than(old)} == {k: e for k, e in model.items() if e[1] < old}
            else:
                states = stored(states)
                assert content(states) == model
        assert content(stored(states)) == content(states) == model


def test_keys_whose_hashes_agree_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_map, "stable_hash", lambda _key: 7 << 32)
    states = stored(StateMap.of((n, -n, n) for n in range(100)))
    states.remove(50)
    states.put(51, "new", 200)
    states.put(100, -100, 100)
    expected = {n: (-n, n) for n in range(101) if n != 50} | {51: ("new", 200)}
    assert content(states) == content(stored(states)) == expected
    assert stored(states).get(99) == -99


def test_equal_numbers_of_different_types_are_one_key() -> None:
    states = stored(StateMap.of([(1, "one", 0)]))
    assert states.get(1.0) == states.get(True) == "one"
    states.put(1.0, "uno", 0)
    assert len(stored(states)) == 1


def test_a_key_of_its_own_class_for_equality_is_found_after_storing() -> None:
    states = stored(StateMap.of([(("order", Decimal("1.50")), "open", 0)]))
    assert states.get(("order", Decimal("1.5"))) == "open"


def test_none_is_a_state_like_another() -> None:
    states = stored(StateMap.of([("a", None, 0)]))
    assert states.get("a") is None and content(states) == {"a": (None, 0)}


def test_large_states_lie_beside_small_ones() -> None:
    big = bytes(range(256)) * 20_000
    states = stored(StateMap.of([("big", big, 1), *((n, n, 1) for n in range(50))]))
    states.put(7, big[::-1], 2)
    states = stored(states)
    assert states.get("big") == big and states.get(7) == big[::-1] and states.get(8) == 8


# -- what it costs


def test_a_map_that_was_not_changed_is_the_very_bytes_it_was_made_of() -> None:
    states = numbers(100)
    data = states.to_bytes()
    again = StateMap(data)
    assert again.get(5) == 50 and again.get(1000) is NOTHING
    again.remove(1000)
    assert again.to_bytes() is data


def test_only_the_keys_that_are_asked_for_are_decoded() -> None:
    states = watched(5000)
    for key in (17, 4711, 17):
        assert states.get(key).value == key
    states.put(18, Watched(-18), 0)
    states.remove(19)
    states.touch(20, 9999)
    data = states.to_bytes()
    assert Watched.loads == 5
    states = StateMap(data)
    assert states.get(18).value == -18 and states.get(4712).value == 4712 and states.get(19) is NOTHING
    assert Watched.loads == 7


def test_a_look_for_old_keys_decodes_those_alone() -> None:
    states = watched(5000)
    assert sorted(key for key, _, _ in states.older_than(3)) == [0, 1, 2]
    assert Watched.loads == 3


def test_more_buckets_are_made_without_decoding_a_state() -> None:
    states = watched(1000)
    for n in range(1000, 9000):
        states.put(n, n, n)
    data = states.to_bytes()
    assert Watched.loads == 0
    assert StateMap(data)._form.buckets > states._form.buckets


@pytest.mark.parametrize("count", [0, 1, 5, 17, 100, 1000, 10_000])
def test_buckets_hold_1_to_16_entries_on_average_however_a_map_grows_and_shrinks(count: int) -> None:
    def check(states: StateMap) -> None:
        buckets = states._form.buckets
        assert len(states) <= 16 * buckets and (buckets == 1 or len(states) >= buckets)

    states = numbers(count)
    check(states)
    while len(states) > 1:
        for key in itertools.islice(content(states), len(states) // 2):
            states.remove(key)
        states = stored(states)
        check(states)


def test_buckets_stay_while_the_entries_are_within_four_times_of_what_they_were_made_for() -> None:
    states = numbers(1024)  # 128 buckets of 8
    for n in range(1024, 2048):
        states.put(n, n, 0)
    assert stored(states)._form.buckets == 128
    states.put(2048, 0, 0)
    assert stored(states)._form.buckets == 512


# -- errors


class Secretive:
    def __reduce__(self) -> Any:
        raise ValueError("not me")


@pytest.mark.parametrize("state", [threading.Lock(), lambda: 0, Secretive()], ids=["lock", "lambda", "refuses"])
def test_a_state_that_cannot_be_pickled_is_one_error_that_names_its_key(state: Any) -> None:
    states = numbers(3)
    states.put(("shop", 5), state, 0)
    with pytest.raises(StateNotStorableError, match=r"key \('shop', 5\)") as refused:
        states.to_bytes()
    assert refused.value.facts["key"] == "('shop', 5)"


def test_bytes_of_something_else_are_not_taken_for_states() -> None:
    data = numbers(50).to_bytes()
    for damaged in (b"", b"KSM", b"PAR1" + bytes(100), data[:-1], data + b"x"):
        with pytest.raises(CorruptRecordError):
            StateMap(damaged)
    with pytest.raises(FormatVersionError, match="version 2"):
        StateMap(b"KSM\x02" + data[4:])


def test_a_state_whose_class_is_gone_says_what_must_be_importable() -> None:
    data = StateMap.of([("a", Decimal(1), 0)]).to_bytes()
    with pytest.raises(StateNotStorableError, match="importable"):
        StateMap(data.replace(b"decimal", b"decimat")).get("a")


# -- the stored form

GOLDEN = (
    "4b534d010100000003000000000000007d000000e803000000000000030000000d41931328fd4130b05d4abee803000000000000d007000000000000"
    "b80b00000000000014000000130000002200000080059509000000000000008c0161944b0186942e80059508000000000000004e8c01789486942e80"
    "059517000000000000008c016b944b0286945d94473fe00000000000006186942e"
)


def test_the_stored_form_does_not_change() -> None:
    states = StateMap.of([("a", 1, 1000), (None, "x", 2000), (("k", 2), [0.5], 3000)])
    assert states.to_bytes().hex() == GOLDEN
    assert content(StateMap(bytes.fromhex(GOLDEN))) == {"a": (1, 1000), None: ("x", 2000), ("k", 2): ([0.5], 3000)}


def test_an_empty_map_is_one_empty_bucket() -> None:
    assert EMPTY.hex() == "4b534d01" + "01000000" + "00" * 8 + "00" * 4 + "ff" * 7 + "7f"


@pytest.mark.parametrize(
    "use",
    [
        lambda key: StateMap().get(key),
        lambda key: StateMap().put(key, 1, 1),
        lambda key: StateMap().touch(key, 1),
        lambda key: StateMap().remove(key),
        lambda key: StateMap.of([(key, 1, 1)]),
    ],
)
def test_a_key_that_is_not_hashable_is_a_type_error_that_says_what_keys_a_state_may_have(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"\['a'\] cannot be the key of a state of mapWithState, unhashable.*Use text"):
        use(["a"])

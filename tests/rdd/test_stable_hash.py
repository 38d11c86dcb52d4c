"""Where a key's state lives is the same in every process, for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import pytest

from kstream.errors import StateNotStorableError
from kstream.rdd.stable_hash import partition_of, stable_hash

Point = namedtuple("Point", "x y")
NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Name(str):
    pass


@dataclass(frozen=True)
class Account:
    bank: str
    number: int


class Plain:
    pass


def name_of(value: Any) -> str | None:
    """The name of a case. Of a set it would be another one in every process."""
    return None if "frozenset" in repr(value) else repr(value)


GOLDEN: list[tuple[Any, int]] = [
    (None, 0x3041FD28A7B04184),
    ("", 0xDE6ECFAAC38449E6),
    ("user-1", 0xB31D9CAA6E13AA29),
    ("ä\ud800", 0x42220D900ACF489),
    (b"user-1", 0x7F0060AC1F49FFF1),
    (0, 0xC62808D08AAB85A9),
    (1, 0xFD12CB0B965269C1),
    (-(2**70), 0xF041ADF3E5D1E649),
    (0.5, 0x95E4B0719F14458C),
    ((), 0xD6D472E0F5DC73CA),
    (("a", None, 1), 0x8F3C840A79343209),
    ((("a",), "b"), 0xB2CED2699500C521),
    (frozenset({"a", "b"}), 0x9F7FB613162C7BD),
    (date(2026, 11, 21), 0x2ED19D3E0317FFCA),
    (NOON, 0xBB001B0921852F1A),
    (datetime(2026, 11, 21, 12), 0x3A706E443A252DFF),
    (time(12), 0x720A6A392FD080EB),
    (time(12, tzinfo=timezone.utc), 0x8B9EA703ADB4AA0),
    (timedelta(1), 0x89FECD33232BBF7),
    (uuid.UUID(int=5), 0xB18A4B0128BA543A),
    (Colour.RED, 0x6C1F8C992BE891B3),
    (Account("x", 1), 0xFDF677A4F593DF8E),
]


@pytest.mark.parametrize(("key", "number"), GOLDEN, ids=name_of)
def test_the_hash_of_a_key_never_changes(key: Any, number: int) -> None:
    assert stable_hash(key) == number


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_the_hash_is_the_same_in_every_process_whatever_its_hash_seed(seed: str) -> None:
    keys = "[None, 'a', ('a', None, 1.5), frozenset('abc'), b'a', datetime.datetime(2026, 1, 2), uuid.UUID(int=7)]"
    code = f"import datetime, uuid; from kstream.rdd.stable_hash import stable_hash; print([stable_hash(k) for k in {keys}])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
    )
    names = {"datetime": __import__("datetime"), "uuid": uuid}
    assert done.stdout.strip() == str([stable_hash(key) for key in eval(keys, names)])


EQUAL: list[tuple[Any, ...]] = [
    (1, 1.0, True, Decimal(1), Fraction(1), Level.LOW, 1 + 0j),
    (0, -0.0, False),
    ("a", Name("a")),
    ((1, "a"), Point(1, "a"), (1.0, Name("a"))),
    (NOON, NOON.astimezone(timezone(timedelta(hours=2)))),
    (datetime(2026, 10, 25, 2), datetime(2026, 10, 25, 2, fold=1)),
    (time(2), time(2, fold=1)),
    (time(2, tzinfo=timezone.utc), time(3, tzinfo=timezone(timedelta(hours=1)))),
    (frozenset("ab"), frozenset("ba")),
    (("a", "a"), tuple("".join(["a"]) for _ in range(2))),
    (Account("x", 1), Account("".join(["x"]), 1)),
]


@pytest.mark.parametrize("keys", EQUAL, ids=name_of)
def test_equal_keys_have_one_hash(keys: tuple[Any, ...]) -> None:
    assert all(key == keys[0] for key in keys)
    assert {stable_hash(key) for key in keys} == {stable_hash(keys[0])}


def test_keys_that_differ_differ_in_their_hash() -> None:
    keys = [
        None,
        "",
        b"",
        "a",
        b"a",
        0,
        1,
        "1",
        b"1",
        (),
        ("a",),
        (("a",),),
        ("a", "b"),
        ("ab",),
        ("a", ("b",)),
        frozenset("a"),
        frozenset(),
    ]
    assert len({stable_hash(key) for key in keys}) == len(keys)


def test_keys_spread_evenly_over_partitions_and_buckets() -> None:
    for keys in (range(0, 64_000, 64), [f"user-{n:06d}" for n in range(1000)], [("user", n) for n in range(1000)]):
        partitions, buckets = [0] * 8, [0] * 8
        for key in keys:
            partitions[partition_of(key) % 8] += 1
            buckets[(stable_hash(key) >> 32) & 7] += 1
        assert min(partitions + buckets) > 80 and max(partitions + buckets) < 175


@pytest.mark.parametrize(
    ("key", "why"),
    [(["a"], "unhashable"), (("a", ["b"]), "unhashable"), (float("nan"), "not equal to itself"), (Plain(), "equal only to itself")],
    ids=["list", "list in a tuple", "nan", "identity"],
)
def test_a_key_that_could_not_be_found_again_is_refused_by_name(key: Any, why: str) -> None:
    with pytest.raises(StateNotStorableError, match=why) as refused:
        stable_hash(key)
    assert refused.value.facts["key"] == repr(key) and repr(key) in str(refused.value)

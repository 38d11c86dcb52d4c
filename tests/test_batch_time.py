"""Time, Duration and Interval count as Spark's do (Spark behaviours TD1–TD3)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kstream import Duration, Milliseconds, Minutes, Seconds, Time
from kstream.batch_time import Interval, format_batch_time, listed


def test_durations_compare_add_subtract_and_multiply() -> None:
    """Spark behaviour TD1."""
    short, long = Duration(1000), Duration(2000)
    assert short < long and short <= Duration(1000) and long > short and short != long
    assert short + long == Duration(3000)
    assert long - short == Duration(1000)
    assert short * 2 == long


def test_dividing_durations_gives_a_real() -> None:
    """Spark behaviour TD1."""
    assert Duration(1000) / Duration(2000) == 0.5


@pytest.mark.parametrize(("step", "multiple"), [(5, True), (1000, True), (1, True), (6, False)])
def test_a_duration_knows_what_it_is_a_multiple_of(step: int, multiple: bool) -> None:
    """Spark behaviour TD1."""
    assert Duration(1000).isMultipleOf(Duration(step)) is multiple


def test_durations_have_a_least_a_greatest_and_a_zero() -> None:
    """Spark behaviour TD1."""
    assert Duration(1).min(Duration(2)) == Duration(1)
    assert Duration(1).max(Duration(2)) == Duration(2)
    assert Duration(0).isZero() and not Duration(1).isZero()


def test_units_are_milliseconds() -> None:
    assert (Milliseconds(5), Seconds(1.5), Minutes(2)) == (Duration(5), Duration(1500), Duration(120_000))
    assert Duration(1500).seconds == 1.5


@pytest.mark.parametrize(("time", "step", "floor"), [(1350, 200, 1200), (1200, 200, 1200), (199, 200, 0), (1, 1, 1)])
def test_floor_is_the_latest_multiple_not_after_the_time(time: int, step: int, floor: int) -> None:
    """Spark behaviour TD2."""
    assert Time(time).floor(Duration(step)) == Time(floor)


@pytest.mark.parametrize(("zero", "floor"), [(50, 1250), (150, 1350), (200, 1200)])
def test_floor_counts_from_the_zero_time(zero: int, floor: int) -> None:
    """Spark behaviour TD2."""
    assert Time(1350).floor(Duration(200), Time(zero)) == Time(floor)


def times(*milliseconds: int) -> list[Time]:
    return [Time(ms) for ms in milliseconds]


def test_until_leaves_the_end_out() -> None:
    """Spark behaviour TD3."""
    assert Time(1000).until(Time(1100), Duration(100)) == times(1000)
    assert Time(1000).until(Time(1000), Duration(100)) == []
    assert Time(1000).until(Time(1100), Duration(30)) == times(1000, 1030, 1060, 1090)


def test_to_includes_the_end() -> None:
    """Spark behaviour TD3."""
    assert Time(1000).to(Time(1100), Duration(100)) == times(1000, 1100)
    assert Time(1000).to(Time(1000), Duration(100)) == times(1000)
    assert Time(1000).to(Time(1100), Duration(30)) == times(1000, 1030, 1060, 1090)


def test_times_move_by_durations_and_lie_durations_apart() -> None:
    assert Time(1000) + Duration(500) == Time(1500)
    assert Time(1000) - Duration(500) == Time(500)
    assert Time(1500).since(Time(1000)) == Duration(500)
    assert Time(1000) < Time(1001) and Time(2000).isMultipleOf(Duration(1000))


def test_an_interval_is_as_long_as_its_ends_are_apart() -> None:
    assert Interval(Time(100), Time(350)).duration == Duration(250)


def test_times_and_durations_are_values() -> None:
    assert len({Time(1), Time(1), Duration(1), Duration(1)}) == 2
    assert pickle.loads(pickle.dumps(Time(7))) == Time(7)


def test_batch_times_show_milliseconds_only_for_intervals_below_a_second() -> None:
    """UU1, as far as it is about batch times."""
    time = Time(1_700_000_000_452)
    assert format_batch_time(time, Duration(500)).endswith(".452")
    assert format_batch_time(time, Duration(1000)) == format_batch_time(time, Duration(500))[:-4]


@pytest.mark.parametrize("seconds", ["1s", "10", None, [1]])
def test_what_is_no_number_of_seconds_is_a_type_error_that_names_it(seconds: object) -> None:
    with pytest.raises(TypeError, match="is not a number of seconds: give a number, or a Duration"):
        Seconds(seconds)  # pyright: ignore


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "1"])
def test_a_number_of_seconds_that_is_no_length_of_time_is_refused_by_name(seconds: Any) -> None:
    with pytest.raises(TypeError, match=f"{seconds!r} is not a number of seconds: give a number, or a Duration"):
        Seconds(seconds)


def test_many_times_are_the_first_and_the_last_in_the_log() -> None:
    assert listed([]) == "" and listed([Time(1), Time(2), Time(3)]) == "1 ms, 2 ms, 3 ms"
    assert listed([Time(n) for n in range(172)]) == "0 ms, …, 171 ms"

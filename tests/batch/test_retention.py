"""Which batches' plans are required: each unfinished batch keeps its own windows, and nothing above itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kstream.batch.retention import NeededForStates, required_batches
from kstream.batch_time import Duration, Time

REMEMBER = Duration(3000)
PLANNED = [Time(time) for time in range(1000, 13_000, 1000)]


def removable(
    unfinished: Iterable[int], ended_up_to: int, new: int | None = None, old: Mapping[int, int] = MappingProxyType({})
) -> list[int]:
    """The planned batches that are not required, in seconds."""
    states = NeededForStates(None if new is None else Time(new), {Time(batch): Time(needs) for batch, needs in old.items()})
    required = required_batches([Time(time) for time in unfinished], Time(ended_up_to), REMEMBER, states)
    return [time.milliseconds // 1000 for time in PLANNED if time not in required]


def test_batches_that_no_later_window_reaches_are_not_required() -> None:
    assert removable([], 10_000) == [1, 2, 3, 4, 5, 6, 7]


def test_an_unfinished_batch_requires_its_windows_and_no_later_batch() -> None:
    assert removable([5000], 12_000) == [1, 2, 6, 7, 8, 9]


def test_windows_of_several_unfinished_batches_may_meet_or_lie_apart() -> None:
    assert removable([3000, 4000], 12_000) == [5, 6, 7, 8, 9]
    assert removable([8000, 3000], 12_000) == [4, 5, 9]


def test_an_unfinished_batch_above_the_line_changes_nothing_below_it() -> None:
    assert removable([12_000], 10_000) == [1, 2, 3, 4, 5, 6, 7]


def test_batches_after_the_state_that_is_kept_are_required() -> None:
    assert removable([], 9000, new=4000) == [1, 2, 3]
    assert removable([], 9000, new=9000) == [1, 2, 3, 4, 5, 6]


def test_an_unfinished_batch_requires_the_batches_since_its_own_older_state() -> None:
    assert removable([6000], 12_000, new=11_000, old={6000: 2000}) == [1, 7, 8, 9]
    assert removable([6000, 7000], 12_000, new=11_000, old={6000: 6000, 7000: 2000}) == [1, 8, 9]
    assert removable([8000], 12_000, new=11_000, old={8000: 8000}) == [1, 2, 3, 4, 5, 9]


def test_the_oldest_unfinished_batch_is_known() -> None:
    assert required_batches([Time(5000), Time(2000)], Time(9000), REMEMBER).oldest_unfinished == Time(2000)
    assert required_batches([], Time(9000), REMEMBER).oldest_unfinished is None

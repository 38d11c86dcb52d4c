"""Which batches a restart makes up for (pure)."""

from __future__ import annotations

from typing import Any

from kstream.batch_time import Seconds, Time
from kstream.scheduler.downtime import batches_during_downtime


def downtime(last: int, restart: int, remember: int = 1, most: int = 1000, busy: Any = ()) -> list[int]:
    missed = [Time(s * 1000) for s in range(last + 1, restart)]
    times = batches_during_downtime(missed, Seconds(1), Seconds(remember), busy, most)
    return [t.milliseconds // 1000 for t in times]


def test_downtime_is_from_the_last_planned_to_the_restart_both_excluded() -> None:
    """Spark behaviour CP14."""
    assert downtime(5, 9) == [6, 7, 8]
    assert downtime(5, 6) == []
    assert downtime(5, 5) == []


def seconds(*values: int) -> list[Time]:
    return [Time(s * 1000) for s in values]


def test_by_timestamp_keeps_what_has_records_what_their_windows_reach_and_the_tail() -> None:
    times = downtime(0, 5001, remember=3, busy=[seconds(100, 2000)])
    assert times == [100, 101, 102, 103, 2000, 2001, 2002, 2003, 4998, 4999, 5000]


def test_a_second_input_that_catches_up_still_gets_its_first_batches() -> None:
    times = downtime(0, 5001, remember=3, busy=[seconds(3000), None])
    assert times[:997] == list(range(1, 998)) and times[997:] == [3000, 3001, 3002, 3003, 4998, 4999, 5000]


def test_a_busy_downtime_of_any_length_is_made_whole() -> None:
    assert downtime(0, 3001, busy=[seconds(*range(1, 3001))]) == list(range(1, 3001))


def test_long_downtimes_leave_out_the_middle_and_keep_every_window_whole() -> None:
    times = downtime(0, 5001, remember=10)
    assert len(times) == 1000
    assert times[:990] == list(range(1, 991)) and times[990:] == list(range(4991, 5001))


def test_a_window_longer_than_all_that_may_be_made_still_leaves_one_to_drain_the_backlog() -> None:
    times = downtime(0, 101, remember=50, most=10)
    assert times == [1, *range(92, 101)]


def test_a_downtime_of_exactly_the_most_is_made_whole() -> None:
    assert downtime(0, 1001, remember=10) == list(range(1, 1001))

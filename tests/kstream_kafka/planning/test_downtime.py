"""By timestamp: batches that were missed hold the records of their time."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest
from kstream_kafka.client.ports import LogEnd
from kstream_kafka.errors import LogShrankError
from kstream_kafka.planning.downtime import pinned

from kstream.batch_time import Time
from tests.kstream_kafka.planner import Planner, limited_to

A, B = ("t", 0), ("t", 1)


def log_of(stamps: list[int]) -> list[tuple[int, int]]:
    """What a fake client needs to answer for a log of these timestamps: first offset of that time or later."""
    return [(max(stamps[: i + 1]), i) for i in range(len(stamps))]


def restarted(stamps: dict[Any, list[int]], at: dict[Any, int], now_ms: int, by_timestamp: bool = True, **options: Any) -> Planner:
    """A planner that stood at these offsets, over logs of these timestamps, restarted at this time."""
    p = Planner({p: (0, len(log)) for p, log in stamps.items()}, by_timestamp=by_timestamp, **options)
    p.client.times = {p: log_of(log) for p, log in stamps.items()}
    p.clock.advance(now_ms)
    return p.restore({"ranges": [["t", n, 0, offset] for (_, n), offset in at.items()]}).start()


def missed(p: Planner, *times: int) -> Any:
    busy = p.planner.missed([Time(ms) for ms in times])
    return None if busy is None else [time.milliseconds for time in busy]


def test_each_missed_batch_holds_exactly_the_records_of_its_interval() -> None:
    p = restarted({A: [100, 900, 1500, 1999, 2000, 3100], B: [2500]}, {A: 1, B: 0}, 3050)
    assert missed(p, 1000, 2000, 3000) == [1000, 2000, 3000]
    assert p.batch() == [["t", 0, 1, 2], ["t", 1, 0, 0]]
    assert p.batch() == [["t", 0, 2, 4], ["t", 1, 0, 0]]
    assert p.batch() == [["t", 0, 4, 5], ["t", 1, 0, 1]]
    p.clock.advance(950)
    assert p.batch() == [["t", 0, 5, 6], ["t", 1, 1, 1]]


def test_planning_missed_batches_asks_nothing_more() -> None:
    p = restarted({A: [100, 1100]}, {A: 0}, 2050)
    missed(p, 1000, 2000)
    p.client.asked.clear()
    p.batch()
    p.batch()
    assert p.client.asked == []


def test_under_catch_up_nothing_is_asked() -> None:
    p = restarted({A: [100]}, {A: 0}, 2050, by_timestamp=False)
    assert missed(p, 1000) is None and p.client.asked == []


def test_a_batch_that_comes_late_because_of_the_missed_ones_gets_the_records_of_its_time_too() -> None:
    p = restarted({A: [100, 1100, 2100]}, {A: 0}, 1050)
    missed(p, 1000)
    p.clock.advance(1450)
    assert p.batch() == [["t", 0, 0, 1]]
    assert p.batch() == [["t", 0, 1, 2]]  # planned at 2500, 500 ms late: 2100 is of the next
    p.clock.advance(520)
    assert p.batch() == [["t", 0, 2, 3]]
    p.clock.advance(10_000)
    p.client.logs[A] = (0, 4)
    assert p.batch() == [["t", 0, 3, 4]], "once on time, a late batch takes the end again"


def test_however_long_the_missed_batches_take_the_late_ones_after_them_get_the_records_of_their_time() -> None:
    p = restarted({A: [100, 1100, 2100]}, {A: 0}, 1050)
    missed(p, 1000)
    p.clock.advance(300_000)
    assert p.batch() == [["t", 0, 0, 1]]
    assert p.batch() == [["t", 0, 1, 2]]


def test_a_record_from_the_future_pins_its_partition_until_the_first_batch_on_time(caplog: pytest.LogCaptureFixture) -> None:
    stamps = {A: [100, 3_600_000, 1200, 1300], B: [1100]}
    with caplog.at_level(logging.WARNING, "kstream.kafka"):
        p = restarted(stamps, {A: 0, B: 0}, 2050)
        missed(p, 1000, 2000)
    assert "t-0: offset 1 has a timestamp in the future" in caplog.text and "t-1" not in caplog.text
    assert p.batch() == [["t", 0, 0, 1], ["t", 1, 0, 0]]
    assert p.batch() == [["t", 0, 1, 1], ["t", 1, 0, 1]] and p.planner.pinned == {A: 1}
    p.clock.advance(960)
    assert p.batch() == [["t", 0, 1, 4], ["t", 1, 1, 1]]


def test_shuffled_timestamps_lose_nothing_and_double_nothing() -> None:
    stamps = [1500, 300, 900, 2500, 1100, 3100, 2900, 700]
    p = restarted({A: stamps}, {A: 0}, 4050)
    missed(p, 1000, 2000, 3000, 4000)
    ranges = [p.batch()[0][2:] for _ in range(4)]
    p.clock.advance(950)
    ranges.append(p.batch()[0][2:])
    assert ranges[0][0] == 0 and ranges[-1][1] == len(stamps)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))


def test_a_rate_cap_holds_as_it_would_have_and_then_no_batch_is_left_out() -> None:
    p = restarted({A: [100, 200, 300, 400, 500]}, {A: 0}, 3050, limits=limited_to(2))
    assert missed(p, 1000, 2000, 3000) == [1000, 2000, 3000]
    assert [p.batch()[0][2:] for _ in range(3)] == [[0, 2], [2, 4], [4, 5]]


def test_times_without_records_are_named_by_their_absence() -> None:
    p = restarted({A: [100, 5100]}, {A: 0}, 6050)
    assert missed(p, 1000, 2000, 3000, 4000, 5000, 6000) == [1000, 6000]


def test_a_log_that_shrank_while_the_driver_was_down_is_still_an_error() -> None:
    p = restarted({A: [100, 200]}, {A: 5}, 2050)
    missed(p, 1000)
    with pytest.raises(LogShrankError):
        p.plan()


def test_a_record_from_the_future_pins_its_partition_and_is_told_by_its_offset() -> None:
    assert pinned({("t", 0): 1, ("t", 1): None}, {("t", 0): LogEnd(4), ("t", 1): LogEnd(1)}) == {("t", 0): 1}

"""The lag of an input in records and seconds, from what its plans know."""

from __future__ import annotations

import random

import pytest

from kstream.batch import InputProgress
from kstream.batch.log_lag import MOST_POINTS, LogLag, PartitionLag, TopicLag, completed_offsets, lag_after
from tests.untouched import Untouched


def progress(end: dict[str, int], latest: dict[str, int] | None, start: dict[str, int] | None = None) -> InputProgress:
    values = {"startOffset": {"t": start or {}}, "endOffset": {"t": end}, "latestOffset": None if latest is None else {"t": latest}}
    return InputProgress(values)


def after(*plans: tuple[int, int, int], before_ms: int | None = None, start: int = 0) -> LogLag:
    """The lag of partition 0 after plans: (milliseconds, end of the plan, end of the log)."""
    lag: LogLag | None = None
    for at_ms, end, latest in plans:
        lag = lag_after(lag, progress({"0": end}, {"0": latest}, {"0": start}), at_ms, before_ms)
    assert lag is not None
    return lag


def seconds(lag: LogLag, now_ms: int) -> float:
    (one,) = lag.by_partition(now_ms)
    return one.seconds


def test_a_partition_without_records_left_has_no_lag() -> None:
    assert list(after((1000, 7, 7)).by_partition(9000)) == [PartitionLag("t", "0", 0, 0.0)]


def test_the_lag_in_records_is_what_lies_after_the_offsets() -> None:
    lag = lag_after(None, progress({"0": 5, "1": 7, "2": 1}, {"0": 15, "1": 6}), 1000)
    assert lag is not None
    assert {each.partition: each.records for each in lag.by_partition(1000)} == {"0": 10, "1": 0}


def test_the_lag_in_seconds_counts_from_when_the_log_passed_the_plan() -> None:
    lag = after((1000, 10, 10), (2000, 10, 30), (3000, 20, 50))
    assert seconds(lag, 3000) == 1.5  # the record at 20 came in half-way between 10 at 1000 ms and 30 at 2000 ms
    assert seconds(lag, 5000) == 3.5


def test_a_record_older_than_the_first_batch_has_waited_since_then_at_least() -> None:
    assert seconds(after((1000, 5, 100), (2000, 10, 110)), 4000) == 3.0


def test_after_a_downtime_the_lag_counts_from_the_last_batch_before_it() -> None:
    lag = after((61_000, 10, 120), before_ms=1000, start=0)
    assert seconds(lag, 61_000) == 55.0  # 10 of the 120 records that came in 60 s are read: those of the first 5 s


def test_a_log_that_was_cut_off_is_measured_by_its_newest_ends() -> None:
    assert seconds(after((1000, 90, 100), (2000, 5, 5), (3000, 5, 15)), 4000) == 2.0


def test_a_new_partition_is_measured_from_the_batch_that_found_it() -> None:
    lag = lag_after(after((1000, 1, 1)), progress({"0": 1, "1": 0}, {"0": 1, "1": 8}), 2000)
    assert lag is not None
    assert list(lag.by_partition(2500))[1] == PartitionLag("t", "1", 8, 0.5)


def test_a_plan_that_does_not_know_the_ends_changes_nothing() -> None:
    lag = after((1000, 10, 10))
    assert lag_after(lag, progress({"0": 20}, None), 2000) is lag
    assert lag_after(None, progress({"0": 20}, None), 2000) is None


def test_a_year_of_batches_is_kept_in_few_points_that_reach_to_its_beginning() -> None:
    lag: LogLag | None = None
    for second in range(20_000):
        lag = lag_after(lag, progress({"0": 0}, {"0": second}), second * 1000)
    assert lag is not None and len(lag.points) <= MOST_POINTS
    times = [at_ms for at_ms, _ in lag.points]
    assert times[0] == 0 and times[-10:] == [second * 1000 for second in range(19_990, 20_000)]


@pytest.mark.parametrize("seed", range(20))
def test_the_lag_of_a_topic_is_the_sum_of_its_partitions_and_the_longest_of_them(seed: int) -> None:
    chance = random.Random(seed)
    lag: LogLag | None = None
    ends, planned = dict.fromkeys("abcdef", 0), dict.fromkeys("abcdef", 0)
    for second in range(50):
        for name in ends:
            ends[name] += chance.choice((0, 0, 1, 20))
            planned[name] = chance.randint(planned[name], ends[name])
        known = {name: end for name, end in ends.items() if name != "f" or second > 40}  # a partition that comes later
        lag = lag_after(lag, progress(dict(planned), known), second * 1000)
        assert lag is not None
        each = list(lag.by_partition(second * 1000 + 500))
        total = TopicLag("t", len(each), sum(one.records for one in each), max(one.seconds for one in each))
        assert list(lag.by_topic(second * 1000 + 500)) == [total]


def test_a_topic_whose_ends_are_not_known_has_no_lag() -> None:
    lag = lag_after(None, InputProgress({"endOffset": {"t": {"0": 5}, "u": {}}, "latestOffset": {}}), 1000)
    assert lag is not None and list(lag.by_topic(1000)) == []


def test_completed_offsets_are_the_begins_of_the_oldest_batches_that_have_not_succeeded() -> None:
    """Partition 1 is new in the second of them, and topic u was read by the first alone. All are found before the third."""
    oldest = InputProgress({"startOffset": {"t": {"0": 10}, "u": {"0": 1}}})
    newest = InputProgress({"startOffset": {"t": {"0": 20, "1": 5}}})
    planned = {"t": {"0": 30, "1": 8}}
    unread = InputProgress({"startOffset": Untouched()})
    assert completed_offsets(planned, [oldest, newest, unread]) == {"t": {"0": 10, "1": 5}, "u": {"0": 1}}
    assert completed_offsets({"t": {"0": 30, "2": 2}}, [oldest]) == {"t": {"0": 10, "2": 2}, "u": {"0": 1}}
    assert completed_offsets(planned, []) is planned


def test_what_a_batch_costs_does_not_depend_on_the_number_of_partitions() -> None:
    plan = InputProgress({"startOffset": Untouched(), "endOffset": Untouched(), "latestOffset": Untouched()})
    lag = None
    for at_ms in range(100):
        lag = lag_after(lag, plan, at_ms)
    assert lag is not None

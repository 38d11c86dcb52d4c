"""How far a clock is wrong, as two looks at a status record tell; and how a driver is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstream.batch import SlowestOutput
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta
from kstream.checkpoint.driver_status import BatchFigures, DriverStatus, Outage, StreamLag
from kstream.checkpoint.sign_of_life import SKEW_MS, Sign, behind_without_driver, clock_ahead_ms, judge

STATUS = DriverStatus("orders", 1, "host-1", 1, 0, 1_000_000, Duration(1000), last_planned=Time(1_000_000))
HOUR = 3_600_000


def sign(written_ms: int, age_ms: int, epoch: int = 1) -> Sign:
    return Sign(replace(STATUS, written_ms=written_ms, epoch=epoch), None, written_ms + age_ms)


@pytest.mark.parametrize(
    ("now", "elapsed", "ahead"),
    [
        (sign(1_020_000, HOUR), 20_000, HOUR - 20_000),
        (sign(1_020_000, 1000), 20_000, 0),
        (sign(1_020_000, 24_000), 20_000, 7),
        (sign(1_000_000, HOUR), 20_000, 7),
        (sign(1_020_000, HOUR, epoch=2), 20_000, 7),
        (sign(1_020_000, HOUR), 2 * HOUR, 7),
    ],
    ids=["renewed, and looks old", "fresh", "may be as old as the look", "not renewed", "another driver", "nobody has looked for long"],
)
def test_a_record_that_was_renewed_between_two_looks_is_younger_than_the_time_between_them(now: Sign, elapsed: int, ahead: int) -> None:
    assert clock_ahead_ms(now, sign(1_000_000, 0), elapsed, known_ms=7) == ahead
    assert SKEW_MS > 4000


def test_a_driver_is_judged_by_failures_first_and_delays_second() -> None:
    assert judge(STATUS) == ("well", "well: no batch has ended yet, and none is late")
    some = replace(STATUS, recent=[BatchFigures(Time(999_000), 500, 0, 250)])
    assert judge(some) == ("well", "well: batches succeed, and none is late")
    late = replace(STATUS, unfinished=1, oldest_unfinished=Time(940_000))
    assert judge(late) == ("behind", "behind: the oldest batch has been due for 60 s, longer than 30 s")
    assert judge(late, 100)[0] == "well"
    assert judge(replace(STATUS, state_error="OSError: no space left")) == (
        "failing",
        "failing: the state cannot be written, and each batch tries it again: OSError: no space left",
    )
    assert judge(replace(late, failed=2)) == ("failing", "failing: 2 batches failed")


def test_a_driver_that_catches_up_says_how_far_it_is_behind() -> None:
    """`none is late` beside fourteen late batches was seen."""
    recent, lag = [BatchFigures(Time(989_000), 500, 0, 250)], [StreamLag(0, "Kafka[t]", 8000)]
    late = replace(
        STATUS,
        last_planned=Time(990_000),
        unfinished=1,
        oldest_unfinished=Time(990_000),
        lag=lag,
        recent=recent,
    )
    assert judge(late) == ("well", "well: batches succeed. It catches up, 11 batches and 8,000 records behind, about 4 s")
    assert judge(late, 5)[1] == (
        "behind: the oldest batch has been due for 10 s, longer than 5 s. It catches up, 11 batches and 8,000 records behind, about 4 s"
    )
    on_time = replace(STATUS, recent=recent, last_planned=Time(999_000), unfinished=1, oldest_unfinished=Time(999_000))
    assert judge(on_time)[1] == "well: batches succeed, and none is late"


def test_records_that_nobody_has_counted_are_not_said_to_be_none() -> None:
    """`25 batches and 0 records behind` was seen in an outage of the brokers, with 402 records in the log."""
    unplanned = replace(STATUS, last_planned=Time(975_000), lag=[StreamLag(0, "Kafka[t]", 0, unplanned=0, at_ms=975_000)])
    said = "25 batches are due, 25 of them without a plan: how many records wait is not known"
    assert judge(unplanned) == ("well", f"well: no batch has ended yet. {said}")
    assert judge(unplanned, 5)[1].endswith(said)


def test_an_outage_is_told_beside_every_state_and_is_no_failure_before_the_driver_is_late() -> None:
    away = Outage(999_000, 1_599_000, "NoBrokersError: h:1", Time(999_500))
    said = ". For 1.0 s no batch could be planned, and the driver waits for 9 min 59 s more: NoBrokersError: h:1"
    assert judge(replace(STATUS, outage=away)) == ("well", "well: no batch has ended yet, and none is late" + said)
    late = replace(STATUS, last_planned=Time(959_000), lag=[StreamLag(0, "Kafka[t]", 7)], outage=away)
    due = "behind: the oldest batch has been due for 40 s, longer than 30 s"
    unknown = ". 41 batches are due, 41 of them without a plan: how many records wait is not known"
    assert judge(late) == ("behind", due + unknown + said)
    assert judge(replace(late, failed=1)) == ("failing", "failing: 1 batch failed" + said)
    over = replace(STATUS, outage=Outage(900_000, 1_000_000, "StorageError: no answer"))
    assert judge(over)[1].endswith(
        "For 100 s no planned batch could start, and the driver has reported it as an error: StorageError: no answer"
    )


def test_a_driver_that_is_late_names_the_slowest_output_of_its_newest_slow_batch() -> None:
    slow, slower = SlowestOutput("pprint at job.py:7", 1200), SlowestOutput("foreachRDD at job.py:41", 7900)
    recent = [
        BatchFigures(Time(985_000), 500, 0, 1300, slowest=slow),
        BatchFigures(Time(986_000), 500, 0, 8200, slowest=slower),
        BatchFigures(Time(987_000), 500, 0, 900, slowest=slow),
    ]
    late = replace(STATUS, last_planned=Time(990_000), unfinished=1, oldest_unfinished=Time(990_000), recent=recent)
    named = ". In the last slow batch foreachRDD at job.py:41 took 7.9 of 8.2 s"
    assert judge(late)[1].endswith(named) and judge(late, 5)[1].endswith(named)
    on_time = replace(late, last_planned=Time(999_000), oldest_unfinished=Time(999_000))
    assert judge(on_time)[1] == "well: batches succeed, and none is late"
    assert "slow batch" not in judge(replace(late, recent=recent[2:]))[1], "each took less than the interval"


def test_without_a_driver_all_batches_since_the_oldest_pending_one_are_late() -> None:
    meta = Meta(Time(0), Duration(1000))
    assert behind_without_driver(meta, Time(10_000), [Time(8000), Time(10_000)], 12_500) == (4.5, 4)
    assert behind_without_driver(meta, Time(10_000), [], 10_500) == (0, 0)
    assert behind_without_driver(None, None, [], 12_500) == (0, 0)

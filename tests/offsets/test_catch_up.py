"""How many records a direct stream takes while it reads a backlog."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from kstream.batch import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.offsets.catch_up import CatchUp, Ceiling
from kstream.offsets.offset_range import OffsetRange

A, B = ("t", 0), ("t", 1)
INTERVAL = 1000


def at(number: int) -> Time:
    return Time(number * INTERVAL)


def ended(number: int, records: int, processing_ms: int) -> BatchInfo:
    begun = number * INTERVAL
    return BatchInfo(at(number), {0: StreamInputInfo(0, records)}, begun, begun, begun + processing_ms, {})


class Catching:
    """A CatchUp with a log of one partition, of which it plans batch after batch."""

    def __init__(self, waiting: int, first: int = 100, jobs: int = 1) -> None:
        self.catch_up = CatchUp(first, Duration(INTERVAL), jobs)
        self.end = waiting
        self.next = 0
        self.open: set[Time] = set()

    def plan(self, number: int, produced: int = 0) -> int:
        """Plan a batch; the number of its records. It runs until `ends` is called."""
        self.end += produced
        until = self.end
        for ceiling in self.catch_up.ceilings(at(number), self.open):
            until = ceiling.lowered({A: self.next}, {A: until})[A]
        self.catch_up.planned(at(number), [OffsetRange(*A, self.next, until)], {A: self.end})
        taken, self.next = until - self.next, until
        self.open.add(at(number))
        return taken

    def ends(self, number: int, records: int, processing_ms: int) -> None:
        """The batch ends, and all its outputs have succeeded."""
        self.open.discard(at(number))
        self.catch_up.completed(ended(number, records, processing_ms), 0, "Kafka[orders]")

    def fails(self, number: int) -> None:
        """The batch ends in failure, and nobody tries it again."""
        self.open.discard(at(number))
        failed = OutputOperationInfo(at(number), 0, "foreachRDD", "", 0, 1, "Traceback …")
        self.catch_up.completed(BatchInfo(at(number), {0: StreamInputInfo(0, 100)}, 0, 0, 1, {0: failed}), 0, "Kafka[orders]")


# -- the limits of one batch


def test_each_partition_has_its_limit() -> None:
    assert Ceiling(each=10).lowered({A: 5, B: 0}, {A: 100, B: 7}) == {A: 15, B: 7}


def test_partitions_share_a_total_by_their_lengths_and_no_record_is_left_over() -> None:
    assert Ceiling(total=10).lowered({A: 0, B: 0}, {A: 30, B: 10}) == {A: 7, B: 10 - 7}
    assert Ceiling(total=0).lowered({A: 3, B: 0}, {A: 30, B: 10}) == {A: 3, B: 0}
    assert Ceiling(total=100).lowered({A: 0}, {A: 30}) == {A: 30} and Ceiling().lowered({A: 0}, {A: 9}) == {A: 9}
    draw = random.Random(3)
    for _ in range(200):
        lengths = {("t", n): draw.randint(0, 50) for n in range(20)}
        total = draw.randint(0, sum(lengths.values()))
        shares = Ceiling(total=total).lowered(dict.fromkeys(lengths, 0), lengths)
        assert sum(shares.values()) == total and all(0 <= shares[p] <= lengths[p] for p in lengths)


# -- the backlog of a start


def test_the_first_batch_takes_a_fixed_number_and_the_next_ones_nothing_until_it_has_ended() -> None:
    stream = Catching(10_000)
    assert [stream.plan(number) for number in (1, 2, 3)] == [100, 0, 0]
    stream.ends(1, 100, 2500)
    assert stream.plan(4) == 34, "what fits 0.85 s at 40 a second"


def test_a_batch_takes_what_fits_its_interval_until_the_ends_are_reached() -> None:
    stream = Catching(1_000)
    stream.plan(1)
    stream.ends(1, 100, 200)
    assert [stream.plan(2), stream.catch_up.is_behind] == [425, True]
    stream.ends(2, 425, 850)
    assert [stream.plan(3), stream.catch_up.is_behind] == [425, True]
    stream.ends(3, 425, 850)
    assert [stream.plan(4), stream.catch_up.is_behind] == [50, False], "the rest"
    assert stream.plan(5, produced=1_000_000) == 1_000_000, "from now on nothing limits the stream"


def restarted(*batches: tuple[int, int], waiting: int = 100_000, first: int = 100_000) -> Catching:
    """A stream with a backlog, whose last driver has left batches of (records, milliseconds)."""
    stream = Catching(waiting, first=first)
    for records, processing_ms in batches:
        stream.catch_up.restored(ended(-10, records, processing_ms), 0)
    return stream


VARIED = tuple((records, 200 + records) for records in range(100, 500, 40))
"""Batches of a job that needs 0.2 s for itself and a millisecond for a record."""


def test_after_a_restart_the_first_batch_takes_what_the_last_driver_would_have_processed_in_some_seconds() -> None:
    stream = restarted(*VARIED)
    assert [stream.plan(number) for number in (1, 2, 3)] == [10_650, 0, 0], "ten seconds and the share of an interval, less 0.2 s"
    assert stream.catch_up.is_behind


def test_after_a_restart_the_fixed_number_still_holds() -> None:
    assert restarted(*VARIED, first=70).plan(1) == 70


def test_on_a_slower_machine_the_second_batch_of_a_restart_fits_its_interval() -> None:
    """The speed of the last driver counts for the first batch alone."""
    stream = restarted(*VARIED)
    assert stream.plan(1) == 10_650
    stream.ends(1, 10_650, 10 * 10_850)
    assert stream.plan(2) == 83


def test_after_a_restart_a_first_batch_that_failed_is_followed_by_one_as_large() -> None:
    stream = restarted(*VARIED)
    assert [stream.plan(1), stream.plan(2)] == [10_650, 0]
    stream.fails(1)
    assert stream.plan(3) == 10_650


def test_batches_of_equal_size_count_all_their_time_as_cost_of_records_with_some_room() -> None:
    assert restarted(*10 * [(500, 600)]).plan(1) == int(1.5 * 10_850 * 500 / 600)


def test_a_job_of_small_batches_catches_up_after_a_restart() -> None:
    """Nearly all of their time is the overhead of a batch, so records look dear."""
    stream = restarted(*10 * [(3, 300)])
    assert stream.plan(1) == 1000
    stream.ends(1, 1000, 2_800)
    number = 2
    while stream.catch_up.is_behind:
        taken = stream.plan(number, produced=2_000)
        stream.ends(number, taken, 300 + taken // 20)
        number += 1
    assert number < 25


def test_slow_batches_of_the_last_driver_do_not_make_the_first_one_smaller_than_they_were() -> None:
    """The sink was away, and each of the last batches waited a minute for it, one more than the other."""
    stream = restarted(*((records, 60_000 + 40 * records) for records in range(2_000, 4_500, 250)))
    assert stream.plan(1) == 3_000


def test_one_huge_batch_of_the_last_driver_does_not_make_the_first_one_huge() -> None:
    assert restarted((90_000, 600_000)).plan(1) == int(1.5 * 10_850 * 0.15)


def test_batches_of_the_last_driver_that_were_tried_again_show_no_speed() -> None:
    stream = Catching(10_000)
    stream.catch_up.restored(replace(ended(-10, 5_000, 10), tries=2), 0)
    assert stream.plan(1) == 100


def test_a_start_without_a_backlog_is_never_limited() -> None:
    stream = Catching(99)
    assert [stream.plan(1), stream.plan(2, produced=5_000)] == [99, 5_000]


def test_zero_switches_it_off() -> None:
    stream = Catching(1_000_000, first=0)
    assert stream.plan(1) == 1_000_000


def test_after_a_first_batch_that_failed_the_next_one_is_again_a_first_one() -> None:
    """Else the stream would wait for ever for its speed."""
    stream = Catching(10_000)
    assert [stream.plan(1), stream.plan(2)] == [100, 0]
    stream.fails(1)
    assert stream.plan(3) == 100


def test_a_batch_takes_nothing_while_an_earlier_one_is_late() -> None:
    stream = Catching(10_000)
    stream.plan(1)
    stream.ends(1, 100, 100)
    assert [stream.plan(number) for number in (2, 3, 4, 5)] == [850, 850, 0, 0]
    stream.ends(2, 850, 3500)
    assert stream.plan(6) == 0, "the other one is late as well"
    stream.ends(3, 850, 850)
    assert stream.plan(7) == 850


def test_a_batch_that_has_ended_makes_no_other_late_while_its_completion_is_stored() -> None:
    """It is open until then, and the stream has heard of its end before."""
    stream = Catching(10_000)
    stream.plan(1)
    stream.catch_up.completed(ended(1, 100, 100), 0, "")
    assert [stream.plan(2), stream.plan(3)] == [850, 850]


def test_a_first_batch_that_has_ended_without_a_speed_is_not_waited_for_while_its_completion_is_stored() -> None:
    stream = Catching(10_000)
    stream.plan(1)
    stream.catch_up.completed(ended(1, 100, -3000), 0, "")
    assert not stream.catch_up.is_measuring(stream.open)
    assert stream.plan(2) == 100


def test_an_empty_batch_and_one_of_another_stream_show_no_speed() -> None:
    stream = Catching(10_000)
    stream.plan(1)
    stream.catch_up.completed(ended(0, 0, 5), 0, "")
    stream.catch_up.completed(ended(0, 70, 5), 9, "")
    assert stream.plan(2) == 0


def test_a_long_pause_makes_a_stream_catch_up_again_at_the_known_speed() -> None:
    stream = Catching(10)
    stream.plan(1)
    stream.ends(1, 10, 10)
    assert stream.plan(11, produced=5_000) == 5_000, "ten intervals are no long pause"
    assert stream.plan(22, produced=5_000) == 850 and stream.catch_up.is_behind
    stream.ends(22, 850, 850)
    assert stream.plan(23) == 850


def test_the_time_until_it_has_caught_up_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stream = Catching(10_100)
    stream.plan(1)
    with caplog.at_level(logging.INFO, "kstream"):
        stream.ends(1, 100, 100)
        stream.plan(2)
        stream.ends(2, 850, 850)
    assert [record.message for record in caplog.records] == [
        "Kafka[orders] catches up: 10000 records wait, and the job has processed 1000 a second. A batch takes up to 850, for about 12 s"
    ]


def test_a_slow_job_is_not_said_to_process_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stream = Catching(1_000, first=1)
    stream.plan(1)
    with caplog.at_level(logging.INFO, "kstream"):
        stream.ends(1, 1, 2_500)
    assert "999 records wait, and the job has processed 0.4 a second" in caplog.text


def test_a_pending_batch_that_ends_before_the_first_plan_leaves_the_time_to_a_later_line(caplog: pytest.LogCaptureFixture) -> None:
    stream = Catching(10_100)
    with caplog.at_level(logging.INFO, "kstream"):
        stream.catch_up.completed(ended(0, 500, 500), 0, "Kafka[orders]")
        assert not caplog.records
        stream.plan(1)
        stream.ends(1, 100, 100)
    assert [record.message.split(":")[1].split(",")[0] for record in caplog.records] == [" 10000 records wait"]


def test_a_pending_batch_of_one_record_does_not_say_how_many_records_the_first_planned_one_may_have() -> None:
    """Workers start in it. A second batch of one record, and then of two, made a restart take minutes."""
    stream = Catching(10_000)
    stream.catch_up.completed(ended(0, 1, 20_000), 0, "Kafka[orders]")
    assert stream.plan(1) == 100
    stream.ends(1, 100, 200)
    assert stream.plan(2) >= 200


def test_while_the_first_batch_with_records_runs_the_stream_is_measuring() -> None:
    stream = Catching(10_000)
    assert not stream.catch_up.is_measuring(stream.open)
    stream.plan(1)
    assert stream.catch_up.is_measuring(stream.open) and not stream.catch_up.is_measuring(())
    stream.ends(1, 100, 100)
    assert not stream.catch_up.is_measuring(stream.open)


def test_a_first_batch_that_is_tried_again_is_not_waited_for() -> None:
    stream = Catching(10_000)
    stream.plan(1)
    stream.open.clear()
    assert [stream.plan(number) for number in (2, 3)] == [100, 0]


def test_a_batch_during_which_the_clock_was_set_back_shows_no_speed() -> None:
    stream = Catching(50_000_000, first=100_000)
    stream.plan(1)
    stream.ends(1, 100_000, -3000)
    assert stream.plan(2) == 100_000


def test_batches_that_run_side_by_side_are_not_late() -> None:
    stream = Catching(10_000, jobs=4)
    stream.plan(1)
    stream.ends(1, 100, 100)
    assert [stream.plan(number) for number in (2, 3, 4, 5, 6)] == [850] * 5
    assert stream.plan(7) == 0, "four run, and one is next"


# -- a whole backlog


@dataclass(frozen=True)
class Ran:
    """A batch of a job that reads a backlog. `end` is in milliseconds since the stream's start."""

    number: int
    records: int
    processing: float
    end: float

    @property
    def total_delay(self) -> float:
        return self.end - self.number * INTERVAL


def read_backlog(stream: Catching, processing: Callable[[int], float], produced: int = 0) -> list[Ran]:
    """Plan a batch each interval, and run them one after the other, until the stream is not behind.

    Args:
        stream: the stream.
        processing: records of a batch → its processing time in milliseconds; 0 if it is skipped, and has no job.
        produced: how many records arrive in an interval.

    Returns:
        All batches.
    """
    ran: list[Ran] = []
    running: list[Ran] = []
    free = 0.0
    while stream.catch_up.is_behind or not ran:
        number = len(ran) + 1
        now = number * INTERVAL
        for batch in [batch for batch in running if batch.end <= now]:
            stream.ends(batch.number, batch.records, round(batch.processing))
            running.remove(batch)
        records = stream.plan(number, produced)
        took = processing(records)
        free = max(free, now) + took
        ran.append(Ran(number, records, took, free))
        if took:
            running.append(ran[-1])
        else:
            stream.open.discard(at(number))
    return ran


def test_a_job_whose_batches_cost_more_than_an_interval_reads_its_backlog_in_large_batches() -> None:
    """Batches of ever fewer records would each cost as much, and never end."""
    ran = read_backlog(Catching(1_000_000, first=10_000), lambda records: 1500 + records // 20 if records else 0)
    assert len(ran) < 4 * 1_000_000 / 20_000, "no more than four times as long as one batch with all of them"


@pytest.mark.parametrize("seed", range(20))
def test_a_pause_of_the_machine_makes_no_later_batch_large(seed: int) -> None:
    """Every twentieth batch takes three seconds longer. What fits an interval are 42,500 records."""
    draw = random.Random(seed)

    def processing(records: int) -> float:
        pause = 3000 if draw.random() < 0.05 else 0
        return (100 + records / 50) * draw.lognormvariate(0, 0.1) + pause

    largest = max(batch.records for batch in read_backlog(Catching(5_000_000, first=10_000), processing))
    assert largest < 2 * 42_500, largest


@pytest.mark.parametrize("seed", range(20))
def test_ten_million_records_are_read_in_batches_that_end_within_two_intervals(seed: int) -> None:
    """A job that takes 100 ms and 20 µs a record, with noise of a tenth; jobs run one after the other."""
    draw, stream = random.Random(seed), Catching(10_000_000, first=100_000)
    ran = read_backlog(stream, lambda records: (100 + records / 50) * draw.lognormvariate(0, 0.1), produced=10_000)
    assert len(ran) < 1.5 * 10_000_000 / (40_000 - 10_000)
    assert max(batch.total_delay for batch in ran[1:]) < 2 * INTERVAL


@pytest.mark.parametrize("overhead", [0, 100, 500, 700, 800, 850, 870, 880, 900, 950, 1000, 1500])
def test_a_backlog_is_read_whatever_share_of_its_interval_a_batch_needs_for_itself(overhead: int) -> None:
    """Batches of ever fewer records, down to one, would never end it. A million records take five seconds here, and so do empty batches."""

    def batches(seed: int) -> int:
        draw, stream = random.Random(seed), Catching(1_000_000, first=10_000)
        return len(read_backlog(stream, lambda records: (overhead + records / 200) * draw.lognormvariate(0, 0.1)))

    assert max(map(batches, range(20))) < 250


def test_a_quiet_stream_beside_a_busy_one_reads_what_has_waited_for_it() -> None:
    """Its batches take as long with few records as with many, for most of the time is the other stream's."""
    stream = Catching(50, first=100_000)
    taken = stream.plan(1)
    for number in range(2, 6):
        stream.ends(number - 1, taken, 840)
        taken = stream.plan(number, produced=50)
    stream.ends(5, taken, 840)
    taken = stream.plan(40, produced=5_000)
    for number in range(41, 80):
        stream.ends(number - 1, taken, 840)
        taken = stream.plan(number, produced=50)
    assert not stream.catch_up.is_behind and taken == 50

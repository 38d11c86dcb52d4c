"""How many of the records that wait a batch may have, and why no more."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.batch import BatchInfo, InputFigures, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.offsets.admission_control import LARGEST_RECORD, AdmissionControl, AdmissionSettings
from kstream.offsets.offset_range import OffsetRange

A, B = ("t", 0), ("t", 1)
INTERVAL = 1000
MB = LARGEST_RECORD


def at(number: int) -> Time:
    return Time(number * INTERVAL)


class Admitting:
    """The AdmissionControl of a stream with two partitions, of which it plans batch after batch."""

    def __init__(self, **settings: Any) -> None:
        self.control = AdmissionControl(AdmissionSettings(**settings), Duration(INTERVAL))
        self.next = {A: 0, B: 0}
        self.number = 0

    def plan(self, **produced: int) -> int:
        """Plan the next batch after records were produced to `a` and `b`; the number of its records."""
        self.number += 1
        ends = {A: produced.get("a", self.next[A]), B: produced.get("b", self.next[B])}
        until = self.control.admit(at(self.number), self.next, ends, ())
        self.control.planned(at(self.number), [OffsetRange(*p, self.next[p], until[p]) for p in until], ends)
        taken = sum(until[p] - self.next[p] for p in until)
        self.next = until
        return taken

    def ends(self, records: int, processing_ms: int, num_bytes: int | None = None) -> None:
        info = StreamInputInfo(0, records, figures=InputFigures(bytes=num_bytes))
        begun = self.number * INTERVAL
        self.control.batch_completed(BatchInfo(at(self.number), {0: info}, begun, begun, begun + processing_ms, {}), 0, "Kafka[t]")

    @property
    def limits(self) -> Any:
        return self.control.limits_of(at(self.number))


def test_after_a_restart_the_limit_by_bytes_knows_how_long_the_records_are() -> None:
    stream = Admitting(max_bytes=10_000)
    before = BatchInfo(
        at(-5),
        {0: StreamInputInfo(0, 10, figures=InputFigures(bytes=1000)), 7: StreamInputInfo(7, 1, figures=InputFigures(bytes=9))},
        0,
        0,
        100,
        {},
    )
    newer = BatchInfo(at(-4), {7: StreamInputInfo(7, 1, figures=InputFigures(bytes=9))}, 0, 0, 100, {})
    stream.control.restore(lambda _: [before, newer], 0)
    assert stream.plan(a=1_000) == 100 and stream.limits["readLimit"]["reason"] == "maxBytesPerBatch"


def test_without_a_limit_that_needs_them_nobody_reads_the_last_batches() -> None:
    def read(stream_id: int) -> list[BatchInfo]:
        raise AssertionError("the store was asked")

    Admitting(backpressure=True, min_records=5).control.restore(read, 0)


def test_without_a_limit_a_batch_has_all_records_and_no_reason() -> None:
    stream = Admitting()
    assert stream.plan(a=10**9, b=3) == 10**9 + 3
    assert stream.limits == {}


@pytest.mark.parametrize(
    ("settings", "rate", "expected"),
    [
        ({"max_rate": lambda _: 3}, None, {"readLimit": {"reason": "maxRatePerPartition", "records": 6}}),
        ({"backpressure": True, "initial_rate": 10}, None, {"readLimit": {"reason": "initialRate", "records": 10}}),
        ({"backpressure": True}, 40, {"readLimit": {"reason": "backpressure", "records": 40}, "backpressureRate": 40}),
        ({"first_records": 20}, None, {"readLimit": {"reason": "firstBatchRecords", "records": 40}}),
        ({"max_bytes": 64 * MB}, None, {"readLimit": {"reason": "maxBytesPerBatch", "records": 64}}),
    ],
)
def test_the_progress_of_a_batch_names_the_limit_that_counts(settings: Any, rate: int | None, expected: Any) -> None:
    stream = Admitting(**settings)
    if rate is not None:
        stream.control.update_rate(rate)
    assert stream.plan(a=1000, b=1000) == expected["readLimit"]["records"]
    assert stream.limits == expected


def test_of_several_limits_the_lowest_counts_and_is_the_reason() -> None:
    stream = Admitting(max_rate=lambda _: 30, first_records=20, max_bytes=50 * MB)
    assert stream.plan(a=1000, b=1000) == 40
    assert stream.limits["readLimit"]["reason"] == "firstBatchRecords"
    stream = Admitting(max_rate=lambda _: 5, first_records=20, max_bytes=50 * MB)
    assert stream.plan(a=1000, b=1000) == 10
    assert stream.limits["readLimit"]["reason"] == "maxRatePerPartition"


def test_a_limit_that_a_batch_does_not_reach_is_no_reason() -> None:
    stream = Admitting(max_rate=lambda _: 30, max_bytes=100 * MB)
    assert stream.plan(a=10, b=10) == 20
    assert stream.limits == {}


def test_while_the_first_batch_runs_the_next_takes_none_and_says_so_and_then_what_fits() -> None:
    stream = Admitting(first_records=20)
    stream.plan(a=1000)
    assert stream.control.admit(at(2), stream.next, {A: 1000, B: 0}, [at(1)]) == stream.next
    assert stream.control.limits_of(at(2))["readLimit"] == {"reason": "firstBatchRuns", "records": 0}
    stream.ends(20, processing_ms=200)
    assert stream.plan(a=1000) == 85
    assert stream.limits["readLimit"] == {"reason": "catchUp", "records": 85}


def test_only_the_newest_batch_knows_its_limit() -> None:
    stream = Admitting(max_rate=lambda _: 3)
    stream.plan(a=100)
    stream.plan(a=3)
    assert stream.control.limits_of(at(1)) == {} and stream.limits == {}


# -- bytes


def test_the_most_bytes_of_a_batch_become_records_by_the_length_of_those_of_the_last_batch() -> None:
    stream = Admitting(max_bytes=10_000)
    assert stream.plan(a=1000) == 1, "the length is not known: a record may have a megabyte"
    stream.ends(1, 100, num_bytes=50)
    assert stream.plan(a=1000) == 200
    stream.ends(200, 100, num_bytes=200 * 1000)
    assert stream.plan(a=1000) == 10
    stream.ends(10, 100, num_bytes=None)
    assert stream.plan(a=1000) == 10, "a batch that nobody has read says nothing"


def test_a_record_that_is_longer_than_the_most_bytes_is_read_alone() -> None:
    stream = Admitting(max_bytes=10)
    stream.plan(a=1000)
    stream.ends(1, 100, num_bytes=50)
    assert stream.plan(a=1000) == 1


# -- small batches


def test_a_small_batch_waits_until_there_are_enough_records() -> None:
    stream = Admitting(min_records=10, max_wait_ms=60_000)
    stream.plan(a=10)
    assert [stream.plan(a=12), stream.plan(a=15)] == [0, 0]
    assert stream.limits["readLimit"] == {"reason": "minRecordsPerBatch", "records": 0}
    assert stream.plan(a=16, b=4) == 10
    assert stream.limits == {}


def test_a_small_batch_never_waits_longer_than_the_limit() -> None:
    """A record that a plan sees first may have come an interval before."""
    stream = Admitting(min_records=10, max_wait_ms=4 * INTERVAL)
    stream.plan(a=10)
    assert [stream.plan(a=11) for _ in range(4)] == [0, 0, 0, 1]
    assert [stream.plan(), stream.plan()] == [0, 0]
    assert stream.limits == {}, "without records nothing waits"
    assert [stream.plan(a=12) for _ in range(4)] == [0, 0, 0, 1], "the wait begins with the first record that waits"


@pytest.mark.parametrize("max_wait_ms", [0, INTERVAL, 2 * INTERVAL - 1])
def test_without_time_for_another_interval_nothing_waits(max_wait_ms: int) -> None:
    stream = Admitting(min_records=10, max_wait_ms=max_wait_ms)
    stream.plan(a=10)
    assert stream.plan(a=11) == 1


def test_the_first_records_after_a_start_never_wait_since_a_driver_may_die_again_and_again() -> None:
    assert Admitting(min_records=10, max_wait_ms=60_000).plan(a=1) == 1


def test_records_that_another_limit_holds_back_do_not_wait_for_more() -> None:
    stream = Admitting(min_records=10, max_wait_ms=60_000, max_rate=lambda _: 2)
    stream.plan(a=100)
    assert stream.plan(a=100) == 2


# -- missed batches of by-timestamp


def test_a_missed_batch_has_the_records_of_its_time_whatever_is_measured() -> None:
    stream = Admitting(backpressure=True, initial_rate=5, first_records=5, max_bytes=100, min_records=1000, max_wait_ms=60_000)
    stream.control.update_rate(1)
    assert stream.control.admit_missed(at(1), {A: 0, B: 0}, {A: 50, B: 20}) == {A: 50, B: 20}


def test_the_users_maximum_rate_limits_a_missed_batch_too() -> None:
    stream = Admitting(max_rate=lambda _: 3, caps_rates=True)
    assert stream.control.admit_missed(at(1), {A: 0, B: 0}, {A: 50, B: 2}) == {A: 3, B: 2} and stream.control.caps_rates
    assert stream.control.limits_of(at(1)) == {"readLimit": {"reason": "maxRatePerPartition", "records": 5}}


def test_under_back_pressure_a_batch_takes_nothing_while_an_earlier_one_is_two_intervals_late() -> None:
    stream = Admitting(backpressure=True)
    assert stream.control.admit(at(5), {A: 0}, {A: 10}, [at(4)]) == {A: 10}
    assert stream.control.admit(at(5), {A: 0}, {A: 10}, [at(3), at(4)]) == {A: 0}
    assert stream.control.limits_of(at(5))["readLimit"] == {"reason": "lateBatches", "records": 0}
    assert Admitting().control.admit(at(5), {A: 0}, {A: 10}, [at(1)]) == {A: 10}, "Spark's, without back-pressure"


def test_empty_batches_that_are_late_do_not_stop_the_reading() -> None:
    """The job is too slow for its interval with any number of records, and empty batches would help nobody."""
    stream = Admitting(backpressure=True)
    for number, records in (1, 0), (2, 5):
        stream.control.planned(at(number), [OffsetRange(*A, 0, records)], {A: 10})
    assert stream.control.admit(at(5), {A: 5}, {A: 10}, [at(1), at(2)]) == {A: 10}
    assert stream.control.admit(at(5), {A: 5}, {A: 10}, [at(2), at(3)]) == {A: 5}


def test_batches_that_run_side_by_side_are_not_late() -> None:
    stream = Admitting(backpressure=True, concurrent_jobs=3)
    assert stream.control.admit(at(5), {A: 0}, {A: 10}, [at(2), at(3), at(4)]) == {A: 10}
    assert stream.control.admit(at(5), {A: 0}, {A: 10}, [at(1), at(2), at(3), at(4)]) == {A: 0}


def test_the_maximum_rate_is_the_reason_if_it_is_below_the_rate_of_back_pressure() -> None:
    stream = Admitting(backpressure=True, max_rate=lambda _: 10, caps_rates=True)
    stream.control.update_rate(1_000_000)
    assert stream.plan(a=500) == 10 and stream.limits["readLimit"]["reason"] == "maxRatePerPartition"
    stream.control.update_rate(5)
    assert stream.plan(a=500) == 5 and stream.limits["readLimit"]["reason"] == "backpressure"

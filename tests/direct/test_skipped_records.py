"""A batch leaves out exactly the records that it shall skip, and counts the others: the direct stream of any Log."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.batch import InputOutcome, SkippedRecord
from kstream.batch_time import Time
from kstream.dstream.ports import InputServices
from kstream.errors import DataLossError
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import counts_of
from kstream.testing.input_dstream_contract import ZERO, batch_time
from tests.direct.memory_log import A, B, MemoryLog, MemoryStream
from tests.fakes import FakeHost


def skipped(*offsets: int, partition: tuple[str, int] = A) -> list[SkippedRecord]:
    return [SkippedRecord(0, *partition, offset) for offset in offsets]


@pytest.mark.parametrize(
    ("offsets", "left"),
    [
        ([], [(2, 6)]),
        ([3], [(2, 3), (4, 6)]),
        ([2], [(3, 6)]),
        ([5], [(2, 5)]),
        ([3, 4], [(2, 3), (5, 6)]),
        ([2, 3, 4, 5], []),
        ([1, 6, 99], [(2, 6)]),
    ],
)
def test_the_parts_of_a_range_around_offsets_are_the_range_without_them(offsets: list[int], left: list[tuple[int, int]]) -> None:
    assert [(r.fromOffset, r.untilOffset) for r in OffsetRange("t", 0, 2, 6).without(offsets)] == left


def test_an_empty_range_has_nothing_to_leave_out() -> None:
    assert OffsetRange("t", 0, 5, 5).without([5]) == [OffsetRange("t", 0, 5, 5)]


def test_the_count_of_a_range_is_that_of_its_parts_and_a_skipped_record_is_no_gap() -> None:
    whole = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 0, 1)]
    counts = {("t", 0, 0): (3, 3), ("t", 0, 4): (10, 6)}
    records = [SkippedRecord(0, "t", 0, 3), SkippedRecord(0, "t", 1, 0)]
    assert counts_of(whole, counts, records) == [9, 0]
    assert counts_of(whole, counts) == [None, None]


def started(log: MemoryLog, most: int = 0) -> MemoryStream:
    stream = MemoryStream(FakeHost({}), log, "earliest", most)
    stream.initialize(Time(ZERO))
    stream.start(InputServices())
    return stream


def planned(stream: MemoryStream, number: int) -> Time:
    time = batch_time(number)
    plan = stream.plan(time)
    stream.remember_plan(time, plan)
    stream.planned(time, plan)
    return time


def read(stream: MemoryStream, time: Time) -> list[Any]:
    rdd: Any = stream.compute(time)
    return rdd.collect()


def outcome(stream: MemoryStream, time: Time) -> InputOutcome:
    found = stream.outcome_of(time)
    assert found is not None
    return found


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_batch_leaves_out_that_record_and_no_other_and_says_so(most: int) -> None:
    stream = started(MemoryLog({A: [(0, f"a{n}") for n in range(8)], B: [(0, f"b{n}") for n in range(8)]}), most)
    time = planned(stream, 1)
    stored = stream._plans[time].encode()
    assert len(read(stream, time)) == 16
    stream.leave_out(time, skipped(5))
    assert sorted(read(stream, time)) == sorted([*(f"a{n}" for n in range(8) if n != 5), *(f"b{n}" for n in range(8))])
    assert outcome(stream, time).skipped == skipped(5)
    assert stream._plans[time].encode() == stored, "the ranges never change"


@pytest.mark.parametrize("offsets", [(5,), (0, 5)])
def test_counts_of_a_try_with_the_record_do_not_count_after_it_was_left_out(offsets: tuple[int, ...]) -> None:
    stream = started(MemoryLog({A: [(0, n) for n in range(8)]}))
    time = planned(stream, 1)
    read(stream, time)
    stream.leave_out(time, skipped(*offsets))
    read(stream, time)
    found = outcome(stream, time)
    assert (found.counts, found.lost) == ([8 - len(offsets)], [])


def test_the_next_batch_begins_where_it_would_have_begun() -> None:
    log = MemoryLog({A: [(0, n) for n in range(8)]})
    stream = started(log)
    time = planned(stream, 1)
    stream.leave_out(time, skipped(7))
    log.add(A, 8, 9, at_ms=0)
    assert read(stream, planned(stream, 2)) == [8, 9]


def test_a_record_that_is_gone_beside_the_skipped_one_is_still_a_loss() -> None:
    log = MemoryLog({A: [(0, n) for n in range(8)]})
    stream = started(log)
    time = planned(stream, 1)
    stream.leave_out(time, skipped(5))
    log.first[A] = 2
    with pytest.raises(DataLossError):
        read(stream, time)
    log.first[A] = 0
    stream.leave_out(time, skipped(*range(2)))
    log.first[A] = 2
    assert read(stream, time) == [2, 3, 4, 5, 6, 7], "a record that is left out is not read, so its loss is none"

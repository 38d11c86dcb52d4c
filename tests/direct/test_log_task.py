"""The records of a task of a Log, and which one is the current one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kstream.direct.log_rdd import LogTask
from kstream.offsets.offset_range import OffsetRange
from kstream.worker.current_record import begin_task, current_record
from tests.direct.memory_log import A, MemoryLog
from tests.fakes import fake_reports

RANGE = OffsetRange("t", 0, 2, 5)


class GappyLog(MemoryLog):
    offsets_have_gaps = True


@pytest.fixture(autouse=True)
def worker() -> Iterator[None]:
    begin_task()
    yield
    begin_task()


def task_of(log: MemoryLog) -> LogTask:
    return LogTask(log, ((RANGE,),), 0, False, fake_reports().accumulator, pause=lambda _s: None)


def test_each_record_finds_its_offset() -> None:
    found = [(value, str(current_record())) for value in task_of(MemoryLog({A: [(0, n) for n in range(9)]}))(0)]
    assert found == [(2, "t-0@2"), (3, "t-0@3"), (4, "t-0@4")] and current_record() is None


def test_in_a_log_with_gaps_a_record_finds_its_position_only() -> None:
    next(task := task_of(GappyLog({A: [(0, n) for n in range(9)]}))(0))
    record = current_record()
    assert record is not None and record.offset is None and str(record).endswith("[2 -> 5]), position 0")
    del task


def test_a_log_that_fails_blames_no_record() -> None:
    task = task_of(MemoryLog({A: [(0, n) for n in range(9)]}, problems=[ValueError("disk")]))(0)
    next(task)
    assert str(current_record()) == "t-0@2"
    with pytest.raises(ValueError, match="disk"):
        next(task)
    assert current_record() is None

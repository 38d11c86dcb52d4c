"""What tasks report, changed by three threads at once: nothing is lost, whichever comes first."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.direct import read_report_accumulator
from kstream.direct.read_report_accumulator import ReadReportParam
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport, ReportData, bytes_of, merge, oldest_of
from tests.fakes import fake_reports

PATIENCE = 20.0


class WatchedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, waiting: threading.Event) -> None:
        self._lock, self._waiting = threading.Lock(), waiting

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waiting.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Meeting:
    """Findings, and another thread that comes in the middle of a call: it is let in once, and runs until it has ended or has to wait."""

    def __init__(self) -> None:
        self.report = fake_reports()
        self._stopped = threading.Event()
        lock: Any = WatchedLock(self._stopped)
        self.report.param.lock = lock
        self.other: Callable[[], Any] = lambda: None
        self.result: Any = None
        self._thread: threading.Thread | None = None

    def let_in(self) -> None:
        """Called from the middle of a call of this thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run)
            self._thread.start()
            assert self._stopped.wait(PATIENCE)

    def _run(self) -> None:
        try:
            self.result = self.other()
        finally:
            self._stopped.set()

    def end(self) -> None:
        assert self._thread is not None, "the other thread was never let in"
        self._thread.join(PATIENCE)


class Doors(dict[Any, Any]):
    """A dict that lets the other thread in before `door` is called with `key`."""

    def __init__(self, values: dict[Any, Any], meeting: Meeting, door: str, key: Any) -> None:
        super().__init__(values)
        self._meeting, self._door = meeting, (door, key)

    def _pass(self, door: str, key: Any) -> None:
        if self._door == (door, key):
            self._meeting.let_in()

    def __getitem__(self, key: Any) -> Any:
        self._pass("getitem", key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._pass("setitem", key)
        super().__setitem__(key, value)

    def get(self, key: Any, default: Any = None) -> Any:
        self._pass("get", key)
        return super().get(key, default)


def lost(offset: int) -> dict[str, Any]:
    return {"lost": {("t", 0, offset): (offset + 1, "retention", "")}}


def offsets(*taken: dict[str, Any]) -> list[int]:
    return sorted(place[2] for found in taken for place in found["lost"])


@pytest.fixture
def meeting() -> Meeting:
    return Meeting()


def test_a_loss_of_an_older_batch_that_comes_while_its_losses_are_taken_is_taken_by_this_batch_or_the_next(meeting: Meeting) -> None:
    """It was merged into the dict that `take` had just copied and was about to replace."""
    report = meeting.report
    report.accumulator.add({1: lost(5)})
    report.accumulator.value[1] = Doors(report.accumulator.value[1], meeting, "setitem", "lost")
    meeting.other = lambda: report.accumulator.add({1: lost(7)})
    taken = report.take(2)
    meeting.end()
    assert offsets(taken, report.take(3)) == [5, 7]


def test_a_batch_that_is_forgotten_while_another_one_takes_its_findings_is_no_error(meeting: Meeting) -> None:
    """`forget` removed the older batch after `take` had listed it: a KeyError, and a good batch stayed pending."""
    report = meeting.report
    report.accumulator.add({1: lost(5), 2: lost(9)})
    report.accumulator.value = Doors(report.accumulator.value, meeting, "getitem", 1)
    meeting.other = lambda: report.forget(1)
    assert offsets(report.take(2)) == [5, 9]
    meeting.end()
    assert offsets(report.take(3)) == []


def test_a_loss_that_comes_while_its_batch_is_taken_is_taken_with_it_or_with_a_later_one(meeting: Meeting) -> None:
    """It was merged into an entry that `take` had removed meanwhile."""
    report = meeting.report
    report.accumulator.add({1: lost(5)})
    meeting.other = lambda: report.take(1)
    report.accumulator.add({1: Doors(lost(7), meeting, "get", "counts")})
    meeting.end()
    assert offsets(meeting.result, report.take(2)) == [5, 7]


def test_of_a_batch_that_is_read_again_without_a_record_only_the_losses_stay(meeting: Meeting) -> None:
    start, kind = ("t", 0, 0), ("transformation", "ValueError")
    meeting.report.accumulator.add(
        {1: {"counts": {start: (8, 8)}, "bytes": {start: (8, 99)}, "errors": {start: {kind: (1, 5)}}, **lost(5)}}
    )
    meeting.report.drop_counts(1)
    assert meeting.report.take(1) == {"counts": {}, **lost(5)}


def test_the_letters_of_a_batch_are_those_of_all_its_tasks_and_stay_when_it_is_read_again(meeting: Meeting) -> None:
    report, decode, parse = meeting.report, ("t", 0, "valueDecoder"), ("t", 0, "map at job.py:7")
    for letters in {decode: {5}}, {decode: {7}, parse: {5}}:
        report.accumulator.add({1: {"letters": letters}})
    report.drop_counts(1)
    assert report.letters_until(1) == {1: {decode: {5, 7}, parse: {5}}} and report.letters_until(0) == {}
    report.letters_until(1)[1][decode].add(9)
    assert report.letters_until(1)[1][decode] == {5, 7}


def test_the_letters_of_ended_batches_are_known_for_later_ones_until_these_batches_are_forgotten(meeting: Meeting) -> None:
    report, parse = meeting.report, ("t", 0, "map at job.py:7")
    report.accumulator.add({time: {"letters": {parse: {time}}} for time in (1, 2, 3)})
    assert report.take(1)["letters"] == {parse: {1}} and report.take(1) == {"counts": {}, "lost": {}}
    report.accumulator.add({1: {"letters": {parse: {11}}}})  # of a window
    assert report.letters_until(2) == {2: {parse: {2}}, 1: {parse: {1, 11}}}
    report.take(2)
    report.forget(2, [Time(2)])
    assert report.letters_until(3) == {3: {parse: {3}}, 2: {parse: {2}}}


def test_of_many_letters_those_of_the_newest_batches_are_told_and_kept(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_report_accumulator, "MOST_TOLD", 5)
    report, parse = meeting.report, ("t", 0, "map at job.py:7")
    report.accumulator.add({time: {"letters": {parse: set(range(number))}} for time, number in ((1, 2), (2, 2), (3, 6), (4, 2))})
    assert list(report.letters_until(4)) == [4, 2]
    for time in 1, 2, 3, 4:
        report.take(time)
    assert list(report.letters_until(9)) == [4, 2]
    report.forget(4, [Time(1), Time(3)])
    assert report.letters_until(9) == {}


def test_a_report_whose_reader_fails_is_there_when_it_is_asked_for_again(meeting: Meeting) -> None:
    report = meeting.report
    start = ("t", 0, 0)
    report.accumulator.add({1: {"counts": {start: (8, 8)}, **lost(5)}})
    with pytest.raises(ZeroDivisionError), report.taken(1):
        report.accumulator.add({1: lost(7)})
        raise ZeroDivisionError
    with report.taken(1) as found:
        assert found["counts"] == {start: (8, 8)} and offsets(found) == [5, 7]
    assert report.take(1) == {"counts": {}, "lost": {}}


def test_the_report_of_a_batch_whose_plan_is_kept_is_not_forgotten(meeting: Meeting) -> None:
    for time_ms in (1, 2, 3):
        meeting.report.accumulator.add({time_ms: lost(time_ms)})
    meeting.report.forget(2, [Time(1)])
    assert [offsets(meeting.report.take(time_ms)) for time_ms in (3, 2, 1)] == [[1, 3], [], []]


def test_tasks_get_a_copy_that_can_be_pickled() -> None:
    merging = pickle.loads(pickle.dumps(ReadReportParam()))
    assert merging.addInPlace(merging.zero({}), {1: lost(5)})[1]["lost"] == lost(5)["lost"]


# -- bytes


def test_the_bytes_of_a_batch_are_those_of_its_tasks_and_a_task_that_ran_twice_counts_once() -> None:
    def of_a_task(start: int, records: int, num_bytes: int) -> ReportData:
        report = ReadReport()
        report.record_length(OffsetRange("t", 0, start, start + records), records, num_bytes)
        return report.to_plain()

    found = merge({}, {1000: of_a_task(0, 10, 500)})
    for again in (of_a_task(0, 10, 500), of_a_task(10, 5, 70)):
        merge(found, {1000: again})
    assert bytes_of(found[1000], 15) == 570


def test_the_oldest_timestamp_of_a_batch_is_that_of_all_its_tasks() -> None:
    report = ReadReport()
    for partition, moment in ((0, 500), (1, 300)):
        report.record_time(OffsetRange("t", partition, 0, 9), moment)
    assert report.to_plain() == {"oldest": {("t", 0, 0): 300}}
    found = merge(merge({}, {1000: report.to_plain()}), {1000: {"oldest": {("t", 2, 0): 400}}})
    assert oldest_of(found[1000]) == 300 and oldest_of({}) is None


def test_records_that_no_task_has_read_count_as_long_as_the_others() -> None:
    report = ReadReport()
    for split in OffsetRange("t", 0, 0, 9), OffsetRange("t", 1, 0, 9):
        report.record_length(split, 5, 500)
    assert report.to_plain() == {"bytes": {("t", 0, 0): (10, 1000)}}
    assert bytes_of(report.to_plain(), 1000) == 100_000


def test_a_task_that_stopped_early_and_one_that_read_on_count_once() -> None:
    start = ("t", 0, 0)
    for first, second in ((10, 500), (90, 4500)), ((90, 4500), (10, 500)):
        found = merge(merge({}, {1: {"bytes": {start: first}}}), {1: {"bytes": {start: second}}})
        assert found[1]["bytes"] == {start: (90, 4500)}


def test_a_reader_that_does_not_look_at_the_length_reports_no_bytes() -> None:
    report = ReadReport()
    report.record_read(OffsetRange("t", 0, 0, 3), 3)
    assert bytes_of(report.to_plain(), 3) is None

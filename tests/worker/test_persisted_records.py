"""Operators behind Spark's storage: the record of the source that failed is found by computing the partition again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kstream.worker.current_record import CurrentRecord, begin_task, between_chunks, current_record, hand_out, reading
from kstream.worker.persisted_records import from_storage
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy, TaskErrors, in_this_task
from kstream.worker.record_failure import TRANSFORMATION, RecordFailure, RecordStep
from kstream.worker.tolerant_operators import OPERATORS

BEFORE = RecordStep(TRANSFORMATION, "flatMap at job.py:6", "job.numbers")
STEP = RecordStep(TRANSFORMATION, "map at job.py:7", "job.inverse")


@pytest.fixture(autouse=True)
def no_record() -> Iterator[None]:
    begin_task()
    yield
    begin_task()


class Source:
    """A partition of records with numbers in them, and a persisted stream of these numbers. Records that have others are left out."""

    def __init__(self, *chunks: list[str]) -> None:
        self.chunks = chunks
        self.read = 0
        self.letters: list[tuple[int | None, RecordStep]] = []
        self.ended: list[TaskErrors] = []

    def compute(self, index: int, nothing: Iterable[Any]) -> Iterable[Any]:
        assert index == 4 and list(nothing) == []
        begin_task()
        return OPERATORS["flatMap"](lambda text: map(int, text.split()), BEFORE, self._records())

    def _records(self) -> Iterator[str]:
        errors = TaskErrors(ErrorsPolicy(ErrorLimit(1, 100), self))
        before = 0
        try:
            with reading(), in_this_task(errors):
                for chunk in self.chunks:
                    self.read += len(chunk)
                    yield from hand_out(chunk, lambda at, before=before: CurrentRecord("t", 4, before + at))
                    between_chunks()
                    before += len(chunk)
        finally:
            self.ended.append(errors)

    def open(self, task: int) -> Source:
        return self

    def write(self, failure: RecordFailure) -> None:
        self.letters.append((failure.record.offset, failure.step))

    def flush(self) -> None: ...


def inverses(source: Source, stored: list[Any]) -> list[Any]:
    return list(OPERATORS["map"](lambda number: 1 / number, STEP, from_storage(source.compute, 4, iter(stored))))


def test_the_record_that_fails_behind_storage_is_left_out_with_its_own_letter() -> None:
    source = Source(["1 0 2", "x", "4"], ["5", "0 0", "8"])
    assert inverses(source, [1, 0, 2, 4, 5, 0, 0, 8]) == [1, 1 / 2, 1 / 4, 1 / 5, 1 / 8]
    assert source.letters == [(0, STEP), (4, STEP)]
    (errors,) = source.ended
    assert errors.kinds == {
        (STEP.operator, "ZeroDivisionError"): (2, "t-4@0: division by zero"),
        (BEFORE.operator, "ValueError"): (1, "t-4@1: invalid literal for int() with base 10: 'x'"),
    }


def test_a_partition_is_computed_only_for_a_failure_and_only_up_to_it() -> None:
    source = Source(["1", "2"], ["0", "4"], ["5", "6"])
    assert len(inverses(source, [1, 2])) == 2 and source.read == 0
    assert len(inverses(source, [1, 2, 0, 4, 5, 6])) == 5 and source.read == 4


def test_operators_one_after_the_other_behind_storage_leave_out_the_record_of_the_source() -> None:
    source = Source(["1 2", "3", "4"])
    elements = OPERATORS["flatMap"](lambda number: [number] * 2, BEFORE, from_storage(source.compute, 4, iter([1, 2, 3, 4])))
    assert list(OPERATORS["map"](lambda number: 1 / (number - 3), STEP, elements)) == [-1 / 2, -1 / 2, -1, -1, 1, 1]
    assert source.letters == [(1, STEP)]


@pytest.mark.parametrize("chunks", [["7 7", "9"], ["1"], []], ids=["another element", "fewer elements", "none"])
def test_where_the_source_gives_another_element_the_record_is_not_known_and_the_error_is_raised(chunks: list[str]) -> None:
    source = Source(chunks)
    with pytest.raises(ZeroDivisionError):
        inverses(source, [1, 0])
    assert source.letters == []


def test_where_the_source_cannot_be_read_the_error_of_the_function_is_raised() -> None:
    def away(_index: int, _nothing: Iterable[Any]) -> Iterable[Any]:
        raise ConnectionError("no broker")

    with pytest.raises(ZeroDivisionError):
        list(OPERATORS["map"](lambda number: 1 / number, STEP, from_storage(away, 4, iter([0]))))


def test_without_a_policy_of_the_source_the_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(OPERATORS["map"](lambda number: 1 / number, STEP, from_storage(lambda _index, _nothing: [0], 4, iter([0]))))


class Mute:
    """An element without `==`."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_elements_that_cannot_be_compared_are_compared_as_storage_has_them() -> None:
    def compute(_index: int, _nothing: Iterable[Any]) -> Iterator[Any]:
        return hand_out([Mute(0), Mute(1)], lambda at: CurrentRecord("t", 4, at))

    found = [(element.number, str(current_record())) for element in from_storage(compute, 4, iter([Mute(0), Mute(1)]))]
    assert found == [(0, "t-4@0"), (1, "t-4@1")]
    assert [current_record() for _ in from_storage(compute, 4, iter([Mute(5)]))] == [None]

"""Operators on records under a policy, over a reader that hands out records one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kstream.worker.current_record import CurrentRecord, begin_task, between_chunks, hand_out
from kstream.worker.record_errors import ErrorLimit, ErrorsPolicy, TaskErrors, in_this_task
from kstream.worker.record_failure import TRANSFORMATION, RecordStep
from kstream.worker.tolerant_operators import OPERATORS

STEP = RecordStep(TRANSFORMATION, "map at job.py:7", "job.parse")


@pytest.fixture(autouse=True)
def no_record() -> Iterator[None]:
    begin_task()
    yield
    begin_task()


def reader(chunks: list[list[Any]]) -> Iterator[Any]:
    """What a task reads: the offset of a record is its number."""
    before = 0
    for chunk in chunks:
        yield from hand_out(chunk, lambda at, before=before: CurrentRecord("t", 0, before + at))
        between_chunks()
        before += len(chunk)


def run(name: str, f: Any, records: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """The elements, and the records that were left out."""
    left_out: list[str] = []

    class Noting(TaskErrors):
        def tolerate(self, error: Exception, record: CurrentRecord, step: RecordStep) -> None:
            super().tolerate(error, record, step)
            left_out.append(f"{record} {type(error).__name__} {step.operator}")

    with in_this_task(Noting(ErrorsPolicy(ErrorLimit(1, 100)))):
        return list(OPERATORS[name](f, STEP, records)), left_out


def halves(text: str) -> Iterator[int]:
    yield from map(int, text.split())


@pytest.mark.parametrize(
    ("name", "f", "records", "elements", "failed"),
    [
        ("map", int, ["1", "x", "3", "4"], [1, 3, 4], 1),
        ("flatMap", halves, ["1 2", "3 x", "4", ""], [1, 2, 4], 1),
        ("filter", lambda text: int(text) > 2, ["1", "x", "3", "4"], ["3", "4"], 1),
        ("mapValues", int, [("a", "1"), ("b", "x"), ("c", "3"), ("d", "4")], [("a", 1), ("c", 3), ("d", 4)], 1),
        ("flatMapValues", halves, [("a", "1 2"), ("b", "3 x"), ("c", "4"), ("d", "")], [("a", 1), ("a", 2), ("c", 4)], 1),
    ],
)
def test_a_record_for_which_the_function_fails_is_left_out_whole(
    name: str, f: Any, records: list[Any], elements: list[Any], failed: int
) -> None:
    made, left_out = run(name, f, reader([records[:3], records[3:]]))
    assert made == elements
    assert left_out == [f"t-0@{failed} ValueError map at job.py:7"]


def test_operators_one_after_the_other_leave_out_the_record_of_the_source() -> None:
    inner = OPERATORS["flatMap"](str.split, STEP, reader([["1 2", "a b", "3"]]))
    made, left_out = run("map", int, inner)
    assert made == [1, 2, 3]
    assert left_out[0] == "t-0@1 ValueError map at job.py:7"


def test_an_error_of_the_reader_is_no_record_error() -> None:
    def broken() -> Iterator[str]:
        yield from reader([["1"]])
        raise ValueError("the broker")

    with pytest.raises(ValueError, match="the broker"):
        run("map", int, broken())


def test_where_the_record_is_not_known_the_error_is_raised() -> None:
    with pytest.raises(ValueError, match="'x'"):
        run("map", int, ["x"])


def test_without_a_policy_in_the_task_the_error_is_raised() -> None:
    with pytest.raises(ValueError, match="'x'"):
        list(OPERATORS["map"](int, STEP, reader([["x"]])))


def test_a_reader_that_is_abandoned_and_ends_late_leaves_the_next_task_its_policy() -> None:
    first, second = TaskErrors(ErrorsPolicy(ErrorLimit(1, 100))), TaskErrors(ErrorsPolicy(ErrorLimit(1, 100)))
    abandoned = in_this_task(first)
    abandoned.__enter__()
    with in_this_task(second):
        abandoned.__exit__(None, None, None)
        assert list(OPERATORS["map"](int, STEP, reader([["x", "1"]]))) == [1]
    assert second.count == 1 and first.count == 0

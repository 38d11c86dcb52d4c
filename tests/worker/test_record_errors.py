"""Which error is a record's, what is counted, and when a task gives up."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kstream.errors import DataLossError, TooManyRecordErrorsError
from kstream.worker import record_errors, record_failure
from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_errors import OTHER, ErrorLimit, ErrorsPolicy, StoredLetters, TaskErrors, make_one_by_one
from kstream.worker.record_failure import VALUE_CONVERTER, RecordFailure, RecordStep, failure_of, name_of

DECODE = RecordStep(VALUE_CONVERTER, "valueDecoder", "json.loads")
PARSE = RecordStep("TRANSFORMATION", "map at job.py:7", "job.parse")
ANY_NUMBER = ErrorLimit(1.0, 10**9)


class Letters:
    """Dead letters in a list, and what was flushed of them."""

    def __init__(self) -> None:
        self.written: list[RecordFailure] = []
        self.tasks: list[int] = []
        self.flushed = 0

    def open(self, task: int) -> Letters:
        self.tasks.append(task)
        return self

    def write(self, failure: RecordFailure) -> None:
        self.written.append(failure)

    def flush(self) -> None:
        self.flushed = len(self.written)


def caught(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as e:
        return e
    raise AssertionError("nothing was raised")


def at(offset: int, raw: Any = None) -> CurrentRecord:
    return CurrentRecord("orders", 0, offset, raw=raw)


def bad() -> Exception:
    return caught(lambda: json.loads("{"))


def test_records_that_fail_are_counted_by_the_kind_of_their_error_and_the_first_is_named() -> None:
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER))
    for offset in 17, 20:
        errors.tolerate(bad(), at(offset), DECODE)
    errors.tolerate(KeyError("price"), at(21), PARSE)
    assert errors.count == 3
    assert errors.kinds == {
        ("valueDecoder", "JSONDecodeError"): (2, f"orders-0@17: {bad()}"),
        ("map at job.py:7", "KeyError"): (1, "orders-0@21: 'price'"),
    }


def test_a_record_that_fails_for_several_of_its_elements_counts_once_with_its_first_error() -> None:
    letters = Letters()
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER, letters), 3)
    errors.tolerate(ValueError("one"), at(5, "raw"), PARSE)
    errors.tolerate(ValueError("two"), at(5, "raw"), PARSE)
    assert errors.count == 1
    assert [(failure.record.raw, failure.message) for failure in letters.written] == [("raw", "one")]


def test_dead_letters_are_opened_by_the_first_one_and_flushed_at_the_end_of_the_task() -> None:
    letters = Letters()
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER, letters), 3)
    errors.flush()
    assert letters.tasks == []
    errors.tolerate(bad(), at(5), DECODE)
    errors.tolerate(bad(), at(6), DECODE)
    errors.flush()
    assert letters.tasks == [3] and letters.flushed == 2


def test_a_record_whose_letter_an_earlier_output_has_stored_is_counted_and_not_written_again() -> None:
    letters = Letters()
    stored: StoredLetters = {("orders", 0, DECODE.operator): {5}}
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER, letters), 3, lambda: stored)
    errors.tolerate(bad(), at(5), DECODE)
    assert errors.count == 1 and letters.tasks == [] and errors.letters == {}
    errors.tolerate(bad(), at(6), DECODE)
    errors.tolerate(KeyError("price"), at(5), PARSE)
    assert errors.count == 3
    assert [(failure.record.offset, failure.step) for failure in letters.written] == [(6, DECODE), (5, PARSE)]
    assert errors.letters == {("orders", 0, DECODE.operator): {6}, ("orders", 0, PARSE.operator): {5}}


OTHERS = [DataLossError("gone"), MemoryError(), ImportError("no"), ConnectionResetError(), TimeoutError()]


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_an_error_for_which_no_record_is_to_blame_is_raised(error: Exception) -> None:
    letters = Letters()
    with pytest.raises(type(error)):
        TaskErrors(ErrorsPolicy(ANY_NUMBER, letters)).tolerate(error, at(1), PARSE)
    assert letters.written == []


def test_a_task_gives_up_as_soon_as_its_own_errors_are_too_many_for_the_whole_batch() -> None:
    errors = TaskErrors(ErrorsPolicy(ErrorLimit(0.1, 200)))
    for offset in range(20):
        errors.tolerate(KeyError("price"), at(offset), PARSE)
    with pytest.raises(TooManyRecordErrorsError, match=r"21 of the 200 .*Ratio=0.1 .*KeyError in map at job.py:7, orders-0@0: 'p"):
        errors.tolerate(KeyError("price"), at(20), PARSE)


def test_a_batch_of_few_records_counts_as_one_of_a_hundred() -> None:
    limit = ErrorLimit(0.1, 3)
    assert not limit.is_passed_by(3) and not limit.is_passed_by(10) and limit.is_passed_by(11)
    assert ErrorLimit(0.0, 3).is_passed_by(1)
    assert not ErrorLimit(1.0, 150).is_passed_by(150)


def test_more_kinds_than_a_report_should_hold_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_errors, "MOST_KINDS", 2)
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER))
    for offset in range(5):
        errors.tolerate(ValueError(), at(offset), RecordStep("TRANSFORMATION", f"map at {offset}", "f"))
    assert [records for records, _ in errors.kinds.values()] == [1, 1, 3]
    assert errors.kinds[OTHER][1].startswith("orders-0@2")


# -- the description of a failure


def parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise LookupError("no order") from e


def test_a_stack_trace_has_the_frames_of_the_user_and_the_causes_as_python_prints_them() -> None:
    failure = failure_of(caught(lambda: parse("{")), at(1), PARSE)
    assert failure.exception == "LookupError" and failure.message == "no order"
    trace = failure.stacktrace
    assert "JSONDecodeError: Expecting property name" in trace
    assert "\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n" in trace
    assert f'File "{__file__}", line' in trace and trace.endswith("LookupError: no order\n")


def test_the_same_place_fails_with_another_message_and_the_trace_has_the_new_one() -> None:
    traces = [failure_of(caught(lambda text=text: int(text)), at(1), PARSE).stacktrace for text in ("a", "b")]
    assert "'a'" in traces[0] and "'b'" in traces[1] and "'a'" not in traces[1]


def test_an_exception_of_a_module_is_named_with_it_and_long_messages_are_cut() -> None:
    failure = failure_of(json.JSONDecodeError("x" * 10_000, "", 0), at(1), DECODE)
    assert failure.exception == "json.decoder.JSONDecodeError"
    assert len(failure.message) == 500 and failure.message.endswith("…") and len(failure.stacktrace) < 4001


def test_an_exception_without_a_message_of_its_own_is_described_nevertheless() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_of(Mute(), at(1), DECODE).message == "its message cannot be made: RuntimeError"


def connect(url: str, cause: Exception | None = None) -> None:
    raise ValueError(f"could not connect: {url}\ntoken=hunter2") from cause


def test_neither_a_dead_letter_nor_the_log_repeats_the_password_that_an_exception_has_in_its_message() -> None:
    letters = Letters()
    errors = TaskErrors(ErrorsPolicy(ANY_NUMBER, letters))
    cause = caught(lambda: connect("postgresql://app:hunter2@db/cause"))
    errors.tolerate(caught(lambda: connect("postgresql://app:hunter2@db/prod", cause)), at(5), PARSE)
    long = f"{'x' * 440}postgresql://app:{'hunter2' * 10}@db"
    errors.tolerate(caught(lambda: connect(long)), at(6), PARSE)
    assert errors.kinds[PARSE.operator, "ValueError"][1].startswith("orders-0@5: could not connect: postgresql://app:(secret)@db/prod ")
    first, second = letters.written
    assert first.message.startswith("could not connect: postgresql://app:(secret)@db/prod\n")
    assert "ValueError: could not connect: postgresql://app:(secret)@db/cause" in first.stacktrace and "in connect" in first.stacktrace
    assert "hunter2" not in repr([first, second, errors.kinds])


def test_a_source_line_with_a_password_is_not_in_the_stack_trace() -> None:
    trace = failure_of(caught(lambda: int("password='hunter2'")), at(1), PARSE).stacktrace
    assert "hunter2" not in trace and "in <lambda>" in trace and trace.count("may hold a secret and is left out") == 2


def test_functions_and_objects_are_named_with_their_modules() -> None:
    assert name_of(json.loads) == "json.loads" and name_of(str.split) == "str.split" and name_of(int) == "int"
    assert name_of(Letters()) == f"{__name__}.Letters"


# -- one record after the other


def test_the_records_between_those_that_fail_are_kept_in_order_and_made_once() -> None:
    made: list[str] = []
    failed: list[str] = []

    def make(text: str) -> int:
        made.append(text)
        return int(text)

    records = ["x", "1", "2", "y", "z", "3", "w"]
    kept, elements = make_one_by_one(lambda rest: map(make, rest), records, lambda _error, record: failed.append(record))
    assert kept == ["1", "2", "3"] and elements == [1, 2, 3] and failed == ["x", "y", "z", "w"]
    assert made == records


def test_what_the_handler_of_errors_raises_ends_it() -> None:
    def stop(error: Exception, record: str) -> None:
        raise error

    with pytest.raises(ValueError, match="'x'"):
        make_one_by_one(lambda rest: map(int, rest), ["1", "x"], stop)


def test_the_message_of_a_record_that_fails_is_searched_for_secrets_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of records may fail alike, and the search takes longer than to decode a record."""
    searched: list[str] = []
    monkeypatch.setattr(record_failure, "without_secrets", lambda text: (searched.append(text), text)[1])
    failure = failure_of(ValueError("no number"), at(1), PARSE)
    assert failure.message == "no number" and failure.stacktrace.endswith("ValueError: no number\n")
    assert searched.count("no number") == 1

"""Errors carry facts, say what they say, and survive pickling."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable

import pytest

from kstream import errors
from kstream.errors import ConfigurationError, KStreamError, StorageError, in_a_line, one_line, signal_name, traceback_of, with_record


def all_errors() -> list[type[KStreamError]]:
    found: list[type[KStreamError]] = [KStreamError]
    for known in found:
        found.extend(known.__subclasses__())
    return [e for e in found if e.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_its_facts(kind: type[KStreamError]) -> None:
    again = pickle.loads(pickle.dumps(kind("it broke", path="/x", time=5)))
    assert type(again) is kind
    assert (str(again), again.facts, again.path, again.time) == ("it broke", {"path": "/x", "time": 5}, "/x", 5)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_in_the_tree_of_the_docstring(kind: type[KStreamError]) -> None:
    assert f" {kind.__name__}" in str(errors.__doc__) or str(errors.__doc__).count(kind.__name__) == 1


def test_only_what_may_go_better_later_is_retriable() -> None:
    retriable = {kind.__name__ for kind in all_errors() if kind.retriable}
    assert retriable == {
        "PlanFailedError",
        "StorageError",
        "RpcUnreachableError",
        "NotEnoughCoresError",
        "PortTakenError",
        "TransientError",
    }


def test_a_signal_without_a_name_has_its_number() -> None:
    assert signal_name(9) == "SIGKILL" and signal_name(35) == "signal 35"


@pytest.mark.parametrize("in_a_task", [False, True], ids=["on the driver", "in a task"])
def test_of_an_error_with_a_whole_record_listeners_get_the_beginning_and_the_end(in_a_task: bool) -> None:
    record = "x" * 1_000_000
    error = ValueError(f"no number: {record} at the end")
    if in_a_task:
        errors.add_worker_traceback(
            error, f'Traceback (most recent call last):\n  File "job.py"\nValueError: no number: {record} at the end'
        )
        errors.note_task(error, "map at job.py:7")
    text = errors.traceback_of(error)
    assert 100_000 < len(text) < 100_100
    assert (
        "ValueError: no number: x" in text and "x at the end" in text and re.search(r"x\n… [\d,]{7,9} characters are left out …\nx", text)
    )
    line = errors.with_record(error)
    assert 10_000 < len(line) < 10_100 and len(line.splitlines()) == 1
    assert line.startswith("ValueError: no number: x") and line.endswith("(map at job.py:7)" if in_a_task else "x at the end")


def test_a_shorter_error_is_told_in_full() -> None:
    error = ValueError("x" * 9000)
    assert errors.with_record(error) == f"ValueError: {'x' * 9000}" == errors.traceback_of(error)


@pytest.mark.parametrize("tell", [in_a_line, one_line])
def test_an_error_in_a_line_has_no_secret(tell: Callable[[BaseException], str]) -> None:
    assert tell(ValueError("could not open s3://me:hunter2@bucket")) == "ValueError: could not open s3://me:(secret)@bucket"
    assert tell(ValueError("password=hunter2 refused")) == "ValueError: its text may hold a secret and is left out"
    assert tell(StorageError("cannot read s3://me:hunter2@bucket")).endswith("cannot read s3://me:(secret)@bucket")


@pytest.mark.parametrize("tell", [in_a_line, one_line])
def test_the_advice_of_kstream_is_told_also_where_it_has_a_word_for_a_secret(tell: Callable[[BaseException], str]) -> None:
    advice = "the page needs its token: open it once with ?token=…"
    assert tell(ConfigurationError(advice)).endswith(advice)


def test_the_whole_text_is_for_those_who_ask_for_the_traceback() -> None:
    error = ValueError("could not open s3://me:hunter2@bucket")
    assert "hunter2" in with_record(error) and "hunter2" in traceback_of(error)

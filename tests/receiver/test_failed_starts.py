"""When a receiver that never starts fails the job: what counts, what does not, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kstream.errors import ReceiverNotStartedError
from kstream.receiver.failed_starts import FailedStarts

Step = Callable[[FailedStarts], None]


def raised(starts: FailedStarts) -> None:
    starts.raised("KStreamError: the block store of this executor did not come up: No module named 'kstream'")


def runs(starts: FailedStarts, count: int, *steps: Step) -> list[bool]:
    """So many runs with these steps: of each whether its end fails the job."""

    def run() -> bool:
        starts.began()
        for step in steps:
            step(starts)
        return starts.ended()

    return [run() for _ in range(count)]


def test_the_tenth_end_by_an_exception_in_a_row_fails_the_job_and_later_ones_do_not_again() -> None:
    assert runs(FailedStarts(), 25, raised) == [False] * 9 + [True] + [False] * 15


def test_a_start_begins_the_row_anew_also_if_an_exception_ends_its_run() -> None:
    starts = FailedStarts()
    assert not any(runs(starts, 9, raised) + runs(starts, 1, FailedStarts.started, raised) + runs(starts, 9, raised))
    assert runs(starts, 1, raised) == [True]


def test_a_row_after_a_start_fails_the_job_again() -> None:
    starts = FailedStarts()
    assert runs(starts, 10, raised)[-1] and not runs(starts, 1, FailedStarts.started)[0] and runs(starts, 10, raised)[-1]


def test_an_end_without_an_exception_neither_counts_nor_ends_the_row() -> None:
    """A refused run, a lost executor, a task that never had a core."""
    starts = FailedStarts()
    assert not any(runs(starts, 100))
    assert not any(runs(starts, 9, raised) + runs(starts, 100))
    assert runs(starts, 1, raised) == [True]


def test_of_the_errors_of_one_run_the_first_is_told_and_the_run_counts_once() -> None:
    starts = FailedStarts()
    twice = (raised, partial(FailedStarts.raised, error="Py4JJavaError: the job of the receiver has failed"))
    assert runs(starts, 10, *twice) == [False] * 9 + [True]
    error = starts.failure(3, "Ticks-3")
    assert str(error).startswith("KStreamError: the block store of this executor did not come up: No module named 'kstream'. ")


def test_of_an_error_of_many_lines_the_first_is_told() -> None:
    starts = FailedStarts()
    runs(starts, 10, lambda s: s.raised("ValueError: no such table.\nHint: create it.\n"))
    assert str(starts.failure(0, "Ticks-0")).startswith("ValueError: no such table. That is")


def test_the_error_has_the_last_line_of_the_exception_first_then_what_to_do() -> None:
    starts = FailedStarts()
    runs(starts, 10, lambda s: s.raised("ConnectionRefusedError: [Errno 111] Connection refused"))
    with pytest.raises(ReceiverNotStartedError) as caught:
        raise starts.failure(3, "Ticks-3")
    assert str(caught.value) == (
        "ConnectionRefusedError: [Errno 111] Connection refused. That is the last of 10 errors in a row, each of which has ended the "
        "receiver Ticks-3 before it had started. Correct what it says, and start the job again. The executors' stderr has the tracebacks"
    )
    assert caught.value.facts == {
        "stream": 3,
        "receiver": "Ticks-3",
        "times": 10,
        "reason": "ConnectionRefusedError: [Errno 111] Connection refused",
    }

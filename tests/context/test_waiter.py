"""ContextWaiter: the first error and the stop, for whoever waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kstream.context.waiter import ContextWaiter
from tests.clocks import NotedCondition


def waiting(function: Callable[[ContextWaiter], object]) -> tuple[ContextWaiter, threading.Thread]:
    """A waiter, and a thread that waits in this function of it."""
    waiter = ContextWaiter()
    waiter._changed = changed = NotedCondition()
    thread = threading.Thread(target=function, args=(waiter,), daemon=True)
    thread.start()
    assert changed.waits.wait(20)
    return waiter, thread


def test_waiting_ends_with_the_stop() -> None:
    answers: list[bool] = []
    waiter, thread = waiting(lambda waiter: answers.append(waiter.wait(None)))
    waiter.notify_stop()
    thread.join(20)
    assert answers == [True]
    assert waiter.wait(None) is True


def test_waiting_with_a_timeout_ends_with_the_stop_too() -> None:
    answers: list[bool] = []
    waiter, thread = waiting(lambda waiter: answers.append(waiter.wait(40)))
    waiter.notify_stop()
    thread.join(20)
    assert answers == [True]


def test_a_timeout_is_told_from_a_stop() -> None:
    assert ContextWaiter().wait(0.01) is False


def test_the_first_error_is_raised_to_everybody_and_stays() -> None:
    waiter = ContextWaiter()
    waiter.notify_error(ValueError("first"))
    waiter.notify_error(ValueError("second"))
    waiter.notify_stop()
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            waiter.wait(None)


def test_an_error_wakes_who_waits_without_a_timeout() -> None:
    caught: list[str] = []

    def wait(waiter: ContextWaiter) -> None:
        try:
            waiter.wait(None)
        except ValueError as e:
            caught.append(str(e))

    waiter, thread = waiting(wait)
    waiter.notify_error(ValueError("boom"))
    thread.join(20)
    assert caught == ["boom"]


def test_who_waits_for_the_stop_is_not_woken_by_an_error() -> None:
    waiter, thread = waiting(ContextWaiter.wait_for_stop)
    changed = waiter._changed
    assert isinstance(changed, NotedCondition)
    changed.waits.clear()
    waiter.notify_error(ValueError("boom"))
    assert changed.waits.wait(20), "it waits again"
    assert thread.is_alive()
    waiter.notify_stop()
    thread.join(20)
    assert not thread.is_alive()


def test_an_error_that_is_raised_again_has_the_traceback_it_came_with() -> None:
    waiter = ContextWaiter()
    try:
        raise ValueError("boom")
    except ValueError as e:
        waiter.notify_error(e)
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="boom") as caught:
            waiter.wait(None)
        depths.append(len(caught.traceback))
    assert depths[0] == depths[1] == depths[2]

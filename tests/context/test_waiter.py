"""ContextWaiter: the first error and the stop, for whoever waits."""

from __future__ import annotations

import threading

import pytest

from kstream.context.waiter import ContextWaiter


def test_waiting_ends_with_the_stop() -> None:
    waiter, answers = ContextWaiter(), []
    thread = threading.Thread(target=lambda: answers.append(waiter.wait(None)))
    thread.start()
    waiter.notify_stop()
    thread.join(20)
    assert answers == [True]
    assert waiter.wait(None) is True


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
    waiter, caught = ContextWaiter(), []

    def wait() -> None:
        try:
            waiter.wait(None)
        except ValueError as e:
            caught.append(str(e))

    thread = threading.Thread(target=wait)
    thread.start()
    waiter.notify_error(ValueError("boom"))
    thread.join(20)
    assert caught == ["boom"]


def test_who_waits_for_the_stop_is_not_woken_by_an_error() -> None:
    waiter, stopped = ContextWaiter(), threading.Event()
    waiter.notify_error(ValueError("boom"))

    def wait() -> None:
        waiter.wait_for_stop()
        stopped.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    waiter.notify_error(ValueError("again"))
    assert not stopped.wait(0.1)
    waiter.notify_stop()
    assert stopped.wait(20)


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

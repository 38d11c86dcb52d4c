"""EventLoop: one thread, in order, and nothing that is raised is swallowed."""

from __future__ import annotations

import threading
from typing import Any

from kstream.loop import EventLoop


class Box:
    """What a loop received and what went wrong."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.errors: list[BaseException] = []
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def receive(self, event: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        self.gate.wait(10)
        if isinstance(event, BaseException):
            raise event
        self.received.append(event)


def loop_of(box: Box) -> EventLoop[Any]:
    return EventLoop("test-loop", box.receive, box.errors.append)


def test_events_are_handled_in_order_on_one_thread() -> None:
    box = Box()
    loop = loop_of(box)
    loop.post(0)
    loop.start()
    for n in range(1, 100):
        loop.post(n)
    loop.stop(drain=True)
    assert box.received == list(range(100))
    assert box.threads == {"test-loop"}


def test_an_error_is_reported_and_the_next_event_handled() -> None:
    box = Box()
    loop = loop_of(box)
    loop.start()
    for event in (1, ValueError("one"), 2, SystemExit("two"), 3):
        loop.post(event)
    loop.stop(drain=True)
    assert box.received == [1, 2, 3]
    assert [str(e) for e in box.errors] == ["one", "two"]


def test_an_error_handler_that_fails_does_not_end_the_loop() -> None:
    received: list[int] = []

    def receive(event: int) -> None:
        if event == 0:
            raise ValueError("first")
        received.append(event)

    def handler(error: BaseException) -> None:
        raise RuntimeError("the handler is broken too") from error

    loop: EventLoop[int] = EventLoop("test-loop", receive, handler)
    loop.start()
    loop.post(0)
    loop.post(1)
    loop.stop(drain=True)
    assert received == [1]


def test_a_stop_without_drain_finishes_the_event_in_hand_and_drops_the_rest() -> None:
    box = Box()
    box.gate.clear()
    loop = loop_of(box)
    loop.start()
    for n in range(3):
        loop.post(n)
    assert box.entered.wait(10)
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    while loop.is_active:
        stopper.join(0.01)
    box.gate.set()
    stopper.join(10)
    assert not stopper.is_alive()
    assert box.received == [0]


def test_what_is_posted_after_stop_is_dropped() -> None:
    box = Box()
    loop = loop_of(box)
    loop.start()
    loop.stop()
    loop.post(1)
    loop.stop()
    assert box.received == [] and not loop.is_active


def test_a_loop_may_stop_itself() -> None:
    done = threading.Event()
    loop: EventLoop[str] = EventLoop("test-loop", lambda _event: (loop.stop(), done.set()), lambda _e: None)
    loop.start()
    loop.post("stop")
    assert done.wait(10)


def test_a_loop_that_was_never_started_stops() -> None:
    loop = loop_of(Box())
    loop.stop(drain=True)
    assert not loop.is_active


def test_a_loop_knows_its_own_thread() -> None:
    answers: list[bool] = []
    loop: EventLoop[int] = EventLoop("test-loop", lambda _event: answers.append(loop.is_own_thread()), lambda _e: None)
    loop.start()
    loop.post(1)
    loop.stop(drain=True)
    assert answers == [True] and not loop.is_own_thread()


def test_draining_returns_when_what_was_posted_before_has_been_handled_and_says_when_it_was_not() -> None:
    box = Box()
    loop = loop_of(box)
    loop.start()
    box.gate.clear()
    loop.post(1)
    assert not loop.drain(0.1)
    box.gate.set()
    loop.post(ValueError("a fault is handled, too"))
    loop.post(2)
    assert loop.drain(10)
    assert box.received == [1, 2] and len(box.errors) == 1
    loop.stop()
    assert loop.drain(10), "a loop that has ended keeps nobody waiting"

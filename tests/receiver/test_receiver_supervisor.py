"""The life of a receiver: started, started again, stopped; and what listeners hear of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.cloudpickle import dumps, loads

from kstream.errors import IllegalStateError
from kstream.receiver import Receiver, ReceiverNews, ReceiverSupervisor
from kstream.testing import ManualClock
from tests.receivers import ListSink

PATIENCE = 20.0


class NotingReceiver(Receiver):
    """Notes what is called, with the time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.calls: list[tuple[str, int]] = []
        self.changed = threading.Condition()
        self.on_start: Callable[[], object] = lambda: None
        self.on_stop: Callable[[], object] = lambda: None

    def onStart(self) -> None:
        self._note("onStart")
        self.on_start()

    def onStop(self) -> None:
        self._note("onStop")
        self.on_stop()

    def _note(self, call: str) -> None:
        with self.changed:
            self.calls.append((call, self.clock.time_ms()))
            self.changed.notify_all()

    def wait(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.calls) >= count, PATIENCE), self.calls
            return [call for call, _ in self.calls]


class Run:
    """A receiver under its supervisor."""

    def __init__(self) -> None:
        self.clock = ManualClock(10_000)
        self.receiver = NotingReceiver(self.clock)
        self.blocks = ListSink()
        self.news: list[ReceiverNews] = []
        self.supervisor = ReceiverSupervisor(self.receiver, 3, self.blocks, self.clock, 2000, self.news.append)

    def start(self) -> Run:
        self.supervisor.start()
        self.receiver.wait(1)
        return self

    def stored(self) -> list[Any]:
        return self.blocks.stored


@pytest.fixture
def run() -> Any:
    made = Run()
    yield made
    made.supervisor.stop(1.0)


def test_a_receiver_is_started_once_stores_and_is_stopped_once(run: Run) -> None:
    """Spark behaviour RC1."""
    assert not run.receiver.isStarted() and not run.receiver.isStopped()
    run.start()
    assert run.receiver.isStarted() and not run.receiver.isStopped() and run.receiver.streamId == 3
    run.receiver.store("one")
    run.receiver.store(["a", "list"])
    run.receiver.storeAll(iter([1, 2]))
    assert run.supervisor.stop(PATIENCE)
    run.supervisor.stop(PATIENCE)
    assert run.receiver.wait(2) == ["onStart", "onStop"]
    assert run.stored() == ["one", ["a", "list"], 1, 2]
    assert run.receiver.isStopped() and [news.kind for news in run.news] == ["started", "stopped"]
    with pytest.raises(IllegalStateError):
        run.receiver.store("too late")


def test_a_restart_stops_waits_by_the_clock_and_starts_again(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """RC1: onStop, then onStart, the delay apart."""
    run.start()
    with caplog.at_level(logging.WARNING):
        run.receiver.restart("Socket data stream had no more data", None, 100)
        run.receiver.wait(2)
        assert run.receiver.isStopped()
        run.clock.wait_for_waiters()
        run.clock.advance(99)
        assert run.receiver.wait(2) == ["onStart", "onStop"]
        run.clock.advance(1)
        assert run.receiver.wait(3) == ["onStart", "onStop", "onStart"]
    assert run.receiver.calls[2][1] - run.receiver.calls[1][1] == 100
    assert "Restarting receiver with delay 100 ms: Socket data stream had no more data" in caplog.messages
    assert [(news.kind, news.message) for news in run.news][:2] == [
        ("started", ""),
        ("stopped", "Restarting receiver with delay 100 ms: Socket data stream had no more data"),
    ]


def test_restarts_wait_two_seconds_unless_told_and_one_is_under_way_at_a_time(run: Run) -> None:
    run.start()
    for _ in range(5):
        run.receiver.restart("again")
    run.receiver.wait(2)
    run.clock.wait_for_waiters()
    run.receiver.restart("while it waits")
    run.clock.advance(1999)
    assert run.receiver.wait(2) == ["onStart", "onStop"]
    run.clock.advance(1)
    assert run.receiver.wait(3) == ["onStart", "onStop", "onStart"]
    run.receiver.restart("a new one")
    assert run.receiver.wait(4)[3] == "onStop"


def test_a_receiver_that_waits_to_be_started_again_is_stopped_at_once(run: Run) -> None:
    run.start()
    run.receiver.restart("again")
    run.clock.wait_for_waiters()
    assert run.supervisor.stop(PATIENCE)
    run.clock.advance(10_000)
    assert run.receiver.wait(2) == ["onStart", "onStop"]


def test_what_is_stored_while_it_stops_is_kept(run: Run) -> None:
    """SC9: onStop may block until all is in."""
    run.start()
    run.receiver.on_stop = lambda: [run.receiver.store(n) for n in range(15)]
    assert run.supervisor.stop(PATIENCE)
    assert run.stored() == list(range(15))


def test_an_onStop_that_never_returns_holds_nothing_up_for_ever(run: Run) -> None:
    run.start()
    never = threading.Event()
    run.receiver.on_stop = lambda: never.wait(PATIENCE)
    assert not run.supervisor.stop(0.01)
    never.set()


def test_a_start_that_blocks_holds_nothing_up_and_can_be_stopped(run: Run) -> None:
    """SC8: a stop that comes while the receiver is still starting finishes."""
    inside, stopped = threading.Event(), threading.Event()
    run.receiver.on_start = lambda: (inside.set(), stopped.wait(PATIENCE))
    run.receiver.on_stop = stopped.set
    run.supervisor.start()
    assert inside.wait(PATIENCE)
    assert run.supervisor.stop(PATIENCE) and stopped.is_set()


def test_a_stop_before_the_start_means_that_it_never_starts() -> None:
    run = Run()
    assert run.supervisor.stop(PATIENCE)
    run.supervisor._start_receiver()
    assert run.receiver.calls == [] and run.news == []


def test_a_start_that_raises_stops_the_receiver_and_is_told(run: Run) -> None:
    def fail() -> None:
        raise ZeroDivisionError("no such thing")

    run.receiver.on_start = fail
    run.start()
    assert run.receiver.wait(2) == ["onStart", "onStop"]
    run.supervisor.stop(PATIENCE)
    stopped = run.news[-1]
    assert (stopped.kind, stopped.message, str(stopped.error)) == ("stopped", "Error starting receiver 3", "no such thing")


def test_an_error_that_is_reported_changes_nothing_else(run: Run) -> None:
    """Spark behaviour SL3."""
    run.start()
    error = ValueError("test exception")
    run.receiver.reportError("test report error", error)
    assert run.receiver.isStarted() and run.news[-1] == ReceiverNews("error", "test report error", error)


def test_a_receiver_may_stop_itself_for_good(run: Run) -> None:
    run.start()
    run.receiver.stop("test stop")
    run.receiver.restart("no")
    run.supervisor.stop(PATIENCE)
    assert run.receiver.wait(2) == ["onStart", "onStop"] and run.news[-1].message == "test stop"


def test_a_receiver_that_nobody_runs_says_what_to_do() -> None:
    receiver = NotingReceiver(ManualClock(0))
    assert receiver.isStopped() and not receiver.isStarted()
    with pytest.raises(IllegalStateError, match="receiverStream"):
        receiver.store(1)


class Plain(Receiver):
    """Ten lines, and no super().__init__()."""

    def __init__(self, first: int) -> None:
        self.first = first

    def onStart(self) -> None:
        self.storeAll(range(self.first, self.first + 3))

    def onStop(self) -> None:
        pass


def test_a_receiver_is_pickled_without_whoever_runs_it() -> None:
    clock = ManualClock(0)
    receiver = Plain(5)
    supervisor = ReceiverSupervisor(receiver, 0, ListSink(), clock, 2000)
    again = loads(dumps(receiver))
    assert again.first == 5 and again.isStopped() and not receiver.isStopped()
    supervisor.stop(PATIENCE)

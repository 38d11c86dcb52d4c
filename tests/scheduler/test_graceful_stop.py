"""A graceful stop ends what was planned: within ten intervals where a restart runs the rest, and as long as it takes where none can."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kstream.checkpoint import read_log
from kstream.context.unfinished_work import AN_HOUR_S, UnfinishedWork
from kstream.dstream.queue_input_dstream import QueueInputDStream
from kstream.errors import FencedError
from tests.fakes import INTERVAL, FakeHost
from tests.harness import PATIENCE, Driver, LogInput, World, started
from tests.receiver_driver import ReceiverDriver, together

WAITED = re.compile(r"\d+\.\d")
TICK = 10
"""Milliseconds: ten of these intervals are soon over."""


def test_a_graceful_stop_runs_what_was_planned() -> None:
    world = World()
    driver = Driver(world, interval_ms=TICK)
    gate = held_up(driver, batches=4)
    stopper = threading.Thread(target=driver.stop)
    stopper.start()
    gate.set()
    stopper.join(30)
    assert not stopper.is_alive()
    world.assert_exact()
    assert len(world.attempts) == 4 and read_log(world.store).pending == []


def test_a_graceful_stop_gives_up_waiting_after_its_timeout() -> None:
    world = World()
    driver = Driver(world, interval_ms=TICK)
    gate = held_up(driver)
    driver.world.wait(lambda: world.attempts)
    driver.stop(graceful=True, timeout=0.2)
    assert driver.environment.cancelled == 1
    gate.set()
    assert len(world.attempts) == 1
    assert len(read_log(world.store).pending) == 3


def test_a_graceful_stop_can_be_cut_short_and_a_restart_runs_the_rest() -> None:
    world = World()
    driver = Driver(world, interval_ms=TICK)
    gate = held_up(driver)
    driver.world.wait(lambda: world.attempts)
    stopper = threading.Thread(target=driver.stop, args=(True, 3600.0))
    stopper.start()
    driver.engine.cut_short()
    stopper.join(30)
    assert not stopper.is_alive() and driver.engine.was_cut_short
    gate.set()
    assert len(world.attempts) == 1
    assert len(read_log(world.store).pending) == 3


class Waited(logging.Handler):
    """Does something when the stop says that it goes on waiting."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._then = then

    def emit(self, record: logging.LogRecord) -> None:
        if "have not ended; it waits" in record.getMessage():
            self._then()


@contextmanager
def when_it_goes_on_waiting(then: Callable[[], None]) -> Iterator[None]:
    handler, log = Waited(then), logging.getLogger("kstream.scheduler.job_generator")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def held_up(driver: Driver, batches: int = 3) -> threading.Event:
    """So many batches of one record, planned, the first of which runs until the event is set."""
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(PATIENCE)
    driver.start()
    for number in range(1, batches + 1):
        driver.world.produce(1)
        driver.clock.wait_for_waiters()
        driver.clock.advance(TICK)
        driver.world.wait(lambda number=number: len(driver.engine.lifecycle.open()) >= number)
    return gate


def test_without_a_checkpoint_a_graceful_stop_outlasts_ten_intervals() -> None:
    """Nothing could run those batches again."""
    world = World()
    driver = Driver(world, checkpoint=False, interval_ms=TICK)
    gate = held_up(driver)
    with when_it_goes_on_waiting(gate.set):
        driver.engine.stop(graceful=True)
    world.assert_exact()
    assert len(world.attempts) == 3 and driver.environment.cancelled == 0


def test_with_one_it_ends_after_ten_and_says_that_a_restart_runs_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = Driver(world, interval_ms=TICK)
    gate = held_up(driver)
    driver.engine.stop(graceful=True)
    gate.set()
    assert len(read_log(world.store).pending) == 3
    (said,) = (record for record in caplog.records if record.name == "kstream.context.engine")
    assert said.levelno == logging.WARNING
    assert said.getMessage() == (
        f"Graceful stop: 3 batches did not end within {WAITED.search(said.getMessage())[0]} s: 1000010 ms, 1000020 ms, 1000030 ms. "  # pyright: ignore
        "The next start runs the rest."
    )


@pytest.mark.parametrize("logged", [True, False])
def test_receivers_without_a_log_of_their_own_are_waited_for_though_there_is_a_checkpoint(logged: bool) -> None:
    """Their blocks die with the driver; those in a log are read by the next one."""
    world = World()
    conf = {"spark.streaming.receiver.writeAheadLog.enable": str(logged).lower()}
    driver = ReceiverDriver(world, conf, logged=logged, interval_ms=TICK)
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(PATIENCE)
    driver.start()
    driver.receiver.storeAll([1, 2])
    driver.clock.wait_for_waiters()
    driver.clock.advance(TICK)
    world.wait(lambda: world.attempts)
    with when_it_goes_on_waiting(gate.set):
        driver.engine.stop(graceful=True)
    gate.set()
    assert bool(read_log(world.store).pending) is logged
    if not logged:
        assert together(world) == [1, 2]
        return
    driver.kill()
    world.attempts.clear()
    again = ReceiverDriver(world, conf, logged=True, interval_ms=TICK).start()
    world.wait(lambda: together(world) == [1, 2])
    again.stop()
    assert read_log(world.store).pending == []


def test_the_users_own_timeout_holds_and_what_is_lost_by_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = Driver(world, {"spark.streaming.gracefulStopTimeout": "50ms"}, checkpoint=False, interval_ms=TICK)
    gate = held_up(driver, batches=2)
    driver.engine.stop(graceful=True)
    gate.set()
    assert driver.environment.cancelled == 1
    (said,) = (record for record in caplog.records if record.name == "kstream.context.engine")
    assert said.levelno == logging.ERROR
    for fact in (
        "2 batches did not end",
        "No restart can run the rest: there is no checkpoint directory",
        "spark.streaming.gracefulStopTimeout",
    ):
        assert fact in said.getMessage()
    assert "receive" not in said.getMessage()


def test_what_receivers_have_stored_and_no_batch_has_taken_is_told_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """The interval is longer than the timeout, so no further batch takes the block."""
    world = World()
    driver = ReceiverDriver(world, {"spark.streaming.gracefulStopTimeout": "50ms"}, interval_ms=INTERVAL)
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(PATIENCE)
    driver.start()
    driver.receiver.storeAll([1, 2])
    driver.clock.wait_for_waiters()
    driver.clock.advance(INTERVAL)
    world.wait(lambda: world.attempts)
    driver.receiver.storeAll([3])
    driver.engine.stop(graceful=True)
    gate.set()
    (said,) = (record.getMessage() for record in caplog.records if record.name == "kstream.context.engine")
    for fact in ("1 batch did not end", "1 received block is in no batch", "is lost with the driver", "receiver.writeAheadLog.enable=true"):
        assert fact in said


def test_a_driver_that_finds_itself_replaced_while_it_waits_does_not_wait_for_jobs_that_never_start() -> None:
    world = World()
    a = Driver(world, {"spark.streaming.gracefulStopTimeout": "10min"}, interval_ms=TICK)
    gate = held_up(a, batches=2)
    a.engine._generator._timer.stop(interrupt=True)
    b = started(world, interval_ms=TICK)
    a.clock.advance(2000)  # so long that a job looks for a newer writer before it starts
    stopping = threading.Thread(target=a.engine.stop, args=(True,))
    stopping.start()
    gate.set()
    a.wait_error(FencedError)
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    b.stop()
    world.assert_exact()


def test_a_replaced_driver_does_not_wait_for_its_job_that_runs() -> None:
    """Its successor runs that batch, too."""
    world = World()
    a = Driver(world)
    gate = threading.Event()
    a.before_job = lambda _time: gate.wait(PATIENCE)
    a.start()
    a.tick_only(1)
    world.wait(lambda: world.attempts)
    b = started(world)
    a.tick_only(1)
    world.wait(lambda: a.fenced)
    cancelled = threading.Event()
    a.environment.cancel_all = lambda: (cancelled.set(), gate.set())
    a.stop(graceful=True, timeout=0.2)
    assert cancelled.is_set()
    b.stop()


def test_what_the_last_tick_could_not_plan_is_planned_by_a_later_one() -> None:
    """As while the broker of another input is away."""
    world = World()
    driver = ReceiverDriver(world, checkpoint=False, interval_ms=TICK)
    beside = LogInput(driver.host, world.log)
    driver.output(beside)
    driver.start()
    asked_since = 0

    def away(_time: object) -> None:
        nonlocal asked_since
        if driver.engine._generator._timer.alive_thread() is None:
            asked_since += 1
        if asked_since < 3:
            raise ConnectionError("the broker is away")

    beside.before_plan = away
    driver.receiver.storeAll([1, 2])
    stopping = threading.Thread(target=driver.engine.stop, args=(True,))
    stopping.start()
    while stopping.is_alive():
        driver.clock.advance(TICK)
        stopping.join(0.01)
    assert together(world) == [1, 2] and asked_since == 3


def test_with_a_checkpoint_it_waits_for_what_dies_with_the_driver_nevertheless() -> None:
    """A queue of RDDs is no more recoverable than blocks in memory."""
    world = World()

    def queue(host: FakeHost, driver: Driver) -> None:
        driver.output(QueueInputDStream(host, [], True, None, lambda element: element))

    def patience(driver: Driver) -> float:
        return UnfinishedWork(driver.host.settings, driver.host.graph, driver.store is not None).patience()

    assert patience(Driver(world)) == 10
    assert patience(Driver(world, checkpoint=False)) == patience(Driver(world, build=queue)) == AN_HOUR_S
    assert patience(Driver(world, {"spark.streaming.gracefulStopTimeout": "3s"}, build=queue)) == 3

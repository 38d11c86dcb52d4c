"""A batch that finds blocks or files of a state gone is generated again from the state that was written last. No JVM."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Duration, Time
from kstream.checkpoint import read_log
from kstream.dstream import ForEachDStream
from kstream.errors import MissingFileError, StateLostError
from kstream.scheduler.job_scheduler import MOST_REPAIRS
from kstream.scheduler.settings import UNREACHABLE_TIMEOUT
from kstream.scheduler.state_checkpointer import is_lost_state, state_lost
from tests.fakes import FakeHost, FakeStateDStream
from tests.harness import INTERVAL, PATIENCE, Driver, World, at
from tests.scheduler.retries import Away, passes
from tests.scheduler.states import HISTORY, with_state
from tests.stores import FaultyStore

SPARK = (
    "An error occurred while calling o12.count.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed\n"
    "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3759_0 not found! Either the executor that originally checkpointed"
)


class BlocksGone:
    """Lets the output of a batch find its blocks gone, so many times."""

    def __init__(self, driver: Driver, times: dict[int, int]) -> None:
        self.left = times
        driver.before_job = self._run

    def _run(self, time: int) -> None:
        if self.left.get(time, 0) > 0:
            self.left[time] -= 1
            raise RuntimeError(SPARK)


def job(*extra: Callable[[Time, Any], None]) -> Callable[[FakeHost, Driver], None]:
    """A state that is written every other batch, the output of the driver, and others on the same state."""

    def build(host: FakeHost, driver: Driver) -> None:
        state = FakeStateDStream(driver.input, Duration(INTERVAL))
        state.set_checkpoint_interval(Duration(INTERVAL * 2))
        for output in extra:
            host.graph.add_output_stream(ForEachDStream(state, output))
        driver.output(state)

    return build


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SPARK),
        MissingFileError("file:/cp/state/000-s0 is not there", path="file:/cp/state/000-s0"),
        RuntimeError("Traceback …\nkstream.errors.MissingFileError: s3://b/cp/state/000-s0 is not there\n\tat org.apache…"),
    ],
)
def test_lost_blocks_and_missing_state_files_are_told_from_other_errors(error: Exception) -> None:
    assert is_lost_state(error)


def test_other_missing_files_are_no_lost_state() -> None:
    assert not is_lost_state(MissingFileError("/in/orders-7.json is not there", path="/in/orders-7.json"))
    assert not is_lost_state(ValueError("the state of the order is unknown"))


def test_the_error_has_what_is_gone_in_one_line() -> None:
    error = state_lost(Time(1000), 3, RuntimeError(SPARK))
    assert isinstance(error, StateLostError) and "Checkpoint block rdd_3759_0 not found!" in str(error) and "\n" not in str(error)


def test_a_batch_whose_blocks_are_gone_is_generated_again_and_uses_no_retry_up(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    BlocksGone(driver, {at(4): 2})
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            driver.tick(1)
    driver.stop()
    assert driver.errors == [] and read_log(world.store).pending == []
    assert [a.time for a in world.attempts].count(at(4)) == 3
    assert world.records_by_time()[at(6)] == (0, 1, 2, 3, 4, 5)
    said = [r.getMessage() for r in caplog.records if "generated again" in r.getMessage()]
    assert [text.split("(")[1].split(")")[0] for text in said] == ["1 of 3", "2 of 3"] and "Checkpoint block" not in said[0].split(":")[0]


def test_after_three_repairs_it_fails_with_what_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    BlocksGone(driver, {at(3): MOST_REPAIRS + 1})
    for _ in range(3):
        driver.tick_only(1)
        driver.engine._generator.drain(PATIENCE)  # pyright: ignore
    driver.wait_error(StateLostError)
    driver.stop()
    assert [a.time for a in world.attempts].count(at(3)) == MOST_REPAIRS + 1
    assert [type(error) for _, error in driver.errors] == [StateLostError]
    assert [time.milliseconds for time in read_log(world.store).pending] == [at(3)]


def test_a_batch_that_cannot_be_repaired_fails_at_once_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The simulator found this: the error spoke of three repairs that were never made."""
    world = World(FaultyStore(World().store))
    world.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("state/") else None
    driver = Driver(world, HISTORY, build=with_state(1)).start()
    for _ in range(8):
        driver.tick(1)
    BlocksGone(driver, {at(9): 1})
    driver.tick_only(1)
    driver.wait_error(StateLostError)
    driver.stop()
    assert [a.time for a in world.attempts].count(at(9)) == 1
    ((_, error),) = driver.errors
    assert "no written state has all plans after it in memory: " in str(error) and error.repairs == 0
    assert not any("generated again" in r.getMessage() for r in caplog.records)
    assert [time.milliseconds for time in read_log(world.store).pending] == [at(9)]


def test_blocks_that_are_gone_when_a_state_is_written_are_made_again_for_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    world, lost = World(), list[str]()

    class BlocksGoneWhenWritten(FaultyStore):
        def create(self, name: str, data: bytes, *, private: bool = False) -> None:
            if name.startswith(f"state/{at(4):015d}") and not lost:
                lost.append(name)
                raise RuntimeError(SPARK)
            super().create(name, data, private=private)

    driver = Driver(world, HISTORY, build=with_state(2), store=BlocksGoneWhenWritten(world.store)).start()
    for _ in range(4):
        driver.tick(1)
    (state,) = driver.host.graph.active_states()
    before = state.getOrCompute(Time(at(4)))
    driver.tick(1)
    assert state.getOrCompute(Time(at(4))) is not before
    driver.stop()
    assert lost and driver.errors == [] and read_log(world.store).pending == []
    assert world.records_by_time()[at(5)] == (0, 1, 2, 3, 4)
    assert f"batch {at(5)} ms is made from the states that were written last" in caplog.text


def test_outputs_that_have_succeeded_do_not_run_again() -> None:
    world, ran = World(), list[int]()
    driver = Driver(world, HISTORY, build=job(lambda time, _rdd: ran.append(time.milliseconds))).start()
    BlocksGone(driver, {at(3): 1})
    for _ in range(4):
        driver.tick(1)
    driver.stop()
    assert ran == [at(n) for n in range(1, 5)] and driver.errors == []


def test_the_next_batch_that_has_not_started_is_generated_again_too_and_listeners_hear_of_each_once() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(4))
    gate, reached = threading.Event(), threading.Event()

    def run(time: int) -> None:
        if time == at(2) and not reached.is_set():
            reached.set()
            assert gate.wait(PATIENCE)
            raise RuntimeError(SPARK)

    driver.before_job = run
    driver.start()
    for _ in range(3):
        driver.tick_only(1)
    assert reached.wait(PATIENCE)
    world.wait(lambda: len(driver.listener.named("onBatchSubmitted")) == 3)
    (state,) = driver.host.graph.active_states()
    before = state.getOrCompute(Time(at(3)))
    gate.set()
    driver.settle()
    assert state.getOrCompute(Time(at(3))) is not before
    assert [a.time for a in world.attempts] == [at(1), at(2), at(2), at(3)]
    for name in "onBatchSubmitted", "onBatchStarted", "onBatchCompleted":
        assert [e.batchInfo().batch_time.milliseconds for e in driver.listener.named(name)] == [at(1), at(2), at(3)], name
    driver.stop()
    assert driver.errors == [] and world.records_by_time()[at(3)] == (0, 1, 2)


def test_no_batch_overtakes_those_that_wait_for_a_repair() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(10))
    BlocksGone(driver, {at(3): 1})
    driver.start()
    for _ in range(2):
        driver.tick(1)
    scheduler: Any = driver.engine._scheduler  # pyright: ignore
    tell, gone, told = scheduler._on_lost, threading.Event(), threading.Event()

    def late(lost: Any) -> None:
        gone.set()
        assert told.wait(PATIENCE)
        tell(lost)

    scheduler._on_lost = late
    driver.tick_only(1)
    assert gone.wait(PATIENCE)
    for _ in range(3):
        driver.tick_only(1)
        driver.engine._generator.drain(PATIENCE)  # pyright: ignore
    assert driver.engine.lifecycle.in_hand() == []
    told.set()
    driver.settle()
    driver.stop()
    assert [a.time for a in world.attempts] == [at(1), at(2), at(3), at(3), at(4), at(5), at(6)] and driver.errors == []


def test_blocks_of_others_that_are_gone_are_an_error_like_any_other_in_a_job_without_state() -> None:
    world = World()
    driver = Driver(world, HISTORY)
    BlocksGone(driver, {at(2): 9})
    driver.start()
    driver.tick(1)
    driver.tick_only(1)
    driver.wait_error(RuntimeError)
    driver.stop()
    assert [a.time for a in world.attempts] == [at(1), at(2)]


def test_a_repair_that_meets_an_outage_of_the_store_is_done_later_and_runs_no_output_twice() -> None:
    """The simulator found this: the batch forgot which of its outputs had succeeded."""
    world, ran = World(), list[int]()
    store = Away(world.store)
    build = job(lambda time, _rdd: ran.append(time.milliseconds))
    driver = Driver(world, {**HISTORY, UNREACHABLE_TIMEOUT.key: "10min"}, build=build, store=store).start()
    driver.tick(1)

    def run(time: int) -> None:
        if time == at(2) and not store.looks:
            store.down = True
            raise RuntimeError(SPARK)

    driver.before_job = run
    driver.tick_only(1)
    world.wait(lambda: store.looks)
    driver.engine._generator.drain(PATIENCE)  # pyright: ignore
    store.down = False
    passes(driver, 2 * INTERVAL)
    driver.stop()
    assert ran == [at(n) for n in range(1, 5)] and driver.errors == []
    assert sorted(a.time for a in world.attempts) == [at(1), at(2), at(2), at(3), at(4)]
    assert driver.engine.lifecycle.retries == 0

"""A failed batch is tried again with all that its windows and states look back on, and a skip never makes totals that disagree. No JVM."""

from __future__ import annotations

import threading
from typing import Any

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from tests.fakes import FakeHost
from tests.harness import PATIENCE, Driver, World, at
from tests.scheduler.states import HISTORY, with_state
from tests.skipping import PoisonError, SkippingInput, left_out, poisoned, skip, written

WIDTH = 3


def windows(batches: int, without: frozenset[int] = frozenset()) -> dict[int, tuple[int, ...]]:
    """What a window of WIDTH batches has, batch by batch, if record n is in batch n + 1."""
    return {at(n): tuple(r for r in range(max(0, n - WIDTH), n) if r not in without) for n in range(1, batches + 1)}


def goes_on(driver: Driver, ticks: int, records: int = 1) -> None:
    for _ in range(ticks):
        driver.tick_only(records)
        driver.settle()


def test_a_window_of_a_batch_that_failed_before_it_was_made_has_all_its_batches_when_it_is_tried_again() -> None:
    """Once the window of such a batch had only what younger batches had kept, and the batch counted as a success."""
    world, away = World(), {at(4)}

    def lookup(time: Any, rdd: Any) -> Any:
        if Time.of(time).milliseconds in away:
            raise ValueError("the lookup is away")
        return rdd

    def build(_host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.transform(lookup).window(WIDTH))

    driver = Driver(world, build=build).start()
    goes_on(driver, 11)
    assert {time.milliseconds for time in driver.engine.lifecycle.failed()} == {at(4), at(5), at(6)}
    away.clear()
    goes_on(driver, 70, records=0)
    driver.stop()
    assert {time: records for time, records in written(world).items() if time <= at(11)} == windows(11)


def test_a_window_without_a_skipped_record_has_all_others_long_after_its_batches_have_ended() -> None:
    world = World()
    driver = poisoned(world, 3, window=WIDTH).start()
    goes_on(driver, 11)
    skip(world.store, 3)
    goes_on(driver, 200, records=0)
    driver.stop()
    assert {time: records for time, records in written(world).items() if time <= at(11)} == windows(11, without=frozenset({3}))
    assert read_log(world.store).pending == []


def test_plans_that_no_failed_batch_looks_back_on_are_forgotten() -> None:
    world = World()
    driver = poisoned(world, 3, window=WIDTH).start()
    goes_on(driver, 30)
    kept = sorted(time.milliseconds for time in driver.input.planned_batches())
    assert {time.milliseconds for time in driver.engine.lifecycle.failed()} == {at(4), at(5), at(6)}
    assert [time for time in kept if time <= at(20)] == [at(n) for n in range(1, 7)]
    driver.stop(graceful=False)


def test_a_record_stays_in_totals_that_later_batches_have_shown_although_no_job_of_its_batch_had_run() -> None:
    """Else a restart would take out of the totals what they never had in them."""
    world, poison = World(), {3}
    shown: dict[int, Any] = {}

    def refuse(_time: Any, rdd: Any) -> Any:
        if poison & set(rdd.records):
            raise PoisonError("a job of transform met it")
        return rdd

    def build(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.remove(driver.input)
        driver.input = SkippingInput(host, world.log)
        pairs = driver.input.map(lambda _record: ("k", 1))
        totals = pairs.reduceByKeyAndWindow(lambda a, b: a + b, lambda a, b: a - b, WIDTH, 1, 2)
        totals.checkpoint(1).foreachRDD(lambda time, rdd: shown.update({Time.of(time).milliseconds: rdd.collect()}))
        driver.output(driver.input.transform(refuse))

    driver = Driver(world, {"spark.streaming.kstream.batch.retries": "8"}, build=build).start()
    goes_on(driver, 6)
    skip(world.store, 3)
    goes_on(driver, 3)
    poison.clear()
    goes_on(driver, 130)
    driver.stop()
    assert [total for time, total in sorted(shown.items()) if time >= at(3)] == [[("k", 3)]] * (len(shown) - 2)
    assert left_out(world.store) == []


def test_a_batch_that_later_ones_wait_for_is_tried_again_however_few_batches_may_be_held() -> None:
    """Once it was left to a restart, and all others waited for it for ever."""
    world = World()
    driver = Driver(world, {**HISTORY, "spark.streaming.kstream.maxHeldBatches": "1"}, build=with_state(10))
    is_bad, gate = threading.Event(), threading.Event()
    is_bad.set()

    def meet(state: Any) -> None:
        if is_bad.is_set() and 2 in state.records:
            raise ValueError("the state cannot be computed")

    def before(time: int) -> None:
        assert time != at(3) or gate.wait(PATIENCE)
        meet(world.attempts[-1])

    driver.host.state_rdds.compute = meet  # pyright: ignore[reportAttributeAccessIssue]
    driver.before_job = before
    driver.start()
    for _ in range(4):
        driver.tick_only(1)
        driver.engine._generator.drain(PATIENCE)  # pyright: ignore
    gate.set()
    driver.settle()
    is_bad.clear()
    goes_on(driver, 130)
    driver.stop()
    assert read_log(world.store).pending == [] and written(world)[at(4)] == (0, 1, 2, 3)

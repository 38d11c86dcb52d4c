"""A failed batch is tried again in the driver that ran it; under hold, later batches wait for it in their order."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import names, read_log
from kstream.dstream import ForEachDStream, TransformedDStream
from kstream.errors import FencedError, StorageError
from kstream.scheduler.settings import UNREACHABLE_TIMEOUT
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World, wait_for_timers
from tests.scheduler.retries import (
    MINUTE,
    POLICY,
    RETRIES,
    Away,
    NoCompletion,
    Sink,
    SinkAwayError,
    fails,
    made,
    passes,
    running,
    succeeded,
)
from tests.scheduler.states import with_state
from tests.stores import CountingStore

MAX_HELD = "spark.streaming.kstream.maxHeldBatches"
FIRST, SECOND, THIRD, FOURTH = (START + n * INTERVAL for n in (1, 2, 3, 4))


# -- retries


def test_a_failed_batch_is_tried_again_with_its_own_records_and_no_error_is_reported() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "3"})
    sink.away = {FIRST}
    fails(driver, 2)
    sink.away = set()
    driver.tick(1)
    world.wait(lambda: FIRST in succeeded(world))
    driver.settle()
    assert world.records_by_time() == {FIRST: (0, 1), SECOND: (2,)}
    assert driver.errors == []
    assert read_log(world.store).pending == []
    assert read_log(world.store).failures == {}


def test_later_batches_run_meanwhile_under_continue() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "9"})
    sink.away = {FIRST}
    fails(driver)
    driver.tick(1)
    driver.tick(1)
    assert succeeded(world) == [SECOND, THIRD]


def test_no_input_hears_of_a_batch_between_two_tries_as_one_that_is_late() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "9"})
    sink.away = {FIRST}
    fails(driver)
    assert list(driver.input.services.open_batches()) == []


def test_the_inputs_hear_of_the_batches_that_a_failed_one_holds_up() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {POLICY: "hold", RETRIES: "9"})
    sink.away = {FIRST}
    fails(driver)
    driver.tick_only(1)
    driver.settle()
    assert driver.input.services.open_batches() == {Time(SECOND)}


def test_the_back_off_doubles() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "4"})
    sink.away = {FIRST}
    fails(driver)
    seen = []
    for _ in range(8):
        passes(driver, INTERVAL)
        seen.append(sum(a.time == FIRST for a in world.attempts))
    assert seen == [2, 2, 3, 3, 3, 3, 4, 4]


def test_when_the_retries_are_used_up_the_error_is_reported_once_and_the_failure_is_recorded() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "2"})
    sink.away = {FIRST}
    fails(driver)
    passes(driver, INTERVAL)
    assert driver.errors == []
    passes(driver, 2 * INTERVAL)
    driver.wait_error(SinkAwayError)
    passes(driver, 3 * MINUTE)
    assert len(driver.errors) == 1
    assert read_log(world.store).failures == {Time(FIRST): 1}
    assert read_log(world.store).pending == [Time(FIRST)]


def test_neither_the_record_of_a_failure_nor_the_log_has_the_password_of_the_sink(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    class Refusing(Sink):
        def write(self, time: int) -> None:
            if time == FIRST:
                raise SinkAwayError(f"could not connect: postgresql://app:hunter2@db/prod\nof batch {time}: password=hunter2")

    driver = running(world, Refusing(), {RETRIES: "1"})
    fails(driver)
    passes(driver, 3 * MINUTE)
    (record,) = world.store.list(names.FAILED)
    stored = world.store.read(f"{names.FAILED}/{record}").decode()
    assert "could not connect: postgresql://app:(secret)@db/prod\\nof batch" in stored and "hunter2" not in stored
    assert "failed, try 1 of 2" in caplog.text and "failed again, try 3" in caplog.text and "app:(secret)@db" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_batch_without_retries_left_is_tried_once_a_minute_while_the_driver_lives() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {})
    sink.away = {FIRST}
    driver.tick(3)
    driver.wait_error(SinkAwayError)
    passes(driver, MINUTE)
    assert sum(a.time == FIRST for a in world.attempts) == 2
    sink.away = set()
    passes(driver, MINUTE)
    assert succeeded(world).count(FIRST) == 1
    assert world.records_by_time()[FIRST] == (0, 1, 2)
    assert read_log(world.store).pending == []


def test_all_batches_of_an_outage_of_the_sink_follow_at_once_oldest_first() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {})
    sink.down = True
    failed = [driver.tick(1) for _ in range(20)]
    sink.down = False
    before = len(world.attempts)
    passes(driver, MINUTE)
    tried = [a.time for a in world.attempts[before:] if a.time in failed]
    assert tried == failed
    world.assert_exact()


def test_outputs_that_have_succeeded_do_not_run_again() -> None:
    world, sink = World(), Sink()
    written: list[tuple[str, int]] = []

    def build(_host: FakeHost, driver: Driver) -> None:
        def first(time: Time, _rdd: Any) -> None:
            written.append(("first", time.milliseconds))

        def second(time: Time, _rdd: Any) -> None:
            sink.write(time.milliseconds)
            written.append(("second", time.milliseconds))

        for output in (first, second):
            driver.host.graph.add_output_stream(ForEachDStream(driver.input, output))

    driver = running(world, sink, {RETRIES: "5"}, build=build)
    sink.away = {FIRST}
    fails(driver)
    sink.away = set()
    passes(driver, INTERVAL)
    assert [output for output, time in written if time == FIRST] == ["first", "second"]
    assert read_log(world.store).pending == []


def test_a_batch_whose_transform_function_failed_is_generated_again() -> None:
    world, sink = World(), Sink()
    calls: list[int] = []

    def build(_host: FakeHost, driver: Driver) -> None:
        def function(time: Time, rdd: Any) -> Any:
            calls.append(time.milliseconds)
            sink.write(time.milliseconds)
            return rdd

        driver.output(TransformedDStream([driver.input], function))

    driver = running(world, sink, {RETRIES: "5"}, build=build)
    sink.away = {FIRST}
    fails(driver)
    sink.away = set()
    passes(driver, INTERVAL)
    assert calls.count(FIRST) == 2
    assert FIRST in succeeded(world)
    assert driver.errors == []
    told = [name for name, event in driver.listener.events if "Batch" in name and event.batchInfo().batchTime().milliseconds() == FIRST]
    assert told == ["onBatchSubmitted", "onBatchStarted", "onBatchCompleted"]


def test_listeners_hear_of_a_batch_once_when_a_retry_has_ended_it() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "5"})
    sink.away = {FIRST}
    fails(driver)
    assert driver.listener.completed() == []
    sink.away = set()
    passes(driver, INTERVAL)
    assert driver.listener.completed().count(FIRST) == 1
    info = next(e.batchInfo() for e in driver.listener.named("onBatchCompleted") if e.batchInfo().batchTime().milliseconds() == FIRST)
    assert all(o.failureReason() is None for o in info.outputOperationInfos().values())
    assert info.tries == 2
    assert [e.batchInfo().batchTime().milliseconds() for e in driver.listener.named("onBatchSubmitted")].count(FIRST) == 1


def test_a_retry_needs_neither_a_plan_nor_another_record_than_the_completion() -> None:
    world = World(CountingStore(World().store))
    sink = Sink()
    driver = running(world, sink, {RETRIES: "5"})
    sink.away = {FIRST}
    fails(driver)
    sink.away = set()
    passes(driver, INTERVAL)
    created = [name for verb, name, _ in world.store.calls if verb == "create" and f"{FIRST:015d}" in name]
    assert created == [f"plans/{FIRST:015d}-000001", f"done/{FIRST:015d}-000001"]


def test_a_driver_that_was_replaced_between_two_tries_tries_nothing_more() -> None:
    world, sink = World(), Sink()
    first = running(world, sink, {RETRIES: "5"})
    sink.away = {FIRST}
    fails(first)
    world.store.create(names.epoch(2), b"{}")
    tried = len(world.attempts)
    passes(first, 2 * INTERVAL)
    assert first.fenced and isinstance(first.fenced[0], FencedError)
    assert len(world.attempts) == tried


def test_a_restart_runs_a_batch_again_whose_driver_died_between_two_tries() -> None:
    world, sink = World(), Sink()
    first = running(world, sink, {RETRIES: "5"})
    sink.away = {FIRST}
    fails(first, 2)
    first.kill()
    sink.away = set()
    second = running(world, sink, {RETRIES: "5"})
    second.tick(1)
    world.assert_exact()


def test_a_stop_between_two_tries_leaves_the_batch_to_the_restart() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "5"})
    sink.away = {FIRST}
    fails(driver)
    driver.stop(graceful=False)
    assert read_log(world.store).pending == [Time(FIRST)]
    assert driver.engine.timer_threads() == []


def test_a_state_job_retries_with_the_state_before_its_batch_and_later_batches_go_on() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "9"}, build=with_state(2))
    undisturbed = World()
    other = running(undisturbed, Sink(), {}, build=with_state(2))
    sink.away = {SECOND}
    driver.tick(1)
    fails(driver)
    for _ in range(3):
        driver.tick(1)
    sink.away = set()
    passes(driver, 20 * INTERVAL)
    for _ in range(5):
        other.tick(1)
    expected = undisturbed.records_by_time()
    assert {time: records for time, records in world.records_by_time().items() if time in expected} == expected
    assert SECOND in succeeded(world)


def test_a_batch_that_is_tried_again_keeps_its_plan_also_when_the_bound_of_kept_batches_is_reached() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {MAX_HELD: "1"})
    sink.down = True
    for _ in range(3):
        driver.tick(1)
        driver.settle()
    passes(driver, 2 * MINUTE)
    sink.down = False
    passes(driver, 2 * MINUTE)
    written, pending = set(succeeded(world)), {t.milliseconds for t in read_log(world.store).pending}
    assert written | pending >= {FIRST, SECOND, THIRD} and FIRST in written
    assert written & pending == set()
    driver.kill()
    running(world, sink, {}).settle()
    world.assert_exact()


def test_a_batch_that_fails_while_the_only_kept_one_is_tried_is_left_to_the_restart_and_not_lost() -> None:
    """Without its plan in memory a retry would make no job, and end the batch without its output."""
    world, sink = World(), Sink()
    driver = made(world, sink, {MAX_HELD: "1"})
    gate, inside = threading.Event(), threading.Event()
    gate.set()

    def output(time: int) -> None:
        if not gate.is_set():
            inside.set()
            gate.wait(20)
        sink.write(time)

    driver.before_job = output
    driver.start()
    sink.away = {FIRST}
    driver.tick(1)
    passes(driver, MINUTE - 2 * INTERVAL)
    gate.clear()
    late = driver.tick_only(1)
    assert inside.wait(20)
    sink.down = True
    for _ in range(2):  # the first batch is due, and queued behind the late one
        driver.tick_only()
    driver.engine._generator.drain(20)
    gate.set()
    driver.settle()
    passes(driver, 2 * MINUTE)
    sink.down, sink.away = False, set()
    passes(driver, 3 * MINUTE)
    assert FIRST in succeeded(world)
    assert late not in succeeded(world) and Time(late) in read_log(world.store).pending
    driver.kill()
    running(world, sink, {}).settle()
    world.assert_exact()


def ends(driver: Driver, time: int) -> list[Any]:
    """The facts with which listeners heard of the ends of a batch."""
    return [e.info for e in driver.listener.named("onBatchCompleted") if e.info.batch_time.milliseconds == time]


def test_listeners_hear_of_the_end_of_a_batch_whose_last_retry_could_not_be_submitted() -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: "1"}, store=store)
    sink.away = {FIRST}
    fails(driver)
    store.down = True
    passes(driver, 2 * INTERVAL)
    assert Time(FIRST) in driver.engine.lifecycle.failed()
    (info,) = ends(driver, FIRST)
    assert info.has_failed and info.numRecords() == 1


def test_listeners_hear_of_no_end_of_a_batch_whose_jobs_were_never_submitted() -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: "1"}, store=store)
    store.down = True
    driver.tick_only(1)
    passes(driver, 3 * INTERVAL)
    assert Time(FIRST) in driver.engine.lifecycle.failed()
    assert ends(driver, FIRST) == []


@pytest.mark.parametrize(("retries", "away"), [("1", 20 * INTERVAL), ("0", 2 * MINUTE)])
def test_a_retry_that_meets_an_outage_of_the_store_uses_no_retry_up(retries: str, away: int) -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: retries, UNREACHABLE_TIMEOUT.key: "10min"}, store=store)
    sink.away = {FIRST}
    driver.tick_only(1)
    world.wait(lambda: world.attempts)
    driver.settle()
    reported, tries = len(driver.errors), driver.engine.lifecycle.retries
    store.down, sink.away = True, set()
    passes(driver, away)
    assert len(driver.errors) == reported and Time(FIRST) in driver.engine.lifecycle.unfinished()
    assert driver.engine.lifecycle.retries == tries, "it was not tried"
    store.down = False
    passes(driver, 2 * INTERVAL)
    assert succeeded(world).count(FIRST) == 1
    assert read_log(world.store).pending == []


def test_a_retry_that_meets_an_outage_longer_than_its_time_is_used_up() -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: "1", UNREACHABLE_TIMEOUT.key: "5s"}, store=store)
    sink.away = {FIRST}
    fails(driver)
    store.down = True
    passes(driver, 7 * INTERVAL)
    assert any(isinstance(error, StorageError) for _, error in driver.errors)
    assert Time(FIRST) in driver.engine.lifecycle.failed()


def test_while_the_store_is_away_one_of_the_batches_that_are_due_looks_and_not_each() -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: "9", UNREACHABLE_TIMEOUT.key: "10min", "spark.streaming.concurrentJobs": "4"}, store=store)
    gate, failed = threading.Event(), {FIRST, SECOND, THIRD, FOURTH}

    def output(time: int) -> None:
        gate.wait(20)
        sink.write(time)

    driver.before_job, sink.away = output, failed
    for _ in range(4):  # all fail at one moment, and so are due at one moment
        driver.tick_only(1)
    world.wait(lambda: len(world.attempts) == 4)
    gate.set()
    driver.settle()
    store.down = True
    driver.engine._generator._timer.stop(interrupt=True)
    looks = []
    for _ in range(3):
        before = store.looks
        wait_for_timers(driver.clock)
        driver.clock.advance(INTERVAL)
        driver.settle()
        looks.append(store.looks - before)
    assert looks == [1, 1, 1]


@pytest.mark.parametrize("retries", ["0", "3"])
def test_a_batch_that_was_never_submitted_has_its_records_when_a_retry_is(retries: str) -> None:
    world, sink = World(), Sink()

    def build(_host: FakeHost, driver: Driver) -> None:
        def function(time: Time, rdd: Any) -> Any:
            sink.write(time.milliseconds)
            return rdd

        driver.output(TransformedDStream([driver.input], function))

    driver = running(world, Sink(), {RETRIES: retries}, build=build)
    sink.away = {FIRST}
    driver.tick_only(5)
    driver.settle()
    for _ in range(5):
        driver.tick_only(1)
        driver.settle()
    sink.away = set()
    passes(driver, MINUTE + INTERVAL)
    assert [info.numRecords() for info in ends(driver, FIRST)] == [5]


# -- hold


@pytest.mark.parametrize("most", ["2", "1000"])
def test_under_hold_a_completion_that_was_refused_once_holds_nothing_up(most: str) -> None:
    world, sink = World(), Sink()
    store = NoCompletion(world.store)
    driver = running(world, sink, {POLICY: "hold", RETRIES: "9", MAX_HELD: most}, store=store)
    sink.down = True
    for _ in range(5):
        driver.tick_only(1)
        driver.settle()
    sink.down, store.refuse = False, 1
    passes(driver, 2 * MINUTE)
    assert read_log(world.store).pending == []
    world.assert_exact()


def test_a_graceful_stop_under_hold_stores_a_refused_completion_and_works_off_the_rest() -> None:
    world, sink = World(), Sink()
    store = NoCompletion(world.store)
    driver = running(world, sink, {POLICY: "hold"}, store=store)
    release = threading.Event()
    driver.before_job = lambda _time: release.wait(20) or None
    for _ in range(3):
        driver.tick_only(1)
    driver.engine._generator.drain(20)
    store.refuse = 1
    release.set()
    driver.stop(graceful=True)
    assert read_log(world.store).pending == []
    world.assert_exact()


def test_under_hold_later_batches_are_planned_and_start_no_job_until_the_failed_one_has_succeeded() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "9", POLICY: "hold"})
    sink.away = {FIRST}
    fails(driver)
    for _ in range(3):
        driver.tick_only(1)
        driver.settle()
    assert {a.time for a in world.attempts} == {FIRST}
    assert [t.milliseconds for t in read_log(world.store).pending] == [FIRST, SECOND, THIRD, FOURTH]
    sink.away = set()
    passes(driver, 8 * INTERVAL)
    assert succeeded(world)[:4] == [FIRST, SECOND, THIRD, FOURTH]
    world.assert_exact()


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_under_hold_outputs_see_the_batches_in_their_order(jobs: str) -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {RETRIES: "9", POLICY: "hold", "spark.streaming.concurrentJobs": jobs})
    for n in range(12):
        sink.away = {START + (n + 1) * INTERVAL} if n % 3 == 0 else set()
        driver.tick_only(1)
        driver.settle()
    sink.away = set()
    passes(driver, MINUTE)
    assert succeeded(world) == sorted(set(succeeded(world)))
    world.assert_exact()


def test_under_hold_the_order_stays_when_the_store_is_away_as_the_oldest_batch_starts() -> None:
    world, sink = World(), Sink()
    store = Away(world.store)
    driver = running(world, sink, {RETRIES: "9", POLICY: "hold", UNREACHABLE_TIMEOUT.key: "10min"}, store=store)
    sink.away = {FIRST}
    fails(driver)
    for _ in range(3):
        driver.tick_only(1)
        driver.settle()
    sink.away = set()

    def away_after(time: int) -> None:
        store.down = time == FIRST

    driver.before_job = away_after
    passes(driver, 8 * INTERVAL)
    assert store.down and store.looks > 1 and succeeded(world) == [FIRST]
    store.down = False
    passes(driver, 2 * INTERVAL)
    assert succeeded(world)[:4] == [FIRST, SECOND, THIRD, FOURTH]
    world.assert_exact()


def test_no_more_batches_are_planned_than_may_be_held_and_the_next_plan_takes_the_records() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {POLICY: "hold", MAX_HELD: "3"})
    sink.down = True
    driver.tick(1)
    for _ in range(20):
        driver.tick_only(1)
        driver.settle()
    assert len(read_log(world.store).pending) == 4
    sink.down = False
    passes(driver, MINUTE)
    world.assert_exact()


def test_under_hold_a_batch_without_retries_left_reports_its_error_and_goes_on_holding() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {POLICY: "hold"})
    sink.away = {FIRST}
    driver.tick(1)
    driver.wait_error(SinkAwayError)
    driver.tick_only(1)
    driver.settle()
    assert {a.time for a in world.attempts} == {FIRST}
    sink.away = set()
    passes(driver, MINUTE)
    assert succeeded(world)[:2] == [FIRST, SECOND]
    assert len(driver.errors) == 1


def test_a_restart_under_hold_runs_the_pending_batches_in_their_order_and_waits_for_a_failing_one() -> None:
    world, sink = World(), Sink()
    first = running(world, sink, {POLICY: "hold"})
    sink.down = True
    first.tick(1)
    for _ in range(3):
        first.tick_only(1)
        first.settle()
    first.kill()
    world.attempts.clear()
    second = running(world, sink, {POLICY: "hold"})
    second.settle()
    assert {a.time for a in world.attempts} == {FIRST}
    sink.down = False
    passes(second, MINUTE)
    assert succeeded(world)[:4] == [FIRST, SECOND, THIRD, FOURTH]
    world.assert_exact()


def test_a_graceful_stop_works_off_what_is_held_when_the_sink_comes_back() -> None:
    world, sink = World(), Sink()
    driver = running(world, sink, {POLICY: "hold", RETRIES: "9"})
    driver.tick(1)
    driver.tick_only(1)
    driver.stop(graceful=True)
    assert read_log(world.store).pending == []
    world.assert_exact()

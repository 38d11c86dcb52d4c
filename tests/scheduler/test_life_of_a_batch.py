"""A batch moves in one direction: planned, plan durable, submitted, run, completion durable, told."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from kstream import crash_point
from kstream.batch import BatchDelays
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Seconds, Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.outcomes import read_completion
from kstream.dstream import TransformedDStream, UnionDStream
from kstream.dstream.base import node_of
from kstream.dstream.node import DStreamNode
from kstream.errors import ConfigurationError, JvmLostError, NoRDDError
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World, mapped, started
from tests.stores import CountingStore


def test_the_first_batch_is_one_interval_after_the_zero_time_and_takes_what_there_is() -> None:
    world = World()
    world.produce(3)
    driver = started(world)
    assert driver.tick(2) == START + INTERVAL
    assert driver.tick(1) == START + 2 * INTERVAL
    assert world.records_by_time() == {START + INTERVAL: (0, 1, 2, 3, 4), START + 2 * INTERVAL: (5,)}


def test_the_plan_is_durable_before_the_first_job_starts() -> None:
    world = World()
    seen: list[bool] = []
    driver = Driver(world)
    driver.before_job = lambda time: seen.append(f"{time:015d}-000001" in world.store.list("plans"))
    driver.start()
    driver.tick(1)
    assert seen == [True]


def test_the_completion_has_the_delays_that_listeners_hear_of() -> None:
    world = World()
    driver = started(world)
    driver.before_job = lambda _time: driver.clock.advance(100, wait=False)
    time = Time(driver.tick(1))
    driver.settle()
    stored, info = read_completion(world.store, time, 1), driver.listener.named("onBatchCompleted")[-1].info
    assert stored is not None and stored.delays == BatchDelays(0, 100)
    assert (info.scheduling_delay_ms, info.processing_delay_ms) == (0, 100)


def test_the_completion_is_durable_before_listeners_hear_of_it() -> None:
    """CP3: two records a batch, of its plan and of its end."""
    world = World(CountingStore(World().store))
    driver = started(world)
    time = driver.tick(1)
    stored = [name for verb, name, _ in world.store.calls if verb == "create"]
    assert stored.index(f"done/{time:015d}-000001") > stored.index(f"plans/{time:015d}-000001")
    assert time in [t.milliseconds for t in read_log(world.store).done]


def test_the_inputs_are_started_asked_where_they_stand_and_stopped() -> None:
    driver = started(World())
    driver.tick()
    driver.stop()
    assert driver.input.calls == ["start", "starting_point", "stop"]


def test_an_input_that_feeds_no_output_is_never_planned() -> None:
    world = World()
    driver = Driver(world)
    idle = LogInput(driver.host, world.log)
    driver.start()
    driver.tick(3)
    assert idle.calls == [] and idle.cursor == 0
    assert list(read_log(world.store).plans.values())[-1].inputs.keys() == {0}


def test_a_tick_without_jobs_is_planned_and_completed_at_once() -> None:
    """JG2: without a job there are no events of the batch."""
    world = World()

    def build(_host: object, driver: Driver) -> None:
        driver.output(driver.input.window(2, 2))

    driver = started(world, build=build)
    driver.tick_only(1)
    world.wait(lambda: len(read_log(world.store).done) == 2)
    assert driver.listener.completed() == []
    time = driver.tick(1)
    assert world.records_by_time() == {time: (0, 1)}
    assert read_log(world.store).pending == []


def test_a_failed_batch_does_not_stop_the_stream_and_stays_pending() -> None:
    """Spark behaviour JG2."""
    world = World()
    driver = Driver(world)

    def fail_first(time: int) -> None:
        if time == START + INTERVAL:
            raise ValueError("boom")

    driver.before_job = fail_first
    driver.start()
    failed = driver.tick(1)
    good = driver.tick(1)
    contents = read_log(world.store)
    assert [t.milliseconds for t in contents.pending] == [failed]
    assert good in [t.milliseconds for t in contents.done]
    assert [str(error) for _, error in driver.errors] == ["boom"]
    assert list(contents.failures.values()) == [1]


def test_a_batch_that_loses_its_jvm_has_not_failed_and_no_further_job_starts() -> None:
    """Of those that fail there may be only so many re-runs."""
    world = World()
    driver = Driver(world)

    def lose(_time: int) -> None:
        raise JvmLostError("gone", pid=1, status=-9)

    driver.before_job = lose
    driver.start()
    lost = driver.tick_only(1)
    driver.wait_error(JvmLostError)
    waiting = driver.tick_only(1)
    world.wait(lambda: Time(waiting) in read_log(world.store).plans)
    driver.stop(graceful=False)
    contents = read_log(world.store)
    assert [t.milliseconds for t in contents.pending] == [lost, waiting] and contents.failures == {}
    assert len(driver.errors) == 1 and list(world.records_by_time()) == [lost]
    again = started(world)
    again.tick()
    assert {lost: (0,), waiting: (1,)}.items() <= world.records_by_time().items()


def test_a_batch_whose_generation_loses_its_jvm_has_not_failed() -> None:
    world = World()

    def lose(_time: object, _rdd: object) -> object:
        raise JvmLostError("gone", pid=1, status=-9)

    driver = started(world, build=lambda _host, d: d.output(TransformedDStream([d.input], lose)))
    lost = driver.tick_only(1)
    driver.wait_error(JvmLostError)
    driver.stop(graceful=False)
    contents = read_log(world.store)
    assert [t.milliseconds for t in contents.pending] == [lost] and contents.failures == {}


def test_a_batch_whose_generation_fails_stays_pending_and_its_cursor_has_moved() -> None:
    world = World()

    def build(_host: object, driver: Driver) -> None:
        def fail_once(time: object, rdd: object) -> object:
            if not driver.errors:
                raise ValueError("no graph today")
            return rdd

        driver.output(TransformedDStream([driver.input], fail_once))

    driver = started(world, build=build)
    failed = driver.tick_only(2)
    driver.wait_error(ValueError)
    driver.tick(1)
    assert [t.milliseconds for t in read_log(world.store).pending] == [failed]
    assert world.records_by_time() == {failed + INTERVAL: (2,)}


@pytest.mark.parametrize("below", ["transform", "union"])
def test_a_parent_without_an_rdd_fails_the_batch(below: str) -> None:
    def build(_host: object, driver: Driver) -> None:
        driver.input.rdd = lambda _time, _data: None
        stream = mapped(driver.input) if below == "transform" else UnionDStream([driver.input, driver.input])
        driver.output(stream)

    world = World()
    driver = started(world, build=build)
    time = driver.tick_only(1)
    driver.wait_error(NoRDDError)
    assert str(time) in str(driver.errors[0][1])
    assert [t.milliseconds for t in read_log(world.store).pending] == [time]


def test_a_transform_that_returns_none_fails_the_batch() -> None:
    world = World()
    driver = started(world, build=lambda _host, d: d.output(TransformedDStream([d.input], lambda _time, _rdd: None)))
    driver.tick_only(1)
    driver.wait_error(NoRDDError)
    assert "returned None" in str(driver.errors[0][1])


def test_an_input_that_cannot_plan_moves_nothing_and_the_next_batch_takes_it_all() -> None:
    world = World()
    driver = Driver(world)

    def unreachable_once(time: object) -> None:
        if not driver.errors:
            raise ConnectionError("no broker")

    driver.input.before_plan = unreachable_once
    driver.start()
    driver.tick_only(2)
    driver.wait_error(ConnectionError)
    time = driver.tick(1)
    assert world.records_by_time() == {time: (0, 1, 2)}
    driver.stop()
    world.assert_exact()


def test_a_window_over_a_batch_that_was_not_planned_has_the_others() -> None:
    world = World()
    driver = Driver(world, build=lambda _h, d: d.output(mapped(d.input).window(3)))

    def second_fails(time: object) -> None:
        if str(time) == f"{START + 2 * INTERVAL} ms":
            raise ConnectionError("no broker")

    driver.input.before_plan = second_fails
    driver.start()
    driver.tick(1)
    driver.tick_only(1)
    driver.wait_error(ConnectionError)
    third = driver.tick(1)
    fourth = driver.tick(1)
    assert world.records_by_time()[third] == (0, 1, 2)
    assert world.records_by_time()[fourth] == (1, 2, 3)
    assert len(driver.errors) == 1


def test_an_input_whose_cursor_cannot_move_leaves_the_batch_pending() -> None:
    world = World()
    driver = Driver(world)
    driver.input.planned = lambda _time, _data: (_ for _ in ()).throw(RuntimeError("stuck"))
    driver.start()
    time = driver.tick_only(1)
    driver.wait_error(RuntimeError)
    driver.stop(timeout=5)
    contents = read_log(world.store)
    assert [t.milliseconds for t in contents.pending] == [time]
    assert list(contents.failures.values()) == [1]


def test_a_job_is_run_without_a_checkpoint_too() -> None:
    world = World()
    driver = started(world, checkpoint=False)
    driver.tick(2)
    driver.tick(2)
    driver.stop()
    world.assert_exact()
    assert world.store.list() == []


def test_old_rdds_and_plans_are_forgotten_as_batches_end() -> None:
    world = World()
    driver = started(world, build=lambda _h, d: d.output(d.input.window(3)))
    for _ in range(12):
        last = driver.tick(1)
    stream = driver.input
    world.wait(lambda: min(t.milliseconds for t in stream.generated_times) > last - 5 * INTERVAL)
    world.wait(lambda: len(world.store.list("plans")) <= 6)
    assert world.records_by_time()[last] == (9, 10, 11)
    assert len(world.store.list("done")) <= 6


def test_streams_remember_as_long_as_the_windows_below_need() -> None:
    """Spark behaviour BO20: outer 3 s, inner 3 + 4 = 7 s, mapped 3 + 4 + 2 = 9 s."""
    world = World()
    streams: list[DStreamNode] = []

    def build(host: FakeHost, driver: Driver) -> None:
        inner_map = mapped(driver.input)
        inner = inner_map.window(2, 1)
        outer = inner.window(Seconds(4), Seconds(2))
        streams.extend(map(node_of, (outer, inner, inner_map)))
        host.graph.remember(Seconds(3))
        driver.output(outer)

    driver = started(world, build=build)
    for n in range(10):
        driver.tick_only(1)
        world.wait(lambda n=n: len(read_log(world.store).plans) > 0 and len(driver.listener.completed()) == (n + 1) // 2)
    outer, inner, inner_map = streams
    assert [s.remember_duration for s in streams] == [Duration(3000), Duration(7000), Duration(9000)]
    driver.stop()
    t10 = START + 10 * INTERVAL

    def remembered(stream: DStreamNode) -> list[int]:
        return [(t.milliseconds - START) // INTERVAL for t in stream.generated_times]

    driver.engine._generator._clear_metadata()
    assert t10 in [t.milliseconds for t in outer.generated_times]
    assert remembered(outer) == [8, 10]
    assert remembered(inner) == [4, 5, 6, 7, 8, 9, 10]
    assert remembered(inner_map) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert len(driver.listener.completed()) == 5


def test_a_stop_at_once_leaves_the_rest_pending_and_a_job_it_cut_short_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kstream")
    world = World()
    driver = Driver(world)
    cancelled, waiting = threading.Event(), threading.Event()

    def job(_time: int) -> None:
        waiting.set()
        cancelled.wait(20)
        raise RuntimeError("job was cancelled")

    driver.before_job = job

    def cancel_all() -> None:
        cancelled.set()
        for thread in driver.engine._scheduler._pool._threads:
            thread.join(20)

    driver.environment.cancel_all = cancel_all
    driver.start()
    driver.tick_only(1)
    driver.tick_only(1)
    assert waiting.wait(20)
    driver.stop(graceful=False, timeout=0.1)
    contents = read_log(world.store)
    assert len(contents.pending) == 2 and contents.failures == {}
    assert driver.errors == [] and "was cut short by the stop: RuntimeError: job was cancelled" in caplog.text


def test_clean_up_never_passes_the_lowest_unfinished_batch() -> None:
    world = World()
    driver = Driver(world)
    driver.before_job = lambda time: (_ for _ in ()).throw(ValueError("boom")) if time == START + INTERVAL else None
    driver.start()
    failed = driver.tick(1)
    for _ in range(6):
        driver.tick(1)
    driver.stop()
    assert failed in [t.milliseconds for t in read_log(world.store).plans]
    assert [t.milliseconds for t in read_log(world.store).pending] == [failed]


@pytest.mark.parametrize("value", ["0", "-1"])
def test_concurrent_jobs_below_one_are_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="concurrentJobs"):
        Driver(World(), {"spark.streaming.concurrentJobs": value})


def test_concurrent_jobs_above_one_need_pinned_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(ConfigurationError, match="PYSPARK_PIN_THREAD"):
        Driver(World(), {"spark.streaming.concurrentJobs": "2"})
    Driver(World(), {"spark.streaming.concurrentJobs": "1"})


def test_the_crash_points_are_reached_in_the_order_of_a_batch() -> None:
    world = World()
    reached: list[str] = []
    crash_point.install(reached.append)
    driver = started(world)
    driver.tick(1)
    world.wait(lambda: crash_point.CLEANING in reached)
    assert reached[:5] == list(crash_point.CRASH_POINTS)


def test_clean_up_that_was_held_up_is_made_up_for_at_once() -> None:
    """By a block store that does not answer, say: no stop waits for one after the other."""
    world = World()
    driver = Driver(world)
    inside, gate, cleaned = threading.Event(), threading.Event(), list[int]()

    def clean(required: RequiredBatches) -> None:
        cleaned.append(required.line.milliseconds)
        inside.set()
        gate.wait(20)

    generator: Any = driver.open()._generator  # pyright: ignore
    generator._callbacks = replace(generator._callbacks, before_clean=clean)
    driver.start()
    driver.tick(1)
    assert inside.wait(20)
    for _ in range(10):
        driver.tick(1)
    world.wait(lambda: driver.engine._generator._cleaner._queue.qsize() >= 10)
    gate.set()
    driver.stop()
    assert len(cleaned) == 2


def test_plans_tell_when_the_oldest_unfinished_batch_was() -> None:
    world = World()
    driver = Driver(world)
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(20)
    driver.start()
    first = driver.tick_only(1)
    driver.tick_only(1)
    world.wait(lambda: len(world.store.list("plans")) == 3)
    newest = max(world.store.list("plans"))
    floor = read_log(world.store).plans[names.parse_key(newest)[0]].floor
    gate.set()
    assert floor.milliseconds == first

"""With `skipEmptyBatches` a batch without data ends without the user's functions, and a long downtime costs next to nothing."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Sequence
from pathlib import PurePath
from typing import Any

import pytest

from kstream.batch import JsonPlan, PlannedInput
from kstream.batch_time import Seconds, Time
from kstream.checkpoint import names
from kstream.direct.log_plan import LogPlan
from kstream.dstream.file_input_dstream import FilePlan
from kstream.dstream.receiver_input_dstream import PlannedBlock, ReceiverPlan
from kstream.files.file_systems import FileStatus
from kstream.offsets.offset_range import LostRange, OffsetRange
from kstream.scheduler.empty_batches import streams_of_every_batch
from kstream.storage import MemoryFileStore
from tests.clocks import JumpingClock
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Build, Driver, LogInput, World, at, started
from tests.stores import CountingStore

SKIP = {"spark.streaming.kstream.skipEmptyBatches": "true"}
WEEKEND = 2 * 24 * 3600
"""Ticks of a second."""


def counted() -> World:
    return World(CountingStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}")))


def planned(world: World, records: str = names.PLANS) -> list[int]:
    """The batch times whose plans were written, in this order; clean-up takes none out."""
    created = (PurePath(name) for verb, name, _ in list(world.store.calls) if verb == "create" and name.startswith(records + "/"))
    keys = (names.parse_key(path.name) for path in created)
    return [key[0].milliseconds for key in keys if key is not None]


def ended(world: World, time: int) -> None:
    world.wait(lambda: time in planned(world, names.DONE))


def tick(driver: Driver, produced: int = 0) -> int:
    """One batch, also if no event tells of it."""
    time = driver.tick_only(produced)
    ended(driver.world, time)
    return time


def transforming(called: list[int]) -> Build:
    """A graph whose transform function notes its calls."""

    def build(host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.transform(lambda time, rdd: (called.append(time.milliseconds), rdd)[1]))

    return build


def test_a_batch_without_data_is_planned_and_ended_without_the_users_functions() -> None:
    world, called = counted(), list[int]()
    driver = Driver(world, SKIP, build=transforming(called)).start()
    tick(driver)
    tick(driver, 2)
    tick(driver)
    driver.stop()
    assert world.times() == called == driver.listener.completed() == [at(2)]
    assert planned(world) == planned(world, names.DONE) == [START, at(1), at(2), at(3)] and driver.errors == []
    world.assert_exact()


def test_by_default_every_batch_runs_as_in_spark() -> None:
    world, called = counted(), list[int]()
    driver = Driver(world, build=transforming(called)).start()
    for _ in range(3):
        tick(driver)
    driver.stop()
    assert world.times() == called == [at(1), at(2), at(3)]


def stateful(host: FakeHost, driver: Driver) -> None:
    driver.output(driver.input.map(lambda n: (0, n)).updateStateByKey(lambda values, state: sum(values, state or 0)))


def windowed(host: FakeHost, driver: Driver) -> None:
    driver.output(driver.input.window(Seconds(2), Seconds(1)))


def one_of_two_windowed(host: FakeHost, driver: Driver) -> None:
    driver.output(driver.input)
    driver.input.window(Seconds(2), Seconds(1)).foreachRDD(lambda rdd: None)


@pytest.mark.parametrize(
    ("build", "named"), [(stateful, "updateStateByKey"), (windowed, "WindowedDStream"), (one_of_two_windowed, "WindowedDStream")]
)
def test_a_job_with_a_state_or_a_window_runs_every_batch_and_a_warning_says_why(
    build: Build, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = counted()
    with caplog.at_level(logging.WARNING, logger="kstream.scheduler.empty_batches"):
        driver = Driver(world, SKIP, build=build).start()
    for _ in range(3):
        tick(driver)
    driver.stop()
    assert world.times() == [at(1), at(2), at(3)]
    assert "skipEmptyBatches has no effect" in caplog.text and named in caplog.text


@pytest.mark.parametrize(("window", "needed"), [(1, 0), (2, 1)])
def test_a_window_of_one_batch_needs_no_other_batch(window: int, needed: int) -> None:
    host = FakeHost({})
    stream = LogInput(host, []).window(Seconds(window), Seconds(1))
    stream.foreachRDD(lambda rdd: None)
    assert len(streams_of_every_batch(host.graph.in_order())) == needed


def test_a_batch_runs_if_any_of_its_inputs_has_data_or_does_not_know() -> None:
    class Unknown(LogInput):
        def plan(self, time: Time) -> JsonPlan:
            return JsonPlan(dict(super().plan(time)))

    def two(kind: type[LogInput], log: list[int]) -> Build:
        def build(host: FakeHost, driver: Driver) -> None:
            driver.output(driver.input.union(kind(host, log)))

        return build

    for kind, log, expected in ((LogInput, [7], [at(1)]), (LogInput, [], []), (Unknown, [], [at(1), at(2)])):
        world = counted()
        driver = Driver(world, SKIP, build=two(kind, log)).start()
        tick(driver)
        tick(driver)
        driver.stop()
        assert world.times() == expected, kind


ROW = OffsetRange("t", 0, 5, 5), OffsetRange("t", 1, 5, 6)


@pytest.mark.parametrize(
    ("plan", "empty"),
    [
        (LogPlan("log", ROW[:1]), True),
        (LogPlan("log", ROW), False),
        (LogPlan("log", ROW[:1], [LostRange("t", 0, 1, 5, "retention", "gone")]), False),
        (FilePlan((), 0, 0), True),
        (FilePlan((FileStatus("/a", 1, 1),), 0, 0), False),
        (ReceiverPlan(()), True),
        (ReceiverPlan((PlannedBlock("input-0-1", None),)), False),
        (JsonPlan({}), False),
        (JsonPlan({}, is_empty=True), True),
    ],
)
def test_a_plan_is_empty_only_if_it_certainly_has_nothing(plan: PlannedInput, empty: bool) -> None:
    assert plan.is_empty is empty


# -- a downtime


def down_for(ticks: int, conf: dict[str, str], produced: int = 0, **options: Any) -> tuple[World, list[int]]:
    """A driver runs one batch and stops; the next one starts after so many ticks. Its batches of the downtime."""
    world = counted()
    first = started(world, conf, **options)
    tick(first, 1)
    first.stop()
    world.attempts.clear()
    before = set(planned(world))
    world.produce(produced)
    world.clock.advance(ticks * INTERVAL)
    again = started(world, conf, **options)
    ended(world, at(1 + ticks))
    made = [time for time in planned(world) if time not in before]
    again.stop()
    assert again.errors == []
    return world, made


def test_a_weekend_down_costs_two_plans_and_no_job() -> None:
    """172,800 batches of a second were missed. The first plan is empty; the last one is made, so that the next batch follows it."""
    world, made = down_for(WEEKEND, SKIP)
    assert made == [at(2), at(1 + WEEKEND)]
    assert world.times() == []


def test_without_the_setting_a_weekend_runs_a_thousand_batches() -> None:
    world, made = down_for(WEEKEND, {})
    assert len(made) == len(world.times()) == 1000


def test_a_backlog_is_worked_off_under_the_rate_limit_and_the_empty_rest_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="kstream.scheduler.empty_batches"):
        world, made = down_for(WEEKEND, SKIP, produced=25, most=10)
    assert world.records_by_time() == {at(2): tuple(range(1, 11)), at(3): tuple(range(11, 21)), at(4): tuple(range(21, 26))}
    assert made == [at(2), at(3), at(4), at(5), at(1 + WEEKEND)]
    assert f"995 missed batches after {at(5)} ms are left out: the inputs have no more data" in caplog.text


def test_a_short_downtime_is_left_out_too() -> None:
    assert down_for(200, SKIP)[1] == [at(2), at(201)]
    assert down_for(1, SKIP)[1] == [at(2)]


class ByTimestamp(LogInput):
    """Knows at which of the missed times it has records."""

    busy: Sequence[int] = ()

    def missed(self, times: Sequence[Time]) -> Collection[Time]:
        super().missed(times)
        return [Time(ms) for ms in self.busy]


def by_timestamp(*others: type[LogInput]) -> Build:
    def build(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.clear()
        driver.input = ByTimestamp(host, driver.world.log)
        driver.input.busy = [at(50), at(70)]
        streams: list[Any] = [driver.input, *(kind(host, []) for kind in others)]
        driver.output(streams[0] if len(streams) == 1 else streams[0].union(streams[1]))

    return build


def test_of_inputs_that_know_their_times_only_those_times_and_the_last_are_planned() -> None:
    assert down_for(100, SKIP, build=by_timestamp())[1] == [at(50), at(70), at(101)]


def test_beside_an_input_that_catches_up_the_known_times_are_planned_too() -> None:
    assert down_for(100, SKIP, build=by_timestamp(LogInput))[1] == [at(2), at(50), at(70), at(101)]


def test_a_job_with_a_window_makes_the_missed_batches_that_it_makes_without_the_setting() -> None:
    assert down_for(100, SKIP, build=windowed)[1] == [at(n) for n in range(2, 102)]


class Decoding(LogInput):
    """Knows of a stored plan, too, that it is empty, as the inputs of kstream do."""

    def decode(self, data: Any) -> JsonPlan:
        return JsonPlan(data, is_empty=data["until"] == data["from"])


def decoding(host: FakeHost, driver: Driver) -> None:
    host.graph._inputs.clear()
    driver.input = Decoding(host, driver.world.log, driver.input.most)
    driver.output(driver.input)


def test_an_empty_pending_batch_tells_nothing_of_the_backlog() -> None:
    """It was empty when it was planned; the driver was killed before its completion. It needs no function either."""
    world = counted()
    driver = started(world, SKIP, build=decoding)
    tick(driver, 1)
    driver.die_at("plan-durable")
    world.produce(25)
    world.clock.advance(100 * INTERVAL)
    again = started(world, SKIP, most=10, build=decoding)
    ended(world, at(102))
    again.stop()
    assert [time for time in world.times() if time > at(1)] == [at(3), at(4), at(5)]
    world.assert_exact()


# -- overdue ticks


def test_a_clock_that_jumps_a_day_ahead_costs_two_plans_and_no_job() -> None:
    world = World(CountingStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}")), JumpingClock())
    driver = started(world, SKIP)
    world.produce(1)
    world.clock.wait_for_waiters()
    world.clock.advance(INTERVAL)
    ended(world, at(1))
    world.clock.wait_for_waiters()
    world.clock.jump(86_400 * INTERVAL)
    ended(world, at(86_401))
    world.produce(1)
    world.clock.wait_for_waiters()
    world.clock.advance(INTERVAL)
    ended(world, at(86_402))
    driver.stop()
    assert planned(world) == [START, at(1), at(2), at(86_401), at(86_402)]
    assert world.times() == [at(1), at(86_402)] and driver.errors == []

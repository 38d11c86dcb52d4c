"""A plan that was removed is an error where its records are in no other plan; every legal history is silent. (So is the simulator's.)"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kstream_kafka.planning.plan import KafkaPlan, skipped_between

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import format, names, read_log
from kstream.checkpoint.missing_plans import Hole, holes
from kstream.checkpoint.offline import forget_batch, forget_missing, move_streams
from kstream.checkpoint.reader import LogContents
from kstream.dstream.stored_stream import StoredStream
from kstream.errors import MissingPlanError, PlanFailedError
from kstream.offsets.offset_range import LostRange, OffsetRange
from kstream.scheduler import batch_planner, missed_batches
from kstream.storage import MemoryFileStore
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World, at, failing, started
from tests.simulator import NO_FAULTS, NumberSource, Scenario
from tests.simulator.kafka import KafkaSource
from tests.simulator.schedule import Schedule
from tests.stores import FaultyStore

ALL = range(1, 100)


def broken(world: World, ticks: int = 5, *failed: int, **options: Any) -> None:
    """A driver of so many batches of two records, of which these have failed, all if none is named; it has stopped."""
    driver = failing(world, *(at(n) for n in failed or ALL), **options)
    driver.settle()
    for _ in range(ticks):
        driver.tick(2)
    driver.stop()


def plan_name(n: int, epoch: int = 1) -> str:
    return names.plan(Time(at(n)), epoch)


def test_a_start_that_is_refused_for_a_missing_plan_fences_nobody() -> None:
    world = World()
    running = failing(world, *(at(n) for n in ALL))
    for _ in range(5):
        running.tick(2)
    world.store.delete(plan_name(3))
    with pytest.raises(MissingPlanError):
        Driver(world).start()
    running.tick(2)
    running.stop()
    assert running.fenced == [] and [name for name in world.store.list("") if name.startswith("epoch-")] == ["epoch-1"]


def test_a_pending_plan_that_was_removed_stops_the_start_and_is_named() -> None:
    world = World()
    broken(world)
    removed = world.store.read(plan_name(3))
    world.store.delete(plan_name(3))
    with pytest.raises(MissingPlanError) as caught:
        Driver(world).start()
    said = str(caught.value)
    assert caught.value.facts["times"] == [at(3)] and caught.value.facts["skipped"] == ["[4, 6)"]
    assert f"{at(3)} ms" in said and "[4, 6) is in no plan" in said and f"--forget-batch {at(3)}" in said
    world.store.create(plan_name(3), removed)
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()


def test_the_user_may_go_on_without_the_records_of_a_missing_plan() -> None:
    world = World()
    broken(world)
    world.store.delete(plan_name(3))
    assert forget_missing(world.store, Time(at(3)))
    for _ in range(2):
        again = started(world)
        again.tick(1)
        again.stop()
    done = {record for a in world.attempts if a.finished for record in a.records}
    assert set(world.log) - done == {4, 5}


@pytest.mark.parametrize("n", [0, 5, 6])
def test_only_a_batch_between_two_plans_can_be_missing(n: int) -> None:
    world = World()
    broken(world)
    assert not forget_missing(world.store, Time(at(n)))


def test_the_bytes_of_the_note_that_a_missing_plan_is_done_without() -> None:
    world = World()
    broken(world)
    forget_missing(world.store, Time(at(3)))
    (name,) = world.store.list(names.FORGOTTEN)
    assert name == names.key(Time(at(3)), 0)
    assert world.store.read(f"{names.FORGOTTEN}/{name}") == (
        b'{"checksum":"aab3ba4f19958b650b55bee41d728ab519862620a96cdf62079b65fc8a18888a","kind":"forgotten","time":1003000,"version":1}'
    )


def test_a_missing_plan_of_an_earlier_driver_is_found_too() -> None:
    world = World()
    broken(world, 3)
    broken(world, 3)
    world.store.delete(plan_name(3))
    with pytest.raises(MissingPlanError) as caught:
        Driver(world).start()
    assert caught.value.facts["times"] == [at(3)]


# -- legal histories


def silent(world: World, **options: Any) -> None:
    """Two more starts, for what the first one tidies away must not alarm the second."""
    for _ in range(2):
        driver = started(world, **options)
        driver.settle()
        driver.tick(1)
        driver.stop()
    world.assert_exact()


def test_a_plan_of_a_batch_that_is_done_may_be_missing() -> None:
    """Its records have been processed: also while an older batch is pending, so that the floor says nothing."""
    world = World()
    broken(world, 5, 1)
    world.store.delete(plan_name(3))
    assert read_log(world.store).pending == [Time(at(1))]
    driver = failing(world, at(1))
    driver.tick(1)
    driver.stop()
    silent(world)


def test_a_tick_that_could_not_be_planned_is_no_missing_plan() -> None:
    world = World()
    driver = failing(world, *(at(n) for n in ALL))
    driver.tick(2)

    def away(_time: Time) -> None:
        raise ConnectionError("no broker")

    driver.input.before_plan = away
    driver.tick_only(2)
    driver.wait_error(ConnectionError)
    driver.input.before_plan = lambda _time: None
    driver.tick(2)
    driver.stop()
    silent(world)


def test_a_plan_that_could_not_be_stored_is_no_missing_plan() -> None:
    world = World()
    faulty = FaultyStore(world.store)
    driver = failing(world, *(at(n) for n in ALL), store=faulty)
    driver.tick(2)
    left = ["before"]
    faulty.fault = lambda verb, name: left.pop() if left and verb == "create" and name.startswith("plans/") else None
    driver.tick_only(2)
    driver.wait_error(PlanFailedError)
    driver.tick(2)
    driver.stop()
    silent(world)


def test_missed_batches_that_were_coalesced_are_no_missing_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_planner.batches_during_downtime, "__defaults__", ((), 3))
    monkeypatch.setattr(missed_batches, "GRACE_MS", INTERVAL // 2)
    world = World()
    broken(world, 2)
    world.produce(3)
    world.clock.advance(50 * INTERVAL)
    broken(world, 1)
    assert len(read_log(world.store).plans) < 10
    silent(world)


def test_offsets_that_were_moved_are_no_missing_plan() -> None:
    world = World()
    broken(world, 2)
    world.produce(8)
    here = {"from": 9, "until": 9}
    move_streams(world.store, START, lambda _contents: ({0: here}, {}))
    world.clock.advance(INTERVAL)
    broken(world, 2)
    again = started(world)
    again.tick(1)
    again.stop()
    assert {record for a in world.attempts if a.finished for record in a.records} == set(world.log) - {4, 5, 6, 7, 8}


def test_offsets_that_were_moved_after_a_void_plan_are_no_missing_plan() -> None:
    world = World()
    faulty = FaultyStore(world.store)
    driver = failing(world, *(at(n) for n in ALL), store=faulty)
    driver.tick(2)
    left = ["before"]
    faulty.fault = lambda verb, name: left.pop() if left and verb == "create" and name.startswith("plans/") else None
    driver.tick_only(2)
    driver.wait_error(PlanFailedError)
    driver.stop()
    assert read_log(world.store).plans[Time(at(2))].void
    world.produce(4)
    move_streams(world.store, START, lambda _contents: ({0: {"from": 5, "until": 5}}, {}))
    world.clock.advance(INTERVAL)
    again = started(world)
    again.tick(1)
    again.stop()


def test_a_damaged_plan_that_was_set_aside_in_the_middle_is_no_missing_plan() -> None:
    world = World()
    broken(world)
    world.store.replace(plan_name(3), b"damaged")
    forget_batch(world.store, Time(at(3)))
    for _ in range(2):
        again = started(world)
        again.tick(1)
        again.stop()


def test_a_newest_plan_that_was_set_aside_is_no_missing_plan() -> None:
    world = World()
    broken(world, 3)
    forget_batch(world.store, Time(at(3)))
    world.clock.advance(3 * INTERVAL)
    silent(world)


def test_streams_that_change_places_come_and_go_are_no_missing_plans() -> None:
    world = World()
    broken(world, 2)
    other = [7, 8, 9]

    def first(host: FakeHost, driver: Driver) -> None:
        host.graph._inputs.clear()
        added = LogInput(host, other)
        driver.input = LogInput(host, world.log)
        driver.output(added.setName("other"))
        driver.output(driver.input.setName("own"))

    allow = {"spark.streaming.kstream.recovery.allow": "dropped:other,dropped:own,dropped:0"}
    for build in (first, None, first):
        driver = Driver(world, allow, build=build) if build else Driver(world, allow)
        driver.before_job = lambda _time: (_ for _ in ()).throw(ValueError("boom"))
        driver.start()
        driver.tick_only(1)
        world.wait(lambda driver=driver: world.clock.time_ms() in driver.listener.completed())
        driver.stop()


def contents(*plans: tuple[int, int, int], floor: int = 0) -> LogContents:
    """Plans by (batch, from, until)."""
    made = {Time(at(n)): BatchPlan(Time(at(n)), 1, "n", {0: {"from": a, "until": b}}, {0: b - a}, Time(at(floor))) for n, a, b in plans}
    return LogContents(None, made, frozenset(), frozenset(), {}, ())


def found(log: LogContents) -> list[Hole]:
    stream = LogInput(FakeHost({}), [])
    return list(holes(log, Duration(INTERVAL), {0: StoredStream.of(stream, log).skipped_between}))


def test_the_floor_tells_that_what_is_older_has_ended() -> None:
    plans = ((1, 0, 2), (3, 4, 6), (5, 8, 9))
    assert [[t.milliseconds for t in hole.times] for hole in found(contents(*plans))] == [[at(2)], [at(4)]]
    assert [hole.times for hole in found(contents(*plans, floor=3))] == [[Time(at(4))]]
    assert found(contents(*plans, floor=5)) == []
    assert [hole.times for hole in found(contents((1, 0, 2), (5, 8, 9), floor=3))] == [[Time(at(3)), Time(at(4))]]
    assert found(contents()) == []


def test_offsets_that_are_read_again_and_neighbours_are_no_holes() -> None:
    assert found(contents((1, 0, 5), (4, 2, 6))) == []
    assert found(contents((1, 0, 5), (2, 7, 8))) == []


# -- Kafka


def kafka(ranges: list[tuple[str, int, int, int]], lost: tuple[LostRange, ...] = (), **ids: str) -> KafkaPlan:
    none = [None] * len(ranges)
    return KafkaPlan([OffsetRange(*r) for r in ranges], none, none, ids, lost=lost)


BEFORE = [("a", 0, 5, 10), ("a", 1, 0, 0), ("b", 0, 3, 4)]


def test_each_partition_of_a_kafka_stream_goes_on_where_it_ended() -> None:
    after = [("a", 0, 12, 12), ("a", 1, 0, 7), ("b", 0, 5, 6)]
    assert skipped_between(kafka(BEFORE), kafka(after)) == ["a-0 [10, 12)", "b-0 [4, 5)"]
    assert skipped_between(kafka(BEFORE, a="x"), kafka(after, a="x", b="y")) == ["a-0 [10, 12)", "b-0 [4, 5)"]


@pytest.mark.parametrize(
    ("after", "lost", "ids"),
    [
        ([("a", 0, 10, 12), ("a", 1, 0, 7), ("b", 0, 4, 6)], (), {}),
        ([("a", 0, 2, 12)], (), {}),
        ([("a", 2, 50, 60), ("c", 0, 9, 9)], (), {}),
        ([("a", 0, 70, 80)], (), {"a": "made anew"}),
        ([("a", 0, 70, 80)], (LostRange("a", 0, 10, None, "recreation"),), {}),
        ([("a", 0, 70, 80)], (LostRange("a", 0, 10, None, "deletion"),), {"a": "a-1"}),
    ],
    ids=["goes on", "reads again", "new partitions", "another id", "a loss that is told", "deleted and there again"],
)
def test_what_a_kafka_plan_explains_is_not_skipped(after: list[Any], lost: tuple[LostRange, ...], ids: dict[str, str]) -> None:
    assert skipped_between(kafka(BEFORE, a="a-1"), kafka(after, lost, **ids)) == []


class Removed(Schedule):
    """A calm stream whose driver dies. Somebody removes a plan, of a batch that had not ended when the newest one was planned."""

    def run(self) -> None:
        self._chaos = False
        self._start_driver()
        driver = self.drivers[-1]
        self.steps.wait(lambda: driver.state == "running")
        self._pause(1)
        for _ in range(5):
            self.source.act(self.rng, False)
            self._pause(self.interval_ms)
        driver.die()
        log = read_log(store_of(self.store.files))
        first = next((t for t in sorted(log.plans)[1:-1] if log.plans[t].num_records[0]), None)
        self.removed = first
        if first is not None:
            del self.store.files[names.plan(first, 1)]
            self.store.files.pop(names.done(first, 1), None)
            newest = max(log.plans)
            plan = self.store.files[names.plan(newest, 1)]
            fields = format.decode("plan", plan, "newest", dict)
            self.store.files[names.plan(newest, 1)] = format.encode("plan", {**fields, "floor": first.milliseconds})
        self._start_driver()
        self._pause(5)
        self._end_all()


def store_of(files: dict[str, bytes]) -> MemoryFileStore:
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    for name, data in files.items():
        store.create(name, data)
    return store


@pytest.mark.parametrize("source", [KafkaSource, NumberSource])
def test_a_plan_removed_from_a_simulated_stream_is_found(source: Any) -> None:
    told = 0
    for seed in range(20):
        schedule = Removed(seed, Scenario(source, faults=NO_FAULTS))
        schedule.run()
        alarmed = any("MissingPlanError" in line for line in schedule.history.trouble)
        assert alarmed == (schedule.removed is not None), (seed, schedule.history.trouble)
        told += alarmed
    assert told > 3

"""State in the life of a driver: when it is written, what names it, what is removed, and what a restart goes on from. No JVM."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from kstream import crash_point
from kstream.batch import BatchInfo, BatchOutcome, KeyHash, StateCheckpoint
from kstream.batch_time import Time
from kstream.checkpoint import PlanLog
from kstream.errors import ConfigurationError, CorruptRecordError, StorageError
from kstream.storage import LocalFileStore
from tests.fakes import FakeStateDStream, FakeStateFiles
from tests.harness import INTERVAL, START, Driver, World
from tests.scheduler.states import HISTORY, named, times_of_files, with_state
from tests.stores import CountingStore, FaultyStore

ABORTED = "SparkException: Job aborted due to stage failure: ResultStage 7 has failed the maximum allowable number of times: 4."
OF_SPARK = f"""An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.{ABORTED}
\tat org.apache.spark.MapOutputTracker$.validateStatus(MapOutputTracker.scala:1983)
\tat org.apache.spark.MapOutputTracker$.convertMapStatuses(MapOutputTracker.scala:1927)
"""


class Py4JJavaError(Exception):
    """Named as py4j's, with the text of a job that lost its executors."""


def life(world: World, ticks: int, *every: int, **options: Any) -> Driver:
    """A driver that lives for so many batches of one record, and stops."""
    driver = Driver(world, HISTORY, build=with_state(*every), **options).start()
    for _ in range(ticks):
        driver.tick(1)
    driver.stop()
    return driver


def shape(calls: list[tuple[str, str, int]]) -> list[tuple[str, str]]:
    return [(verb, name.split("/")[0].split("-")[0]) for verb, name, _ in calls]


BATCH = [("create", "plans"), ("exists", "epoch"), ("create", "done")]


def test_a_batch_that_writes_state_costs_one_create_a_partition_and_every_other_batch_nothing() -> None:
    store = CountingStore(World().store)
    world = World(store)
    driver = Driver(world, HISTORY, build=with_state(3)).start()
    for _ in range(4):
        driver.tick(1)
    driver.engine._generator._cleaner.stop(drain=True)
    store.take()
    driver.tick(1)
    assert shape(store.take()) == BATCH
    driver.tick(1)
    assert shape(store.take()) == [*BATCH[:2], ("create", "state"), ("create", "state"), BATCH[2]]
    driver.tick(1)
    assert [call for call in shape(store.take()) if call[0] != "read"] == BATCH
    driver.stop()


def test_state_is_written_at_multiples_of_the_interval_since_zero_time_before_the_end_of_the_batch_is_noted() -> None:
    """Spark behaviour CP2."""
    world = World()
    life(world, 6, 2)
    assert list(named(world))[-1] == START + 6 * INTERVAL
    assert all((time - START) % (2 * INTERVAL) == 0 for time in named(world))


def test_listeners_hear_with_a_batch_how_many_bytes_of_state_it_has_written() -> None:
    world = World()
    driver = life(world, 4, 2)
    infos: list[BatchInfo] = [event.info for event in driver.listener.named("onBatchCompleted")]
    newest = [name for name in world.store.list("state") if int(name.split("-")[0]) == START + 4 * INTERVAL]
    assert [info.state.written_bytes for info in infos[::2]] == [None, None]
    assert infos[1].state.written_bytes and infos[3].state.written_bytes == sum(len(world.store.read(f"state/{name}")) for name in newest)


def test_states_with_different_intervals_are_named_where_they_are_due() -> None:
    world = World()
    life(world, 6, 2, 3)
    assert named(world)[START + 4 * INTERVAL] == {"s0": START + 4 * INTERVAL}
    assert set(named(world)[START + 6 * INTERVAL]) == {"s0", "s1"}


def test_older_files_go_only_after_a_record_that_names_newer_ones() -> None:
    """CP2: after four batches the files of the first checkpoint are gone."""
    store = CountingStore(World().store)
    world = World(store)
    life(world, 8, 2)
    calls = [(verb, name) for verb, name, _ in store.take()]
    removed = [name for verb, name in calls if verb == "delete" and name.startswith("state/")]
    assert {int(name.split("/")[1].split("-")[0]) for name in removed} >= {START + 2 * INTERVAL, START + 4 * INTERVAL}
    for name in removed:
        newer = f"done/{int(name.split('/')[1].split('-')[0]) + 2 * INTERVAL:015d}-000001"
        assert calls.index(("create", newer)) < calls.index(("delete", name))
    assert times_of_files(world) <= {START + 6 * INTERVAL, START + 8 * INTERVAL}


def test_a_state_that_spark_could_not_write_is_told_in_one_line_without_the_frames_of_the_jvm(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that lost executors four times within one job brought a line with 300 more behind it."""

    def lost(*_: object) -> dict[str, StateCheckpoint]:
        raise Py4JJavaError(OF_SPARK)

    monkeypatch.setattr(FakeStateFiles, "write", lost)
    life(World(), 2, 2)
    [told] = [r.getMessage() for r in caplog.records if "could not be written" in r.message]
    assert told.endswith(
        ": SparkException: Job aborted due to stage failure: ResultStage 7 has failed the maximum allowable number of times: 4."
    )


def test_state_that_cannot_be_written_fails_nothing_is_told_once_and_is_tried_with_the_next_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(FaultyStore(World().store))
    world.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("state/") else None
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    for _ in range(4):
        driver.tick(1)
    assert driver.errors == [] and list(named(world)) == [START]
    assert [r.levelname for r in caplog.records if "could not be written" in r.message].count("ERROR") == 1
    world.store.fault = lambda _verb, _name: None
    driver.tick(1)
    driver.stop()
    assert list(named(world))[-1] == START + 5 * INTERVAL
    assert life(world, 1, 2).errors == []
    assert world.records_by_time()[START + 6 * INTERVAL] == tuple(range(6))


def test_files_of_a_state_that_could_not_be_written_as_a_whole_are_deleted() -> None:
    world = World(FaultyStore(World().store))
    writes = itertools.count()
    world.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("state/") and next(writes) % 2 else None
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    for _ in range(8):
        driver.tick(1)
    driver.stop()
    assert next(writes) > 8 and times_of_files(world) == set()


def test_a_batch_that_failed_runs_again_on_the_state_of_its_own_time_not_on_a_newer_one() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    failing = START + 3 * INTERVAL

    def fail(time: int) -> None:
        if time == failing:
            raise ValueError("the sink is down")

    driver.before_job = fail
    for _ in range(9):
        driver.tick(1)
    driver.stop()
    assert START + 8 * INTERVAL in named(world)
    life(world, 1, 2)
    assert [a.records for a in world.attempts if a.time == failing] == [(0, 1, 2), (0, 1, 2)]
    assert world.records_by_time()[START + 10 * INTERVAL] == tuple(range(10))


def test_files_of_a_driver_that_died_before_it_named_them_are_removed_once_their_batch_has_ended() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    driver.tick(1)
    driver.die_at(crash_point.STATE_WRITTEN, 1)
    strays = set(world.store.list("state"))
    assert len(strays) == 2
    second = Driver(world, HISTORY, build=with_state(2)).start()
    assert strays <= set(world.store.list("state")), "a frozen driver could still name them"
    second.tick(1)
    second.stop()
    life(world, 0, 2)
    assert not strays & set(world.store.list("state"))
    assert len(world.store.list("state")) == 2


def test_a_frozen_driver_that_notes_the_end_first_decides_which_files_are_the_state() -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    for _ in range(3):
        driver.tick(1)
    at = START + 4 * INTERVAL

    driver.die_at(crash_point.STATE_WRITTEN, 1)
    files = [f"state/{name}" for name in world.store.list("state") if int(name.split("-")[0]) == at]
    second = Driver(world, HISTORY, build=with_state(2))

    def late(time: int) -> None:
        if time == at:
            PlanLog(world.store, 1).complete(Time(at), 1, BatchOutcome(0, states={"s0": StateCheckpoint(Time(at), files, 7)}))

    second.before_job = late
    second.start()
    for _ in range(5):
        second.tick(1)
    second.stop()
    assert life(world, 1, 2).errors == []
    assert world.records_by_time()[START + 10 * INTERVAL] == tuple(range(10))


# -- code that has changed


def test_state_of_a_stream_that_is_gone_is_told_and_there_again_when_the_stream_is(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    life(world, 4, 2, 2)
    life(world, 15, 2)
    assert "s1 at 1004000 ms" in caplog.text
    life(world, 1, 2, 2)
    back = [a.records for a in world.attempts if a.time == START + 20 * INTERVAL]
    assert sorted(map(len, back)) == [5, 20], "what came while it was away is not in it"
    life(world, 1, 2, 2)
    assert sorted(len(a.records) for a in world.attempts if a.time == START + 21 * INTERVAL) == [6, 21]
    assert world.store.list("gone-states") == []


def test_a_stream_that_was_away_for_as_long_as_plans_are_kept_has_missed_nothing() -> None:
    world = World()
    life(world, 4, 2, 2)
    life(world, 2, 2)
    life(world, 1, 2, 2)
    assert [len(a.records) for a in world.attempts if a.time == START + 7 * INTERVAL] == [7, 7]


def test_state_of_a_stream_that_stays_away_is_removed_at_the_second_start_without_it() -> None:
    world = World()
    life(world, 4, 2, 2)
    life(world, 6, 2)
    assert any("-s1-" in name for name in world.store.list("state"))
    life(world, 1, 2)
    life(world, 1, 2)
    assert not any("-s1-" in name for name in world.store.list("state"))
    assert world.store.list("gone-states") == []


def test_a_program_without_any_state_keeps_what_was_there_for_one_generation(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    life(world, 4, 2)
    life(world, 9)
    assert "no longer has" in caplog.text
    life(world, 1, 2)
    assert max(len(a.records) for a in world.attempts if a.time == START + 14 * INTERVAL) == 5
    world = World()
    life(world, 4, 2)
    for _ in range(4):
        life(world, 9)
    assert world.store.list("state") == [] and world.store.list("gone-states") == []


def test_a_stream_with_state_added_to_a_running_log_begins_empty_and_keeps_what_it_then_saw(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    life(world, 6)
    for _ in range(3):
        life(world, 1, 10)
    assert "begins without state" in caplog.text
    states = [a.records for a in world.attempts if a.driver > 1]
    assert states == [(6,), (6, 7), (6, 7, 8)]


# -- what cannot be gone on from


def test_without_a_checkpoint_directory_a_stream_with_state_does_not_start() -> None:
    """SC4: nothing is started."""
    driver = Driver(World(), HISTORY, build=with_state(2), checkpoint=False)
    with pytest.raises(ConfigurationError, match="checkpoint directory has not been set"):
        driver.start()
    assert driver.opened is None and driver.input.calls == []


def test_with_a_checkpoint_directory_of_the_spark_context_alone_it_starts_and_says_that_no_restart_recovers_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    driver = Driver(world, HISTORY, build=with_state(2), checkpoint=False)
    driver.host.sparkContext.checkpoint_dir = "file:/checkpoints/of/spark"
    driver.start()
    for _ in range(12):
        driver.tick(1)
        for state in driver.host.graph.active_states():
            for rdd in state._lineage.rdd_checkpoints.values():
                rdd.checkpoint_file = "a file"  # pyright: ignore
    driver.stop()
    assert "file:/checkpoints/of/spark, and no restart recovers it" in caplog.text
    assert driver.errors == [] and world.attempts[-1].records == tuple(range(12))
    assert driver.host.state_rdds.removed and world.store.list("state") == []


def test_a_missing_file_of_state_stops_the_start_and_is_named() -> None:
    world = World()
    life(world, 4, 2)
    lost = [f"state/{name}" for name in world.store.list("state")]
    for name in lost:
        world.store.delete(name)
    with pytest.raises(CorruptRecordError, match="state/000000001004000"):
        life(world, 1, 2)
    assert len(world.attempts) == 4


def test_a_store_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    world = World(FaultyStore(LocalFileStore(tmp_path)))
    life(world, 4, 2)
    world.store.fault = lambda verb, name: "before" if (verb, name) == ("list", "state") else None
    with pytest.raises(StorageError):
        life(world, 1, 2)


def test_batches_that_could_not_be_planned_leave_the_state_as_it_is() -> None:
    world = World(FaultyStore(World().store))
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    fails = itertools.count()
    driver.tick(1)
    world.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("plans/") and next(fails) < 2 else None
    driver.tick_only(1)
    world.wait(lambda: driver.errors)
    for _ in range(3):
        driver.tick(1)
    driver.stop()
    assert [len(a.records) for a in world.attempts] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("placed", "now", "read_as"),
    [
        (KeyHash.PYSPARK, 7, KeyHash.PYSPARK), (KeyHash.PYSPARK, 8, KeyHash.NONE),
        (KeyHash.STABLE, 8, KeyHash.STABLE), (KeyHash.NONE, 8, KeyHash.NONE),
    ],
)  # fmt: skip
def test_state_of_workers_that_hash_otherwise_is_not_taken_for_placed(
    monkeypatch: pytest.MonkeyPatch, placed: KeyHash, now: int, read_as: KeyHash
) -> None:
    """Another Python version, or another PYTHONHASHSEED, puts keys into other partitions; not those of mapWithState."""
    world = World()
    life(world, 4, 2)
    asked: list[KeyHash] = []
    read = FakeStateFiles.read
    monkeypatch.setattr(FakeStateDStream, "key_hash", placed)
    monkeypatch.setattr(FakeStateFiles, "hashing", lambda _self: now)
    monkeypatch.setattr(FakeStateFiles, "read", lambda self, state, placed: asked.append(placed) or read(self, state, placed))
    life(world, 1, 2)
    assert asked == [read_as] and world.attempts[-1].records == (0, 1, 2, 3, 4)


def test_a_restart_reads_the_files_of_the_newest_state_and_of_no_other() -> None:
    """The older ones are still there: none of them could be removed."""
    faulty = FaultyStore(World().store)
    faulty.fault = lambda verb, name: "before" if verb == "delete" and name.startswith("state/") else None
    store = CountingStore(faulty)
    world = World(store)
    life(world, 9, 2)
    assert len(times_of_files(world)) == 4
    store.take()
    life(world, 1, 2)
    read = {name.split("-")[0] for verb, name, _ in store.take() if verb == "read" and name.startswith("state/")}
    assert read == {f"state/{START + 8 * INTERVAL:015d}"}
    assert world.records_by_time()[START + 10 * INTERVAL] == tuple(range(10))

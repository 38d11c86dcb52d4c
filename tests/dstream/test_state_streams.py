"""State on Spark: what keys hold after each batch and after a restart (Spark behaviours BO14 … BO17, WO7 … WO10, CP2, CP5, CP12)."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream, State, StateSpec, StreamingContext
from kstream.batch import JsonPlan, KeyHash, StateFigures
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.state_log import stored_states
from kstream.dstream import InputDStream
from kstream.dstream.base import node_of
from kstream.dstream.rdd_functions import co_grouped
from kstream.dstream.state_files import StateFiles
from kstream.storage import FileStore, LocalFileStore, MemoryFileStore
from kstream.storage.open import StorePlace, place_for_workers
from kstream.testing import ManualClock
from tests.harness import INTERVAL, START
from tests.streams import Stream, numbers

pytestmark = pytest.mark.timeout(900)

Batches = Sequence[Sequence[Any] | None]
Build = Callable[[DStream], DStream]
Seen = dict[str, list[dict[Any, Any]]]


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Batches of many streams: on a busy machine one can take a minute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.streams.PATIENCE", 300.0)
        yield


class BatchesInput(InputDStream[JsonPlan]):
    """Batch after batch the next of the given records; None gives no RDD. Restorable."""

    def __init__(self, ssc: Any, batches: Batches) -> None:
        super().__init__(ssc)
        self.batches = batches
        self.cursor = 0

    def plan(self, time: Time) -> JsonPlan:
        return JsonPlan({"batch": self.cursor})

    def planned(self, time: Time, plan: JsonPlan) -> None:
        self.cursor = plan["batch"] + 1

    def restored(self, time: Time, plan: JsonPlan) -> None:
        self.cursor = plan.get("batch", -1) + 1

    def rdd(self, time: Time, plan: JsonPlan) -> Any:
        records = self.batches[plan["batch"]] if plan else None
        return None if records is None else self.ssc.sparkContext.parallelize(records, 1)


def run(sc: SparkContext, ticks: int, streams: Mapping[str, tuple[Batches, Build]], checkpoint: str) -> dict[str, list[dict[Any, Any]]]:
    """What each stream had in each batch, as a dict of its pairs; all in one context, those that slide together in one job."""
    stream = Stream(sc)
    stream.ssc.checkpoint(checkpoint)
    together: dict[Any, list[tuple[str, DStream]]] = {}
    for name, (batches, build) in streams.items():
        made = build(BatchesInput(stream.ssc, [*batches, *[[]] * (ticks - len(batches))]))
        together.setdefault(node_of(made).slide_duration, []).append((name, made.map(lambda pair, name=name: (name, pair))))
    seen: dict[str, list[dict[Any, Any]]] = {name: [] for name in streams}
    for same in together.values():
        stream.ssc.union(*(made for _, made in same)).foreachRDD(lambda rdd, same=same: sort_out(rdd.collect(), [n for n, _ in same], seen))
    stream.start()
    for _ in range(ticks):
        stream.tick()
    stream.stop()
    stream.ssc.awaitTermination(1)
    return seen


def sort_out(records: Sequence[tuple[str, Any]], names: Sequence[str], seen: dict[str, list[dict[Any, Any]]]) -> None:
    for name in names:
        seen[name].append(as_dict([pair for of, pair in records if of == name]))


def as_dict(records: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    assert len(dict(records)) == len(records), f"a key twice in {records}"
    return dict(records)


def pairs(text: str) -> list[tuple[str, int]]:
    return [(letter, 1) for letter in text]


def count(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def times(time: Time, _key: str, values: list[int], state: int | None) -> int:
    return (state or 0) + (time.milliseconds - START if values else 0)


def until_idle(values: list[int], state: tuple[int, int] | None) -> tuple[int, int] | None:
    """(count, idle batches); dropped after two of them."""
    before, idle = state or (0, 0)
    if not values and idle == 1:
        return None
    return before + sum(values), 0 if values else idle + 1


SIX = [pairs(text) for text in ("a", "ab", "abc", "ab", "a", "")]
TWICE = [*SIX, *SIX]
STREAMS: dict[str, tuple[Batches, Build]] = {
    "counts": (SIX, lambda s: s.updateStateByKey(count)),
    "with initial": (SIX, lambda s: s.updateStateByKey(count, 3, [("a", 1), ("c", 2)])),
    "with time": (SIX, lambda s: s.updateStateByKey(times, 1, initialRDD=[("a", 0), ("c", 0)])),
    "dropped": (
        [pairs("ab"), None, pairs("aca"), pairs("c"), None, None],
        lambda s: s.updateStateByKey(until_idle, 1).mapValues(lambda state: state[0]),
    ),
    "inverse": ([pairs("a"), pairs("a")], lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 1)),
    "filtered": (
        TWICE,
        lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 1, filterFunc=lambda pair: pair[1] != 0),
    ),
    "not inverse": (TWICE, lambda s: s.reduceByKeyAndWindow(operator.add, None, 2, 1, 1)),
    "every two": (
        [[("a", n)] for n in range(1, 7)],
        lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 4, 2, 1),
    ),
    "big": (TWICE, lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 1)),
    "tumbling": ([pairs("a"), pairs("b"), pairs("b")], lambda s: s.reduceByKeyAndWindow(operator.add, operator.sub, 2, 2, 1)),
}


@pytest.fixture(scope="module")
def seen(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[Any, Any]]]:
    return run(sc, 12, STREAMS, str(tmp_path_factory.mktemp("checkpoint")))


def by_letter(batches: Sequence[dict[str, int]], letters: str = "abc") -> list[list[int | None]]:
    return [[batch.get(letter) for letter in letters] for batch in batches]


def test_a_key_without_data_is_given_again_in_every_batch(seen: Seen) -> None:
    """Spark behaviour BO14."""
    a, b, c = [1, 2, 3, 4, 5, 5], [None, 1, 2, 3, 3, 3], [None, None, 1, 1, 1, 1]
    assert by_letter(seen["counts"][:6]) == [list(row) for row in zip(a, b, c, strict=True)]
    assert seen["counts"][11] == {"a": 5, "b": 3, "c": 1}


def test_keys_of_the_initial_state_are_in_the_first_batch_even_without_data(seen: Seen) -> None:
    """Spark behaviour BO15."""
    a, b, c = [2, 3, 4, 5, 6, 6], [None, 1, 2, 3, 3, 3], [2, 2, 3, 3, 3, 3]
    assert by_letter(seen["with initial"][:6]) == [list(row) for row in zip(a, b, c, strict=True)]


def test_a_function_of_four_arguments_gets_the_batch_time_and_the_key(seen: Seen) -> None:
    """Spark behaviour BO16."""
    a, b, c = [1000, 3000, 6000, 10000, 15000, 15000], [None, 2000, 5000, 9000, 9000, 9000], [0, 0, 3000, 3000, 3000, 3000]
    assert by_letter(seen["with time"][:6]) == [list(row) for row in zip(a, b, c, strict=True)]


def test_none_drops_a_key_and_the_function_runs_also_for_a_batch_without_an_rdd(seen: Seen) -> None:
    """Spark behaviour BO17."""
    assert seen["dropped"][:6] == [{"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 3, "c": 1}, {"a": 3, "c": 2}, {"c": 2}, {}]


def test_a_key_that_fell_out_of_a_window_with_an_inverse_stays_with_its_zero(seen: Seen) -> None:
    """Spark behaviour WO7."""
    assert seen["inverse"][:4] == [{"a": 1}, {"a": 2}, {"a": 1}, {"a": 0}]


def test_a_filter_lets_go_of_keys_and_the_window_is_that_without_an_inverse(seen: Seen) -> None:
    """Spark behaviours WO6 and WO8."""
    assert seen["filtered"] == seen["not inverse"]
    assert seen["filtered"][5] == {"a": 1}


def test_a_window_that_slides_by_two_with_an_inverse(seen: Seen) -> None:
    """Spark behaviour WO9."""
    assert seen["every two"][:4] == [{"a": 3}, {"a": 10}, {"a": 18}, {"a": 11}]
    assert len(seen["every two"]) == 6


def test_a_big_input_through_a_window_with_an_inverse(seen: Seen) -> None:
    """Spark behaviour WO10."""
    a = [1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 1]
    b = [None, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]
    c = [None, None, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0]
    assert by_letter(seen["big"]) == [list(row) for row in zip(a, b, c, strict=True)]


def test_a_window_as_long_as_its_slide_keeps_the_keys_of_the_one_before(seen: Seen) -> None:
    assert seen["tumbling"][:3] == [{"a": 1, "b": 1}, {"a": 0, "b": 1}, {"a": 0, "b": 0}]


# -- over a restart


def all_kinds(ones: DStream) -> dict[str, DStream]:
    """A window with inverse, a state, a state of that state and a window over it; mapWithState, a window over it, and its snapshots."""
    state = ones.updateStateByKey(count)
    mapped = ones.mapWithState(StateSpec.function(running)).checkpoint(2)
    return {
        "window": ones.reduceByKeyAndWindow(operator.add, operator.sub, 4, 1).checkpoint(2),
        "state": state.checkpoint(2),
        "of state": state.updateStateByKey(count).checkpoint(2),
        "window of state": state.window(3, 1).reduceByKey(operator.add),
        "mapped": mapped,
        "window of mapped": mapped.window(3, 1).reduceByKey(operator.add),
        "snapshots": mapped.stateSnapshots(),
    }


def running(key: str, value: int, state: State) -> tuple[str, int]:
    state.update((state.getOption() or 0) + value)
    return key, state.get()


def one_kind(ones: DStream) -> dict[str, DStream]:
    return {"state": ones.updateStateByKey(count).checkpoint(2)}


def life(
    sc: SparkContext, checkpoint: str, clock: ManualClock, ticks: int, build: Callable[[DStream], dict[str, DStream]]
) -> tuple[dict[str, list[Any]], StreamingContext]:
    """What each stream had in its batches, one "a" a batch, in one life of the driver."""
    context = StreamingContext(sc, 1, clock=clock)
    context.checkpoint(checkpoint)
    streams = build(numbers(context, 1).map(lambda _: ("a", 1)))
    seen: dict[str, list[Any]] = {name: [] for name in streams}
    for name, made in streams.items():
        made.foreachRDD(lambda rdd, name=name: seen[name].append(as_dict(rdd.collect())["a"]))
    stream = Stream(sc, clock, context).start()
    for _ in range(ticks):
        stream.tick()
    stream.stop()
    return seen, context


EXPECTED = {
    "window": [1, 2, 3, 4, 4, 4, 4, 4, 4, 4],
    "state": list(range(1, 11)),
    "of state": [n * (n + 1) // 2 for n in range(1, 11)],
    "window of state": [1, 3, 6, 9, 12, 15, 18, 21, 24, 27],
    "mapped": list(range(1, 11)),
    "window of mapped": [1, 3, 6, 9, 12, 15, 18, 21, 24, 27],
    "snapshots": list(range(1, 11)),
}


def batches_of_files(store: FileStore) -> set[int]:
    return {(int(name.split("-")[0]) - START) // INTERVAL for name in store.list("state")}


def test_windows_and_states_go_on_after_a_restart_as_if_the_driver_had_never_stopped(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CP2, CP5, CP12, MS7: restarted after five and after seven of ten batches, mid-window and between two checkpoints. All states of a
    batch are written in one job."""
    jobs: list[set[str]] = []
    write = StateFiles.write
    monkeypatch.setattr(StateFiles, "write", lambda self, time, states: jobs.append(set(states)) or write(self, time, states))
    clock = ManualClock(START)
    lives = [life(sc, str(tmp_path), clock, ticks, all_kinds)[0] for ticks in (5, 2, 3)]
    assert {name: [value for seen in lives for value in seen[name]] for name in EXPECTED} == EXPECTED
    assert jobs == [{"s0", "s1", "s2", "s3"}] * 5
    batches = batches_of_files(LocalFileStore(tmp_path))
    assert 10 in batches <= {4, 6, 8, 10}


@pytest.fixture
def s3(sc: SparkContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server that driver and workers know by their environment. Imported here: what this module imports is in each worker."""
    from integration.s3_server import BUCKET, S3Server

    server = S3Server()
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
        monkeypatch.setitem(sc.environment, key, value)
    yield f"s3://{BUCKET}/job"
    server.go_away()


def goes_on(sc: SparkContext, checkpoint: str) -> None:
    clock = ManualClock(START)
    before, _ = life(sc, checkpoint, clock, 3, one_kind)
    after, context = life(sc, checkpoint, clock, 2, one_kind)
    assert before["state"] + after["state"] == [1, 2, 3, 4, 5]
    assert 4 in batches_of_files(context._engine._store) <= {2, 4}


def test_workers_write_state_to_an_object_store_and_read_it_there(sc: SparkContext, s3: str) -> None:
    goes_on(sc, s3)


def test_state_passes_through_the_driver_where_only_that_reaches_the_store(sc: SparkContext) -> None:
    goes_on(sc, f"memory://{uuid.uuid4().hex}")


# -- files and RDDs


@pytest.fixture
def files(sc: SparkContext, tmp_path: Path) -> StateFiles:
    store = LocalFileStore(tmp_path)
    return StateFiles(sc, store, place_for_workers(store, False), 1)


def test_state_comes_back_in_its_partitions_and_is_not_shuffled_again(sc: SparkContext, files: StateFiles) -> None:
    state = sc.parallelize([(str(n), n) for n in range(20)], 2).partitionBy(3)
    [(_, checkpoint)] = files.write(Time(1000), {"s0": state}).items()
    back = files.read(checkpoint, KeyHash.PYSPARK)
    assert back.glom().collect() == state.glom().collect()
    assert checkpoint.hashing == files.hashing()
    grouped = co_grouped([back, sc.parallelize([("7", 1)]).partitionBy(3)], 3)
    assert grouped.getNumPartitions() == 3 and dict(grouped.collect())["7"] == ([7], [1])
    described = grouped.toDebugString()
    assert described is not None and described.count(b"+-") == 2, "one shuffle of nothing, and that of the values"


def test_a_local_checkpoint_cuts_the_lineage_of_states_that_were_made_before_it_ran(sc: SparkContext) -> None:
    """Hundreds of batches are made at once after a downtime; each that runs must find the lineage before it cut."""

    def step(state: Any) -> Any:
        return co_grouped([state, sc.parallelize([("a", 1)], 1)], 1).mapValues(lambda both: sum(map(sum, both))).persist()

    first = step(sc.parallelize([("a", 1)], 1))
    first.localCheckpoint()
    second = step(first)
    assert second.toDebugString().count(b"PartitionerAwareUnionRDD") == 2
    assert first.collect() == [("a", 2)]
    described = second.toDebugString()
    assert described.count(b"PartitionerAwareUnionRDD") == 1 and b"LocalCheckpointRDD" in described
    assert second.collect() == [("a", 3)]


@pytest.mark.parametrize("through_driver", [False, True])
def test_the_bytes_of_the_files_that_are_written_are_told_once(sc: SparkContext, tmp_path: Path, through_driver: bool) -> None:
    store = LocalFileStore(tmp_path)
    files = StateFiles(sc, store, None if through_driver else place_for_workers(store, False), 1)
    state = sc.parallelize([(str(n), n) for n in range(20)], 2)
    written = files.write(Time(1000), {"s0": state, "s1": state})
    sizes = [len(store.read(name)) for checkpoint in written.values() for name in checkpoint.files]
    assert files.take_figures() == StateFigures(written_bytes=sum(sizes)) and len(sizes) == 4
    assert files.take_figures() == StateFigures()


@pytest.mark.parametrize("through_driver", [False, True])
def test_the_bytes_of_the_files_that_are_read_are_told_once(sc: SparkContext, tmp_path: Path, through_driver: bool) -> None:
    store = LocalFileStore(tmp_path)
    files = StateFiles(sc, store, None if through_driver else place_for_workers(store, False), 1)
    checkpoint = files.write(Time(1000), {"s0": sc.parallelize(range(20), 2)})["s0"]
    files.take_figures()
    back = files.read(checkpoint, KeyHash.NONE).persist()
    assert back.count() == 20
    assert files.take_figures() == StateFigures(read_bytes=sum(len(store.read(name)) for name in checkpoint.files))
    assert back.count() == 20 and files.take_figures() == StateFigures(), "they are in memory now"
    back.unpersist(blocking=True)
    assert back.count() == 20
    assert (files.take_figures().read_bytes is None) == through_driver, "workers have read them again"


def test_state_hashed_otherwise_is_placed_anew(sc: SparkContext, files: StateFiles) -> None:
    state = sc.parallelize([(str(n), n) for n in range(20)], 3)
    [(_, checkpoint)] = files.write(Time(1000), {"s0": state}).items()
    back = files.read(checkpoint, KeyHash.NONE)
    assert back.partitioner is None
    grouped = dict(co_grouped([back, sc.parallelize([(str(n), -n) for n in range(20)])], 2).collect())
    assert grouped == {str(n): ([n], [-n]) for n in range(20)}


def test_elements_of_bytes_and_objects_of_main_come_back(sc: SparkContext, files: StateFiles) -> None:
    """mapWithState's partitions are one `bytes` object each."""
    blobs = files.write(Time(1000), {"s0": sc.parallelize([b"one", b"two"], 2)})["s0"]
    assert files.read(blobs, KeyHash.NONE).glom().collect() == [[b"one"], [b"two"]]
    double = lambda x: 2 * x  # noqa: E731
    functions = files.write(Time(2000), {"s0": sc.parallelize([1], 1).map(lambda _: double)})["s0"]
    assert files.read(functions, KeyHash.NONE).map(lambda f: f(4)).collect() == [8]


@pytest.mark.parametrize("through_driver", [False, True])
def test_a_damaged_or_missing_file_fails_the_reading_task_and_is_named(sc: SparkContext, tmp_path: Path, through_driver: bool) -> None:
    store: FileStore = LocalFileStore(tmp_path)
    files = StateFiles(sc, store, None if through_driver else place_for_workers(store, False), 1)
    checkpoint = files.write(Time(1000), {"s0": sc.parallelize([1, 2], 2)})["s0"]
    damaged = checkpoint.files[1]
    store.replace(damaged, store.read(damaged)[:-9])
    with pytest.raises(Exception, match=f"{damaged} is damaged"):
        files.read(checkpoint, KeyHash.NONE).collect()
    store.delete(damaged)
    with pytest.raises(Exception, match=f"{damaged} is not there"):
        files.read(checkpoint, KeyHash.NONE).collect()


def test_workers_open_what_they_can_reach_and_the_driver_passes_on_the_rest(tmp_path: Path) -> None:
    assert place_for_workers(LocalFileStore(tmp_path), False) == StorePlace(str(tmp_path), True)
    assert place_for_workers(MemoryFileStore("memory://x"), False) is None
    place = StorePlace(str(tmp_path), True)
    assert place.open() is place.open()
    place.write("state/x", b"1")
    assert LocalFileStore(tmp_path).read("state/x") == b"1"


def test_after_a_restart_the_files_named_are_those_of_the_newest_batches(sc: SparkContext, tmp_path: Path) -> None:
    """CP2: written after two batches, removed after four."""
    clock = ManualClock(START)
    store = LocalFileStore(tmp_path)
    first: set[str] = set()
    context = StreamingContext(sc, 1, clock=clock)
    context.checkpoint(str(tmp_path))
    numbers(context, 1).map(lambda _: ("a", 1)).updateStateByKey(count).checkpoint(2).foreachRDD(lambda rdd: rdd.count())
    stream = Stream(sc, clock, context).start()
    for batch in range(5):
        stream.tick()
        if batch == 1:
            first = set(store.list("state"))
    stream.stop()
    contents = read_log(store)
    states = stored_states(store, Time(START + 4 * INTERVAL), contents.plans[Time(START + 4 * INTERVAL)].epoch)
    assert first and not first & set(store.list("state"))
    assert {f"state/{name}" for name in store.list("state")} == set(states["s0"].files)

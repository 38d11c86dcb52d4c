"""What Spark does to states: where they lie, how often the function runs, how they are restored (Spark behaviours MS2, MS3, MS7, MR2)."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark import RDD, SparkContext, StorageLevel

from kstream import State, StateSpec
from kstream.dstream.state_dstreams import LONGEST_LINEAGE
from kstream.rdd.map_with_state import MapWithState, snapshot
from kstream.rdd.state_map import EMPTY, StateMap
from kstream.spark.state_rdds import MapWithStateRDD, SparkStateRDDs, aligned, jrdd, states_from
from tests.streams import Stream

LETTERS = ["", "a", "ab", "abc", "ab"]
AFTER = {"a": 4, "b": 3, "c": 1}


def running_count(key: str, value: int, state: State) -> tuple[str, int]:
    state.update((state.getOption() or 0) + value)
    return key, state.get()


def ones(text: str) -> list[tuple[str, int]]:
    return [(letter, 1) for letter in text]


def batch(
    sc: SparkContext,
    records: list[Any],
    states: RDD[bytes] | None = None,
    function: Callable[..., Any] = running_count,
    partitions: int = 2,
) -> MapWithStateRDD:
    rdds = SparkStateRDDs(sc)
    before = rdds.initial([], partitions, 0) if states is None else states
    data = sc.parallelize(records, 3) if records else None
    return rdds.updated(data, before, partitions, MapWithState(function, 1000, datetime.fromtimestamp(1)))


def content(states: RDD[bytes]) -> dict[Any, Any]:
    found = states.flatMap(snapshot).collect()
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.fixture(scope="module")
def counted(sc: SparkContext) -> MapWithStateRDD:
    """The states after all LETTERS, of which each batch is an RDD of its own."""
    states: Any = None
    for text in LETTERS:
        states = batch(sc, ones(text), states)
    return states.persist()


def test_the_states_are_one_record_of_bytes_a_partition(sc: SparkContext, counted: MapWithStateRDD) -> None:
    """MR2: and an empty partition is one, too"""
    parts = counted.glom().collect()
    assert [[type(record) for record in part] for part in parts] == [[bytes], [bytes]]
    assert {k: v for (data,) in parts for k, v, _ in StateMap(data).items()} == content(counted) == AFTER
    assert batch(sc, []).collect() == [EMPTY, EMPTY]


def test_states_keep_their_partitioner_and_no_batch_moves_them(counted: MapWithStateRDD) -> None:
    """MR2: partitioner kept"""
    assert aligned(counted, 2) is counted and jrdd(counted).rdd().partitioner().isDefined()
    plan = jrdd(counted).rdd().toDebugString()
    assert plan.count("PartitionerAwareUnionRDD") == len(LETTERS) and " UnionRDD" not in plan
    assert plan.count("ShuffledRDD") == len(LETTERS) + 1  # the data of each batch, and the nothing it began with


def test_a_snapshot_is_joined_in_place_with_what_is_partitioned_like_it(sc: SparkContext, counted: MapWithStateRDD) -> None:
    states = counted.flatMap(snapshot, preservesPartitioning=True)
    assert states.partitioner is not None
    other = sc.parallelize([("a", "x"), ("z", "y")]).partitionBy(2, states.partitioner.partitionFunc)
    joined = states.join(other)
    assert joined.collect() == [("a", (4, "x"))] and joined.getNumPartitions() == 2


def test_initial_states_may_be_an_rdd(sc: SparkContext) -> None:
    """Spark behaviour MS3."""
    pairs = sc.parallelize([("a", 5), ("b", 10), ("c", -20), ("d", 0)], 3)
    states = batch(sc, ones("ab"), SparkStateRDDs(sc).initial(pairs, 2, 0))
    assert content(states) == {"a": 6, "b": 11, "c": -20, "d": 0}


@pytest.mark.parametrize("level", [StorageLevel.MEMORY_ONLY, StorageLevel(True, True, False, True)], ids=str)
def test_the_function_runs_once_a_record_for_all_that_read_a_persisted_batch(sc: SparkContext, level: StorageLevel) -> None:
    """Spark behaviour MR2."""
    calls = sc.accumulator(0)

    def counting(key: str, _value: int, state: State) -> str:
        calls.add(1)
        state.update(1)
        return key

    made = batch(sc, ones("abca"), None, counting).persist(level)
    after = batch(sc, ones("d"), made)
    assert sorted(made.mapped.collect()) == ["a", "a", "b", "c"] and made.mapped.count() == 4
    assert sorted(content(made)) == ["a", "b", "c"] and sorted(content(after)) == ["a", "b", "c", "d"]
    assert calls.value == 4 and made.is_cached
    assert not made.unpersist(blocking=True).is_cached
    made.mapped.count()
    assert calls.value == 8


def test_states_whose_blocks_are_lost_are_made_again(sc: SparkContext) -> None:
    """MS7: an executor is gone"""
    first = batch(sc, ones("abc")).persist()
    second = batch(sc, ones("ab"), first).persist()
    assert content(second) == {"a": 2, "b": 2, "c": 1}
    first.unpersist(blocking=True)
    second.unpersist(blocking=True)
    assert content(batch(sc, ones("a"), second)) == {"a": 3, "b": 2, "c": 1}


def test_a_local_checkpoint_lets_states_go_on_without_what_they_were_made_of(sc: SparkContext, counted: MapWithStateRDD) -> None:
    made = batch(sc, ones("a"), counted)
    made.localCheckpoint()
    assert made.mapped.collect() == [("a", 5)]
    assert content(batch(sc, [], made)) == {**AFTER, "a": 5}
    assert "PartitionerAwareUnionRDD" not in jrdd(made).rdd().toDebugString()


def serialized(rdd: RDD[Any]) -> Any:
    """The bytes by which an RDD reaches an executor, lineage and all. To know its dependencies, it must have been looked at."""
    sc: Any = rdd.ctx
    java = jrdd(rdd).rdd()
    java.toDebugString()
    serializer = sc._jvm.org.apache.spark.serializer.JavaSerializer(sc._jsc.sc().conf()).newInstance()
    made = serializer.serialize(java, sc._jvm.scala.reflect.ClassTag.Any())
    serializer.deserialize(made.duplicate(), sc._jvm.scala.reflect.ClassTag.Any())
    return made


def test_many_batches_can_be_made_before_the_first_has_run(sc: SparkContext) -> None:
    """After a downtime, or when jobs are behind. The lineage is cut every few batches, but not before those run; making a batch must not
    look at all of it, which no stack is deep enough for."""
    states: Any = None
    made: list[MapWithStateRDD] = []
    for number in range(1, 201):
        states = batch(sc, ones("a") if number % LONGEST_LINEAGE == 0 else [], states, partitions=1).persist()
        made.append(states)
        if number % LONGEST_LINEAGE == 0:
            states.localCheckpoint()
    for each in made[: LONGEST_LINEAGE + 1]:
        assert jrdd(each).count() == 1
    assert content(made[LONGEST_LINEAGE]) == {"a": 1} and made[LONGEST_LINEAGE - 1].mapped.collect() == [("a", 1)]


def test_a_cut_lineage_is_not_sent_to_the_executors_any_more(sc: SparkContext, counted: MapWithStateRDD) -> None:
    cut = batch(sc, [], counted).persist()
    long = serialized(batch(sc, [], cut)).limit()
    cut.localCheckpoint()
    assert jrdd(cut).count() == 2
    assert serialized(batch(sc, [], cut)).limit() < 0.6 * long


def test_the_stack_is_deep_enough_for_twice_the_longest_lineage(sc: SparkContext) -> None:
    """Of the driver, which serializes it, and of the executors."""
    states: Any = None
    for _ in range(2 * LONGEST_LINEAGE):
        states = batch(sc, [], states, partitions=1)
    assert serialized(states).limit() > 0


RESTORED: dict[str, tuple[int, Callable[[SparkContext, list[bytes]], RDD[bytes]]]] = {
    "by any RDD": (2, lambda sc, stored: sc.parallelize(stored, len(stored))),
    "into more partitions": (5, lambda sc, stored: sc.parallelize(stored, len(stored))),
    "into one partition": (1, lambda sc, stored: sc.parallelize(stored, len(stored))),
    "by workers": (2, lambda sc, stored: states_from(sc, len(stored), lambda index: stored[index])),
}


@pytest.mark.parametrize("how", list(RESTORED))
def test_states_that_were_stored_go_on_as_those_that_were_not(sc: SparkContext, counted: MapWithStateRDD, how: str) -> None:
    """Spark behaviour MS7."""
    stored = [pickle.loads(pickle.dumps(data)) for data in counted.collect()]
    partitions, restored = RESTORED[how]
    after = batch(sc, ones("ad"), restored(sc, stored), partitions=partitions)
    assert content(after) == {"a": 5, "b": 3, "c": 1, "d": 1} and after.getNumPartitions() == partitions
    assert sorted(after.mapped.collect()) == [("a", 5), ("d", 1)]
    times = {key: updated for data in after.collect() for key, _, updated in StateMap(data).items()}
    assert times == dict.fromkeys("abcd", 1000)


def test_states_that_workers_read_lie_where_the_data_goes(sc: SparkContext) -> None:
    read = states_from(sc, 2)
    assert aligned(read, 2) is read and read.collect() == [EMPTY, EMPTY]


def test_many_results_and_states_of_any_size_come_through(sc: SparkContext) -> None:
    def sized(key: int, value: int, state: State) -> tuple[int, str]:
        state.update("s" * value)
        return key, "m" * value

    records = [(n, 300_000 if n == 500 else n % 50) for n in range(3000)]
    made = batch(sc, records, None, sized)
    assert sorted(made.mapped.collect()) == [(n, "m" * size) for n, size in records]
    assert sorted(content(made).items()) == [(n, "s" * size) for n, size in records]


# -- errors in words


def test_a_state_that_cannot_be_pickled_fails_the_batch_and_names_its_key(sc: SparkContext) -> None:
    with pytest.raises(Exception, match=r"the state of key \('shop', 5\) cannot be stored"):
        batch(sc, [(("shop", 5), 1)], None, lambda _k, _v, state: state.update(threading.Lock())).mapped.count()


def test_an_error_of_the_function_is_the_users_own(sc: SparkContext) -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        batch(sc, ones("a"), None, lambda _k, _v, _s: 1 / 0).mapped.count()


def test_a_key_that_could_not_be_found_again_is_named(sc: SparkContext) -> None:
    with pytest.raises(Exception, match=r"\['a'\] cannot be the key of a state, unhashable"):
        batch(sc, [(["a"], 1)]).mapped.count()


# -- a stream


def test_a_stream_of_states_on_a_real_context(sc: SparkContext, tmp_path: Path) -> None:
    """Spark behaviour MS2."""
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    mapped: list[list[Any]] = []
    snapshots: list[dict[Any, Any]] = []
    made = stream.ssc.queueStream([sc.parallelize(ones(text), 3) for text in LETTERS]).mapWithState(StateSpec.function(running_count))
    made.foreachRDD(lambda rdd: mapped.append(sorted(rdd.collect())))
    made.stateSnapshots().foreachRDD(lambda rdd: snapshots.append(dict(rdd.collect())))
    stream.start()
    for _ in LETTERS:
        stream.tick()
    stream.stop()
    assert mapped == [[], [("a", 1)], [("a", 2), ("b", 1)], [("a", 3), ("b", 2), ("c", 1)], [("a", 4), ("b", 3)]]
    assert snapshots == [{}, {"a": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 2, "c": 1}, AFTER]


def test_a_graph_that_begins_with_an_rdd_is_made_by_setup_again(sc: SparkContext) -> None:
    source = Stream(sc).ssc.queueStream([[]])
    source._recorder.why_not = None
    spec = StateSpec.function(running_count).initialState(sc.parallelize([("a", 1)]))
    source.mapWithState(spec)
    assert "RDD" in (source._recorder.why_not or "") and pickle.loads(pickle.dumps(spec)).initial == []


def test_the_states_of_a_batch_look_up_no_java_class_by_its_full_name(sc: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of such a name is a call to the JVM, which searches its class path. PySpark's own look-ups are of short names."""
    states = batch(sc, ones("a"))
    commands: list[str] = []
    send = ClientServerConnection.send_command
    monkeypatch.setattr(ClientServerConnection, "send_command", lambda self, command: (commands.append(command), send(self, command))[1])
    batch(sc, ones("b"), states)
    looked_up = [command.split("\n")[2] for command in commands if command.startswith("r\nu\n")]
    assert looked_up and [name for name in looked_up if name.startswith("org")] == []

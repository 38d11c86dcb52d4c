"""getOrCreate: unchanged code goes on without setup, changed code by it, and the offsets are exact either way."""

from __future__ import annotations

import argparse
import operator
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel

from kstream import DStream, Duration, StreamingContext, connectors, restore
from kstream.checkpoint.sidecar import changed, code_digest
from kstream.dstream.recipe import Recorder, Replay
from kstream.errors import ConfigurationError, CorruptRecordError, NotRecoverableError
from kstream.storage import open_store
from kstream.testing import ManualClock
from tests.fakes import FakeHost
from tests.harness import START, LogInput
from tests.streams import NumbersInput, Stream, numbers, numbers_connector

Setting = Callable[[str, str], None]
SEEN: list[tuple[str, list[Any]]] = []
CALLED: list[str] = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of every context that is not given one, also of those made by getOrCreate."""
    one = ManualClock(START)
    monkeypatch.setattr("kstream.context.SystemClock", lambda: one)
    monkeypatch.setattr(connectors, "load", numbers_connector)
    SEEN.clear()
    CALLED.clear()
    return one


@pytest.fixture
def path() -> str:
    return f"memory://{uuid.uuid4().hex}"


def note(rdd: Any) -> None:
    SEEN.append(("old", rdd.collect()))


def setup(sc: SparkContext | None = None) -> StreamingContext:
    CALLED.append("setup")
    ssc = StreamingContext(sc or SparkContext.getOrCreate(), 1)
    numbers(ssc, 2, lambda x: x * 10).foreachRDD(note)
    return ssc


def other_setup() -> StreamingContext:
    CALLED.append("other")
    ssc = StreamingContext(SparkContext.getOrCreate(), 1)
    numbers(ssc, 3, lambda x: x * 100).foreachRDD(lambda rdd: SEEN.append(("new", rdd.collect())))
    return ssc


def life(clock: ManualClock, path: str, setup_func: Callable[[], StreamingContext], ticks: int) -> StreamingContext:
    ssc = StreamingContext.getOrCreate(path, setup_func)
    stream = Stream(ssc.sparkContext, clock, ssc).start()
    for _ in range(ticks):
        stream.tick()
    stream.stop()
    return ssc


def test_unchanged_code_goes_on_without_calling_setup(sc: SparkContext, clock: ManualClock, path: str) -> None:
    """SC14"""
    life(clock, path, setup, 2)
    again = life(clock, path, setup, 1)
    assert CALLED == ["setup"]
    assert SEEN == [("old", [0, 10]), ("old", [20, 30]), ("old", [40, 50])]
    assert again.sparkContext is sc


def test_changed_code_is_called_and_its_streams_go_on_by_position(sc: SparkContext, clock: ManualClock, path: str) -> None:
    life(clock, path, setup, 2)
    life(clock, path, other_setup, 1)
    assert CALLED == ["setup", "other"]
    assert SEEN[2:] == [("new", [400, 500, 600])]


@pytest.mark.usefixtures("sc")
def test_a_graph_stored_by_an_older_kstream_calls_setup(clock: ManualClock, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life(clock, path, setup, 2)
    monkeypatch.setattr(Replay, "run", lambda *_: {}["starts"])
    assert life(clock, path, setup, 1) and CALLED == ["setup", "setup"] and SEEN[-1] == ("old", [40, 50])


def test_the_setting_forces_setup(sc: SparkContext, clock: ManualClock, path: str, setting: Setting) -> None:
    setting("spark.streaming.kstream.recovery", "setup")
    life(clock, path, setup, 1)
    life(clock, path, setup, 1)
    assert CALLED == ["setup", "setup"]
    assert [records for _, records in SEEN] == [[0, 10], [20, 30]]


def test_the_setting_forces_the_stored_graph(sc: SparkContext, clock: ManualClock, path: str, setting: Setting) -> None:
    setting("spark.streaming.kstream.recovery", "graph")
    life(clock, path, setup, 1)
    life(clock, path, other_setup, 1)
    assert CALLED == ["setup"]
    assert [records for _, records in SEEN] == [[0, 10], [20, 30]]


def test_an_unknown_mode_of_recovery_is_refused(sc: SparkContext, clock: ManualClock, path: str, setting: Setting) -> None:
    life(clock, path, setup, 1)
    setting("spark.streaming.kstream.recovery", "hope")
    with pytest.raises(ConfigurationError, match="hope"):
        StreamingContext.getOrCreate(path, setup)


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped"])
def test_without_a_readable_graph_setup_is_called_and_the_offsets_go_on(
    sc: SparkContext, clock: ManualClock, path: str, damage: str
) -> None:
    life(clock, path, setup, 1)
    store = open_store(path)
    data = store.read("graph")
    store.delete("graph")
    if damage != "missing":
        store.create("graph", data[:-5] if damage == "cut" else data.replace(b'"on"', b'"no"', 1))
    life(clock, path, setup, 1)
    assert CALLED == ["setup", "setup"]
    assert [records for _, records in SEEN] == [[0, 10], [20, 30]]


def test_a_damaged_plan_is_raised_and_never_papered_over(sc: SparkContext, clock: ManualClock, path: str) -> None:
    """SC14"""
    life(clock, path, setup, 1)
    store = open_store(path)
    name = "plans/" + store.list("plans")[-1]
    store.replace(name, store.read(name)[:-9])
    with pytest.raises(CorruptRecordError, match=name):
        life(clock, path, setup, 1)
    assert StreamingContext.getActive() is None


def test_a_queue_stream_starts_with_a_checkpoint_but_is_not_recovered(sc: SparkContext, clock: ManualClock, path: str) -> None:
    """SC18"""

    def queue_setup() -> StreamingContext:
        CALLED.append("queue")
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1], [2]]).pprint()
        return ssc

    life(clock, path, queue_setup, 1)
    assert len(open_store(path).list("plans")) == 2
    again = StreamingContext.getOrCreate(path, queue_setup)
    with pytest.raises(NotRecoverableError, match=r"queueStream doesn't support checkpointing\. Please don't use queueStream"):
        again.start()


def test_an_empty_directory_calls_setup(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> None:
    """SC14; CP1 has no counterpart: pyspark opens no context on a directory alone."""
    life(clock, str(tmp_path / "new"), setup, 1)
    assert CALLED == ["setup"] and (tmp_path / "new" / "meta").exists()


def test_interval_and_remember_come_back_with_the_graph(sc: SparkContext, clock: ManualClock, path: str) -> None:
    def remembering() -> StreamingContext:
        ssc = StreamingContext(sc, Duration(500))
        ssc.remember(5)
        numbers(ssc).foreachRDD(note)
        return ssc

    ssc = StreamingContext.getOrCreate(path, remembering)
    ssc.start()
    ssc.stop(stopSparkContext=False)
    before = NumbersInput.made
    again = StreamingContext.getOrCreate(path, remembering)
    assert NumbersInput.made == before + 1
    assert again.graph.batch_duration == Duration(500) and again.graph.remember_duration == Duration(5000)


def test_no_secret_and_no_stranger_among_the_stored_settings() -> None:
    """CP4: host and ports of the old process are not stored."""
    stored = restore.savable_conf(
        [
            ("spark.app.name", "orders"),
            ("spark.streaming.concurrentJobs", "2"),
            ("spark.streaming.kafka.sasl.password", "x"),
            ("spark.streaming.ssl.key", "x"),
            ("spark.hadoop.fs.s3a.secret.key", "x"),
            ("spark.driver.host", "h"),
            ("spark.ui.port", "1"),
        ]
    )
    assert stored == {"spark.app.name": "orders", "spark.streaming.concurrentJobs": "2"}


# -- the record of calls


def every_operator(source: DStream, host: Any) -> None:
    """One call of every recorded operator, in one graph."""
    pairs = source.map(lambda x: (x % 2, x)).flatMap(lambda p: [p, p]).filter(lambda p: True).cache()
    parts = pairs.mapPartitions(lambda it: it, True).mapPartitionsWithIndex(lambda _i, it: it, preservesPartitioning=True)
    parts.persist(StorageLevel.DISK_ONLY)
    summed = parts.mapValues(lambda v: v + 1).flatMapValues(lambda v: [v]).reduceByKey(operator.add, 2)
    grouped = parts.groupByKey(2).union(parts.combineByKey(str, lambda a, b: a, lambda a, b: a, numPartitions=1))
    windowed = summed.window(4, Duration(2000)).transform(lambda rdd: rdd)
    windowed.window(4).persist(StorageLevel.MEMORY_AND_DISK).pprint(3)
    windowed.count().print()
    windowed.reduce(lambda a, b: a).foreachRDD(lambda _time, rdd: None)
    parts.reduceByKeyAndWindow(operator.add, None, 2, 1, 2, lambda p: True).foreachRDD(lambda rdd: None)
    parts.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 2, lambda p: True).checkpoint(3).foreachRDD(lambda rdd: None)
    pairs.updateStateByKey(lambda values, state: values or state, 2, [(1, [2])]).checkpoint(Duration(4000)).pprint()
    host.union(source, source.map(abs)).pprint()
    host.transform([grouped, parts], lambda rdds: rdds[0]).pprint()
    host.transform((parts,), lambda _time, rdds: rdds[0]).pprint()


def shape(stream: DStream) -> tuple[Any, ...]:
    """What a stream is made of, all the way up."""
    return (
        type(stream).__name__,
        stream.operator,
        stream.slide_duration,
        stream.storage_level,
        stream.checkpoint_duration,
        getattr(stream, "window_duration", None),
        tuple(shape(parent) for parent in stream.dependencies),
    )


def test_every_operator_comes_back_from_its_record(sc: SparkContext) -> None:
    built = StreamingContext(sc, 1)
    every_operator(numbers(built), built)
    recorder = built.recorder
    functions = restore.load_functions(restore.dump_graph_functions(recorder))
    made = StreamingContext(sc, 1)
    restore_input = numbers_connector("numbers").restore_input
    Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(recorder.calls)
    assert [shape(s) for s in made.graph.output_streams] == [shape(s) for s in built.graph.output_streams]
    assert made.recorder.calls == recorder.calls and recorder.why_not is None


def test_calls_inside_an_operator_are_not_recorded() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    source.reduceByKeyAndWindow(operator.add, None, 2)
    assert [call.get("call") for call in host.graph.recorder.calls] == [None, "reduceByKeyAndWindow"]


def test_a_stream_of_the_users_own_making_keeps_the_graph_from_being_restored() -> None:
    host = FakeHost({})
    LogInput(host, []).map(lambda x: x).pprint()
    assert "public operator" in str(host.graph.recorder.why_not)


def test_an_operator_that_raises_leaves_the_recorder_as_it_was() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    with pytest.raises(ValueError, match="multiple"):
        source.window(0.5)
    source.map(lambda x: x)
    assert [call.get("call") for call in host.graph.recorder.calls] == [None, "map"]
    assert not Recorder().nested


# -- what counts as changed


def setup_with_a_set(word: str = "a") -> bool:
    return word in {"alpha", "beta", "gamma", "delta", "epsilon"}


def test_the_digest_of_a_setup_is_the_same_in_another_process() -> None:
    code = "from tests.test_recovery import setup_with_a_set as s; from kstream.checkpoint.sidecar import code_digest as d;"
    digests = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", code + "print(d(s)[''])"], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed}, cwd=Path(__file__).parent.parent,
        )  # fmt: skip
        digests.add(done.stdout)
    assert digests == {code_digest(setup_with_a_set)[""] + "\n"}


def make(topic: str, more: Any = None) -> Callable[[], str]:
    return lambda: f"{topic} {more}"


def test_another_value_closed_over_is_a_change_and_the_same_is_none() -> None:
    stored = code_digest(make("orders"))
    assert changed(stored, make("orders")) is None
    assert changed(stored, make("returns")) == "setup has changed"


def test_another_argument_of_a_partial_is_a_change() -> None:
    stored = code_digest(partial(make, "orders", more=1))
    assert changed(stored, partial(make, "orders", more=1)) is None
    assert changed(stored, partial(make, "orders", more=2)) == "setup has changed"
    assert changed(stored, partial(make, "returns", more=1)) == "setup has changed"


def test_another_body_or_default_is_a_change() -> None:
    def one(x: int = 1) -> int:
        return x

    def two(x: int = 2) -> int:
        return x

    def three(x: int = 1) -> int:
        return x + 1

    stored = code_digest(one)
    assert [changed(stored, f) for f in (one, two, three)] == [None, "setup has changed", "setup has changed"]


def test_a_changed_module_is_named_also_when_it_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "job_of_a_user.py"
    module.write_text("X = 1\n")
    __import__("job_of_a_user")
    stored = code_digest(make("orders"))
    assert "job_of_a_user" in stored and not [name for name in stored if name.startswith(("pyspark", "kstream.", "json"))]
    assert changed(stored, make("orders")) is None
    module.write_text("X = 2\n")
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"
    del sys.modules["job_of_a_user"]
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"
    module.unlink()
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"


def test_an_object_that_setup_closes_over_is_compared_by_its_attributes() -> None:
    def make(options: argparse.Namespace) -> Callable[[], StreamingContext]:
        return lambda: options.context

    stored = code_digest(make(argparse.Namespace(topic="orders", depth={"a": [1]})))
    assert changed(stored, make(argparse.Namespace(topic="orders", depth={"a": [1]}))) is None
    assert changed(stored, make(argparse.Namespace(topic="returns", depth={"a": [1]}))) == "setup has changed"
    assert changed(stored, make(argparse.Namespace(topic="orders", depth={"a": [2]}))) == "setup has changed"

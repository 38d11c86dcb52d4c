"""getOrCreate: unchanged code goes on without setup, changed code by it, and the offsets are exact either way."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import Duration, StreamingContext, connectors, restore
from kstream.dstream.recipe import Replay
from kstream.errors import ConfigurationError, CorruptRecordError, NotRecoverableError
from kstream.storage import open_store
from kstream.testing import ManualClock
from tests.harness import START
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

"""getOrCreate: `setup` is called at every start, or the graph restored that recovery=graph has stored; offsets are exact either way."""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from pyspark import SparkContext

from kstream import Duration, StreamingContext, connectors
from kstream.context import recovery as restore
from kstream.dstream.recipe import Replay
from kstream.errors import (
    ConfigurationError,
    CorruptRecordError,
    GraphNotRestoredError,
    IntervalChangedError,
    NotRecoverableError,
    NotSerializableError,
    StorageError,
)
from kstream.spark import checkpoint_store
from kstream.storage import open_store
from kstream.testing import ManualClock
from tests.checkpoint.fixtures.two_streams import CHECKPOINT
from tests.harness import START, LogInput
from tests.streams import NumbersInput, life, numbers, numbers_connector

Setting = Callable[[str, str], None]
SEEN: list[tuple[str, list[Any]]] = []
CALLED: list[str] = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of every context that is not given one, also of those made by getOrCreate."""
    one = ManualClock(START)
    monkeypatch.setattr("kstream.context.streaming_context.SystemClock", lambda: one)
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


def job(sink: str, size: int = 2) -> Callable[[], StreamingContext]:
    """A setup that closes over its arguments, as one does that reads them from a command line or the environment."""

    def made() -> StreamingContext:
        CALLED.append(sink)
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        numbers(ssc, size, lambda x: x * 10).foreachRDD(lambda rdd: SEEN.append((sink, rdd.collect())))
        return ssc

    return made


# -- setup, which is the default


@pytest.mark.usefixtures("sc")
def test_setup_is_called_at_every_start_and_its_streams_go_on(clock: ManualClock, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kstream"):
        life(clock, path, setup, 2)
        life(clock, path, setup, 1)
    assert CALLED == ["setup", "setup"]
    assert SEEN == [("old", [0, 10]), ("old", [20, 30]), ("old", [40, 50])]
    assert [record.levelname for record in caplog.records if "calling setup" in record.message] == ["INFO"], "at the restart"
    assert "the job continues after batch" in caplog.text and "WARNING" not in caplog.text


@pytest.mark.usefixtures("sc")
def test_a_start_opens_the_store_of_its_checkpoint_once(clock: ManualClock, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(checkpoint_store, "open_store", lambda url, **options: (opened.append(url), open_store(url, **options))[1])
    for _ in range(2):
        opened.clear()
        life(clock, path, setup, 1)
        assert opened == [path]


def test_a_restart_with_other_arguments_writes_to_the_new_sink(clock: ManualClock, path: str) -> None:
    life(clock, path, job("old.txt"), 2)
    life(clock, path, job("new.txt", 3), 1)
    assert SEEN == [("old.txt", [0, 10]), ("old.txt", [20, 30]), ("new.txt", [40, 50, 60])]


def test_what_functions_close_over_is_in_no_file(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> None:
    life(clock, str(tmp_path), job("postgresql://orders-db:5432"), 2)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"connections", "meta"} < {file.name for file in files} and "graph" not in {file.name for file in files}
    assert [file for file in files if holds(file.read_bytes(), b"orders-db")] == []


def holds(data: bytes, text: bytes) -> bool:
    """Whether the text is there, plain or as base64 at any of its three alignments."""
    encoded = [base64.b64encode(b" " * shift + text)[(shift * 4 + 2) // 3 + 1 : -4] for shift in range(3)]
    return any(form in data for form in (text, *encoded))


@pytest.mark.parametrize(("mode", "says"), [("hope", "must be setup"), ("auto", "no longer exists: setup is called at every start")])
def test_an_unknown_mode_of_recovery_is_refused_at_every_start(
    sc: SparkContext, clock: ManualClock, path: str, setting: Setting, mode: str, says: str
) -> None:
    life(clock, path, setup, 1)
    setting("spark.streaming.kstream.recovery", mode)
    with pytest.raises(ConfigurationError, match=f"recovery is '{mode}'.*{says}"):
        StreamingContext.getOrCreate(path, setup)
    first = StreamingContext.getOrCreate(path + "-new", setup)
    with pytest.raises(ConfigurationError, match=says):
        first.start()
    assert not open_store(path + "-new").list()


def test_a_graph_of_version_1_is_not_used_and_is_removed_at_the_start(
    sc: SparkContext, clock: ManualClock, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    life(clock, path, setup, 1)
    store = open_store(path)
    store.create("graph", (CHECKPOINT / "graph").read_bytes())
    with caplog.at_level(logging.INFO, "kstream"):
        life(clock, path, setup, 1)
        life(clock, path, setup, 1)
    assert CALLED == ["setup"] * 3 and not store.exists("graph")
    (line,) = [record.message for record in caplog.records if "graph" in record.message]
    assert line == f"removed {path}/graph: an earlier version of kstream stored it, and it is not used any more"


# -- graph, on request


@pytest.fixture
def graph_mode(setting: Setting) -> None:
    setting("spark.streaming.kstream.recovery", "graph")


@pytest.mark.usefixtures("sc", "graph_mode")
def test_the_stored_graph_goes_on_without_setup_whatever_the_code_is_now(clock: ManualClock, path: str) -> None:
    """Spark behaviour SC14."""
    life(clock, path, setup, 2)
    life(clock, path, other_setup, 1)
    life(clock, path, other_setup, 1)
    assert CALLED == ["setup"]
    assert [records for _, records in SEEN] == [[0, 10], [20, 30], [40, 50], [60, 70]]


def test_the_stored_graph_decides_also_where_the_new_process_has_not_the_setting(sc: SparkContext, clock: ManualClock, path: str) -> None:
    """A SparkContext that is there is taken with its own settings; and the graph stays stored."""
    conf: Any = sc._conf
    conf.set("spark.streaming.kstream.recovery", "graph")
    life(clock, path, setup, 1)
    conf._jconf.remove("spark.streaming.kstream.recovery")
    for _ in range(2):
        assert life(clock, path, other_setup, 1).sparkContext is sc
    assert CALLED == ["setup"] and [records for _, records in SEEN] == [[0, 10], [20, 30], [40, 50]]


def test_getActiveOrCreate_restores_the_stored_graph_too(sc: SparkContext, clock: ManualClock, path: str, graph_mode: None) -> None:
    life(clock, path, setup, 1)
    made = StreamingContext.getActiveOrCreate(path, other_setup)
    assert CALLED == ["setup"] and [stream.operator for stream in made._graph.output_streams] == ["foreachRDD"]


@pytest.mark.usefixtures("graph_mode")
def test_who_says_setup_gets_it_called_and_the_graph_removed(sc: SparkContext, clock: ManualClock, path: str, setting: Setting) -> None:
    life(clock, path, setup, 1)
    setting("spark.streaming.kstream.recovery", "setup")
    life(clock, path, other_setup, 1)
    assert CALLED == ["setup", "other"] and SEEN[1:] == [("new", [200, 300, 400])]
    assert not open_store(path).exists("graph")


@pytest.mark.usefixtures("sc", "graph_mode")
def test_the_graph_is_decided_before_a_batch_runs(clock: ManualClock, path: str, setting: Setting) -> None:
    """Else a driver that is killed while it makes up for missed batches leaves the old graph to the next start."""
    life(clock, path, setup, 1)
    clock.advance(3000)
    there: list[bool] = []

    def noting() -> StreamingContext:
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        numbers(ssc, 2, lambda x: x).transform(lambda rdd: (there.append(open_store(path).exists("graph")), rdd)[1]).foreachRDD(note)
        return ssc

    setting("spark.streaming.kstream.recovery", "setup")
    life(clock, path, noting, 1)
    assert len(there) > 1 and not any(there)


@pytest.mark.usefixtures("sc", "graph_mode")
def test_a_start_that_is_refused_leaves_the_stored_graph_alone(clock: ManualClock, path: str, setting: Setting) -> None:
    life(clock, path, setup, 1)
    stored = open_store(path).read("graph")
    for mode in ("setup", "graph"):
        setting("spark.streaming.kstream.recovery", mode)
        other = StreamingContext(SparkContext.getOrCreate(), 5)
        numbers(other).foreachRDD(note)
        other.checkpoint(path)
        with pytest.raises(IntervalChangedError):
            other.start()
        assert open_store(path).read("graph") == stored


@pytest.mark.usefixtures("sc", "graph_mode")
def test_a_graph_that_the_store_does_not_take_fails_the_start(clock: ManualClock, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise StorageError("the disk is full", path="graph")

    monkeypatch.setattr("kstream.checkpoint.stored_graph.write_graph", refuse)
    ssc = StreamingContext.getOrCreate(path, setup)
    with pytest.raises(StorageError, match="the disk is full"):
        ssc.start()
    assert StreamingContext.getActive() is None


@pytest.mark.usefixtures("graph_mode")
def test_the_file_of_the_graph_is_its_owners_only(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> None:
    life(clock, str(tmp_path), job("postgresql://orders-db:5432"), 1)
    assert (tmp_path / "graph").stat().st_mode & 0o777 == 0o600
    assert holds((tmp_path / "graph").read_bytes(), b"orders-db"), "as docs/checkpoints.md says"


@pytest.mark.usefixtures("sc", "graph_mode")
def test_a_graph_whose_calls_do_not_work_any_more_is_an_error_that_says_the_ways_past(
    clock: ManualClock, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life(clock, path, setup, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Replay, "run", lambda *_: {}["starts"])
        with pytest.raises(GraphNotRestoredError, match=r"KeyError: 'starts'.*remove this file: setup is then called"):
            life(clock, path, setup, 1)
    open_store(path).delete("graph")
    life(clock, path, setup, 1)
    assert CALLED == ["setup", "setup"] and SEEN[-1] == ("old", [40, 50])


@pytest.mark.usefixtures("sc", "graph_mode")
def test_a_function_that_cannot_be_loaded_is_such_an_error_too(clock: ManualClock, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life(clock, path, setup, 1)
    monkeypatch.delattr("tests.context.test_recovery.note")
    with pytest.raises(GraphNotRestoredError, match="its functions cannot be loaded"):
        StreamingContext.getOrCreate(path, setup)
    assert CALLED == ["setup"]


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda ssc: kafka(ssc, {"sasl.password": "x"}), "the Kafka parameters sasl.password may hold a secret"),
        (lambda ssc: kafka(ssc, {}, untilOffsets={("t", 0): 7}), "untilOffsets is a time or offsets"),
        (lambda ssc: LogInput(ssc, []), r"LogInput .* has no recipe\(\)"),
        (lambda ssc: saved(ssc), "an argument of saveAsTextFiles holds a password"),
        (lambda ssc: state_of(ssc), "ParallelCollectionRDD.* was made by the driver"),
    ],
    ids=["a secret", "ends of one run", "no recipe", "a URL", "an RDD"],
)
def test_a_graph_that_cannot_be_stored_is_refused_at_the_start(
    sc: SparkContext, clock: ManualClock, tmp_path: Path, build: Any, says: str
) -> None:
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    build(ssc).pprint()
    with pytest.raises(NotSerializableError, match=f"recovery is graph, but the graph cannot be stored: .*{says}.*Remove the setting"):
        ssc.start()
    assert list((tmp_path / "checkpoint").iterdir()) == []


def kafka(ssc: StreamingContext, params: dict[str, str], **more: Any) -> Any:
    return KafkaUtils.createDirectStream(ssc, ["t"], {"bootstrap.servers": "h:1", **params}, **more)


def saved(ssc: StreamingContext) -> Any:
    stream = numbers(ssc)
    stream.saveAsTextFiles("ftp://me:pw@host/out")
    return stream


def state_of(ssc: StreamingContext) -> Any:
    return numbers(ssc).map(lambda x: (x, x)).updateStateByKey(lambda v, s: s, 1, ssc.sparkContext.parallelize([(1, 1)]))


def test_a_damaged_plan_is_raised_and_never_papered_over(sc: SparkContext, clock: ManualClock, path: str) -> None:
    """Spark behaviour SC14."""
    life(clock, path, setup, 1)
    store = open_store(path)
    name = "plans/" + store.list("plans")[-1]
    store.replace(name, store.read(name)[:-9])
    with pytest.raises(CorruptRecordError, match=name):
        life(clock, path, setup, 1)
    assert StreamingContext.getActive() is None


@pytest.mark.parametrize("mode", ["setup", "graph"])
def test_a_queue_stream_starts_with_a_checkpoint_but_is_not_recovered(
    sc: SparkContext, clock: ManualClock, path: str, setting: Setting, mode: str
) -> None:
    """Spark behaviour SC18."""
    setting("spark.streaming.kstream.recovery", mode)

    def queue_setup() -> StreamingContext:
        CALLED.append("queue")
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1], [2]]).pprint()
        return ssc

    life(clock, path, queue_setup, 1)
    assert len(open_store(path).list("plans")) == 2
    with pytest.raises(NotRecoverableError, match=r"queueStream doesn't support checkpointing\. Please don't use queueStream"):
        StreamingContext.getOrCreate(path, queue_setup).start()


def test_an_empty_directory_calls_setup(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> None:
    """SC14; CP1 has no counterpart: pyspark opens no context on a directory alone."""
    life(clock, str(tmp_path / "new"), setup, 1)
    assert CALLED == ["setup"] and (tmp_path / "new" / "meta").exists()


@pytest.mark.usefixtures("graph_mode")
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
    assert again._graph.batch_duration == Duration(500) and again._graph.remember_duration == Duration(5000)


def test_every_setting_is_stored_but_addresses_of_a_process_and_secrets() -> None:
    """Spark behaviour CP4."""
    kept = {
        "spark.app.name": "orders",
        "spark.master": "spark://cluster:7077",
        "spark.executor.memory": "4g",
        "spark.jars.packages": "a:b:1",
        "spark.hadoop.fs.s3a.endpoint": "https://minio:9000",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Provider",
        "spark.sql.session.timeZone": "UTC",
        "spark.ssl.enabled": "true",
        "spark.eventLog.dir": "abfss://container@account.dfs.core.windows.net/events",
        "spark.my.own.setting": "1",
    }
    of_one_process = {
        "spark.driver.host": "h",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "1",
        "spark.ui.port": "1",
        "spark.blockManager.port": "1",
        "spark.app.id": "local-1",
        "spark.app.startTime": "1",
        "spark.app.initial.jar.urls": "spark://h:1/jars/a.jar",
        "spark.executor.id": "driver",
        "spark.submit.deployMode": "client",
        "spark.yarn.app.id": "application_1",
        "spark.streaming.kstream.recovery.allow": "dropped:a",
    }
    secret = {
        "spark.streaming.kafka.sasl.password": "x",
        "spark.streaming.ssl.key": "x",
        "spark.hadoop.fs.s3a.secret.key": "x",
        "spark.executorEnv.AWS_ACCESS_KEY_ID": "x",
        "spark.my.token.of.mine": "x",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=x",
        "spark.streaming.checkpoint.directory": "s3://key:x@bucket/x",
        "spark.hadoop.my.pem": "-----BEGIN PRIVATE KEY-----",
        "spark.hadoop.hush": "x",
    }
    stored, left_out = restore.storable_conf({**kept, **of_one_process, **secret, "spark.redaction.regex": "token|hush"})
    assert stored == {**kept, "spark.redaction.regex": "token|hush"}
    assert left_out == sorted(secret)
    assert "spark.my.token.of.mine" in restore.storable_conf(secret)[1], "Spark's own rule holds where no other is said"
    with pytest.raises(ConfigurationError, match=r"spark\.redaction\.regex is '\('"):
        restore.storable_conf({"spark.redaction.regex": "("})

"""StreamingContext: its states, the one that is active, its end, its threads' properties (Spark behaviours SC1 … SC21)."""

from __future__ import annotations

import threading
import time as real_time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, StorageLevel

from kstream import Seconds, StreamingContext, StreamingContextState, StreamingListener
from kstream.dstream.base import node_of
from kstream.errors import ConfigurationError, IllegalStateError, ListenerStopError, NotSerializableError, StorageError
from kstream.testing import ManualClock
from tests.harness import START
from tests.streams import Stream, numbers, refusing_to_start

Setting = Callable[[str, str], None]
INITIALIZED, ACTIVE, STOPPED = StreamingContextState.INITIALIZED, StreamingContextState.ACTIVE, StreamingContextState.STOPPED


def with_output(sc: SparkContext) -> Stream:
    stream = Stream(sc)
    stream.ssc.queueStream([[1], [2], [3]]).foreachRDD(lambda rdd: rdd.count())
    return stream


# -- states


def test_a_context_is_initialized_then_active_then_stopped(sc: SparkContext) -> None:
    """Spark behaviour SC1."""
    stream = with_output(sc)
    assert stream.ssc.getState() is INITIALIZED
    stream.start()
    assert stream.ssc.getState() is ACTIVE
    stream.stop()
    assert stream.ssc.getState() is STOPPED
    assert sc.parallelize([1]).count() == 1


def test_starting_or_stopping_twice_is_no_error(sc: SparkContext) -> None:
    """Spark behaviour SC6."""
    stream = with_output(sc)
    stream.start().start()
    assert stream.ssc.getState() is ACTIVE
    stream.stop()
    stream.stop()
    assert stream.ssc.getState() is STOPPED


def test_stopping_before_the_start_ends_it_and_starting_after_a_stop_is_refused(sc: SparkContext) -> None:
    """Spark behaviour SC6."""
    stream = with_output(sc)
    stream.stop()
    assert stream.ssc.getState() is STOPPED
    with pytest.raises(IllegalStateError, match="already been stopped"):
        stream.start()


def test_the_setting_decides_whether_stop_ends_spark_too(sc: SparkContext, setting: Setting) -> None:
    """Spark behaviour SC1."""
    setting("spark.streaming.stopSparkContextByDefault", "false")
    stream = with_output(sc).start()
    stream.ssc.stop()
    assert sc.parallelize([1]).count() == 1


def test_the_checkpoint_directory_may_be_a_setting(sc: SparkContext, setting: Setting, tmp_path: Path) -> None:
    """Spark behaviour SC2."""
    setting("spark.streaming.checkpoint.directory", str(tmp_path))
    stream = Stream(sc)
    stream.ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    stream.start()
    stream.tick()
    stream.stop()
    assert (tmp_path / "meta").exists() and len(list((tmp_path / "plans").iterdir())) == 2


def test_there_is_no_context_without_a_duration_and_none_around_one_of_the_jvm(sc: SparkContext) -> None:
    """pyspark's signature has both; what its own constructor does with None there is an assertion."""
    with pytest.raises(ConfigurationError, match="batchDuration is missing"):
        StreamingContext(sc)
    with pytest.raises(ConfigurationError, match="jssc must be None"):
        StreamingContext(sc, None, object())
    assert StreamingContext(sc, batchDuration=1, jssc=None).getState() is INITIALIZED


@pytest.mark.parametrize("duration", [0, -1, Seconds(0)])
def test_a_batch_takes_time(sc: SparkContext, duration: Any) -> None:
    with pytest.raises(ConfigurationError, match="above zero"):
        StreamingContext(sc, duration)


def test_a_batch_duration_that_is_no_number_is_named(sc: SparkContext) -> None:
    with pytest.raises(TypeError, match="batchDuration: '1s' is not a number of seconds"):
        StreamingContext(sc, "1s")  # pyright: ignore


def test_a_graph_without_outputs_is_not_started(sc: SparkContext) -> None:
    stream = Stream(sc)
    stream.ssc.queueStream([[1]]).map(lambda x: x)
    with pytest.raises(ConfigurationError, match="No output operations"):
        stream.start()
    assert StreamingContext.getActive() is None


def test_a_stream_with_state_is_not_started_without_a_checkpoint_directory(sc: SparkContext) -> None:
    """Spark behaviour SC4."""
    stream = Stream(sc)
    stream.ssc.queueStream([[("a", 1)]]).updateStateByKey(lambda values, state: sum(values)).pprint()
    with pytest.raises(ConfigurationError, match="checkpoint directory has not been set"):
        stream.start()
    assert stream.ssc.getState() is StreamingContextState.STOPPED
    assert StreamingContext.getActive() is None


def test_a_local_checkpoint_directory_is_made_when_it_is_given(sc: SparkContext, tmp_path: Path) -> None:
    ssc = Stream(sc).ssc
    ssc.checkpoint(str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []
    ssc.checkpoint((tmp_path / "c").as_uri())
    assert (tmp_path / "c").is_dir()
    ssc.checkpoint(None)  # as pyspark takes it
    assert ssc._checkpoint is None  # pyright: ignore


def test_a_checkpoint_directory_of_the_settings_is_made_with_the_context(sc: SparkContext, setting: Setting, tmp_path: Path) -> None:
    """Spark behaviour SC2."""
    setting("spark.streaming.checkpoint.directory", str(tmp_path / "c"))
    StreamingContext(sc, 1)
    assert (tmp_path / "c").is_dir()


def test_a_checkpoint_directory_that_cannot_be_made_is_an_error_where_it_is_given(sc: SparkContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for path in (tmp_path / "file", tmp_path / "file" / "c"):
        with pytest.raises(StorageError, match=r"cannot make the directory .*Give a path that this user may write"):
            Stream(sc).ssc.checkpoint(str(path))


@pytest.mark.parametrize("url", ["s3://bucket/c", "gs://bucket/c", "hdfs://namenode:8020/c", "memory://c", "webhdfs://host/c"])
def test_a_checkpoint_directory_that_is_not_local_is_not_touched_before_the_start(sc: SparkContext, url: str) -> None:
    Stream(sc).ssc.checkpoint(url)


def test_functions_may_checkpoint_their_rdds_where_the_context_has_a_checkpoint_directory(sc: SparkContext, tmp_path: Path) -> None:
    """As under Spark's StreamingContext, which sets that of the SparkContext, too."""
    stream = Stream(sc)
    checkpointed: list[Any] = []

    def work(rdd: Any) -> None:
        rdd.checkpoint()
        rdd.count()
        checkpointed.append(rdd.getCheckpointFile())

    numbers(stream.ssc).map(lambda x: x).foreachRDD(work)
    stream.ssc.checkpoint(str(tmp_path / "c d"))
    stream.start()
    stream.tick()
    stream.stop()
    assert checkpointed and checkpointed[0].startswith(f"file:{tmp_path}/c d/")


def test_functions_that_cannot_be_stored_fail_the_start_early(sc: SparkContext, setting: Setting, tmp_path: Path) -> None:
    """Spark behaviour SC3."""
    setting("spark.streaming.kstream.recovery", "graph")
    stream = Stream(sc)
    lock = threading.Lock()
    stream.ssc.queueStream([[1]]).foreachRDD(lambda rdd: lock)
    stream.ssc.checkpoint(str(tmp_path / "c"))
    with pytest.raises(NotSerializableError, match="DStreams with their functions are not serializable"):
        stream.start()
    assert stream.ssc.getState() is not ACTIVE
    assert StreamingContext.getActive() is None
    assert list((tmp_path / "c").iterdir()) == []


def test_the_context_itself_cannot_be_stored_in_a_function(sc: SparkContext, setting: Setting, tmp_path: Path) -> None:
    """Spark behaviour SC3."""
    setting("spark.streaming.kstream.recovery", "graph")
    stream = Stream(sc)
    stream.ssc.queueStream([[1]]).foreachRDD(lambda rdd: stream.ssc.sparkContext.parallelize([1]))
    stream.ssc.checkpoint(str(tmp_path / "c"))
    with pytest.raises(NotSerializableError, match="Do not use the context"):
        stream.start()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_where_no_graph_is_stored_functions_of_the_driver_may_hold_anything(sc: SparkContext, tmp_path: Path, checkpoint: bool) -> None:
    stream = Stream(sc)
    lock = threading.Lock()
    if checkpoint:
        stream.ssc.checkpoint(str(tmp_path / "c"))
    stream.ssc.queueStream([[1]]).foreachRDD(lambda rdd: lock.acquire())
    stream.start()
    stream.tick()
    assert lock.locked()


@pytest.mark.parametrize(("after", "word"), [("start", "start"), ("stop", "stop")])
def test_nothing_can_be_added_after_start_or_stop(sc: SparkContext, after: str, word: str) -> None:
    """Spark behaviour SC17."""
    stream = Stream(sc)
    source = stream.ssc.queueStream([[1]])
    source.pprint()
    stream.start()
    if after == "stop":
        stream.stop()
    additions: list[Callable[[], object]] = [
        lambda: stream.ssc.queueStream([[1]]),
        lambda: source.map(lambda x: x),
        lambda: source.window(2),
        lambda: source.reduceByKeyAndWindow(max, None, 2),
        lambda: source.union(source),
        lambda: source.join(source),
        lambda: source.transformWith(lambda a, b: a, source),
        lambda: source.persist(StorageLevel.MEMORY_ONLY),
        lambda: source.cache(),
        lambda: source.checkpoint(2),
        lambda: source.setName("late"),
        lambda: stream.ssc.union(source, source),
        lambda: stream.ssc.transform([source], lambda rdds: rdds[0]),
        lambda: source.saveAsTextFiles("late"),
        lambda: source.foreachRDD(lambda rdd: None),
        lambda: source.pprint(),
        lambda: stream.ssc.checkpoint("memory://late"),
    ]
    for add in additions:
        with pytest.raises(IllegalStateError, match=word):
            add()


# -- one active context


def test_the_active_context_is_the_started_one(sc: SparkContext) -> None:
    """Spark behaviour SC15."""
    assert StreamingContext.getActive() is None
    stream = with_output(sc)
    assert StreamingContext.getActive() is None
    stream.start()
    assert StreamingContext.getActive() is stream.ssc
    stream.stop()
    assert StreamingContext.getActive() is None


def test_an_active_context_is_preferred_to_making_one(sc: SparkContext) -> None:
    """Spark behaviour SC15."""
    stream = with_output(sc).start()

    def never() -> StreamingContext:
        raise AssertionError("setup was called")

    assert StreamingContext.getActiveOrCreate(None, never) is stream.ssc
    assert StreamingContext.getActiveOrCreate("memory://nothing-here", never) is stream.ssc
    stream.stop()
    with pytest.raises(TypeError, match="setupFunc should be callable"):
        StreamingContext.getActiveOrCreate(None, None)  # type: ignore[arg-type]
    other = with_output(sc)
    assert StreamingContext.getActiveOrCreate(None, lambda: other.ssc) is other.ssc


def in_a_thread(function: Callable[[], StreamingContext]) -> tuple[threading.Thread, list[StreamingContext]]:
    """Call a function on another thread. Return the thread, and the list that gets the result."""
    results: list[StreamingContext] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    return thread, results


def test_a_context_starts_and_stops_while_another_one_is_being_made(sc: SparkContext) -> None:
    """Setup may start Spark, which takes seconds."""
    inside, go_on = threading.Event(), threading.Event()
    made = with_output(sc)

    def setup() -> StreamingContext:
        inside.set()
        assert go_on.wait(60)
        return made.ssc

    thread, results = in_a_thread(lambda: StreamingContext.getActiveOrCreate(None, setup))
    assert inside.wait(60)
    stream = with_output(sc)
    starter = threading.Thread(target=lambda: (stream.start(), stream.stop()), daemon=True)
    starter.start()
    starter.join(30)
    assert not starter.is_alive() and stream.ssc.getState() is STOPPED
    go_on.set()
    thread.join(60)
    assert results == [made.ssc]


def test_a_context_that_became_active_while_setup_ran_is_preferred(sc: SparkContext, caplog: pytest.LogCaptureFixture) -> None:
    made, other = with_output(sc), with_output(sc)

    def setup() -> StreamingContext:
        starter = threading.Thread(target=other.start, daemon=True)
        starter.start()
        starter.join(30)
        return made.ssc

    assert StreamingContext.getActiveOrCreate(None, setup) is other.ssc
    assert "not the one that setup made" in caplog.text
    other.stop()


class NotedLock:
    """A lock that says when a second thread wants it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._wanted = 0
        self.is_waited_for = threading.Event()

    def __enter__(self) -> None:
        self._wanted += 1
        if self._wanted == 2:
            self.is_waited_for.set()
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def test_of_two_threads_that_make_a_context_at_once_one_waits_and_gets_the_context_of_the_other(
    sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on, lock = threading.Event(), threading.Event(), NotedLock()
    monkeypatch.setattr(StreamingContext, "_creation_lock", lock)
    stream = with_output(sc)
    calls: list[int] = []

    def setup() -> StreamingContext:
        calls.append(1)
        inside.set()
        assert go_on.wait(60)
        return stream.start().ssc

    first, of_first = in_a_thread(lambda: StreamingContext.getActiveOrCreate(None, setup))
    assert inside.wait(60)
    second, of_second = in_a_thread(lambda: StreamingContext.getActiveOrCreate(None, setup))
    assert lock.is_waited_for.wait(60)
    go_on.set()
    first.join(60)
    second.join(60)
    assert of_first == of_second == [stream.ssc] and calls == [1]
    stream.stop()


def test_a_second_context_may_be_made_but_not_started(sc: SparkContext) -> None:
    """Spark behaviour SC16."""
    first = with_output(sc).start()
    second = with_output(sc)
    with pytest.raises(IllegalStateError, match="StreamingContext"):
        second.start()
    assert StreamingContext.getActive() is first.ssc
    assert first.ssc.getState() is ACTIVE
    first.stop()
    second.start()
    assert StreamingContext.getActive() is second.ssc


# -- waiting, and stopping


def test_awaiting_termination_with_a_timeout_tells_whether_it_ended(sc: SparkContext) -> None:
    """Spark behaviour SC12."""
    stream = with_output(sc).start()
    begun = real_time.monotonic()
    assert stream.ssc.awaitTerminationOrTimeout(0.05) is False
    stopper = threading.Thread(target=stream.stop)
    stopper.start()
    assert stream.ssc.awaitTerminationOrTimeout(60) is True
    stopper.join(60)
    stream.ssc.awaitTermination()
    assert real_time.monotonic() - begun < 60


def test_a_batch_that_stops_the_context_while_another_stop_waits_for_that_batch_holds_nothing_up(sc: SparkContext) -> None:
    """As one that has seen the record after which there is nothing to do, and a SIGTERM at the same moment."""
    stream = Stream(sc)
    running, order = threading.Event(), list[str]()

    def enough(_rdd: Any) -> None:
        running.set()
        assert stream.ssc._stop_wanted.wait(60)
        stream.stop()
        order.append("a batch")

    stream.ssc.queueStream([[1]]).foreachRDD(enough)
    stream.start()
    threading.Thread(target=stream.tick, args=(False,)).start()  # the clock waits for the batch
    assert running.wait(60)
    stream.stop()
    assert order == ["a batch"] and stream.ssc.getState() is STOPPED
    stream.ssc.awaitTermination(1)


def failing_to_stop(sc: SparkContext, error: Exception) -> Stream:
    """A context with a part that fails at the stop."""
    stream = with_output(sc)
    stream.ssc._observers.ended = raising(error)
    return stream


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_arguments: Any) -> None:
        raise error

    return fail


def test_a_part_that_fails_at_the_stop_leaves_no_context_half_alive(sc: SparkContext) -> None:
    stream = failing_to_stop(sc, ValueError("cannot end")).start()
    with pytest.raises(ValueError, match="cannot end"):
        stream.stop()
    assert stream.ssc.getState() is STOPPED and StreamingContext.getActive() is None
    assert stream.ssc.awaitTerminationOrTimeout(0) is True
    stream.stop()
    following = with_output(sc).start()
    following.tick()
    following.stop()


def test_an_input_that_fails_at_the_stop_is_an_error_of_the_streams_and_the_context_stops(sc: SparkContext) -> None:
    stream = Stream(sc)
    source = numbers(stream.ssc)
    source.foreachRDD(lambda rdd: None)
    node: Any = source._node
    node.stop = raising(ValueError("cannot close"))
    stream.start()
    stream.stop()
    assert stream.ssc.getState() is STOPPED and StreamingContext.getActive() is None
    with pytest.raises(ValueError, match="cannot close"):
        stream.ssc.awaitTermination(1)
    with_output(sc).start().stop()


def test_a_start_that_fails_raises_its_own_error_though_its_stop_fails_too(sc: SparkContext, caplog: pytest.LogCaptureFixture) -> None:
    stream = Stream(sc)
    refusing_to_start(stream.ssc).foreachRDD(lambda rdd: None)
    stream.ssc._observers.ended = raising(ValueError("cannot end"))
    with pytest.raises(OSError, match="no source"):
        stream.start()
    assert stream.ssc.getState() is STOPPED
    assert "its stop failed as well: ValueError: cannot end" in caplog.text
    assert stream.ssc.awaitTerminationOrTimeout(0) is True
    with_output(sc).start().stop()


def test_awaiting_termination_blocks_until_another_thread_stops(sc: SparkContext) -> None:
    """Spark behaviour SC12."""
    stream = with_output(sc).start()
    ended = threading.Event()
    waiter = threading.Thread(target=lambda: (stream.ssc.awaitTermination(), ended.set()))
    waiter.start()
    assert not ended.wait(0.05)
    stream.stop()
    assert ended.wait(60)


def test_stopping_from_inside_a_listener_is_refused_and_does_not_hang(sc: SparkContext) -> None:
    """Spark behaviour SL5."""
    stream = with_output(sc)
    caught: list[BaseException] = []
    told = threading.Event()

    class Stopper(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            try:
                stream.ssc.stop(stopSparkContext=False)
            except ListenerStopError as e:
                caught.append(e)
            told.set()

    stream.ssc.addStreamingListener(Stopper())
    stream.start()
    stream.tick()
    assert told.wait(60)
    assert len(caught) == 1 and "another thread" in str(caught[0])
    stream.stop()
    assert stream.ssc.getState() is STOPPED


# -- jobs


def test_jobs_run_with_the_properties_of_the_thread_that_started(sc: SparkContext) -> None:
    """Spark behaviour SC5."""
    stream, seen = Stream(sc), []
    keys = ["spark.jobGroup.id", "spark.job.interruptOnCancel", "spark.job.description", "custom"]

    def note(rdd: Any) -> None:
        seen.append({key: rdd.ctx.getLocalProperty(key) for key in keys})

    stream.ssc.queueStream([[1], [2]]).foreachRDD(note)
    sc.setJobGroup("mine", "my own jobs", True)
    sc.setLocalProperty("custom", "as before start")
    stream.start()
    sc.setLocalProperty("custom", "changed since")
    stream.tick()
    stream.tick()
    stream.stop()
    for properties in seen:
        assert properties["spark.jobGroup.id"] is None
        assert properties["spark.job.interruptOnCancel"] == "false"
        assert "Streaming job from" in properties["spark.job.description"]
        assert properties["custom"] == "as before start"
    assert (sc.getLocalProperty("spark.jobGroup.id"), sc.getLocalProperty("custom")) == ("mine", "changed since")
    for key in (*keys, "spark.job.interruptOnCancel"):
        sc.setLocalProperty(key, None)


def test_a_queue_stream_reports_no_records_and_the_python_view_of_delays(sc: SparkContext) -> None:
    """Spark behaviour SL2."""
    stream = with_output(sc).start()
    stream.tick()
    stream.stop()
    (info,) = stream.counter.infos
    assert info.numRecords() == 0 and info.streamIdToInputInfo() == {}
    assert info.totalDelay() >= info.processingDelay() >= 0


def test_jobs_carry_the_users_call_site(sc: SparkContext) -> None:
    """Spark behaviour SC21."""
    stream, seen = Stream(sc), []
    stream.ssc.queueStream([[1]]).foreachRDD(lambda rdd: seen.append(rdd.ctx.getLocalProperty("callSite.long")))
    stream.start()
    stream.tick()
    stream.stop()
    assert seen[0].startswith(f"{__file__}:")
    (operation,) = stream.counter.infos[0].outputOperationInfos().values()
    assert __file__ in operation.name() and operation.name().startswith("foreachRDD at ")


def test_an_input_that_feeds_no_output_disturbs_nobody(sc: SparkContext) -> None:
    """Spark behaviour SC19."""
    stream = with_output(sc)
    stream.ssc.queueStream([[9]])
    stream.start()
    stream.tick()
    stream.stop()
    assert stream.ssc.awaitTerminationOrTimeout(1) is True


def test_a_graceful_stop_with_the_clock_far_ahead_makes_no_batch_on_stopped_inputs(sc: SparkContext) -> None:
    """Spark behaviour SC20."""
    stream = with_output(sc).start()
    stream.clock.wait_for_waiters()
    stopper = threading.Thread(target=stream.stop)
    stopper.start()
    stream.clock.set_time(START + 100_000)
    stopper.join(60)
    assert stream.ssc.awaitTerminationOrTimeout(1) is True


def test_concurrent_jobs_come_from_the_setting(sc: SparkContext, setting: Setting) -> None:
    setting("spark.streaming.concurrentJobs", "2")
    stream = Stream(sc, clock=ManualClock(START))
    meeting = threading.Barrier(2, timeout=60)
    source = stream.ssc.queueStream([[1]])
    for _ in range(2):
        source.foreachRDD(lambda rdd: (meeting.wait(), None)[1])
    stream.start()
    stream.tick()
    stream.stop()
    assert stream.ssc.awaitTerminationOrTimeout(1) is True


def test_remember_keeps_every_stream_at_least_so_long(sc: SparkContext) -> None:
    stream = Stream(sc)
    source = stream.ssc.queueStream([[1]] * 5)
    source.foreachRDD(lambda rdd: None)
    stream.ssc.remember(3)
    stream.start()
    for _ in range(5):
        stream.tick()
    stream.stop()
    assert node_of(source).remember_duration == Seconds(3)


def test_how_long_to_remember_is_said_once(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1)
    ssc.remember(60)
    with pytest.raises(ConfigurationError, match="is already set: 60000 ms; it cannot be set again"):
        ssc.remember(30)
    assert ssc._graph.remember_duration == Seconds(60)


def test_a_context_says_what_it_is(sc: SparkContext) -> None:
    assert repr(Stream(sc).ssc) == "<StreamingContext initialized, 1000 ms, 0 inputs>"

"""What a user sees of a failure, where they wait: their own traceback, the operator and their line; and the stream that goes on."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kstream import StateSpec, StreamingContext, StreamingContextState
from kstream.errors import NotSerializableError
from kstream.testing import TestInputStream
from tests.streams import Stream


def line_of(text: str) -> str:
    """file:line of the one line of this file that ends with the comment `text`."""
    (number,) = [n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(f"# {text}")]
    return f"{__file__}:{number}"


def shown(error: BaseException) -> str:
    """What Python prints of it, notes included (which only 3.11 does by itself)."""
    return "".join(traceback.format_exception(error)) + "\n".join(getattr(error, "__notes__", []))


def test_an_error_in_a_task_is_raised_where_one_waits(sc: SparkContext) -> None:
    """Spark behaviour SC13."""
    stream = Stream(sc)

    def fail(_x: int) -> int:
        raise ValueError("error in map task")

    stream.ssc.queueStream([[1]]).map(fail).foreachRDD(lambda rdd: rdd.count())
    stream.start()
    stream.tick()
    with pytest.raises(Exception, match="error in map task"):
        stream.ssc.awaitTermination()
    with pytest.raises(Exception, match="error in map task"):
        stream.ssc.awaitTerminationOrTimeout(5)


def test_an_error_in_making_a_batch_is_raised_where_one_waits(sc: SparkContext) -> None:
    """Spark behaviour SC13."""
    stream = Stream(sc)

    def fail(_rdd: Any) -> Any:
        raise ValueError("error in transform")

    stream.ssc.queueStream([[1]]).transform(fail).pprint()
    stream.start()
    stream.tick(wait=False)
    with pytest.raises(ValueError, match="error in transform"):
        stream.ssc.awaitTermination(60)


@pytest.mark.parametrize("made", [pytest.param((), id="no session"), pytest.param((SparkSession,), id="a SparkSession was made")])
def test_a_failing_task_is_raised_with_the_users_traceback_and_the_stream_goes_on(
    sc: SparkContext, caplog: pytest.LogCaptureFixture, made: tuple[Callable[[SparkContext], Any], ...]
) -> None:
    """Spark behaviour SC13. Once a process has made a SparkSession, pyspark raises an error of its own in place of py4j's."""
    for session in made:
        session(sc)
    stream, sums = Stream(sc), []

    def fail_on_two(x: int) -> int:
        if x == 2:
            raise ValueError("error in map task")  # the line that fails
        return x

    source = stream.ssc.queueStream([[1], [2], [3]])
    source.map(fail_on_two).foreachRDD(lambda rdd: sums.append(rdd.sum()))  # the output
    stream.start()
    stream.tick()
    stream.tick()
    for _ in range(2):
        with pytest.raises(Exception, match="error in map task") as caught:
            stream.ssc.awaitTerminationOrTimeout(60)
    (words, where) = getattr(caught.value, "__notes__", [])
    function = f"function fail_on_two of {line_of('the line that fails')}"
    assert where == f"in output operation 0, foreachRDD at {line_of('the output')}, of batch 1002000 ms: {function}"
    assert words.splitlines()[1] == f'  File "{__file__}", line {line_of("the line that fails").rpartition(":")[2]}, in fail_on_two'
    assert words.splitlines()[-1] == "ValueError: error in map task" and "pyspark" not in words
    (told,) = [record.getMessage() for record in caplog.records if "Error running job" in record.getMessage()]
    assert told == f"Error running job streaming job 1002000 ms (0) ({where}): ValueError: error in map task", "no JVM dump"
    assert stream.ssc.getState() is StreamingContextState.ACTIVE
    stream.tick()
    assert sums == [1, 3]
    stream.stop()
    with pytest.raises(Exception, match="error in map task"):
        stream.ssc.awaitTermination()


def test_a_failing_generation_is_raised_as_it_is_with_the_operator_and_the_stream_goes_on(
    sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark behaviour SC13."""
    stream, batches = Stream(sc), []

    def fail_once(rdd: Any) -> Any:
        if not batches:
            batches.append("failed")
            raise KeyError("error in transform")
        return rdd

    source = stream.ssc.queueStream([[1], [2]])
    source.transform(fail_once).map(str).foreachRDD(lambda rdd: batches.append(rdd.collect()))  # the transform
    stream.start()
    stream.tick(wait=False)
    with pytest.raises(KeyError, match="error in transform") as caught:
        stream.ssc.awaitTermination(60)
    assert "fail_once" in shown(caught.value)
    assert f"in transform at {line_of('the transform')}, for batch 1001000 ms" in shown(caught.value)
    assert f"Error generating jobs for time 1001000 ms (in transform at {line_of('the transform')}" in caplog.text
    stream.tick()
    stream.stop()
    assert batches == ["failed", ["2"]]


def test_a_driver_function_that_holds_the_spark_context_is_refused_where_the_graph_is_to_be_stored(
    sc: SparkContext, tmp_path: Path, setting: Callable[[str, str], None]
) -> None:
    """Spark behaviour SC3."""
    setting("spark.streaming.kstream.recovery", "graph")
    stream = Stream(sc)

    def process(_time: Any, _rdd: Any) -> None:
        sc.parallelize(range(1, 10)).count()

    source = stream.ssc.queueStream([[1]])
    source.map(lambda x: x).foreachRDD(process)  # the one at fault
    stream.ssc.checkpoint(str(tmp_path / "c"))
    with pytest.raises(NotSerializableError, match="DStreams with their functions are not serializable") as caught:
        stream.start()
    assert "It appears that you are attempting to reference SparkContext" in shown(caught.value)
    assert caught.value.sites == [f"foreachRDD at {line_of('the one at fault')}"]
    assert caught.value.sites[0] in str(caught.value)
    assert stream.ssc.getState() is StreamingContextState.STOPPED and StreamingContext.getActive() is None


@pytest.mark.parametrize("mode", ["setup", "graph", "without a checkpoint"])
def test_every_function_of_the_workers_that_cannot_be_pickled_is_named_at_the_start(
    sc: SparkContext, tmp_path: Path, setting: Callable[[str, str], None], mode: str
) -> None:
    stream = Stream(sc)
    lock = threading.Lock()
    if mode != "without a checkpoint":
        setting("spark.streaming.kstream.recovery", mode)
        stream = Stream(sc)
        stream.ssc.checkpoint(str(tmp_path / "c"))
    source = stream.ssc.queueStream([[1]])
    source.map(lambda x: (x, lock)).foreachRDD(lambda rdd: rdd.count())  # mapped
    source.filter(lambda x: lock).pprint()  # filtered
    source.map(lambda x: (x, x)).mapWithState(StateSpec.function(lambda k, v, s: lock)).pprint()  # with state
    source.map(lambda x: (source, x)).pprint()  # a stream
    with pytest.raises(NotSerializableError, match=r"runs on the workers and cannot be pickled: .*_thread\.lock") as caught:
        stream.start()
    at = [("map", "mapped"), ("filter", "filtered"), ("mapWithState", "with state"), ("map", "a stream")]
    assert sorted(caught.value.sites) == sorted(f"{operator} at {line_of(mark)}" for operator, mark in at)
    assert all(site in str(caught.value) for site in caught.value.sites)
    assert list((tmp_path / "c").glob("*")) == [] and StreamingContext.getActive() is None


def test_a_task_function_that_holds_the_spark_context_is_refused_at_the_start_with_sparks_own_words(sc: SparkContext) -> None:
    stream = Stream(sc)
    stream.ssc.queueStream([[1]]).map(lambda x: sc.parallelize([x]).count()).foreachRDD(lambda rdd: rdd.count())
    with pytest.raises(NotSerializableError, match="attempting to reference SparkContext"):
        stream.start()


def test_a_function_of_the_workers_is_pickled_once_at_the_start_and_its_data_are_not_kept(
    sc: SparkContext, tmp_path: Path, setting: Callable[[str, str], None]
) -> None:
    for mode in ("setup", "graph"):
        setting("spark.streaming.kstream.recovery", mode)
        stream, data = Stream(sc), Counted()
        TestInputStream(stream.ssc, []).map(lambda x, data=data: data).foreachRDD(lambda rdd: None)
        stream.ssc.checkpoint(str(tmp_path / mode))
        stream.start()
        assert data.pickled == 1
        stream.stop()


def test_trying_to_pickle_leaves_no_broadcast_variable_to_the_next_job(sc: SparkContext) -> None:
    variable = sc.broadcast([1])
    stream = Stream(sc)
    stream.ssc.queueStream([]).map(lambda x: variable.value).pprint()
    stream.start()
    stream.stop()
    variable.destroy()
    assert sc.parallelize([1], 1).map(lambda x: x).collect() == [1]


class Counted:
    """Counts how often it is pickled."""

    def __init__(self) -> None:
        self.pickled = 0

    def __reduce__(self) -> Any:
        self.pickled += 1
        return Counted, ()

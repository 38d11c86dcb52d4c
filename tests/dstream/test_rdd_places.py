"""Spark's pages show stages, RDDs and stored blocks where the user called the operator (Spark behaviours SC21, DS1)."""

from __future__ import annotations

import inspect
import operator
import os
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from kstream import Duration, Seconds, StreamingContext, Time
from kstream.batch import RDDScope
from kstream.batch_time import format_batch_time
from kstream.dstream.base import node_of
from kstream.dstream.node import DStreamNode
from kstream.dstream.recipe import CallSite, Replay
from kstream.spark.rdd_placement import called_at
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import Stream, numbers, numbers_connector

HERE = os.path.basename(__file__)


def this_line() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def lineage(rdd: RDD[Any]) -> list[Any]:
    """The JVM's RDDs behind one of Python's, itself first."""
    found, todo = [], [rdd._jrdd.rdd()]
    while todo:
        one = todo.pop(0)
        found.append(one)
        parents = one.dependencies()
        todo.extend(parents.apply(i).rdd() for i in range(parents.size()))
    return found


def sites(rdd: RDD[Any]) -> set[str]:
    return {one.creationSite().shortForm() for one in lineage(rdd)}


def scopes(rdd: RDD[Any]) -> set[tuple[str, str]]:
    found = [one.scope().get() for one in lineage(rdd) if one.scope().isDefined()]
    return {(scope.id(), scope.name()) for scope in found}


def jobs(sc: SparkContext) -> list[int]:
    """The jobs that Spark's page shows. It forgets the oldest of many, and hears of all a little later than they run."""
    sc._jsc.sc().listenerBus().waitUntilEmpty()
    return sorted(sc.statusTracker().getJobIdsForGroup(None))


def stages(sc: SparkContext, after: int) -> list[str]:
    """The names that Spark's page shows for the stages of all jobs after a job."""
    tracker = sc.statusTracker()
    ran = [tracker.getJobInfo(job) for job in jobs(sc) if job > after]
    infos = [tracker.getStageInfo(stage) for job in ran if job is not None for stage in sorted(job.stageIds)]
    return [info.name for info in infos if info is not None]


class Ran:
    """One batch of a stream that a test built, with what its first output was handed and the stages that ran."""

    def __init__(self, sc: SparkContext, build: Any) -> None:
        before = max(jobs(sc), default=-1)
        self.stream = Stream(sc)
        self.rdds: list[RDD[Any]] = []
        self.base = build(self.stream.ssc.queueStream([sc.parallelize([("a", 1)], 1)]), self.rdds)
        self.stream.start()
        self.stream.tick()
        self.stream.stop()
        self.stream.ssc.awaitTermination(1)
        self.time = Time(self.stream.counter.completed[0])
        self.at = format_batch_time(self.time, Seconds(1))
        self.stages = stages(sc, before)


def test_a_shuffle_and_a_job_are_shown_at_the_users_lines(sc: SparkContext) -> None:
    """Spark behaviour SC21."""
    lines: list[int] = []

    def build(source: Any, rdds: list[Any]) -> Any:
        lines.append(this_line() + 1)
        reduced = source.map(lambda pair: pair).reduceByKey(operator.add)
        reduced.foreachRDD(lambda rdd: (lines.append(this_line()), rdds.append(rdd), rdd.collect()))
        return reduced

    ran = Ran(sc, build)
    reduced, collected = (f"{__file__}:{line}" for line in lines)
    assert ran.stages == [f"reduceByKey at {reduced}", f"collect at {collected}"]
    users = {site for site in sites(ran.rdds[0]) if not site.startswith("readRDDFromFile")}  # the queued RDD was there before
    assert users == {f"reduceByKey at {reduced}", f"collect at {collected}"}


def test_an_output_of_ours_is_shown_where_the_user_called_it(sc: SparkContext, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark behaviour SC21."""
    lines: list[int] = []

    def build(source: Any, _rdds: list[Any]) -> None:
        lines.append(this_line() + 1)
        source.pprint()

    ran = Ran(sc, build)
    assert ran.stages == [f"pprint at {__file__}:{lines[0]}"] and capsys.readouterr().out.startswith("-")


def test_what_a_function_for_rdds_does_is_shown_within_the_function(sc: SparkContext) -> None:
    """Spark behaviours SC21 and DS1."""
    lines: list[int] = []

    def swap(rdd: RDD[Any]) -> RDD[Any]:
        lines.append(this_line() + 1)
        return rdd.groupByKey()

    def build(source: Any, rdds: list[Any]) -> Any:
        swapped = source.transform(swap)
        swapped.foreachRDD(lambda rdd: (rdds.append(rdd), rdd.count()))
        return swapped

    ran = Ran(sc, build)
    assert ran.stages[0] == f"groupByKey at {__file__}:{lines[0]}"
    shuffled = [one for one in lineage(ran.rdds[0]) if one.toString().startswith("ShuffledRDD")]
    (box,) = [one.scope().get() for one in shuffled]
    assert box.name() == "partitionBy" and box.parent().get().name() == f"transform @ {ran.at}"


def test_the_rdds_of_an_operator_share_one_scope_a_batch(sc: SparkContext) -> None:
    """Spark behaviour DS1."""

    def build(source: Any, rdds: list[Any]) -> Any:
        grouped = source.groupByKeyAndWindow(2, 1)
        grouped.foreachRDD(lambda rdd: (rdds.append(rdd), rdd.count()))
        return grouped

    ran = Ran(sc, build)
    number = node_of(ran.base).base_scope.id
    ours = {(id, name.replace("\n", " ")) for id, name in scopes(ran.rdds[0]) if id.endswith(f"_{ran.time.milliseconds}")}
    outputs = {(id, name) for id, name in ours if name.startswith("foreachRDD")}
    assert ours - outputs == {(f"{number}_{ran.time.milliseconds}", f"groupByKeyAndWindow @ {ran.at}")}
    assert ran.stages[0] == f"groupByKeyAndWindow at {node_of(ran.base).creation_site}"


def test_a_stored_rdd_is_named_after_its_operator_and_batch(sc: SparkContext) -> None:
    """SC21: that is the name in Spark's page of storage."""

    def build(source: Any, rdds: list[Any]) -> Any:
        mapped = source.map(lambda pair: pair).cache()
        mapped.foreachRDD(lambda rdd: (rdds.append(rdd), rdd.count()))
        source.transform(lambda rdd: rdd.map(abs).setName("mine")).cache().foreachRDD(rdds.append)
        return mapped

    ran = Ran(sc, build)
    site = node_of(ran.base).creation_site
    assert ran.rdds[0].name() == f"map at {site} @ {ran.at}" and ran.rdds[1].name() == "mine"
    (stored, *_) = lineage(ran.rdds[0])
    assert stored.creationSite().shortForm() == f"map at {site}"
    assert stored.scope().get().name() == f"map @ {ran.at}"


def test_a_slice_leaves_the_callers_properties_alone(sc: SparkContext) -> None:
    """Spark behaviour SC5."""
    stream = Stream(sc)
    source = stream.ssc.queueStream([[("a", 1)]] * 3)
    reduced = source.reduceByKey(operator.add)
    reduced.window(1, 2).foreachRDD(lambda rdd: None)
    stream.ssc.remember(9)
    stream.start()
    stream.tick(wait=False)
    stream.clock.wait_for_waiters()
    stream.tick()
    sc.setLocalProperty("callSite.short", "mine")
    (rdd,) = reduced.slice(Time(stream.clock.time_ms() - 1000), Time(stream.clock.time_ms() - 1000))  # no window has asked for it
    assert sc.getLocalProperty("callSite.short") == "mine" and sc.getLocalProperty("spark.rdd.scope") is None
    assert f"reduceByKey at {node_of(reduced).creation_site}" in sites(rdd)
    sc.setLocalProperty("callSite.short", None)


def test_a_restored_graph_is_shown_where_it_was_built(sc: SparkContext) -> None:
    """SC21: the stored calls know their lines; the ones of an older kstream do not, and show where the graph was restored."""
    built = StreamingContext(sc, 1)
    numbers(built).countByValue().foreachRDD(lambda rdd: None)
    line = this_line() - 1
    calls = built._recorder.calls
    functions = [function.value for function in built._recorder.functions]

    def restored() -> Iterator[CallSite]:
        made = StreamingContext(sc, 1)
        restore_input = numbers_connector("numbers").restore_input
        Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(calls)
        yield made._graph.input_streams[0].creation_site
        (output,) = made._graph.output_streams
        yield from (output.dependencies[0].creation_site, output.creation_site)

    numbered, counted, output = restored()
    assert counted == CallSite("countByValue", __file__, line) and output == CallSite("foreachRDD", __file__, line)
    assert numbered == built._graph.input_streams[0].creation_site
    for call in calls:
        del call["at"]
    assert {os.path.basename(site.file) for site in restored()} == {HERE, "streams.py"}


# -- without Spark


def test_a_scope_of_a_batch_has_the_time_in_its_id_and_name() -> None:
    """Spark behaviour DS1."""
    time, at = Time(1_000_500), format_batch_time(Time(1_000_500), Duration(500))
    assert RDDScope("7", "join").of_batch(time, Duration(500)) == RDDScope("7_1000500", f"join @ {at}")
    assert RDDScope("7", "countByWindow").of_batch(time, Duration(500)).name == f"countByWindow\n@ {at}"


def test_a_scope_is_written_as_spark_reads_it() -> None:
    """Spark behaviour DS1."""
    assert RDDScope("7_1000", 'a "b"').to_json() == '{"id":"7_1000","name":"a \\"b\\""}'


def test_nested_streams_of_one_operator_have_its_scope_and_each_call_has_its_own() -> None:
    """Spark behaviour DS1."""
    source = LogInput(FakeHost({}), [])
    for make in (lambda: source.groupByKeyAndWindow(2, 1), lambda: source.countByWindow(2, 1)):
        inner, todo = list[DStreamNode](), [made := node_of(make())]
        while todo and todo[0] is not source:
            inner.append(one := todo.pop(0))
            todo.extend(one.dependencies)
        assert len(inner) >= 3 and {stream.base_scope for stream in inner} == {made.base_scope}
    first, second = (node_of(source.groupByKeyAndWindow(2, 1)) for _ in range(2))
    assert first.base_scope is not None and second.base_scope is not None
    assert first.base_scope.name == "groupByKeyAndWindow" and first.base_scope.id != second.base_scope.id
    assert source.base_scope is not None and source.base_scope.name == "log input [0]"


def test_an_error_while_a_batch_is_made_shows_the_users_line_among_the_others() -> None:
    site = CallSite("reduceByKey", __file__, this_line())

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        called_at(site, fail)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert (__file__, site.line, "reduceByKey") in [(frame.filename, frame.lineno, frame.name) for frame in frames]

"""The record of the calls that built a graph: each operator is made again by the same calls, and nothing else is recorded."""

from __future__ import annotations

import inspect
import operator
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kstream_kafka import DirectKafkaInputDStream
from pyspark import SparkContext, StorageLevel

from kstream import DStream, Duration, StreamingContext
from kstream.checkpoint.stored_graph import GraphRecord, write_graph
from kstream.context import recovery as restore
from kstream.dstream import MapWithStateDStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.recipe import Recorder, Replay, parameters_on_workers
from kstream.storage import MemoryFileStore
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.offered import OFFERED
from tests.streams import NumbersInput, numbers, numbers_connector

PLAIN = DStream.reduceByKeyAndWindow
CALLS: dict[str, Callable[[DStream, DStream, Any], DStream | None]] = {
    "glom": lambda s, _o, _c: s.glom(),
    "repartition": lambda s, _o, _c: s.repartition(5),
    "countByValue": lambda s, _o, _c: s.countByValue(),
    "transformWith": lambda s, o, _c: s.transformWith(lambda a, b: a.union(b), o),
    "transformWith with the time": lambda s, o, _c: s.transformWith(lambda _t, a, b: a, other=o, keepSerializer=True),
    "partitionBy": lambda s, _o, _c: s.partitionBy(3),
    "partitionBy a function": lambda s, _o, _c: s.partitionBy(numPartitions=3, partitionFunc=lambda key: key + 1),
    "cogroup": lambda s, o, _c: s.cogroup(o),
    "join": lambda s, o, _c: s.join(o, 3),
    "leftOuterJoin": lambda s, o, _c: s.leftOuterJoin(o, numPartitions=3),
    "rightOuterJoin": lambda s, o, _c: s.rightOuterJoin(o),
    "fullOuterJoin": lambda s, o, _c: s.fullOuterJoin(other=o),
    "a join with itself": lambda s, _o, _c: s.join(s),
    "reduceByWindow": lambda s, _o, _c: s.reduceByWindow(operator.add, None, 4, 2),
    "reduceByWindow with inverse": lambda s, _o, _c: s.reduceByWindow(operator.add, operator.sub, Duration(4000), slideDuration=2),
    "countByWindow": lambda s, _o, _c: s.countByWindow(4, 2),
    "countByValueAndWindow": lambda s, _o, _c: s.countByValueAndWindow(4, 2, 3),
    "groupByKeyAndWindow": lambda s, _o, _c: s.groupByKeyAndWindow(4, 2, numPartitions=3),
    "saveAsTextFiles": lambda s, _o, _c: s.saveAsTextFiles("prefix", "txt"),
    "saveAsTextFiles without a suffix": lambda s, _o, _c: s.saveAsTextFiles("prefix"),
    "ssc.union": lambda s, o, c: c.union(s, o, s),
    "ssc.transform": lambda s, o, c: c.transform([s, o], lambda rdds: rdds[0].union(rdds[1])),
}


def loaded(record: GraphRecord) -> list[Any]:
    """The functions of a stored graph, in the order of their indexes."""
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    record.graph.update(interval=1000, remember=None, conf={})
    write_graph(store, record)
    stored = restore.load_graph(store)
    assert stored is not None
    return stored.functions


def shape(stream: DStreamNode) -> tuple[Any, ...]:
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


@pytest.mark.parametrize("name", list(CALLS))
def test_an_operator_comes_back_from_its_record(sc: SparkContext, name: str) -> None:
    built = StreamingContext(sc, 1)
    source = numbers(built).map(lambda x: (x % 2, x))
    stream = CALLS[name](source, source.map(lambda pair: pair), built)
    if stream is not None:
        stream.pprint()
    recorder = built._recorder
    functions = loaded(restore.dump_graph(recorder))
    made = StreamingContext(sc, 1)
    restore_input = numbers_connector("numbers").restore_input
    Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(recorder.calls)
    assert [shape(s) for s in made._graph.output_streams] == [shape(s) for s in built._graph.output_streams]
    assert made._recorder.calls == recorder.calls and recorder.why_not is None


@pytest.mark.parametrize("method", [m for m in OFFERED if m.owner == "DStream" and m.parameters is not None], ids=lambda m: m.label)
def test_every_operator_of_pyspark_is_written_down(method: Any) -> None:
    recorded = hasattr(getattr(DStream, method.name), "__wrapped__")
    assert recorded is (method.name not in {"context", "slice"})


# -- all of them in one graph, and what is not recorded


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


def test_every_operator_comes_back_from_its_record(sc: SparkContext) -> None:
    built = StreamingContext(sc, 1)
    every_operator(numbers(built), built)
    recorder = built._recorder
    functions = loaded(restore.dump_graph(recorder))
    made = StreamingContext(sc, 1)
    restore_input = numbers_connector("numbers").restore_input
    Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(recorder.calls)
    assert [shape(s) for s in made._graph.output_streams] == [shape(s) for s in built._graph.output_streams]
    assert made._recorder.calls == recorder.calls and recorder.why_not is None


def test_calls_inside_an_operator_are_not_recorded() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    source.reduceByKeyAndWindow(operator.add, None, 2)
    assert [call.get("call") for call in host.graph.recorder.calls] == [None, "reduceByKeyAndWindow"]


def test_an_input_without_a_recipe_keeps_the_graph_from_being_restored() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    source.map(lambda x: x).pprint()
    assert host.graph.recorder.why_not == f"{source!r} has no recipe()"


def test_an_input_that_no_factory_registered_is_in_the_record_with_its_own_place_and_functions(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1)
    source = NumbersInput(ssc, 2, operator.neg)
    source.map(lambda x: x + 1).pprint()
    made, *_ = ssc._recorder.calls
    assert made["input"] == "numbers-input" and made["args"] == {"size": 2}
    assert made["at"] == [source.creation_site.function, source.creation_site.file, source.creation_site.line]
    assert ssc._recorder.why_not is None and ssc._recorder.functions[0].value is operator.neg


def test_inputs_are_in_the_record_in_the_order_in_which_they_were_made_whichever_is_used_first(sc: SparkContext) -> None:
    """A stored graph makes its inputs in the order of the record, and their ids bind the stored offsets."""
    ssc = StreamingContext(sc, 1)
    first, second = NumbersInput(ssc, 1, operator.neg), NumbersInput(ssc, 2, operator.neg)
    third = numbers(ssc, 3)
    second.union(first).union(third).pprint()
    assert [call["args"]["size"] for call in ssc._recorder.calls if "input" in call] == [1, 2, 3]
    made = StreamingContext(sc, 1)
    restore_input = numbers_connector("numbers").restore_input
    functions = [function.value for function in ssc._recorder.functions]
    Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(ssc._recorder.calls)
    assert [source.size for source in made._graph.input_streams] == [1, 2, 3]


def test_an_operator_that_raises_leaves_the_recorder_as_it_was() -> None:
    host = FakeHost({})
    source = LogInput(host, [])
    with pytest.raises(ValueError, match="multiple"):
        source.window(0.5)
    source.map(lambda x: x)
    assert [call.get("call") for call in host.graph.recorder.calls] == [None, "map"]
    assert not Recorder().nested


# -- which functions tasks run

ON_DRIVER = {
    "transform": {"func", "transformFunc"},
    "transformWith": {"func"},
    "foreachRDD": {"func"},
    "foreachBatch": {"func"},
    "fileStream": {"filter"},
    "getOrCreate": {"setupFunc"},
}
"""Parameters that are functions of the driver; all others that are functions run in tasks."""


def operators() -> list[tuple[type, str]]:
    classes = (DStream, MapWithStateDStream, StreamingContext, DirectKafkaInputDStream)
    return [(owner, name) for owner in classes for name, value in inspect.getmembers(owner) if hasattr(value, "__wrapped__")]


@pytest.mark.parametrize(("owner", "name"), operators(), ids=lambda value: getattr(value, "__name__", value))
def test_each_function_that_an_operator_takes_is_said_to_run_in_tasks_or_on_the_driver(owner: type, name: str) -> None:
    method = getattr(owner, name)
    functions = {p for p, given in inspect.signature(method).parameters.items() if "Callable" in str(given.annotation)}
    assert functions - ON_DRIVER.get(name, set()) == set(parameters_on_workers(method)) - {"receiver"}

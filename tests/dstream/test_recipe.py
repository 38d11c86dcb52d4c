"""A stored graph with each operator is made again by the same calls (see also tests/test_recovery.py)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream, Duration, StreamingContext, restore
from kstream.dstream.recipe import Replay
from tests.dstream.test_api import OFFERED
from tests.streams import numbers, numbers_connector
from tests.test_recovery import shape

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


@pytest.mark.parametrize("name", list(CALLS))
def test_an_operator_comes_back_from_its_record(sc: SparkContext, name: str) -> None:
    built = StreamingContext(sc, 1)
    source = numbers(built).map(lambda x: (x % 2, x))
    stream = CALLS[name](source, source.map(lambda pair: pair), built)
    if stream is not None:
        stream.pprint()
    recorder = built.recorder
    functions = restore.load_functions(restore.dump_graph_functions(recorder))
    made = StreamingContext(sc, 1)
    restore_input = numbers_connector("numbers").restore_input
    Replay(made, functions, lambda recipe: restore_input(made, recipe)).run(recorder.calls)
    assert [shape(s) for s in made.graph.output_streams] == [shape(s) for s in built.graph.output_streams]
    assert made.recorder.calls == recorder.calls and recorder.why_not is None


@pytest.mark.parametrize("method", [m for m in OFFERED if m.owner == "DStream" and m.parameters is not None], ids=lambda m: m.label)
def test_every_operator_of_pyspark_is_written_down(method: Any) -> None:
    recorded = hasattr(getattr(DStream, method.name), "__wrapped__")
    assert recorded is (method.name not in {"context", "slice"})

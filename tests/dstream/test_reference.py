"""Streams inside functions that are stored with the graph."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.context import recovery as restore
from kstream.dstream.base import node_of
from kstream.dstream.recipe import Replay
from kstream.dstream.reference import loading
from kstream.errors import IllegalStateError
from kstream.spark.spark_context import load_functions
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.streams import numbers, numbers_connector


def test_a_function_may_use_its_stream_and_gets_the_new_one_after_a_restart(sc: SparkContext) -> None:
    built = StreamingContext(sc, 1)
    source = numbers(built)
    mapped = source.map(abs)
    mapped.foreachRDD(lambda rdd: (source, mapped._node.creation_site))
    record = restore.dump_graph(built._recorder)
    with loading() as references:
        on_workers, functions = map(load_functions, (record.worker_functions, record.driver_functions))
    assert on_workers == [abs]
    output: Any = functions[-1]
    with pytest.raises(IllegalStateError, match="not made yet"):
        output(None)
    made = StreamingContext(sc, 1)
    replay = Replay(made, [functions[0], abs, output], lambda recipe: numbers_connector("numbers").restore_input(made, recipe))
    replay.run(built._recorder.calls)
    for reference in references:
        reference.bind(replay.streams)
    stand_in, site = output(None)
    assert stand_in.context() is made and site == node_of(replay.streams[1]).creation_site
    assert restore.dump_graph(made._recorder), "and the restored graph can be stored again"


def test_a_stream_inside_a_function_for_the_workers_is_an_error_that_says_so() -> None:
    source = LogInput(FakeHost({}), [])
    with pytest.raises(TypeError, match="streams live on the driver"):
        pickle.dumps(source)


@pytest.mark.parametrize("named", ["kstream.dstream.state_spec.StateSpec", "kstream.dstream.reference.StreamReference"])
def test_a_stored_graph_finds_the_classes_that_it_names(named: str) -> None:
    """They are pickled by these names."""
    module, _, name = named.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert (found.__module__, found.__qualname__) == (module, name)

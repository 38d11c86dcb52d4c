"""The public API is pyspark.streaming's: each method, with the same parameters in the same order and with the same defaults.

What pyspark offers is read from its source, which is never imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect

import pytest

from kstream import StreamingListener
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.offered import HERE, MODULES, OFFERED, Method, sources

OTHER_DEFAULTS = {
    "StreamingContext.stop(stopSparkContext)": "None: spark.streaming.stopSparkContextByDefault decides, which is true unless set",
}
"""Defaults that differ on purpose, and how."""


def exists(method: Method) -> bool:
    """Whether it is there, on the class or, for attributes, on a stream."""
    return hasattr(HERE[method.owner], method.name) or (method.owner == "DStream" and hasattr(LogInput(FakeHost({}), []), method.name))


def parameters_here(method: Method) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(getattr(HERE[method.owner], method.name)).parameters.values())
    return parameters[1:] if parameters and parameters[0].name == "self" else parameters


def test_the_source_of_pyspark_was_read() -> None:
    labels = {method.label for method in OFFERED}
    assert len(labels) == len(OFFERED) > 60
    assert {"DStream.transformWith", "DStream.is_cached", "StreamingContext.sparkContext", "StreamingListener.onBatchStarted"} <= labels
    assert "StreamingContext.__init__" in labels


@pytest.mark.parametrize("method", OFFERED, ids=lambda m: m.label)
def test_what_pyspark_offers_is_offered_here_with_the_same_parameters(method: Method) -> None:
    assert exists(method)
    if method.parameters is None:
        assert not inspect.isfunction(inspect.getattr_static(HERE[method.owner], method.name, None)), "pyspark's is no method"
        return
    here = parameters_here(method)
    more = here[len(method.parameters) :]
    assert [(p.name, p.kind.name) for p in here[: len(method.parameters)]] == [(name, kind) for name, kind, _ in method.parameters]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in more), f"more than pyspark's must have defaults: {more}"
    for parameter, (name, _, default) in zip(here, method.parameters, strict=False):
        differs = f"{method.label}({name})" in OTHER_DEFAULTS
        assert (parameter.default == default) is not differs, f"{name} is {parameter.default!r} here and {default!r} in pyspark"


MORE = {
    "DStream": {"mapWithState", "name", "print", "saveToKafka", "setName"},
    "StreamingContext": {
        *(
            "clock",
            "continuousStream",
            "fileStream",
            "getState",
            "lastProgress",
            "metricsUrl",
            "uiUrl",
            "receiverStream",
            "recentProgress",
            "removeStreamingListener",
            "socketStream",
        ),
        "status",
    },
}
"""Public names here that pyspark does not have: those of Scala, the sink for Kafka, progress and status."""


@pytest.mark.parametrize("owner", list(MORE))
def test_a_user_sees_the_names_of_pyspark_and_few_more(owner: str) -> None:
    of_pyspark = {method.name for method in OFFERED if method.owner == owner and hasattr(HERE[owner], method.name)} - {"__init__"}
    assert {name for name in dir(HERE[owner]) if not name.startswith("_")} == of_pyspark | MORE[owner]


def test_an_attribute_of_a_stream_is_one_of_pyspark() -> None:
    stream = LogInput(FakeHost({}), []).map(str)
    assert {name for name in dir(stream) if not name.startswith("_")} == {
        *(method.name for method in OFFERED if method.owner == "DStream"),
        *MORE["DStream"],
    }


def test_a_listener_is_made_of_nothing() -> None:
    assert list(inspect.signature(StreamingListener).parameters) == []


@pytest.mark.parametrize("owner", list(HERE))
def test_a_class_is_found_under_the_module_name_it_has_in_pyspark(owner: str) -> None:
    assert getattr(importlib.import_module(f"kstream.{MODULES[owner]}"), owner) is HERE[owner]
    assert getattr(importlib.import_module("kstream"), owner) is HERE[owner]
    package = ast.parse((sources() / "__init__.py").read_text())
    (public,) = (ast.literal_eval(n.value) for n in package.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")
    assert owner in public and len(public) == len(HERE)

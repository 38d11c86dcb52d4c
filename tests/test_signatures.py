"""The public API is pyspark.streaming's: each method, with the same parameters in the same order and with the same defaults.

What pyspark offers is read from its source, which is never imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel
from pyspark import rdd as pyspark_rdd

from kstream import DStream, StreamingContext, StreamingListener
from tests.fakes import FakeHost
from tests.harness import LogInput

HERE = {"DStream": DStream, "StreamingContext": StreamingContext, "StreamingListener": StreamingListener}
MODULES = {"DStream": "dstream", "StreamingContext": "context", "StreamingListener": "listener"}

OTHER_DEFAULTS = {
    "StreamingContext.stop(stopSparkContext)": "None: spark.streaming.stopSparkContextByDefault decides, which is true unless set",
}
"""Defaults that differ on purpose, and how."""


@dataclass(frozen=True)
class Method:
    """One public method, property or attribute of a class in pyspark's source. `parameters` is None for what is not called."""

    owner: str
    name: str
    parameters: list[tuple[str, str, Any]] | None

    @property
    def label(self) -> str:
        return f"{self.owner}.{self.name}"


def sources() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "streaming"


def decorated(node: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(d, ast.Name) and d.id == name for d in node.decorator_list)


def parameters_of(node: ast.FunctionDef) -> list[tuple[str, str, Any]]:
    """(name, kind, default) of each parameter but self or cls; `inspect.Parameter.empty` where there is no default."""
    names = {"StorageLevel": StorageLevel, "portable_hash": pyspark_rdd.portable_hash}
    given = [eval(ast.unparse(default), names) for default in node.args.defaults]
    positional = node.args.args[1:]
    defaults = [inspect.Parameter.empty] * (len(positional) - len(given)) + given
    found = [(arg.arg, "POSITIONAL_OR_KEYWORD", default) for arg, default in zip(positional, defaults, strict=True)]
    if node.args.vararg is not None:
        found.append((node.args.vararg.arg, "VAR_POSITIONAL", inspect.Parameter.empty))
    assert not node.args.kwonlyargs and node.args.kwarg is None, f"{node.name} has parameters this test does not look at"
    return found


def offered(owner: str) -> Iterator[Method]:
    """What the class offers in pyspark's source; of the constructors that of the context: streams are not made by theirs."""
    tree = ast.parse((sources() / f"{MODULES[owner]}.py").read_text())
    (cls,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    for node in cls.body:
        if not isinstance(node, ast.FunctionDef) or decorated(node, "overload"):
            continue
        if node.name == "__init__":
            if owner == "StreamingContext":
                yield Method(owner, node.name, parameters_of(node))
            for target in (t for s in ast.walk(node) if isinstance(s, ast.Assign) for t in s.targets):
                if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                    yield Method(owner, target.attr, None)
        elif not node.name.startswith("_"):
            yield Method(owner, node.name, None if decorated(node, "property") else parameters_of(node))


OFFERED = [method for owner in HERE for method in offered(owner)]


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

"""The public API takes what pyspark's takes: the same names in the same order, with the same defaults. Its source is read, not imported."""

from __future__ import annotations

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from kstream import StreamingContext, StreamingListener

spec = find_spec("pyspark")
assert spec is not None and spec.origin is not None
SOURCES = Path(spec.origin).parent / "streaming"
OURS = {"StreamingContext.stop.stopSparkContext": None}
"""Defaults that differ: with None the setting spark.streaming.stopSparkContextByDefault decides, and that is True."""


def methods(module: str, name: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((SOURCES / f"{module}.py").read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def parameters(node: ast.FunctionDef) -> list[tuple[str, str | None]]:
    """Name and default, as text, of each parameter but the first."""
    names = [a.arg for a in node.args.args]
    defaults: list[str | None] = [None] * (len(names) - len(node.args.defaults)) + [ast.unparse(d) for d in node.args.defaults]
    return list(zip(names, defaults, strict=True))[1:]


def cases() -> list[Any]:
    found: list[Any] = []
    for module, ours in (("context", StreamingContext), ("listener", StreamingListener)):
        for name, node in methods(module, ours.__name__).items():
            if (name == "__init__" or not name.startswith("_")) and hasattr(ours, name):
                found.append(pytest.param(ours, node, id=f"{ours.__name__}.{name}"))
    return found


def test_there_is_something_to_compare() -> None:
    assert len(cases()) >= 25


@pytest.mark.parametrize(("ours", "theirs"), cases())
def test_a_method_takes_what_pysparks_takes(ours: type, theirs: ast.FunctionDef) -> None:
    if isinstance(inspect.getattr_static(ours, theirs.name), property):
        assert [ast.unparse(d) for d in theirs.decorator_list] == ["property"]
        return
    taken = [p for p in inspect.signature(getattr(ours, theirs.name)).parameters.values() if p.kind != p.KEYWORD_ONLY]
    taken = [p for p in taken if p.name != "self"]
    assert [p.name for p in taken] == [name for name, _ in parameters(theirs)] + ["dstreams"] * (theirs.args.vararg is not None)
    for mine, (name, default) in zip(taken, parameters(theirs), strict=False):
        expected = inspect.Parameter.empty if default is None else eval(default, {"StorageLevel": StorageLevel})
        expected = OURS.get(f"{ours.__name__}.{theirs.name}.{name}", expected)
        assert repr(mine.default) == repr(expected), f"{name}: {mine.default!r}, not {expected!r}"

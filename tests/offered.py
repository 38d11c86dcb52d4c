"""What pyspark.streaming offers, read from its sources, and what kstream offers in its place."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark import rdd as pyspark_rdd

from kstream import DStream, StreamingContext, StreamingListener

HERE = {"DStream": DStream, "StreamingContext": StreamingContext, "StreamingListener": StreamingListener}


MODULES = {"DStream": "dstream", "StreamingContext": "context", "StreamingListener": "listener"}


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

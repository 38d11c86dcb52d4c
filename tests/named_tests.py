"""The tests that pages name, as `path::test`: which a file has, and where one that was moved is now."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def names_of_tests_in(path: Path) -> frozenset[str]:
    """`name` and `Class::name` of the tests of a file."""
    named: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        named |= {prefix + each.name for each in inner if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}
    return frozenset(named)


def place_now(test: str) -> str:
    """Where a test of this name is, for the message about one that was moved."""
    files = [path for folder in ("tests", "integration") for path in sorted((ROOT / folder).rglob("test_*.py"))]
    name = test.split("::")[-1]
    places = [f"{path.relative_to(ROOT)}::{each}" for path in files for each in names_of_tests_in(path) if each.split("::")[-1] == name]
    return f"; there is {', '.join(places)}" if places else ""

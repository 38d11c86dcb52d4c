"""The core names no connector: its code has no package, key or text of Kafka's. Docstrings and comments may name it as an example."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parent.parent / "kstream"
SOURCES = sorted(path for path in CORE.rglob("*.py") if not path.is_relative_to(CORE / "examples"))
NAMES = re.compile(r"kstream_kafka|spark\.streaming\.(?:kstream\.)?kafka|kafka", re.IGNORECASE)

ALLOWED = {
    # `DStream.saveToKafka` is a name of the public API. It loads the connector of that name, and the names of its arguments are Kafka's.
    "dstream/output_operations.py": {
        "kafka",
        "kafkaParams",
        "kafka_output",
        "saveToKafka",
        "Kafka parameters that may hold a secret are never stored, and saveToKafka has ",
    },
    "continuous/stream.py": {"kafka", "kafkaParams", "saveToKafka"},
    "worker/tolerant_operators.py": {"saveToKafka"},
    # The kind of stored plans that do not say it. New ones do.
    "batch/plan.py": {"kafka"},
    # Structured Streaming, not kstream, has Kafka sources: this reads the form in which Spark stores their offsets.
    "cli/structured_streaming.py": None,
    "cli/offsets_import.py": {"The number or the name of its Kafka source, if it has several sources."},
    # What the whole is for, and an example in a help text.
    "cli/__init__.py": {"Spark Streaming in Python, centred on Kafka."},
    "cli/replay.py": {"Show tracebacks and the messages of client libraries, such as Kafka's."},
    "cli/run.py": {"Show tracebacks and the messages of client libraries, such as Kafka's."},
}
"""What names Kafka, by file; None for all of the file."""


def names_and_texts(tree: ast.AST) -> Iterator[str]:
    """Every name and every text of a program, without those that only document it. The docstring of a command is its help."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    helps = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr) and any(map(is_command, node.decorator_list))
    }
    documents -= helps
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documents:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case _:
                continue


def is_command(decorator: ast.expr) -> bool:
    """Whether a decorator makes a command of a function."""
    return re.search(r"\b(command|group)\(", ast.unparse(decorator)) is not None


def found_in(path: Path) -> set[str]:
    return {text for text in names_and_texts(ast.parse(path.read_text())) if NAMES.search(text)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_the_code_of_the_core_names_no_connector(path: Path) -> None:
    allowed = ALLOWED.get(str(path.relative_to(CORE)), set[str]())
    assert allowed is None or found_in(path) == allowed


def test_what_is_allowed_is_there() -> None:
    assert [name for name in ALLOWED if not found_in(CORE / name)] == []

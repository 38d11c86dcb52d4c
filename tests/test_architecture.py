"""What must not be: a wrapper of pyspark.streaming, and rooms that know higher ones."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark import SparkContext

from tests.streams import Stream

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "kstream").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")])


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def strings(tree: ast.AST) -> Iterator[str]:
    """String constants and dotted names, less docstrings (which may speak of Spark)."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.value
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 40


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_imports_pyspark_streaming_or_names_sparks_own_streaming(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [name for name in imported(tree) if name.startswith("pyspark.streaming")] == []
    assert [text for text in strings(tree) if "org.apache.spark.streaming" in text or "pyspark.streaming" in text] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_600_lines(path: Path) -> None:
    """A file is one idea and holds all of it: 100 to 500 lines are normal, and nothing is packed or split to meet the number."""
    assert len(path.read_text().splitlines()) <= 600


def test_streams_import_each_other_in_one_order() -> None:
    """No circle, not even one of types, and no import inside a function to get around one."""
    files = {f"kstream.dstream.{path.stem}": ast.parse(path.read_text()) for path in (ROOT / "kstream" / "dstream").glob("[a-z]*.py")}
    below = {name: {other for other in imported(tree) if other in files} for name, tree in files.items()}
    inside = [f for tree in files.values() for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and any(imported(f))]
    assert [f.name for f in inside if any(name.startswith("kstream") for name in imported(f))] == []
    while lowest := {name for name, others in below.items() if not others}:
        below = {name: others - lowest for name, others in below.items() if name not in lowest}
    assert below == {}


def modules_loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_kstream_loads_neither_spark_nor_kafka() -> None:
    loaded = modules_loaded_by("import kstream; kstream.Seconds(1)")
    assert "kstream.batch_time" in loaded
    assert not loaded & {"pyspark", "confluent_kafka", "fsspec", "rich", "pyarrow"}


def test_rooms_that_decide_without_spark_do_not_load_it() -> None:
    rooms = "kstream.loop, kstream.batch, kstream.storage, kstream.checkpoint, kstream.conf, kstream.testing"
    assert "pyspark" not in modules_loaded_by(f"import {rooms}")


def test_using_a_streaming_context_does_not_load_pyspark_streaming_nor_what_is_optional() -> None:
    loaded = modules_loaded_by("from kstream import StreamingContext; import kstream_kafka; kstream_kafka.KafkaUtils")
    assert not [name for name in loaded if name.startswith("pyspark.streaming")]
    assert not loaded & {"pyarrow", "pandas", "obstore", "kazoo", "cryptography", "prometheus_client"}


def test_a_stream_that_runs_loads_no_pyspark_streaming_and_asks_the_jvm_for_none_of_its_classes(
    sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    send = ClientServerConnection.send_command
    monkeypatch.setattr(ClientServerConnection, "send_command", lambda self, command: (asked.append(command), send(self, command))[1])
    stream = Stream(sc)
    stream.ssc.queueStream([[("a", 1)]]).reduceByKey(operator.add).window(2, 1).foreachRDD(lambda rdd: rdd.collect())
    stream.start()
    stream.tick()
    stream.stop()
    assert any("PythonRDD" in command for command in asked)
    assert [command for command in asked if "org.apache.spark.streaming" in command] == []
    assert [name for name in sys.modules if name.startswith("pyspark.streaming")] == []


def test_a_public_name_that_does_not_exist_is_an_attribute_error() -> None:
    import kstream

    with pytest.raises(AttributeError, match="Nonsense"):
        _ = kstream.Nonsense
    assert all(getattr(kstream, name) for name in kstream.__all__)


def classes_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The classes of a module that others may import, each with the last words of the names of its bases."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, [ast.unparse(base).rpartition(".")[2] for base in node.bases]


def test_no_two_classes_have_one_name() -> None:
    """But for an error of Kafka that is the error of kstream with the same name."""
    places = defaultdict[str, list[Path]](list)
    for path in SOURCES:
        for name, bases in classes_of(path):
            if name not in bases:
                places[name].append(path.relative_to(ROOT))
    assert len(places) > 300
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


TESTS = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "integration").rglob("*.py")])


def test_no_module_imports_a_test_module() -> None:
    """What two tests share has a module of its own."""
    found = {
        str(path.relative_to(ROOT)): names
        for path in TESTS
        if (
            names := [
                name for name in imported(ast.parse(path.read_text())) if name.split(".")[-1].startswith("test_") and path.stem not in name
            ]
        )
    }
    assert len(TESTS) > 500 and found == {}

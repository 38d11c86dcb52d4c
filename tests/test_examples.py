"""The examples can be found, say how they are used, and are short, of public names only. (They run in integration/test_examples.py.)"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kstream
import kstream.examples

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(*kstream.examples.__path__)
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("__"))
WRONG = {
    "network_wordcount": ["localhost", "no-port"],
    "hdfs_wordcount": [],
    "direct_kafka_wordcount": ["localhost:9092", "lines"],
    "stateful_sessions": ["/tmp/incoming"],
    "structured_network_wordcount": ["localhost"],
}


def run(*arguments: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python -m`, with kstream from `path`."""
    environment, command = {**os.environ, "PYTHONPATH": str(path)}, [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, timeout=120, check=False)


def imports(path: Path) -> set[tuple[str, str]]:
    """(module, name) of what is imported from kstream."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", alias.name) for node in nodes for alias in node.names if (node.module or "").startswith("kstream")}


def test_the_list_has_every_example_with_its_line_and_says_how_to_run_one() -> None:
    done = run("kstream.examples")
    lines = done.stdout.splitlines()
    for path in EXAMPLES:
        line = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
        assert lines[lines.index(f"kstream.examples.{path.stem}") + 1].strip() == line
    assert f"spark-submit {FOLDER}" in done.stdout and not done.stderr


def test_the_list_can_be_had_from_a_zip_whose_files_spark_submit_cannot_take(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "kstream.zip", "w") as zipped:
        for path in (ROOT / "kstream").rglob("*.py"):
            zipped.write(path, path.relative_to(ROOT))
    done = run("kstream.examples", path=tmp_path / "kstream.zip")
    assert all(f"kstream.examples.{path.stem}\n    " in done.stdout for path in EXAMPLES), done.stderr
    assert "python -m" in done.stdout and "spark-submit" not in done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_wrong_arguments_are_answered_with_the_usage(path: Path) -> None:
    done = run(f"kstream.examples.{path.stem}", *WRONG[path.stem])
    assert done.returncode == 2 and done.stderr.startswith(f"usage: {path.name}") and not done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_short_says_how_to_run_it_and_uses_public_names_only(path: Path) -> None:
    text = path.read_text()
    document = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) < 60
    assert f"spark-submit {path.name}" in document and f"python -m kstream.examples.{path.stem}" in document
    assert all(module in ("kstream", "kstream_kafka") for module, _ in imports(path))
    assert {name for module, name in imports(path) if module == "kstream"} <= set(kstream.__all__)


def test_the_example_to_compare_with_is_plain_pyspark() -> None:
    assert not imports(FOLDER / "structured_network_wordcount.py")


def test_the_readme_has_every_example() -> None:
    text = (ROOT / "README.md").read_text()
    assert all(f"| `{path.stem}` " in text for path in EXAMPLES)

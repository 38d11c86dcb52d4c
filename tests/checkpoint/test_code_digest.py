"""What counts as changed code at a restart: setup, what it closes over, the user's modules; and what does not."""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from kstream import StreamingContext
from kstream.checkpoint import code_digest as module
from kstream.checkpoint.code_digest import changed, code_digest, setup_digest


class Job:
    """A user's class that makes its context in a method's inner function, as test cases do."""

    called = False
    topic = "orders"

    def __init__(self) -> None:
        self.started: Any = None

    def setup(self) -> Callable[[], Any]:
        def inner() -> Any:
            self.called = True
            return self.topic

        return inner

    def setup_by_method(self) -> Callable[[], Any]:
        return lambda: self.setup()


def test_what_a_setup_writes_to_an_object_it_knows_is_no_change_and_what_it_reads_from_it_is() -> None:
    job = Job()
    stored = {"": setup_digest(job.setup())}
    job.setup()()
    job.started = object()
    assert job.called and changed(stored, job.setup()) is None
    job.topic = "returns"
    assert changed(stored, job.setup()) == "setup has changed"


def test_an_object_whose_method_setup_calls_counts_as_a_whole() -> None:
    job = Job()
    stored = {"": setup_digest(job.setup_by_method())}
    job.depth = 3  # type: ignore[attr-defined]
    assert changed(stored, job.setup_by_method()) == "setup has changed"


def test_a_list_that_is_only_filled_is_no_part_of_the_code_and_one_that_is_read_is() -> None:
    def make(topics: list[str], results: list[str]) -> Callable[[], Any]:
        return lambda: [results.append(topic) for topic in topics]

    stored = {"": setup_digest(make(["orders"], []))}
    assert changed(stored, make(["orders"], ["a result"])) is None
    assert changed(stored, make(["returns"], [])) == "setup has changed"


def test_an_object_that_setup_passes_on_counts_as_a_whole() -> None:
    def make(options: SimpleNamespace) -> Callable[[], Any]:
        return lambda: print(options)

    stored = {"": setup_digest(make(SimpleNamespace(topic="orders")))}
    assert changed(stored, make(SimpleNamespace(topic="orders"))) is None
    assert changed(stored, make(SimpleNamespace(topic="returns"))) == "setup has changed"


def test_objects_of_spark_and_kstream_count_by_their_type() -> None:
    from kstream.testing import ManualClock

    def make(clock: ManualClock) -> Callable[[], Any]:
        return lambda: print(clock)

    assert changed({"": setup_digest(make(ManualClock(1)))}, make(ManualClock(2))) is None


def test_a_function_that_setup_closes_over_counts_with_its_code_and_what_it_closes_over() -> None:
    def make(factor: int, other: bool = False) -> Callable[[], Any]:
        def times(x: int) -> int:
            return x * factor

        def twice(x: int) -> int:
            return x + factor

        use = twice if other else times
        return lambda: use(1)

    stored = {"": setup_digest(make(2))}
    assert changed(stored, make(2)) is None
    assert changed(stored, make(3)) == "setup has changed"
    assert changed(stored, make(2, other=True)) == "setup has changed"


def test_a_function_that_closes_over_itself_has_a_digest() -> None:
    def again(n: int) -> int:
        return again(n - 1)

    assert setup_digest(again) == setup_digest(again)  # type: ignore[arg-type]


NOTEBOOK = """
FACTOR = {factor}
PASSWORD = {password!r}
def times(x): return x * FACTOR
def job(x): return times(x)
def unused(): return {unused}
def setup(): return lambda: [job(x) for x in (1, 2)] + [PASSWORD]
"""


def typed(factor: int = 2, password: str = "a", unused: int = 1) -> FunctionType:
    """`setup` as typed into a notebook: its module has no file."""
    notebook = ModuleType("a_notebook")
    sys.modules["a_notebook"] = notebook
    exec(compile(ast.parse(NOTEBOOK.format(factor=factor, password=password, unused=unused)), "<cell>", "exec"), notebook.__dict__)
    return notebook.__dict__["setup"]


def test_in_a_notebook_what_setup_calls_counts_and_what_it_does_not_call_does_not() -> None:
    stored = {"": setup_digest(typed())}
    try:
        assert changed(stored, typed()) is None
        assert changed(stored, typed(unused=2)) is None
        assert changed(stored, typed(password="b")) is None
        assert changed(stored, typed(factor=3)) == "setup has changed"
    finally:
        del sys.modules["a_notebook"]


def a_setup() -> None:
    """Some setup."""


def test_a_changed_constant_of_a_module_that_setup_imports_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "constants_of_a_user.py").write_text("TOPIC = 'orders'\n")

    def setup() -> Any:
        import constants_of_a_user  # type: ignore[import-not-found]

        return constants_of_a_user.TOPIC

    before = setup_digest(setup)
    setup()
    stored = {"": before, **module.modules_digest()}
    del sys.modules["constants_of_a_user"]
    assert changed(stored, setup) is None
    (tmp_path / "constants_of_a_user.py").write_text("TOPIC = 'returns'\n")
    assert changed(stored, setup) == "module constants_of_a_user has changed"


def test_a_module_in_a_zip_of_py_files_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "job.zip"

    def ship(text: str) -> None:
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("shipped_by_a_user.py", text)

    ship("X = 1\n")
    monkeypatch.syspath_prepend(str(archive))
    __import__("shipped_by_a_user")
    stored = code_digest(a_setup)
    assert "shipped_by_a_user" in stored and changed(stored, a_setup) is None
    del sys.modules["shipped_by_a_user"]
    ship("X = 22\n")
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert changed(stored, a_setup) == "module shipped_by_a_user has changed"


def test_libraries_and_kstream_itself_are_nobodys_job() -> None:
    names = code_digest(a_setup)
    assert not [name for name in names if name.split(".")[0] in ("kstream", "kstream_kafka", "pyspark", "pytest", "json", "click")]
    assert __name__ in names


# -- functions, values and modules


def setup_with_a_set(word: str = "a") -> bool:
    return word in {"alpha", "beta", "gamma", "delta", "epsilon"}


def test_the_digest_of_a_setup_is_the_same_in_another_process() -> None:
    code = (
        "from tests.checkpoint.test_code_digest import setup_with_a_set as s; from kstream.checkpoint.code_digest import code_digest as d;"
    )
    digests = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run(
            [sys.executable, "-c", code + "print(d(s)[''])"], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed}, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        digests.add(done.stdout)
    assert digests == {code_digest(setup_with_a_set)[""] + "\n"}


def make(topic: str, more: Any = None) -> Callable[[], str]:
    return lambda: f"{topic} {more}"


def test_another_value_closed_over_is_a_change_and_the_same_is_none() -> None:
    stored = code_digest(make("orders"))
    assert changed(stored, make("orders")) is None
    assert changed(stored, make("returns")) == "setup has changed"


def test_another_argument_of_a_partial_is_a_change() -> None:
    stored = code_digest(partial(make, "orders", more=1))
    assert changed(stored, partial(make, "orders", more=1)) is None
    assert changed(stored, partial(make, "orders", more=2)) == "setup has changed"
    assert changed(stored, partial(make, "returns", more=1)) == "setup has changed"


def test_another_body_or_default_is_a_change() -> None:
    def one(x: int = 1) -> int:
        return x

    def two(x: int = 2) -> int:
        return x

    def three(x: int = 1) -> int:
        return x + 1

    stored = code_digest(one)
    assert [changed(stored, f) for f in (one, two, three)] == [None, "setup has changed", "setup has changed"]


def test_a_changed_module_is_named_also_when_it_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "job_of_a_user.py"
    module.write_text("X = 1\n")
    __import__("job_of_a_user")
    stored = code_digest(make("orders"))
    assert "job_of_a_user" in stored and not [name for name in stored if name.startswith(("pyspark", "kstream.", "json"))]
    assert changed(stored, make("orders")) is None
    module.write_text("X = 2\n")
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"
    del sys.modules["job_of_a_user"]
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"
    module.unlink()
    assert changed(stored, make("orders")) == "module job_of_a_user has changed"


def test_an_object_that_setup_closes_over_is_compared_by_its_attributes() -> None:
    def make(options: argparse.Namespace) -> Callable[[], StreamingContext]:
        return lambda: options.context

    stored = code_digest(make(argparse.Namespace(topic="orders", depth={"a": [1]})))
    assert changed(stored, make(argparse.Namespace(topic="orders", depth={"a": [1]}))) is None
    assert changed(stored, make(argparse.Namespace(topic="returns", depth={"a": [1]}))) == "setup has changed"
    assert changed(stored, make(argparse.Namespace(topic="orders", depth={"a": [2]}))) == "setup has changed"

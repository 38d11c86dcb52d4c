"""What counts as changed code at a restart: setup, what it closes over, the user's modules; and what does not."""

from __future__ import annotations

import ast
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

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

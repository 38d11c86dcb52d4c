"""A file of the job on the executors: its errors name the file of the user."""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kstream.cli.job import module_text
from kstream.worker.exception_hook import failure_of

JOB = """# -*- coding: utf-8 -*-
from __future__ import annotations

WORD = "größer"


def fails(x: NotThere):
    raise ValueError(WORD)  # the reason


def raised():
    try:
        fails(1)
    except ValueError as e:
        return e
"""


@pytest.fixture
def at_the_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, Path]]:
    """The module as an executor imports it, and the path of the user's file, which does not exist there."""
    mine, there = tmp_path / "mine" / "job_shipped.py", tmp_path / "work" / "app-1" / "2"
    mine.parent.mkdir()
    there.mkdir(parents=True)
    mine.write_text(JOB, encoding="utf-8")
    (there / mine.name).write_text(module_text(mine), encoding="utf-8")
    mine.unlink()
    monkeypatch.syspath_prepend(str(there))
    yield __import__("job_shipped"), mine
    del sys.modules["job_shipped"]
    linecache.cache.pop(str(mine), None)


def test_a_traceback_has_the_file_the_line_and_the_text_of_the_user(at_the_executor: tuple[ModuleType, Path]) -> None:
    job, mine = at_the_executor
    frames = traceback.extract_tb(job.raised().__traceback__)
    assert [(frame.filename, frame.lineno, frame.line) for frame in frames] == [
        (str(mine), 13, "fails(1)"),
        (str(mine), 8, "raise ValueError(WORD)  # the reason"),
    ]
    assert str(job.raised()) == "größer"


def test_the_place_of_a_function_is_the_users_file(at_the_executor: tuple[ModuleType, Path]) -> None:
    job, mine = at_the_executor
    assert (job.fails.__code__.co_filename, job.fails.__code__.co_firstlineno) == (str(mine), 7)
    assert "raise ValueError(WORD)" in inspect.getsource(job.fails)
    assert failure_of(job.raised()).type == "ValueError"


def test_the_module_has_the_name_by_which_functions_are_pickled_and_its_own_imports_from_the_future(
    at_the_executor: tuple[ModuleType, Path],
) -> None:
    job, _ = at_the_executor
    assert job.fails.__module__ == job.__name__ == "job_shipped"
    assert job.fails.__annotations__ == {"x": "NotThere"}

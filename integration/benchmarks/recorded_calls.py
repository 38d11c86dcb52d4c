"""Recorded calls: which functions of kstream and kstream_kafka ran, in the driver's threads and in every Python process of its Spark.

A process records from its start, since a thread cannot be given a profile function once it runs (before Python 3.12). What it does with
a call depends on a byte that all processes share: 0 is off, another is the mark that a recorded call gets. A recorded call is one line
that is appended to one file, so that a worker which is killed has still told all.

Spark's workers, and the block store that a worker starts, get `sitecustomize` from a directory on their PYTHONPATH. Nothing here imports
pyspark or the product: both would then be loaded into every process.
"""

from __future__ import annotations

import ast
import importlib.util
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("kstream", "kstream_kafka")
_NOT_THE_PATH = "kstream/testing/"
"""The clock of the benchmark. A job has the system's."""
_ROOT = Path(__file__).resolve().parents[2]
_LOOK_S = 0.1
_QUIET_S = 2.0
_PATIENCE_S = 60.0
Code = tuple[str, int, str]
"""File, first line and name of a function, as its code object has them."""


class Recorder:
    """Appends the calls of this process to the calls of all. `directory` is a `Recording`'s."""

    def __init__(self, directory: Path | str) -> None:
        with open(Path(directory) / "mark", "rb") as file:
            self._mark = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
        self._calls = os.open(Path(directory) / "calls", os.O_WRONLY | os.O_APPEND)
        self._folders = tuple(str(folder) + os.sep for folder in package_folders().values())

    def install(self, this_thread: bool) -> None:
        """Record the threads that start from now on, and the thread of the caller if `this_thread`."""
        threading.setprofile(self._profile)
        if this_thread:
            sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call" or not (mark := self._mark[0]):
            return
        code = frame.f_code
        if code.co_filename.startswith(self._folders):
            line = f"{mark}\t{os.getpid()}\t{code.co_filename}\t{code.co_firstlineno}\t{code.co_name}\n"
            os.write(self._calls, line.encode())


@dataclass(frozen=True)
class Passed:
    """What a path passed. `files` says of each which processes passed it: driver, workers, or both."""

    files: dict[str, list[str]]
    classes: list[str]
    functions: list[str]
    calls: int


class Recording:
    """The calls of the driver and of all that Spark starts for it. Make it before the first thread of the product and before Spark's JVM.

    The thread of the caller is not recorded: a benchmark moves the clock on it, and the clock asks the engine whether all has ended.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "calls").touch()
        (directory / "mark").write_bytes(b"\0")
        with open(directory / "mark", "r+b") as file:
            self._mark = mmap.mmap(file.fileno(), 1)
        self._last_mark = 0
        (directory / "sitecustomize.py").write_text(
            "from integration.benchmarks.recorded_calls import Recorder\n"
            f"Recorder({str(directory)!r}).install(this_thread=True)\n"
        )  # fmt: skip
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), str(_ROOT), *([before] if before else [])])
        Recorder(directory).install(this_thread=False)

    def begin(self) -> None:
        """Start to record, once what was asked for before has surely ended."""
        time.sleep(_QUIET_S)
        self._last_mark += 1
        self._mark[0] = self._last_mark

    def wait_until_quiet(self) -> None:
        """Return when no function has been called for some seconds that had not been called since `begin`.

        Threads that look or beat now and then keep calling the same functions, so that there is never a time without a call.
        """
        end = time.monotonic() + _PATIENCE_S
        known, since = 0, time.monotonic()
        while (now := time.monotonic()) - since < _QUIET_S:
            if now > end:
                raise SystemExit(f"after {_PATIENCE_S:.0f} s the path still passes functions that it had not passed")
            found = len({code for code, _process in self._lines()})
            if found != known:
                known, since = found, now
            time.sleep(_LOOK_S)

    def end(self) -> Passed:
        """Wait until it is quiet, stop recording and return what has been passed since `begin`."""
        self.wait_until_quiet()
        self._mark[0] = 0
        return _passed(list(self._lines()))

    def _lines(self) -> Iterator[tuple[Code, int]]:
        """Each call since `begin`, with the pid of its process. Of a line that another process is writing, a part may be seen: it waits."""
        whole, _, _ = (self._directory / "calls").read_text().rpartition("\n")
        for line in whole.splitlines():
            mark, pid, file, first, name = line.split("\t")
            if int(mark) == self._last_mark:
                yield (file, int(first), name), int(pid)


def package_folders() -> dict[str, Path]:
    """The folder of each package, without importing it."""
    folders: dict[str, Path] = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit(f"{name} is not installed")
        folders[name] = Path(spec.submodule_search_locations[0])
    return folders


def _passed(lines: list[tuple[Code, int]]) -> Passed:
    """Comprehensions and bodies of modules and classes are no functions of their own; neither is what dataclasses generate."""
    parents = [folder.parent for folder in package_folders().values()]
    known: dict[str, dict[tuple[int, str], tuple[str, str | None]]] = {}
    files: dict[str, set[str]] = {}
    classes: set[str] = set()
    functions: set[str] = set()
    calls = 0
    for (file, first, name), pid in lines:
        relative = next(Path(file).relative_to(parent).as_posix() for parent in parents if Path(file).is_relative_to(parent))
        if relative.startswith(_NOT_THE_PATH):
            continue
        if file not in known:
            known[file] = _functions_of(Path(file))
        if (first, name) not in known[file]:
            continue
        function, of_class = known[file][first, name]
        files.setdefault(relative, set()).add("driver" if pid == os.getpid() else "workers")
        functions.add(f"{relative}:{function}")
        if of_class is not None:
            classes.add(f"{relative}:{of_class}")
        calls += 1
    return Passed({file: sorted(where) for file, where in sorted(files.items())}, sorted(classes), sorted(functions), calls)


def _functions_of(file: Path) -> dict[tuple[int, str], tuple[str, str | None]]:
    """By first line and name: the qualified names of a function and of the class around it, which its code has not before Python 3.11."""
    found: dict[tuple[int, str], tuple[str, str | None]] = {}

    def visit(node: ast.AST, around: str, of_class: str | None) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                visit(child, f"{around}{child.name}.", f"{around}{child.name}")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                found[first, child.name] = (f"{around}{child.name}", of_class)
                visit(child, f"{around}{child.name}.", of_class)
            elif isinstance(child, ast.Lambda):
                found[child.lineno, "<lambda>"] = (f"{around}<lambda {child.lineno}>", of_class)
                visit(child, around, of_class)
            else:
                visit(child, around, of_class)

    visit(ast.parse(file.read_text()), "", None)
    return found

"""The function `setup` of a job: finding it by its name, and sending its file to executors."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kstream.errors import ConfigurationError

if TYPE_CHECKING:
    from kstream.context import StreamingContext
if TYPE_CHECKING:
    from pyspark import SparkContext


def check_job(job: str) -> tuple[str, str]:
    """Return module or file, and function, that `module:name` or `file.py:name` names. Imports nothing.

    Raises:
        ConfigurationError: the text is wrong, or the file does not exist.
    """
    where, _, name = job.rpartition(":")
    if not where or not name:
        raise ConfigurationError(f"{job!r} does not name a job: give module:function, or file.py:function", key="job", value=job)
    if where.endswith(".py") and not Path(where).is_file():
        raise ConfigurationError(f"there is no file {where}", key="job", value=where)
    return where, name


def load_setup(job: str) -> Callable[[], Any]:
    """Return the function that `module:name` or `file.py:name` names. Imports the module; errors of the module itself pass.

    Raises:
        ConfigurationError: the text, the module or the function is wrong.
    """
    where, name = check_job(job)
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    setup = getattr(module, name, None)
    if not callable(setup):
        what = "has no function" if setup is None else "has no function but a value"
        raise ConfigurationError(f"{where} {what} {name!r}: give module:function, or file.py:function", key="job", value=job)
    return setup


def ship(setup: Callable[[], Any], context: StreamingContext, modules: Sequence[Path] = ()) -> None:
    """Send the file of the job to executors on other machines, and the `.py` files of `--py-files`.

    A job in a package is not sent, and neither are other modules that the job imports. They must be installed there, or in `--py-files`.
    """
    from kstream.spark.workers_python import is_local_master

    sc = context.sparkContext
    if is_local_master(sc.master):  # workers of this machine have the folders in PYTHONPATH
        return
    module = sys.modules.get(setup.__module__)
    file = getattr(module, "__file__", None)
    of_job = [Path(file)] if file and "." not in setup.__module__ and not hasattr(module, "__path__") else []
    for path in dict.fromkeys([*of_job, *modules]):
        ship_file(sc, path)


def find_modules(py_files: Sequence[str]) -> None:
    """Let the job and the workers of this machine import what `--py-files` names: a file from its folder, an archive as it is."""
    for file in reversed(py_files):
        path = Path(file)
        if path.is_file():
            _importable_from(path.resolve().parent if path.suffix == ".py" else path.resolve())


def _load_module(name: str) -> ModuleType:
    """Import a module, from the working directory or PYTHONPATH. Raises ConfigurationError if it does not exist."""
    _importable_from(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not (name == e.name or name.startswith(e.name + ".")):
            raise  # the module exists, but one of its imports does not
        raise ConfigurationError(f"there is no module {e.name!r} in {Path.cwd()} or on PYTHONPATH", key="job", value=name) from e


def _load_file(path: Path) -> ModuleType:
    _importable_from(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _importable_from(folder: Path) -> None:
    """Put a folder first on sys.path, here and in the Python workers of this machine."""
    sys.path.insert(0, str(folder))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{known}" if known else str(folder)


_MODULE = '''"""Runs the text of {path}, sent by kstream."""
import linecache

_text = {text!r}
linecache.cache[{path!r}] = (len(_text), None, _text.decode("utf-8", "replace").splitlines(True), {path!r})
exec(compile(_text, {path!r}, "exec", dont_inherit=True))
'''
"""Spark copies a file into a folder of each executor that is gone tomorrow. A traceback, a dead letter and the place of a function would
name that copy. So the executors get this module, which runs the text of the user's file under its own path. The entry of `linecache` gives
tracebacks their lines; without a date of the file nobody looks for the file."""


def module_text(path: Path) -> str:
    """Return the text of a module that runs the file's present text under its path on the driver. Raises OSError."""
    return _MODULE.format(path=str(path), text=path.read_bytes())


def ship_file(sc: SparkContext, path: Path) -> None:
    """Send a `.py` file to the executors of a SparkContext, which import it by its name. Raises OSError if it cannot be read."""
    context: Any = sc
    folder = Path(tempfile.mkdtemp(dir=context._temp_dir))  # Spark removes it with the context; until then executors fetch the file
    copy = folder / path.name
    copy.write_text(module_text(path.resolve()), encoding="utf-8")
    sc.addPyFile(str(copy))

"""From an exception to one line for people."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import click

from kstream.errors import KStreamError, MissingDependencyError

INSTALL_SPARK = "pip install 'kstream-spark[spark]'"

_RAISED_IN_WORKER = re.compile(r"^\s*(?P<type>[A-Za-z_][\w.]*(?:Error|Exception)): (?P<message>.+)$", re.MULTILINE)
_FROM_SPARK = ("Py4JJavaError", "PythonException", "SparkRuntimeException")


def one_line(error: BaseException) -> str:
    """What the error says, without line breaks. Of an error that Spark carried out of a Python worker: what the worker said."""
    if isinstance(error, KStreamError):
        return _joined(str(error))
    text = str(error)
    if type(error).__name__ in _FROM_SPARK:
        raised = _RAISED_IN_WORKER.findall(text.replace("org.apache.spark.api.python.PythonException:", ""))
        for kind, message in raised:
            if "java" not in kind and "org.apache" not in kind:
                return _joined(f"{kind.rpartition('.')[2]} in a task: {message}")
    first = next((line for line in text.splitlines() if line.strip()), "")
    return _joined(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _joined(text: str) -> str:
    return " ".join(text.split())


def fail(message: str) -> NoReturn:
    """Says it on standard error and ends the program with exit code 1."""
    click.echo(f"kstream: {message}", err=True)
    raise SystemExit(1)


def require_pyspark() -> None:
    """MissingDependencyError with the line that installs pyspark, if it is not there."""
    if importlib.util.find_spec("pyspark") is None:
        raise MissingDependencyError(
            f"pyspark is not installed: {INSTALL_SPARK} (or use the pyspark of your platform)",
            package="pyspark", install=INSTALL_SPARK,
        )  # fmt: skip


@contextmanager
def clear_errors(verbose: bool = False) -> Generator[None]:
    """Turns a KStreamError, or one that Spark carries, into its line and exit code 1. Other exceptions are bugs and pass."""
    try:
        yield
    except Exception as e:
        if not isinstance(e, KStreamError) and type(e).__name__ not in _FROM_SPARK:
            raise
        if verbose:
            traceback.print_exc(file=sys.stderr)
        fail(one_line(e))

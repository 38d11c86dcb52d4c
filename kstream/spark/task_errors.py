"""From Spark's error to the user's exception: what a Python worker has said, taken out of the text of the JVM's exception.

Spark's error is a Py4JJavaError, in whose text the worker's traceback stands between a hundred lines of the JVM. Once the process has made
a SparkSession, pyspark raises a PythonException of its own instead.
"""

from __future__ import annotations

import importlib.util
import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PythonException

from kstream.errors import (
    BEGIN,
    ConfigurationError,
    FencedError,
    JvmLostError,
    KStreamError,
    MissingDependencyError,
    add_note,
    add_worker_traceback,
    is_of_a_task,
    note_task,
    where_of,
)
from kstream.spark.spark_context import active_spark_context
from kstream.spark.workers_python import workers_python
from kstream.user_code import PACKAGES, Owner, own_packages, owner_elsewhere
from kstream.worker.worker_failure import KEY, MARK, WorkerFailure, failure_in, failure_of_traceback, rebuilt_exception

_FRAME = re.compile(r'  File "(?P<file>[^"]*)"')
_JVM = re.compile(r"\tat |\s*SQLSTATE: |JVM stacktrace:")
_OF_THE_DRIVER = (FencedError, JvmLostError)
"""What these say is true of the process that raises them. A worker that raised one has not ended this driver."""
_FAILED_IMPORTS = ("ModuleNotFoundError", "ImportError")
"""Another executor, or another Python there, may have the module: so these are told with both."""
_LEFT_OUT = (Owner.KSTREAM, Owner.SPARK, Owner.PYTHON)


def prepare_workers(sc: SparkContext) -> None:
    """Give later workers of a SparkContext what they need to tell of an exception; once a SparkContext.

    It is the key with which they sign it, and the packages of kstream and its connectors.
    """
    sc.environment.setdefault(KEY, secrets.token_hex())
    sc.environment.setdefault(PACKAGES, ",".join(own_packages()))


def key_of_failures(sc: SparkContext | None) -> str:
    """Return the key that `prepare_workers` has made; "" without one."""
    return "" if sc is None else sc.environment.get(KEY, "")


@contextmanager
def raising_the_users_error() -> Generator[None]:
    """Raise the user's exception for an error of Spark of the body that a Python worker has caused. Spark's error is its cause.

    The exception has the traceback of Spark's error, the worker's traceback as a note, and what is known of the record. If it cannot be
    made again on the driver, Spark's error is raised, with the same notes. Errors of the JVM alone are raised as they are.
    """
    try:
        yield
    except (Py4JJavaError, PythonException) as e:
        error = users_error(e)
        if error is None:
            raise
        raise error.with_traceback(e.__traceback__) from e


def is_of_spark_alone(error: Exception) -> bool:
    """Return whether an error that `raising_the_users_error` has raised is Spark's, and no exception of a worker has caused it.

    An executor was lost, or the job was cancelled.
    """
    return isinstance(error, (Py4JError, PySparkException)) and not is_of_a_task(error)


def users_error(error: Exception) -> Exception | None:
    """Return the user's exception for an error of Spark, with its notes. None, and the notes on Spark's error, if it cannot be made again.

    Args:
        error: Spark's error. The JVM is asked for its text.
    """
    text = _text(error)
    words = worker_traceback(text)
    failure = failure_in(text, key_of_failures(active_spark_context())) or (None if words is None else failure_of_traceback(words))
    python = _python_of_workers()
    found: Exception | None = error_of_setup(text, failure, python)
    if found is None and failure is not None:
        found = rebuilt_exception(failure)
    if isinstance(found, _OF_THE_DRIVER):
        found = None
    told = error if found is None else found
    if words is not None and not where_of(told):
        add_worker_traceback(told, words, "" if failure is None else failure.raised)
    if failure is not None:
        of_import = where_it_ran(text, failure, python) if failure.type in _FAILED_IMPORTS and not isinstance(found, KStreamError) else ""
        if task := ", ".join(filter(None, (in_task(failure), of_import))):
            note_task(told, task)
    if found is not None and where_of(error):
        add_note(found, where_of(error))
    return found


def _python_of_workers() -> str:
    """Return the program that the workers of this process run; "" without a SparkContext."""
    sc = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
    return "" if sc is None else workers_python(sc)


def in_task(failure: WorkerFailure) -> str:
    """Return what is known of the operation and the record of a failure, in words; "" if nothing."""
    words: list[str] = []
    if failure.operator:
        words.append(f"{failure.operator} of {failure.function}" if failure.function else failure.operator)
    if failure.record:
        of = "" if failure.timestamp is None else f" ({_moment(failure.timestamp)})"
        words.append(f"record {failure.record}{of}" if failure.certain else f"last record handed out: {failure.record}{of}")
    return ", ".join(words)


def _moment(timestamp_ms: int) -> str:
    """Return a timestamp as text in UTC, or its number if it is no date."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc):%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"
    except (OverflowError, ValueError, OSError):
        return f"timestamp {timestamp_ms}"


def worker_traceback(text: str) -> str | None:
    """Return the traceback of a Python worker in the text of a JVM's exception, with the user's frames only. None if no worker raised.

    Frames of pyspark, kstream and Python's own library are left out. Other libraries stay.
    """
    _, python_exception, rest = text.partition("PythonException: ")
    _, begin, rest = rest.partition(BEGIN)
    if not (python_exception and begin):
        return None
    return "\n".join([BEGIN, *_of_the_user(rest.strip("\n").split("\n"))]).rstrip()


def _of_the_user(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback up to the first line of the JVM, with the user's frames only."""
    leaving_out = False
    for line in lines:
        if _JVM.match(line) or line.startswith(MARK):
            return
        if frame := _FRAME.match(line):
            leaving_out = owner_elsewhere(frame["file"]) in _LEFT_OUT
        elif not line.startswith("    "):
            leaving_out = False
        if not leaving_out:
            yield line


def _text(error: Exception) -> str:
    """Return the text of a JVM's error, with the name of its class; empty if the JVM does not answer."""
    try:
        text = str(error)  # asks the JVM
        return f"PythonException: {text}" if isinstance(error, PythonException) else text
    except Exception:  # the JVM may have ended
        return ""


_PYTHON = "PYSPARK_PYTHON"
_VERSIONS = re.compile(
    r"PYTHON_VERSION_MISMATCH\] Python in worker has different version:? (?P<worker>[\d.]+) than that in driver:? (?P<driver>\d+\.\d+)"
)
_NO_PROGRAM = re.compile(r'java\.io\.IOException: Cannot run program "(?P<program>[^"]+)".*\berror=(2|13),')
"""Not there, or not to be executed. Java says it also where memory is short."""
_STARTS_PYTHON = "org.apache.spark.api.python.PythonWorkerFactory"
"""Hadoop, too, runs programs."""
_NO_MODULE = re.compile(r"No module named '(?P<module>[^']+)'")
_TOO_OLD = re.compile(r"(?P<package>PyArrow|Pandas) >= (?P<version>\S+) must be installed")
_INSTALL_ARROW = "pip install 'kstream-spark[spark]'"


_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor ")


def error_of_setup(text: str, failure: WorkerFailure | None, python: str = "") -> KStreamError | None:
    """Return the error for a worker that is not set up as the driver is; None for any other failure.

    Args:
        text: the text of Spark's error.
        failure: what the worker has said; None if it has said nothing.
        python: the program that the workers run; "" if it is unknown.
    """
    if found := _VERSIONS.search(text):
        return ConfigurationError(
            f"the workers run Python {found['worker']}, the driver {found['driver']}: set {_PYTHON} (or spark.pyspark.python) to a Python "
            f"{found['driver']} that every executor has",
            key=_PYTHON,
            value=found["worker"],
        )
    if _STARTS_PYTHON in text and (found := _NO_PROGRAM.search(text)):
        return ConfigurationError(
            f"the executors cannot run {found['program']!r} as the workers' Python: set {_PYTHON} (or spark.pyspark.python) to a Python "
            "that every executor has",
            key=_PYTHON,
            value=found["program"],
        )
    if failure is not None and (found := _TOO_OLD.search(failure.message)):
        return _missing(found["package"].lower(), f"{found['package']} {found['version']} or newer", _INSTALL_ARROW)
    if failure is not None and failure.type == "ModuleNotFoundError" and (found := _NO_MODULE.search(failure.message)):
        return _missing_module(found["module"], where_it_ran(text, failure, python))
    return None


def where_it_ran(text: str, failure: WorkerFailure, python: str) -> str:
    """Return the host and the Python of the worker whose failure has failed a job, in words; "" if unknown.

    Args:
        text: the text of Spark's error. Spark 3.5 names the executor.
        failure: what the worker has said. A worker that could not even load a function has not said where it is.
        python: the program that the workers run; "" if it is unknown.
    """
    if failure.worker:
        return failure.worker
    task = _TASK.search(text)
    return ", ".join(filter(None, (task["host"] if task else "", python)))


def _missing_module(module: str, where: str) -> KStreamError | None:
    """Return the error for a module that the driver has and the workers do not; None if the driver has not got it either.

    Args:
        module: the name of the module.
        where: the executor and its Python, in words; "" if unknown.
    """
    root = module.partition(".")[0]
    try:
        here = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        here = None
    if here is None:
        return None
    if root in ("pyarrow", "pandas"):
        return _missing(root, root, _INSTALL_ARROW, where)
    how = f"install it in the Python of the executors ({_PYTHON}), or send it with the job: --py-files, or sc.addPyFile"
    return _missing(root, f"the module {module}", how, where)


def _missing(package: str, what: str, install: str, where: str = "") -> MissingDependencyError:
    """Return the error for a package that the driver has and the workers do not. `where`: as for `_missing_module`."""
    remedy = f"run {install} in the Python of every executor" if install == _INSTALL_ARROW else install
    seen = f" (seen on {where})" if where else ""
    return MissingDependencyError(f"the workers do not have {what}, which the driver has{seen}: {remedy}", package=package, install=install)

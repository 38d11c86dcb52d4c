"""Errors of workers that could not run the user's function at all: the wrong Python, a missing module. Each is a sentence with a remedy."""

from __future__ import annotations

import importlib.util
import re

from kstream.errors import ConfigurationError, KStreamError, MissingDependencyError
from kstream.worker.worker_failure import WorkerFailure

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
    """Return the error for a package that the workers do not have."""
    remedy = f"run {install} in the Python of every executor" if install == _INSTALL_ARROW else install
    seen = f" (seen on {where})" if where else ""
    return MissingDependencyError(f"the workers do not have {what}, which the driver has{seen}: {remedy}", package=package, install=install)

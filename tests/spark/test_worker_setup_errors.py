"""Workers that are not set up as the driver is: one sentence that says what to set."""

from __future__ import annotations

import importlib.util

import pytest

from kstream.errors import ConfigurationError, MissingDependencyError
from kstream.spark.task_errors import error_of_setup
from kstream.worker.worker_failure import WorkerFailure

SPARK_4 = """PythonException: Traceback (most recent call last):
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in \
driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set."""


@pytest.mark.parametrize("text", [SPARK_4, SPARK_4.replace("version: ", "version ").replace("driver: ", "driver ")], ids=["4.3", "3.5"])
def test_another_python_on_the_workers_says_which_one_to_set(text: str) -> None:
    error = error_of_setup(text, None)
    assert isinstance(error, ConfigurationError)
    assert str(error) == (
        "the workers run Python 3.9, the driver 3.11: set PYSPARK_PYTHON (or spark.pyspark.python) to a Python 3.11 that every executor has"
    )


NO_PYTHON = """Lost task 0.0: java.io.IOException: Cannot run program "/opt/py/bin/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:235)"""


@pytest.mark.parametrize("reason", ["error=2, No such file or directory", "error=13, Permission denied"])
def test_a_python_that_the_executors_cannot_run_is_named(reason: str) -> None:
    error = error_of_setup(NO_PYTHON.replace("error=2, No such file or directory", reason), None)
    assert isinstance(error, ConfigurationError) and "cannot run '/opt/py/bin/python'" in str(error) and "PYSPARK_PYTHON" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        NO_PYTHON.replace("error=2, No such file or directory", "error=12, Cannot allocate memory"),
        'java.io.IOException: Cannot run program "chmod": error=2, No such file or directory\n\tat org.apache.hadoop.util.Shell.runCommand',
    ],
    ids=["no memory for a process", "a program of Hadoop"],
)
def test_a_program_that_was_not_started_for_another_reason_is_no_matter_of_the_python(text: str) -> None:
    assert error_of_setup(text, None) is None


def test_a_module_that_only_the_driver_has_says_how_to_send_it() -> None:
    error = error_of_setup("", WorkerFailure("ModuleNotFoundError", "No module named 'tests.spark.helper'"))
    assert isinstance(error, MissingDependencyError) and str(error).startswith("the workers do not have the module tests.spark.helper, ")
    assert "--py-files" in str(error) and "PYSPARK_PYTHON" in str(error)


IN_3_5 = "most recent failure: Lost task 0.3 in stage 2.0 (TID 6) (10.0.0.7 executor 4): org.apache.spark.api.python.PythonException"
MISSING = "ModuleNotFoundError", "No module named 'tests.spark.helper'"


@pytest.mark.parametrize(
    ("text", "failure", "where"),
    [
        ("", WorkerFailure(*MISSING, worker="h1, /opt/py/bin/python"), "h1, /opt/py/bin/python"),
        (IN_3_5, WorkerFailure(*MISSING), "10.0.0.7, /opt/py"),
        ("", WorkerFailure(*MISSING), "/opt/py"),
    ],
    ids=["the worker has said it", "Spark 3.5 has", "neither"],
)
def test_the_error_of_a_missing_module_names_the_host_and_its_python(text: str, failure: WorkerFailure, where: str) -> None:
    assert str(error_of_setup(text, failure, "/opt/py")) == (
        f"the workers do not have the module tests.spark.helper, which the driver has (seen on {where}): install it in the Python of the "
        "executors (PYSPARK_PYTHON), or send it with the job: --py-files, or sc.addPyFile"
    )


def test_a_module_that_nobody_has_is_the_users_own_error() -> None:
    assert error_of_setup("", WorkerFailure("ModuleNotFoundError", "No module named 'no_such_module_anywhere'")) is None


@pytest.mark.parametrize(
    "failure",
    [
        WorkerFailure("ModuleNotFoundError", "No module named 'pyarrow'"),
        WorkerFailure("pyspark.errors.PySparkImportError", "[PACKAGE_NOT_INSTALLED] PyArrow >= 11.0.0 must be installed; however, it …"),
    ],
)
def test_pyarrow_that_an_executor_does_not_have_says_how_to_install_it(failure: WorkerFailure) -> None:
    assert importlib.util.find_spec("pyarrow") is not None
    error = error_of_setup("", failure)
    assert isinstance(error, MissingDependencyError) and error.facts["package"] == "pyarrow"
    assert str(error).endswith("run pip install 'kstream-spark[spark]' in the Python of every executor")


def test_any_other_failure_is_none_of_the_setup() -> None:
    assert error_of_setup("java.lang.OutOfMemoryError: heap", WorkerFailure("ImportError", "cannot import name 'x'")) is None

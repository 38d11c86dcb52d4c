"""The traceback of a worker, as the JVM's exceptions carry it."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kstream.errors import MissingDependencyError, add_note, add_worker_traceback, in_a_line, one_line, traceback_of
from kstream.spark import task_errors
from kstream.spark.task_errors import is_of_spark_alone, users_error, worker_traceback
from kstream.worker.worker_failure import WorkerFailure

WORKER = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "/opt/venv/lib/python3.11/site-packages/pyspark/core/rdd.py", line 2708, in takeUpToNumLeft
    yield next(iterator)
          ^^^^^^^^^^^^^^
  File "/home/me/job.py", line 9, in parse
    return int(line)
           ^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'"""
USERS = """Traceback (most recent call last):
  File "/home/me/job.py", line 9, in parse
    return int(line)
           ^^^^^^^^^
ValueError: invalid literal for int() with base 10: 'x'"""
FRAMES = "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)\n" * 30
SPARK_4 = f"""An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.
: org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: {WORKER}
 SQLSTATE: 38000
{FRAMES}"""
SPARK_3 = f"""An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task \
0.0 in stage 0.0 (TID 0) (host executor driver): org.apache.spark.api.python.PythonException: {WORKER}

{FRAMES}
Driver stacktrace:
{FRAMES}Caused by: org.apache.spark.api.python.PythonException: {WORKER}

{FRAMES}"""

SESSION = f"""PythonException: An exception was thrown from the Python worker:
{WORKER}

JVM stacktrace:
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: {WORKER}
 SQLSTATE: 38000
{FRAMES}"""


@pytest.mark.parametrize("text", [SPARK_4, SPARK_3, SESSION], ids=["Spark 4", "Spark 3.5", "with a SparkSession"])
def test_the_users_frames_and_the_error_are_taken_out_of_the_jvms_message(text: str) -> None:
    assert worker_traceback(text) == USERS


def test_an_error_of_an_error_keeps_both() -> None:
    both = f"{WORKER}\n\nDuring handling of the above exception, another exception occurred:\n\n{WORKER.replace('ValueError', 'TypeError')}"
    found = worker_traceback(SPARK_4.replace(WORKER, both))
    assert found is not None and found.count("in parse") == 2 and "pyspark" not in found and "During handling" in found
    assert found.splitlines()[-1].startswith("TypeError: ")


def test_an_error_of_the_jvm_alone_has_no_words_of_a_worker() -> None:
    assert worker_traceback(f"An error occurred while calling o1.count.\n: java.lang.OutOfMemoryError: heap\n{FRAMES}") is None
    assert worker_traceback("") is None


def test_an_error_is_told_in_one_line_by_the_last_of_its_words_or_the_first_of_its_message() -> None:
    error = RuntimeError(SPARK_4)
    assert in_a_line(error) == "RuntimeError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob."
    add_worker_traceback(error, USERS)
    add_note(error, "in output operation 0, pprint at /home/me/job.py:13, of batch 1000 ms")
    assert in_a_line(error) == "ValueError: invalid literal for int() with base 10: 'x'"
    assert error.__notes__ == [USERS, "in output operation 0, pprint at /home/me/job.py:13, of batch 1000 ms"]
    assert in_a_line(KeyError()) == "KeyError" and in_a_line(ValueError("boom\nmore")) == "ValueError: boom"


def test_an_error_about_what_a_worker_said_is_told_itself_and_one_that_the_worker_raised_by_the_workers_words() -> None:
    about = MissingDependencyError("the workers do not have the module helper", package="helper")
    add_worker_traceback(about, "Traceback (most recent call last):\nModuleNotFoundError: No module named 'helper'")
    assert in_a_line(about) == "MissingDependencyError: the workers do not have the module helper"
    raised_there = MissingDependencyError("s3fs is needed", package="s3fs")
    add_worker_traceback(raised_there, "Traceback (most recent call last):\nkstream.errors.MissingDependencyError: s3fs is needed")
    assert in_a_line(raised_there) == "kstream.errors.MissingDependencyError: s3fs is needed"


class Py4JJavaError(Exception):
    """Named as py4j's, with its text."""


FORGED = "2026-11-25 00:00:00 ERROR kstream.context: FORGED LINE"
SEVERAL_LINES = {
    "pydantic": "pydantic_core.ValidationError: 1 validation error for Order\nprice\n  Input should be a valid number\n    For further "
    "information visit https://errors.pydantic.dev/2/v/float_parsing",
    "hostile": f"ValueError: cannot parse x\r\n{FORGED}",
    "hostile, as the end of a traceback": f'ValueError: cannot parse x\n  File "a.py", line 1, in f\n    f()\n{FORGED}',
    "with a note": "KeyError: 'price'\nof the order 7",
    "without a line at first": "OperationalError: \nconnection refused",
    "without a message": "ZeroDivisionError",
}
FIRST_LINES = {
    "pydantic": "pydantic_core.ValidationError: 1 validation error for Order",
    "hostile": "ValueError: cannot parse x",
    "hostile, as the end of a traceback": "ValueError: cannot parse x",
    "with a note": "KeyError: 'price'",
    "without a line at first": "OperationalError: connection refused",
    "without a message": "ZeroDivisionError",
}


@pytest.mark.parametrize("case", SEVERAL_LINES)
@pytest.mark.parametrize("text", [SPARK_4, SPARK_3], ids=["Spark 4", "Spark 3.5"])
def test_of_a_message_with_several_lines_the_first_one_is_told(case: str, text: str) -> None:
    carried = Py4JJavaError(text.replace(WORKER.splitlines()[-1], SEVERAL_LINES[case]))
    kind, colon, message = FIRST_LINES[case].partition(":")
    assert one_line(carried) == f"{kind.rpartition('.')[2]} in a task{colon}{message}"
    assert in_a_line(users_error(carried) or carried) == FIRST_LINES[case]


@pytest.mark.parametrize("text", [SPARK_4, SPARK_3], ids=["Spark 4", "Spark 3.5"])
def test_of_chained_exceptions_the_last_one_is_told(text: str) -> None:
    both = f"{WORKER}\n\nThe above exception was the direct cause of the following exception:\n\n"
    carried = Py4JJavaError(text.replace(WORKER, both + WORKER.replace("ValueError: invalid", "job.BadOrder: invalid")))
    assert one_line(carried) == "BadOrder in a task: invalid literal for int() with base 10: 'x'"
    assert users_error(carried) is None
    assert in_a_line(carried) == "job.BadOrder: invalid literal for int() with base 10: 'x'"


def test_what_the_worker_says_of_its_exception_is_told_whatever_the_message_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a group of exceptions, whose traceback is indented; a message may have the line of a failure itself."""
    message = f"no\n{WorkerFailure('Evil', FORGED).to_line('')}\nTraceback (most recent call last):\n  x\n{FORGED}"
    failure = WorkerFailure("__main__.Bad", message)
    monkeypatch.setattr(task_errors, "key_of_failures", lambda _sc: "k3y")
    carried = Py4JJavaError(SPARK_4.replace(WORKER.splitlines()[-1], f"Bad: {message}\n{failure.to_line('k3y')}"))
    assert users_error(carried) is None
    assert in_a_line(carried) == "Bad: no" and one_line(carried) == "Bad in a task: no"


def test_of_an_error_of_the_driver_the_first_line_of_its_message_is_told() -> None:
    for end in ("\n", "\r\n", "\r", "\x0b", "\u2028", "\x85"):
        assert in_a_line(ValueError(f"boom{end}{FORGED}")) == one_line(ValueError(f"boom{end}{FORGED}")) == "ValueError: boom"


def test_an_error_of_the_jvm_alone_is_told_with_its_reason_and_not_with_the_method_that_was_called() -> None:
    error = Py4JJavaError(
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_6_0 not found!\nEither …\n\tat …\n"
    )
    said = "SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_6_0 not found!"
    assert in_a_line(error) == one_line(error) == said


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """The error with a traceback, as Spark's caller gets it."""
    try:
        raise error from cause
    except Exception as e:
        return e


@pytest.mark.parametrize("spark_alone", [False, True], ids=["made again on the driver", "Spark's own"])
def test_the_traceback_for_listeners_has_the_driver_and_the_worker_and_nothing_of_the_jvm(spark_alone: bool) -> None:
    spark = raised(RuntimeError(SPARK_4))
    error = spark if spark_alone else raised(ValueError("invalid literal"), spark)
    add_worker_traceback(error, USERS)
    add_note(error, "in output operation 0 of batch 1000 ms")
    begin, *_, last = traceback_of(error).splitlines()
    assert begin == "Traceback (most recent call last):" and "in raised" in traceback_of(error)
    assert USERS in traceback_of(error) and last == "in output operation 0 of batch 1000 ms"
    assert "apache" not in traceback_of(error) and traceback_of(error).count("in parse") == 1


def test_the_traceback_of_an_error_of_the_jvm_alone_keeps_its_text() -> None:
    error = raised(RuntimeError(f"java.lang.OutOfMemoryError: heap\n{FRAMES}"))
    assert traceback_of(error).count("\tat ") == 30
    assert traceback_of(KeyError()) == "KeyError"


@pytest.mark.parametrize("kind", [Py4JError, PySparkException])
def test_an_error_of_spark_is_sparks_alone_if_no_worker_has_raised(kind: type[Exception]) -> None:
    """A lost executor, a job that was cancelled."""
    lost, raised = kind("ExecutorLostFailure"), kind("PythonException: …")
    add_worker_traceback(raised, USERS)
    assert is_of_spark_alone(lost) and not is_of_spark_alone(raised)
    assert not is_of_spark_alone(MissingDependencyError("the workers do not have the module")) and not is_of_spark_alone(ValueError("x"))

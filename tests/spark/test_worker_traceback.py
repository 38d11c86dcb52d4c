"""The traceback of a worker, as the JVM's exceptions carry it."""

from __future__ import annotations

import pytest

from kstream.errors import add_note, add_worker_traceback, in_a_line, traceback_of
from kstream.spark.task_errors import worker_traceback

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

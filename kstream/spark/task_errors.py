"""From Spark's error to the user's exception: what a Python worker has said, taken out of the text of the JVM's exception.

Spark's error is a Py4JJavaError, in whose text the worker's traceback stands between a hundred lines of the JVM. Once the process has made
a SparkSession, pyspark raises a PythonException of its own instead.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException

from kstream.errors import FencedError, JvmLostError, add_note, add_worker_traceback, note_task, where_of
from kstream.spark.worker_setup_errors import error_of_setup
from kstream.worker.worker_failure import MARK, WorkerFailure, failure_in, failure_of_traceback, rebuilt_exception

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?P<file>[^"]*)"')
_PYSPARKS = re.compile(r"[/\\](pyspark|py4j)[/\\]")
_PYTHONS = re.compile(r"<frozen |[/\\]lib(64)?[/\\]python3\.\d+[/\\](?!site-packages|dist-packages)")
_CONNECTORS = re.compile(r"[/\\]kstream_kafka[/\\]")
_CORES = re.compile(r"[/\\]kstream[/\\](?!examples)(?P<rest>.+)$")
_JVM = re.compile(r"\tat |\s*SQLSTATE: |JVM stacktrace:")
_OF_THE_DRIVER = (FencedError, JvmLostError)
"""What these say is true of the process that raises them. A worker that raised one has not ended this driver."""
_PACKAGE = Path(__file__).parent.parent


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


def users_error(error: Exception) -> Exception | None:
    """Return the user's exception for an error of Spark, with its notes. None, and the notes on Spark's error, if it cannot be made again.

    Args:
        error: Spark's error. The JVM is asked for its text.
    """
    text = _text(error)
    words = worker_traceback(text)
    failure = failure_in(text) or (None if words is None else failure_of_traceback(words))
    found: Exception | None = error_of_setup(text, failure)
    if found is None and failure is not None:
        found = rebuilt_exception(failure)
    if isinstance(found, _OF_THE_DRIVER):
        found = None
    told = error if found is None else found
    if words is not None and not where_of(told):
        add_worker_traceback(told, words)
    if failure is not None and (task := in_task(failure)):
        note_task(told, task)
    if found is not None and where_of(error):
        add_note(found, where_of(error))
    return found


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
    _, begin, rest = rest.partition(_BEGIN)
    if not (python_exception and begin):
        return None
    return "\n".join([_BEGIN, *_of_the_user(rest.strip("\n").split("\n"))]).rstrip()


def _is_foreign(file: str) -> bool:
    """Return whether a file of a traceback, perhaps of another machine, belongs to pyspark, kstream or Python."""
    if _PYSPARKS.search(file) or _PYTHONS.search(file) or _CONNECTORS.search(file):
        return True
    ours = _CORES.search(file)
    return ours is not None and (_PACKAGE / ours["rest"]).exists()  # a user may have a directory `kstream`, too


def _of_the_user(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback up to the first line of the JVM, with the user's frames only."""
    leaving_out = False
    for line in lines:
        if _JVM.match(line) or line.startswith(MARK):
            return
        if frame := _FRAME.match(line):
            leaving_out = _is_foreign(frame["file"])
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

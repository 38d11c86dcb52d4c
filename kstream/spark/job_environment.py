"""SparkJobEnvironment: the Spark side of a job thread, as Spark's JobHandler sets it.

It also adds the traceback of a Python worker to Spark's errors.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from kstream.batch import Job
from kstream.batch_time import Duration, Time, format_batch_time
from kstream.errors import add_worker_traceback
from kstream.spark.rdd_placement import SparkPlacement

_GROUP_KEYS = (
    "spark.jobGroup.id",
    "spark.job.description",
    "callSite.short",
    "callSite.long",
    "spark.rdd.scope",
    "spark.rdd.scope.noOverride",
)
_TAGS = "spark.job.tags"
_ALL_MARKED = "spark.checkpoint.checkpointAllMarkedAncestors"
"""Makes a job checkpoint every marked RDD among its ancestors. Otherwise the lineage of a state below a state would grow without end."""


class SparkJobEnvironment:
    """Captures the local properties of the starting thread once. Every job thread gets a copy, so later changes have no effect.

    In the copy the job group is cleared and interrupt-on-cancel is false. Job threads must be pinned to JVM threads, which is pyspark's
    default. The constructor looks up the JVM objects that every batch needs. Such a look-up is slow: py4j makes several calls for a class,
    and the JVM searches its class path.
    """

    def __init__(self, sc: SparkContext, interval: Duration) -> None:
        self._interval = interval
        self._context: Any = sc._jsc.sc()  # pyright: ignore
        self._existing_directories: Any = _existing_directories(sc)
        self._tag = f"kstream-{uuid.uuid4().hex}"
        self._captured = self._context.getLocalProperties().clone()
        for key in _GROUP_KEYS:
            self._captured.remove(key)
        self._captured.setProperty("spark.job.interruptOnCancel", "false")
        tags = self._captured.getProperty(_TAGS)
        self._captured.setProperty(_TAGS, f"{tags},{self._tag}" if tags else self._tag)
        self._captured.setProperty(_ALL_MARKED, "true")
        self.placement = SparkPlacement(sc, self._captured)

    @contextmanager
    def for_job(self, job: Job) -> Generator[None]:
        """Prepare the current thread for a job, which runs in the body of the `with` statement.

        Sets the thread's local properties of Spark: the captured ones, with the job's description, batch time, call site and scope. They
        stay set afterwards. An error of a Python worker gets the worker's traceback as a note.
        """
        at = format_batch_time(job.time, self._interval)
        properties = self.placement.properties_of(job.name, job.call_site, open_to_inner=True)
        properties.setProperty("spark.job.description", f"Streaming job from [output operation {job.output_op_id}, batch time {at}]")
        properties.setProperty("spark.streaming.internal.batchTime", str(job.time.milliseconds))
        properties.setProperty("spark.streaming.internal.outputOpId", str(job.output_op_id))
        if job.scope is not None:
            properties.setProperty("spark.rdd.scope", job.scope.to_json())
        self._context.setLocalProperties(properties)
        self._allow_existing_directories()
        with noting_worker_traceback():
            yield

    @contextmanager
    def for_generation(self, time: Time) -> Generator[None]:
        """Prepare the current thread for the generation of a batch's jobs, in the body of the `with` statement.

        Sets the thread's local properties to the captured ones. An error of a Python worker gets the worker's traceback as a note.
        """
        self._context.setLocalProperties(self._captured.clone())
        self._allow_existing_directories()  # a function of `transform` may write files, too
        with noting_worker_traceback():
            yield

    def cancel_all(self) -> None:
        """Cancel every running Spark job that this environment has prepared. Any thread."""
        self._context.cancelJobsWithTag(self._tag)

    def _allow_existing_directories(self) -> None:
        """Let a batch that runs again overwrite the directory of its first attempt.

        The value is set for the current JVM thread only, as Spark sets it for jobs and for the creation of RDDs. In other threads an
        existing directory stays an error.
        """
        getattr(self._existing_directories, "value_$eq")(True)


def _existing_directories(sc: SparkContext) -> Any:
    """Return Spark's switch for output into existing directories: one `DynamicVariable` of the JVM, with a value for each thread."""
    jvm: Any = sc._jvm  # pyright: ignore
    return jvm.org.apache.spark.internal.io.SparkHadoopWriterUtils.disableOutputSpecValidation()


_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "')
_PYSPARKS = re.compile(r'  File "[^"]*[/\\]pyspark[/\\]')
_JVM = re.compile(r"\tat |\s*SQLSTATE: ")


@contextmanager
def noting_worker_traceback() -> Generator[None]:
    """Add the worker's traceback, as a note, to a Py4JJavaError of the body, and raise the error again.

    In the message of the error the traceback stands between a hundred lines of the JVM.
    """
    try:
        yield
    except Py4JJavaError as e:
        words = worker_traceback(_text(e))
        if words is not None:
            add_worker_traceback(e, words)
        raise


def worker_traceback(text: str) -> str | None:
    """Return the traceback of a Python worker in the text of a JVM's exception, without frames of pyspark. None if no worker raised."""
    _, python_exception, rest = text.partition("PythonException: ")
    _, begin, rest = rest.partition(_BEGIN)
    if not (python_exception and begin):
        return None
    return "\n".join([_BEGIN, *_of_the_user(rest.strip("\n").split("\n"))]).rstrip()


def _of_the_user(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a traceback up to the first line of the JVM, without frames of pyspark."""
    leaving_out = False
    for line in lines:
        if _JVM.match(line):
            return
        if _FRAME.match(line):
            leaving_out = _PYSPARKS.match(line) is not None
        elif not line.startswith("    "):
            leaving_out = False
        if not leaving_out:
            yield line


def _text(error: Py4JJavaError) -> str:
    """Return the text of a JVM's error; empty if the JVM does not answer."""
    try:
        return str(error)  # asks the JVM
    except Exception:  # the JVM may have ended
        return ""

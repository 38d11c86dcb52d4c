"""SparkJobEnvironment: the Spark side of a job thread, set as Spark's own JobHandler sets it."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from kstream.batch import Job
from kstream.batch_time import Duration, Time, format_batch_time
from kstream.spark.rdd_placement import SparkPlacement
from kstream.spark.worker_errors import workers_words_told

_GROUP_KEYS = (
    "spark.jobGroup.id", "spark.job.description", "callSite.short", "callSite.long", "spark.rdd.scope", "spark.rdd.scope.noOverride",
)  # fmt: skip
_TAGS = "spark.job.tags"
_ALL_MARKED = "spark.checkpoint.checkpointAllMarkedAncestors"
"""With it a job checkpoints every marked RDD it is made of. Without it the lineage of a state under a state would grow for ever."""


class SparkJobEnvironment:
    """Captures the starting thread's local properties once; every job thread gets a copy, so later changes are not seen.

    Of these the job group is cleared and interrupt-on-cancel set to false. Job threads must be pinned to JVM threads, which is
    pyspark's default. JVM objects that every batch needs are looked up once, in the constructor: the look-up of a class by its name
    takes py4j several calls, and the JVM a search of its class path.
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
        at = format_batch_time(job.time, self._interval)
        properties = self.placement.properties_of(job.name, job.call_site, open_to_inner=True)
        properties.setProperty("spark.job.description", f"Streaming job from [output operation {job.output_op_id}, batch time {at}]")
        properties.setProperty("spark.streaming.internal.batchTime", str(job.time.milliseconds))
        properties.setProperty("spark.streaming.internal.outputOpId", str(job.output_op_id))
        if job.scope is not None:
            properties.setProperty("spark.rdd.scope", job.scope.to_json())
        self._context.setLocalProperties(properties)
        self._allow_existing_directories()
        with workers_words_told():
            yield

    @contextmanager
    def for_generation(self, time: Time) -> Generator[None]:
        self._context.setLocalProperties(self._captured.clone())
        self._allow_existing_directories()  # a function of transform may write files, too
        with workers_words_told():
            yield

    def cancel_all(self) -> None:
        self._context.cancelJobsWithTag(self._tag)

    def _allow_existing_directories(self) -> None:
        """Lets a batch that is run again overwrite the directory of its first attempt.

        The value is set for the current JVM thread only, as Spark sets it for jobs and for the making of RDDs. In other threads an existing
        directory stays an error.
        """
        getattr(self._existing_directories, "value_$eq")(True)


def _existing_directories(sc: SparkContext) -> Any:
    """Spark's switch for output into existing directories: one `DynamicVariable` for the life of the JVM, with a value for each thread."""
    jvm: Any = sc._jvm  # pyright: ignore
    return jvm.org.apache.spark.internal.io.SparkHadoopWriterUtils.disableOutputSpecValidation()

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
from kstream.spark.worker_words import workers_words_told

_GROUP_KEYS = (
    "spark.jobGroup.id", "spark.job.description", "callSite.short", "callSite.long", "spark.rdd.scope", "spark.rdd.scope.noOverride",
)  # fmt: skip
_TAGS = "spark.job.tags"


class SparkJobEnvironment:
    """Captures the starting thread's local properties once; every job thread gets a copy, so later changes are not seen.

    Of these the job group is cleared and interrupt-on-cancel set to false. Job threads must be pinned to JVM threads, which is
    pyspark's default.
    """

    def __init__(self, sc: SparkContext, interval: Duration) -> None:
        self._sc = sc
        self._interval = interval
        self._tag = f"kstream-{uuid.uuid4().hex}"
        self._captured = self._jvm_context().getLocalProperties().clone()
        for key in _GROUP_KEYS:
            self._captured.remove(key)
        self._captured.setProperty("spark.job.interruptOnCancel", "false")
        tags = self._captured.getProperty(_TAGS)
        self._captured.setProperty(_TAGS, f"{tags},{self._tag}" if tags else self._tag)
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
        self._jvm_context().setLocalProperties(properties)
        self._allow_existing_directories()
        with workers_words_told():
            yield

    @contextmanager
    def for_generation(self, time: Time) -> Generator[None]:
        self._jvm_context().setLocalProperties(self._captured.clone())
        self._allow_existing_directories()  # a function of transform may write files, too
        with workers_words_told():
            yield

    def cancel_all(self) -> None:
        self._jvm_context().cancelJobsWithTag(self._tag)

    def _allow_existing_directories(self) -> None:
        """A batch that is run again finds the directory of its first attempt, whole or not, and writes it again.

        Set in this thread's JVM thread only, as Spark does for jobs and for the making of RDDs; elsewhere an existing directory stays an
        error.
        """
        jvm: Any = self._sc._jvm  # pyright: ignore
        getattr(jvm.org.apache.spark.internal.io.SparkHadoopWriterUtils.disableOutputSpecValidation(), "value_$eq")(True)

    def _jvm_context(self) -> Any:
        return self._sc._jsc.sc()  # pyright: ignore

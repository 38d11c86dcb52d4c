"""SparkJobEnvironment: the Spark side of a job thread, as Spark's JobHandler sets it.

It also raises the user's exception for an error of a Python worker.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from kstream.batch import Job
from kstream.batch_time import Duration, Time, format_batch_time
from kstream.spark.jvm_watch import JvmWatch, patience_after
from kstream.spark.rdd_placement import SparkPlacement
from kstream.spark.task_errors import prepare_workers, raising_the_users_error

logger = logging.getLogger(__name__)
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

    Args:
        sc: the SparkContext.
        interval: the batch interval.
        jvm: the watch of its JVM; None without one. With it, an error that comes of the end of the JVM is a JvmLostError.
        ui: finds the Spark jobs of an output operation by a tag that they get here; None without the page. The tag is one call to the JVM
            for each job. Nobody cancels by it.
    """

    def __init__(self, sc: SparkContext, interval: Duration, jvm: JvmWatch | None = None, ui: SparkUi | None = None) -> None:
        prepare_workers(sc)
        self._interval = interval
        self._jvm = jvm
        self._context: Any = sc._jsc.sc()  # pyright: ignore
        self._existing_directories: Any = _existing_directories(sc)
        self._tag = f"kstream-{uuid.uuid4().hex}"
        self._captured = self._context.getLocalProperties().clone()
        for key in _GROUP_KEYS:
            self._captured.remove(key)
        self._captured.setProperty("spark.job.interruptOnCancel", "false")
        tags = self._captured.getProperty(_TAGS)
        self._tags = f"{tags},{self._tag}" if tags else self._tag
        self._captured.setProperty(_TAGS, self._tags)
        self._ui = ui
        self._captured.setProperty(_ALL_MARKED, "true")
        self.placement = SparkPlacement(sc, self._captured)

    @contextmanager
    def for_job(self, job: Job) -> Generator[None]:
        """Prepare the current thread for a job, which runs in the body of the `with` statement.

        Sets the thread's local properties of Spark: the captured ones, with the job's description, batch time, call site and scope. They
        stay set afterwards. An error of a Python worker is the user's exception (`task_errors`). JvmLostError if the JVM has ended.
        """
        at = format_batch_time(job.time, self._interval)
        with self._naming_a_lost_jvm(), raising_the_users_error():
            properties = self.placement.properties_of(job.name, job.call_site, open_to_inner=True)
            properties.setProperty("spark.job.description", f"Streaming job from [output operation {job.output_op_id}, batch time {at}]")
            properties.setProperty("spark.streaming.internal.batchTime", str(job.time.milliseconds))
            properties.setProperty("spark.streaming.internal.outputOpId", str(job.output_op_id))
            if self._ui is not None:
                properties.setProperty(_TAGS, f"{self._tags},{self._ui.tag_of(job.time, job.output_op_id)}")
            if job.scope is not None:
                properties.setProperty("spark.rdd.scope", job.scope.to_json())
            self._context.setLocalProperties(properties)
            self._allow_existing_directories()
            yield

    @contextmanager
    def for_generation(self, time: Time) -> Generator[None]:
        """Prepare the current thread for the generation of a batch's jobs, in the body of the `with` statement.

        Sets the thread's local properties to the captured ones. An error of a Python worker is the user's exception.
        JvmLostError if the JVM has ended.
        """
        with self._naming_a_lost_jvm(), raising_the_users_error():
            self._context.setLocalProperties(self._captured.clone())
            self._allow_existing_directories()  # a function of `transform` may write files, too
            yield

    @contextmanager
    def _naming_a_lost_jvm(self) -> Generator[None]:
        """Raise JvmLostError for an error of the body if the JVM has ended: nearly every error then comes of that."""
        try:
            yield
        except Exception as e:
            if self._jvm is not None and self._jvm.has_ended(patience_after(e)):
                raise self._jvm.error() from e
            raise

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


class SparkUi:
    """Leads from a batch to its jobs in Spark's own UI. The constructor asks the JVM; so does `job_ids`. Any thread.

    Attributes:
        application: Spark's id of the application.
        url: the address of its UI; None without one.
    """

    def __init__(self, sc: SparkContext) -> None:
        self.application = str(sc.applicationId)
        self.url: str | None = sc.uiWebUrl
        self._prefix = f"kstream-batch-{uuid.uuid4().hex}"
        jvm: Any = sc._jvm  # pyright: ignore
        self._arrays: Any = jvm.java.util.Arrays
        self._tracker: Any = sc._jsc.sc().statusTracker()  # pyright: ignore

    def tag_of(self, time: Time, output_op_id: int) -> str:
        """Return the tag of the Spark jobs of an output operation. Another context, which may have a batch of this time, has other tags."""
        return f"{self._prefix}-{time.milliseconds}-{output_op_id}"

    def job_ids(self, time: Time, output_op_id: int) -> list[int]:
        """Return the Spark jobs of all tries of an output operation, in order. Blocks on the JVM: two calls.

        Spark knows the last `spark.ui.retainedJobs` jobs. When the JVM has ended there are none.
        """
        try:
            text = str(self._arrays.toString(self._tracker.getJobIdsForTag(self.tag_of(time, output_op_id))))
        except (Py4JError, OSError) as e:
            logger.debug("the Spark jobs of batch %s are not known: %s", time, e)
            return []
        return sorted(int(number) for number in text.strip("[]").split(",") if number.strip())

"""SparkUi: leads from a batch to its jobs in Spark's own UI. Spark is asked only when somebody looks at the batch."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from kstream.batch_time import Time

logger = logging.getLogger(__name__)


class SparkUi:
    """The Spark application of a context. The constructor asks the JVM; so does `job_ids`. Any thread.

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

"""SparkExecutorAllocationClient: asks Spark for executors, and ends them, by the scheduler backend of the JVM's SparkContext.

The backends of standalone clusters, local-cluster, YARN and Kubernetes implement Spark's ExecutorAllocationClient. That of local mode
does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of

from kstream.spark.executors import executors, task_cpus, task_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

_CLIENT_CLASS = "org.apache.spark.ExecutorAllocationClient"


class SparkExecutorAllocationClient:
    """An ExecutorAllocationClient for a SparkContext. Any thread. Each method makes a few calls to the JVM, and raises py4j's errors."""

    def __init__(self, sc: SparkContext) -> None:
        self._sc = sc

    def can_allocate(self) -> bool:
        """Return whether the cluster manager's backend gives and ends executors while the application runs."""
        gateway: Any = self._sc._gateway  # pyright: ignore[reportPrivateUsage]
        return is_instance_of(gateway, self._backend(), _CLIENT_CLASS)

    def executors(self) -> Mapping[str, int]:
        """Return how many tasks each executor can run at the same time, by executor id."""
        cpus = task_cpus(self._sc)
        return {executor.executor_id: task_slots([executor.cores], cpus) for executor in executors(self._sc)}

    def request_total_executors(self, total: int) -> bool:
        """Ask for so many executors of the default resource profile. Ends none. Returns whether the cluster manager has taken it."""
        jvm: Any = self._sc._jvm  # pyright: ignore[reportPrivateUsage]
        return bool(self._context().requestTotalExecutors(total, 0, jvm.PythonUtils.toScalaMap({})))

    def kill_executor(self, executor: str) -> bool:
        """End an executor that runs no task, and lower the number that was asked for by one. Returns whether it ends.

        This is the backend's method, as in Spark Streaming. The SparkContext's own one would end a busy executor, too, and fail its tasks.
        """
        return bool(self._backend().killExecutor(executor))

    def _backend(self) -> Any:
        """Return the scheduler backend of the JVM's SparkContext."""
        return self._context().schedulerBackend()

    def _context(self) -> Any:
        """Return the JVM's SparkContext."""
        context: Any = self._sc._jsc  # pyright: ignore[reportPrivateUsage]
        return context.sc()

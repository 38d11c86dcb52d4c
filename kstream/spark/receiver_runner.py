"""SparkReceiverRunner: receivers and block stores as tasks of Spark."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.loop import THREADS, Runtime
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, Location
from kstream.receiver.receiver_task import ReceiverTask, Surroundings, start_store
from kstream.spark.executors import executors
from kstream.spark.worker_rdd import WorkerRDD

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_LOCAL = ExecutorLocation("localhost", "driver")
_TRIES = 3


class SparkReceiverRunner:
    """A receiver is a job of one task, which goes on until the receiver ends; it takes a core for as long."""

    def __init__(self, sc: SparkContext, around: Surroundings, runtime: Runtime = THREADS) -> None:
        self._sc = sc
        self._around = around
        self._runtime = runtime
        self._lock = threading.Lock()
        self._with_store: set[str] = set()

    def executors(self) -> list[ExecutorLocation]:
        """In local mode the driver."""
        return [ExecutorLocation(host, executor) for host, executor in executors(self._sc)] or [_LOCAL]

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: Callable[[str], None]) -> None:
        task = ReceiverTask(receiver, stream_id, run, self._around)

        def in_spark() -> None:
            reason = ""
            try:
                self._sc.setJobGroup(_group(stream_id), f"Streaming job running receiver {stream_id}", interruptOnCancel=True)
                places = [[str(location) for location in candidates if location != _LOCAL]]
                self._count(WorkerRDD(self._sc, 1, partial(_receive, task), places))
            except Exception as e:
                reason = f"{type(e).__name__}: {e}".split("\n", 1)[0]
                logger.warning("the task of receiver %d has failed", stream_id, exc_info=e)
            ended(reason)

        self._runtime.thread(in_spark, f"Receiver-{stream_id}-job").start()

    def cancel(self, stream_id: int) -> None:
        self._sc.cancelJobGroup(_group(stream_id))

    def start_stores(self) -> None:
        """Spark need not go by the places that tasks prefer: tried again for executors that were passed over. In local mode there is
        nothing to do: the receivers start the one store."""
        for _ in range(_TRIES):
            there = {location.executor_id: location for location in self.executors() if location != _LOCAL}
            with self._lock:
                self._with_store &= set(there)
                missing = [location for executor, location in there.items() if executor not in self._with_store]
            if not missing:
                return
            places = [[str(location)] for location in missing]
            try:
                found = WorkerRDD(self._sc, len(missing), partial(_store, self._around), places).collect()
            except Exception:
                logger.warning("block stores could not be started on executors %s", missing, exc_info=True)
                return
            with self._lock:
                self._with_store.update(found)

    def _count(self, rdd: WorkerRDD) -> None:
        """Runs it; what it yields stays in the executor's JVM."""
        jrdd: Any = rdd._jrdd  # pyright: ignore[reportPrivateUsage]
        jrdd.count()


def _group(stream_id: int) -> str:
    return f"kstream-receiver-{stream_id}"


# -- in the workers


def _receive(task: ReceiverTask, _index: int) -> Iterator[str]:
    """A task that is tried again, or a speculative copy, ends at once: the tracker decides where a receiver runs."""
    from pyspark import TaskContext
    from pyspark.serializers import CPickleSerializer

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return
    try:
        yield from task(_folder(), CPickleSerializer().dumps)
    except Exception as e:  # Spark would try again and succeed, and nobody would hear of it
        task.failed(e)
        raise


def _store(around: Surroundings, _index: int) -> Iterator[str]:
    executor, _address = start_store(around, _folder())
    return iter([executor.executor_id])


def _folder() -> str:
    """One that the workers of an executor share: its working directory, or in local mode one of Spark's."""
    from pyspark import SparkFiles

    return os.path.abspath(SparkFiles.getRootDirectory())

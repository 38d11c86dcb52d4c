"""SparkReceiverRunner: receivers and block stores as tasks of Spark."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.conf import parse_bool, parse_time_ms
from kstream.errors import LOGGED_ERROR, in_a_line
from kstream.loop import THREADS, Event, Runtime
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, Location
from kstream.receiver.receiver_task import ReceiverTask, ReceiverTaskConfig, start_store
from kstream.receiver.receiver_tracker import TaskEnded
from kstream.receiver.settings import WAITING_TIME
from kstream.spark.executors import (
    ReceiverCores,
    executor_cores,
    executors,
    is_local,
    most_cores,
    task_attempts,
    task_cpus,
    wait_for_cores,
    warn_of_limit,
)
from kstream.spark.task_errors import is_of_spark_alone, raising_the_users_error
from kstream.spark.worker_rdd import WorkerRDD

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_LOCAL = ExecutorLocation("localhost", "driver")
_TRIES = 3
_POLL_S = 0.2
_WAITING = "spark.scheduler.maxRegisteredResourcesWaitingTime"


def check_cores(
    sc: SparkContext,
    receivers: int,
    stop_wanted: Event,
    wait_s: float = WAITING_TIME.default / 1000,
) -> None:
    """Wait until a task of a batch fits beside so many receivers, or until a stop is wanted; see `wait_for_cores`.

    The starting thread calls this before it becomes the checkpoint's writer, so that a driver without cores does not fence a running one.
    With dynamic allocation this does not wait: pending receivers make Spark start executors.

    Args:
        sc: The SparkContext.
        receivers: The number of receivers.
        stop_wanted: Ends the wait.
        wait_s: The longest wait in seconds.

    Raises:
        ConfigurationError: local mode has too few cores.
        NotEnoughCoresError: the cluster has not given enough cores in time.
    """
    conf = dict(sc.getConf().getAll())
    cores = ReceiverCores(receivers, task_cpus(sc))
    warn_of_limit(cores, most_cores(conf, conf.get("spark.master") or ""))
    if _executors_come_when_needed(sc):
        return
    wait_for_cores(cores, partial(executor_cores, sc), is_local(sc), wait_s, THREADS.monotonic, stop_wanted.wait)


class SparkReceiverRunner:
    """A ReceiverRunner that runs a receiver as a job of one task, which takes a core until the receiver ends.

    Any thread; `_lock` guards `_with_store`.
    """

    def __init__(
        self,
        sc: SparkContext,
        config: ReceiverTaskConfig,
        stop_wanted: Event | None = None,
        runtime: Runtime = THREADS,
    ) -> None:
        """Create the runner. Starts nothing.

        Args:
            sc: The SparkContext.
            config: The settings of receivers and stores, which go into the tasks.
            stop_wanted: Ends a wait for executors. None: no stop ends it.
            runtime: Makes threads, and has the clock.
        """
        self._sc = sc
        self._config = config
        self._runtime = runtime
        self._stop_wanted = runtime.event() if stop_wanted is None else stop_wanted
        self._lock = threading.Lock()
        self._with_store = {_LOCAL.executor_id}
        """Ids of the executors with a store. In local mode the receivers start the one store."""

    def executors(self) -> list[ExecutorLocation]:
        """Return the executors that live; in local mode the driver, and none while a cluster has not given one yet. Asks the JVM."""
        found = [executor.location for executor in executors(self._sc)]
        return found or ([_LOCAL] if is_local(self._sc) else [])

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: TaskEnded) -> None:
        """Start the task of a receiver on a new thread, and return at once.

        Args:
            receiver: The receiver; the task gets it pickled.
            stream_id: The number of its stream.
            run: The number of this receiver run.
            candidates: The locations that the task prefers.
            ended: Called on the new thread when the task has ended.
        """
        task = ReceiverTask(receiver, stream_id, run, self._config)

        def in_spark() -> None:
            reason, raised = "", False
            try:
                self._sc.setJobGroup(_group(stream_id), f"Streaming job running receiver {stream_id}", interruptOnCancel=True)
                places = [[str(location) for location in candidates if location != _LOCAL]]
                with raising_the_users_error():
                    self._count(WorkerRDD(self._sc, 1, partial(_receive, task), places))
            except Exception as e:
                reason, raised = in_a_line(e), not is_of_spark_alone(e)
                logger.warning("the task of receiver %d has failed: %s", stream_id, reason, extra={LOGGED_ERROR: e})
            ended(reason, raised)

        self._runtime.thread(in_spark, f"Receiver-{stream_id}-job").start()

    def first_attempt_runs(self, stage: int) -> bool:
        """Return whether the first attempt of a receiver's task, in this stage, still runs, for a later attempt that waits for its end.

        Spark's list of attempts may be seconds behind. An attempt that is not in it yet counts as running. One that is there no more,
        while a later one is, has ended.
        """
        return all(task.attempt() == 0 and task.status() == "RUNNING" for task in task_attempts(self._sc, stage, most=1))

    def cancel(self, stream_id: int) -> None:
        """Cancel the Spark job of a stream's receiver: Spark kills its task."""
        self._sc.cancelJobGroup(_group(stream_id))

    def forget_store(self, executor: str) -> None:
        """Let `start_stores` look for the executor's store again. Called when it has none, or one that does not answer."""
        with self._lock:
            self._with_store.discard(executor)

    def start_stores(self, at_least: int = 0) -> None:
        """Start a block store on every executor that has none, and wait until `at_least` executors have one. Blocks. Logs failures.

        The wait ends after the time that Spark itself waits for executors, or when a stop is wanted. In local mode, and with dynamic
        allocation, this does not wait.
        """
        end = self._runtime.monotonic() + self._patience()
        self._start_missing_stores()
        if is_local(self._sc) or _executors_come_when_needed(self._sc):
            return
        while (there := self._stores()) < at_least:
            if self._runtime.monotonic() > end:
                logger.warning("%d executors have a block store, so blocks have fewer than %d replicas", there, at_least)
                return
            if self._stop_wanted.wait(_POLL_S):
                return
            self._start_missing_stores()

    def _stores(self) -> int:
        """Return the number of executors that are known to have a store."""
        with self._lock:
            return len(self._with_store)

    def _start_missing_stores(self) -> None:
        """Start stores by Spark tasks. Blocks until the tasks have ended. A failure is logged.

        Spark may run a task elsewhere than on the executor it prefers. So executors that are still without a store get a task again, in
        three rounds at most.
        """
        for _ in range(_TRIES):
            there = {location.executor_id: location for location in self.executors()}
            with self._lock:
                self._with_store &= set(there)
                missing = [location for executor, location in there.items() if executor not in self._with_store]
            if not missing:
                return
            places = [[str(location)] for location in missing]
            try:
                with raising_the_users_error():
                    found = WorkerRDD(self._sc, len(missing), partial(_store, self._config), places).collect()
            except Exception as e:
                where = ", ".join(f"{location.executor_id} ({location.host})" for location in missing)
                logger.warning("block stores could not be started on executors %s: %s", where, in_a_line(e), extra={LOGGED_ERROR: e})
                return
            with self._lock:
                self._with_store.update(found)

    def _patience(self) -> float:
        """Return how many seconds Spark itself waits for executors before its first job."""
        return parse_time_ms(self._sc.getConf().get(_WAITING) or "30s") / 1000

    def _count(self, rdd: WorkerRDD) -> None:
        """Run the RDD's job. Blocks until it has ended. The tasks' output stays in the executors' JVMs."""
        jrdd: Any = rdd._jrdd  # pyright: ignore[reportPrivateUsage]
        jrdd.count()


def _group(stream_id: int) -> str:
    """Return the id of the Spark job group of a receiver."""
    return f"kstream-receiver-{stream_id}"


# -- in the workers


def _receive(task: ReceiverTask, _index: int) -> Iterator[str]:
    """Run a receiver, in a worker. Only the first attempt does so, because the tracker decides where a receiver runs.

    A retried attempt ends at once. A speculative copy ends after the first attempt. Raises the error of the receiver, after the driver
    knows.
    """
    from pyspark import TaskContext
    from pyspark.serializers import CPickleSerializer

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        yield from task.wait_for_first_attempt(context.stageId())
        return
    try:
        yield from task(_folder(), CPickleSerializer().dumps)
    except Exception as e:  # Spark's retry would succeed, and the error would stay unknown
        task.failed(e)
        raise


def _store(config: ReceiverTaskConfig, _index: int) -> Iterator[str]:
    """Find or start the executor's store, in a worker. Yields the id of the executor."""
    executor, _address = start_store(config, _folder())
    return iter([executor.executor_id])


def _folder() -> str:
    """Return the folder that the workers of an executor share: its working directory, or in local mode one of Spark's."""
    from pyspark import SparkFiles

    return os.path.abspath(SparkFiles.getRootDirectory())


def _executors_come_when_needed(sc: SparkContext) -> bool:
    """Return whether Spark starts executors for pending tasks (dynamic allocation)."""
    return parse_bool(sc.getConf().get("spark.dynamicAllocation.enabled") or "false")

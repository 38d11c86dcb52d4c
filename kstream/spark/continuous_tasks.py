"""SparkTaskRunner: the tasks of continuous processing as jobs of Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.clock import Clock
from kstream.conf import Settings
from kstream.continuous.epoch_task import EpochLimits
from kstream.continuous.operators import Pipeline
from kstream.continuous.ports import EpochOutput, TaskRun, UnboundedLog
from kstream.continuous.task_body import DriverAddress, TaskBody
from kstream.errors import LOGGED_ERROR, in_a_line
from kstream.loop import THREADS, Runtime
from kstream.receiver.settings import RECEIVER_PORT
from kstream.rpc import Handler, RpcServer
from kstream.spark.receivers import driver_addresses, rpc_credentials
from kstream.spark.task_errors import raising_the_users_error
from kstream.spark.worker_rdd import WorkerRDD

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)


class SparkTaskRunner:
    """A TaskRunner: a run is a job of one Spark task, which takes a core until the run ends. Any thread."""

    def __init__(
        self,
        sc: SparkContext,
        body_of: Callable[[TaskRun], TaskBody],
        places_of: Callable[[TaskRun], Sequence[str]] = lambda _run: (),
        runtime: Runtime = THREADS,
    ) -> None:
        """
        Args:
            sc: the SparkContext.
            body_of: returns what a run does; pickled into its task.
            places_of: the locations that its task prefers, in Spark's notation.
            runtime: makes the threads that wait for the jobs.
        """
        self._sc = sc
        self._body_of = body_of
        self._places_of = places_of
        self._runtime = runtime

    def start(self, run: TaskRun, ended: Callable[[TaskRun, BaseException | None], None]) -> None:
        """Start a run. Returns at once. `ended` is called once, on a thread of its own."""
        body, places = self._body_of(run), [list(self._places_of(run))]

        def in_spark() -> None:
            error: BaseException | None = None
            try:
                self._sc.setJobGroup(_group(run), f"Continuous task {run.task}", interruptOnCancel=True)
                with raising_the_users_error():
                    self._count(WorkerRDD(self._sc, 1, partial(_first_attempt, body), places))
            except Exception as e:
                error = e
                logger.warning("continuous task %d, run %d, has failed: %s", run.task, run.run, in_a_line(e), extra={LOGGED_ERROR: e})
            ended(run, error)

        self._runtime.thread(in_spark, f"ContinuousTask-{run.task}-job").start()

    def cancel(self, run: TaskRun) -> None:
        """Ask Spark to end the job of a run. Returns at once."""
        self._sc.cancelJobGroup(_group(run))

    def _count(self, rdd: WorkerRDD) -> None:
        """Run the job. Blocks until it has ended."""
        jrdd: Any = rdd._jrdd  # pyright: ignore[reportPrivateUsage]
        jrdd.count()


def _group(run: TaskRun) -> str:
    """Return the id of the Spark job group of a run."""
    return f"kstream-continuous-{run.task}-{run.run}"


def _first_attempt(body: TaskBody, _index: int) -> Iterator[str]:
    """Run the body, in a worker. A retry of Spark ends at once: the driver decides where the task runs next."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        yield from body()


class ContinuousTasks:
    """The port of the driver for the tasks of one start, and their runner. Any thread."""

    def __init__(self, sc: SparkContext, server: RpcServer, address: DriverAddress) -> None:
        self._sc = sc
        self._server = server
        self._address = address

    def runner(
        self,
        open_log: Callable[[], UnboundedLog],
        open_output: Callable[[TaskRun], Callable[[], EpochOutput]],
        pipeline: Pipeline,
        limits: EpochLimits,
    ) -> SparkTaskRunner:
        """Return what starts runs.

        Args:
            open_log: opens the log in a worker.
            open_output: returns what opens the output of a run in its worker.
            pipeline: the operators.
            limits: when epochs end.
        """
        return SparkTaskRunner(self._sc, lambda run: TaskBody(run, self._address, open_log, open_output(run), pipeline, limits))

    def answer(self, handlers: Mapping[str, Handler]) -> None:
        """Answer the messages of the tasks by these handlers from now on."""
        self._server.answer(handlers)

    def close(self) -> None:
        """Close the port. Tasks that are still there end when their driver does not answer."""
        self._server.close()


def open_continuous_tasks(sc: SparkContext, settings: Settings, clock: Clock) -> ContinuousTasks:
    """Open the port of the driver for continuous tasks. RpcError: the driver cannot listen on its address."""
    credentials = rpc_credentials(settings, clock)
    bind, advertised = driver_addresses(sc)
    server = RpcServer(credentials, {}, host=bind, port=settings[RECEIVER_PORT])
    return ContinuousTasks(sc, server, DriverAddress(advertised, server.port, credentials))

"""TaskBody: what the Spark task of a run does in its worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kstream.clock import SystemClock
from kstream.continuous.epoch_task import EpochLimits, EpochTask
from kstream.continuous.messages import CoordinatorLink
from kstream.continuous.operators import Pipeline
from kstream.continuous.ports import EpochOutput, TaskRun, UnboundedLog
from kstream.loop import THREADS
from kstream.rpc import RpcClient, RpcCredentials

_HEARTBEAT_S = 5.0
_DRIVER_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the coordinator listens, and what proves that a task belongs to it."""

    host: str
    port: int
    credentials: RpcCredentials


@dataclass(frozen=True, slots=True)
class TaskBody:
    """One run. Pickled into its Spark task.

    Attributes:
        run: the run.
        driver: the address of the coordinator.
        open_log: opens the log.
        open_output: opens the output.
        pipeline: the operators.
        limits: when epochs end.
    """

    run: TaskRun
    driver: DriverAddress
    open_log: Callable[[], UnboundedLog]
    open_output: Callable[[], EpochOutput]
    pipeline: Pipeline
    limits: EpochLimits

    def __call__(self) -> Iterator[str]:
        """Run until the driver stops the run. Yields an empty string every few seconds, so that Spark sees that the task lives.

        Raises:
            Exception: the error that has ended the run; see `EpochTask.run`.
        """
        address = self.driver
        client = RpcClient(address.host, address.port, address.credentials, _DRIVER_TIMEOUT_S)
        clock = SystemClock()
        task = EpochTask(self.open_log(), self.open_output(), self._function(), clock, THREADS, self.limits)
        ended, errors = THREADS.event(), list[BaseException]()

        def work() -> None:
            try:
                task.run(CoordinatorLink(client, self.run))
            except BaseException as e:
                errors.append(e)
            finally:
                ended.set()

        THREADS.thread(work, f"ContinuousTask-{self.run.task}").start()
        while not ended.wait(_HEARTBEAT_S):
            yield ""
        if errors:
            raise errors[0]

    def _function(self) -> Callable[[Iterator[Any]], Iterable[Any]]:
        return self.pipeline.compiled()

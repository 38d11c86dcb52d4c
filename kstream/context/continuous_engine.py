"""ContinuousEngine: the parts of a started context with a continuous stream. It has no batches: tasks run until the context stops."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstream.batch_time import Time
from kstream.checkpoint.plan_log import nonce_of_epoch
from kstream.checkpoint.reader import Meta, write_meta
from kstream.clock import Clock
from kstream.conf import Settings
from kstream.context.checkpoint_opener import CheckpointOpener, OpenedCheckpoint
from kstream.context.engine import FIRST_EPOCH, EngineCallbacks
from kstream.continuous.assignment import AssignmentLog
from kstream.continuous.epoch_coordinator import CoordinatorParts, EpochCoordinator, EpochSnapshot
from kstream.continuous.epoch_task import EpochLimits
from kstream.continuous.ports import ContinuousSource, ContinuousTarget
from kstream.continuous.position_log import PositionLog
from kstream.continuous.positions_only import PositionsOnly
from kstream.continuous.settings import EPOCH_INTERVAL, TASKS
from kstream.continuous.stream import ContinuousOutput
from kstream.dstream import DStreamGraph
from kstream.errors import ConfigurationError, FencedError, IllegalStateError
from kstream.listener import StreamingListenerBus, StreamingListenerStreamingStarted
from kstream.loop import THREADS, Runtime
from kstream.monitoring.job_snapshot import EngineSnapshot
from kstream.scheduler.job_generator import run_each
from kstream.spark.continuous_tasks import ContinuousTasks, open_continuous_tasks
from kstream.storage import FileStore

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)
_STOP_S = 30.0
_CUT_S = 2.0


class ContinuousJob:
    """The one continuous stream of a context, and its output. Built before the start."""

    def __init__(self, source: ContinuousSource) -> None:
        self.source = source
        self.has_started = False
        self._output: ContinuousOutput | None = None

    def add(self, output: ContinuousOutput) -> None:
        """Take the output. IllegalStateError: the context has started. ConfigurationError: there is one already."""
        if self.has_started:
            raise IllegalStateError(f"{output.operator}: no output can be added after the start of the context", state="active")
        if self._output is not None:
            raise ConfigurationError(
                f"{output.operator}: a continuous stream has one output, and this one has {self._output.operator} already. For another "
                "output make another job. An output to several topics takes records that name theirs"
            )
        self._output = output

    @property
    def output(self) -> ContinuousOutput:
        """The output. ConfigurationError if there is none."""
        if self._output is None:
            raise ConfigurationError("No output operations registered, so nothing to execute (try foreach)")
        return self._output


@dataclass(frozen=True, slots=True)
class ContinuousServices:
    """What a context gives to its continuous engine; attributes as those of EngineServices."""

    settings: Settings
    clock: Clock
    bus: StreamingListenerBus
    store: FileStore
    callbacks: EngineCallbacks
    parallelism: int
    runtime: Runtime = THREADS


class ContinuousEngine:
    """The coordinator of a continuous stream with its port and its tasks. Threads as those of Engine.

    Args:
        services: what the context gives.
        job: the stream and its output.
        opened: the checkpoint; this driver is its writer.
        tasks: the tasks in Spark, with the port of the driver.
    """

    def __init__(self, services: ContinuousServices, job: ContinuousJob, opened: OpenedCheckpoint, tasks: ContinuousTasks) -> None:
        self._services = services
        self._job = job
        self._opened = opened
        self._tasks = tasks
        self._fenced = False
        self._was_cut_short = False
        self._coordinator: EpochCoordinator | None = None
        self._target: ContinuousTarget = job.output.target or PositionsOnly()

    @classmethod
    def open(cls, services: ContinuousServices, job: ContinuousJob, graph: DStreamGraph, sc: SparkContext) -> ContinuousEngine:
        """Become the writer of the checkpoint, and open the port for the tasks. Blocks on the store. Errors as `EngineOpener.open`."""
        opened = CheckpointOpener(services.store, graph, services.settings, services.clock).open()
        if opened.contents is not None and opened.contents.meta is None:
            write_meta(services.store, Meta(Time(services.clock.time_ms()), graph.batch_duration))
        return cls(services, job, opened, open_continuous_tasks(sc, services.settings, services.clock))

    def start(self) -> None:
        """Hand over what earlier drivers have left, and start the tasks. Returns when the coordinator has begun.

        Raises:
            KStreamError: the log or the output refuses this driver, or does not answer.
            StorageError: the store failed.
        """
        services, output = self._services, self._job.output
        self._job.has_started = True
        services.bus.start()
        services.bus.post(StreamingListenerStreamingStarted(services.clock.time_ms()))
        hand_over = self._target.hand_over(nonce_of_epoch(services.store, FIRST_EPOCH))
        assignments = AssignmentLog(services.store, self.epoch)
        before = assignments.newest()
        known = {} if before is None else dict(before.positions)
        partitions = {**known, **self._job.source.starts(known.keys())}
        limits = EpochLimits(epoch_ms=services.settings[EPOCH_INTERVAL] or self._target.epoch_ms)
        open_log = self._job.source.open_log({topic for topic, _ in partitions})
        runner = self._tasks.runner(open_log, lambda run: self._target.open_output(run, self.epoch), output.pipeline, limits)
        parts = CoordinatorParts(
            assignments, PositionLog(services.store), hand_over, runner, self._opened.log.probe, services.clock, services.runtime
        )
        most = services.settings[TASKS] or min(len(partitions), services.parallelism)
        self._coordinator = coordinator = EpochCoordinator(parts, max(1, most), self._on_over)
        self._tasks.answer(coordinator.handlers)
        coordinator.start(partitions)

    def _on_over(self, error: Exception) -> None:
        """The coordinator has ended the stream. Any thread."""
        if isinstance(error, FencedError):
            self._fenced = True
            self._services.callbacks.on_fenced(error)
        else:
            self._services.callbacks.on_error("the continuous stream has ended", error)

    # -- what it knows

    @property
    def epoch(self) -> int:
        """The epoch of this driver. Any thread."""
        return self._opened.log.epoch

    @property
    def was_cut_short(self) -> bool:
        """Whether `cut_short` was called. Any thread."""
        return self._was_cut_short

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a listener, for whose end a stop waits."""
        return self._services.bus.is_own_thread()

    def rates(self) -> dict[int, int]:
        """Nothing limits the rate of a continuous stream but the tasks themselves."""
        return {}

    def snapshot(self) -> EngineSnapshot:
        """Return what is known at this moment. Any thread."""
        return EngineSnapshot(epoch=self.epoch, is_fenced=self._fenced)

    def epochs(self) -> EpochSnapshot | None:
        """Return how the stream is; None before the start. Any thread."""
        return None if self._coordinator is None else self._coordinator.snapshot()

    # -- the stop

    def stop(self, graceful: bool, timeout: float | None = None) -> None:
        """Let the tasks end their epochs, then close the port. Blocks. A stop that is not graceful waits for 2 s."""
        seconds = timeout or (_STOP_S if graceful and not self._was_cut_short else _CUT_S)
        coordinator = self._coordinator

        def stop_tasks() -> None:
            if coordinator is not None and not coordinator.stop(seconds):
                logger.warning(
                    "Stop: tasks of the continuous stream have not ended within %.1f s. The next start takes their ids.", seconds
                )

        run_each(stop_tasks, self._tasks.close, self._services.bus.stop)

    def cut_short(self) -> None:
        """Make a graceful stop that runs end at once. Any thread; returns at once."""
        self._was_cut_short = True

"""EngineOpener: checks what a context needs to start, opens its checkpoint, and makes its Engine."""

from __future__ import annotations

import logging

from kstream.checkpoint import NoLog
from kstream.context.checkpoint_opener import CheckpointOpener, OpenedCheckpoint
from kstream.context.engine import Engine, EngineServices
from kstream.dstream import DStreamGraph, ReceiverInputDStream
from kstream.errors import ConfigurationError
from kstream.scheduler.executor_allocation_manager import ExecutorAllocationManager
from kstream.scheduler.job_scheduler import check_concurrent_jobs
from kstream.scheduler.rate_controller import RateController
from kstream.scheduler.rate_estimator import create_rate_estimator
from kstream.scheduler.retry_policy import HOLD, RetryPolicy, retry_policy
from kstream.scheduler.settings import BACKPRESSURE_ENABLED, CONCURRENT_JOBS, FAILED_BATCH, MAX_BATCH_FAILURES

logger = logging.getLogger(__name__)


class EngineOpener:
    """Opens the engine of one start. Called by the thread that starts."""

    def __init__(self, services: EngineServices) -> None:
        """
        Args:
            services: what the context gives to its engine.

        Raises:
            ConfigurationError: the number of concurrent jobs cannot work, or a setting for failed batches has no meaning.
        """
        self._services = services
        self._retry = retry_policy(services.settings)
        check_concurrent_jobs(services.settings[CONCURRENT_JOBS])

    def open(self) -> Engine:
        """Become the writer of the checkpoint and read its log. Blocks on the store. No batch is planned or run before `Engine.start`.

        What can be refused without the checkpoint is refused first: a start that fails fences nobody.

        Raises:
            ConfigurationError: a stream carries state, and there is no checkpoint directory; batches of an ordered output may be given up;
                the rate estimator cannot be made; or executor allocation cannot work.
            CheckpointError: the stored data cannot be used; see its subclasses.
            StorageError: the store failed.
            Exception: the port for receivers cannot be opened.
        """
        given = self._services
        given.graph.validate_at_start(checkpointing=given.store is not None)
        ordered = _ordered_outputs(given.graph)
        self._check_failures_of(ordered)
        controllers = self._rate_controllers()
        allocation = ExecutorAllocationManager.createIfEnabled(
            given.spark.allocation,
            given.settings,
            sum(isinstance(stream, ReceiverInputDStream) for stream in given.graph.active_inputs()),
            lambda: engine.receivers_on_executors(),  # the manager asks these after its start, when the engine is there
            lambda: engine.newest_succeeded(),
            given.graph.batch_duration.milliseconds,
            given.clock,
            given.runtime,
        )
        opened = self._open_checkpoint()
        engine = Engine(given, opened, self._retry_of(ordered), controllers, allocation)
        return engine

    def _open_checkpoint(self) -> OpenedCheckpoint:
        given = self._services
        store = given.store if given.log_store is None else given.log_store
        return (
            OpenedCheckpoint(NoLog(), None) if store is None else CheckpointOpener(store, given.graph, given.settings, given.clock).open()
        )

    def _check_failures_of(self, ordered: list[str]) -> None:
        """Raise ConfigurationError if a batch of an ordered output may be given up."""
        failures = self._services.settings[MAX_BATCH_FAILURES]
        if ordered and failures:
            raise ConfigurationError(
                f"{MAX_BATCH_FAILURES} lets a batch be given up, but output {ordered[0]} writes each batch once and in order. Remove "
                "the setting: the batch is tried again until it succeeds",
                key=MAX_BATCH_FAILURES.key,
                value=failures,
            )

    def _retry_of(self, ordered: list[str]) -> RetryPolicy:
        """Return the policy for failed batches of these ordered outputs. Logs that it is another one than the settings say."""
        if not ordered:
            return self._retry
        if not self._retry.hold:
            text = "output %s needs its batches in order, so each batch waits for the older ones, with all outputs (as under %s=%s)"
            logger.info(text, ordered[0], FAILED_BATCH, HOLD)
        return self._retry.with_order()

    def _rate_controllers(self) -> list[RateController]:
        """Make a RateController for each input that adapts its rate. ConfigurationError as `open`."""
        settings, graph = self._services.settings, self._services.graph
        backpressure = settings[BACKPRESSURE_ENABLED]
        return [
            RateController(stream, create_rate_estimator(settings, graph.batch_duration) if backpressure else None)
            for stream in graph.active_inputs()
            if stream.adapts_rate
        ]


def _ordered_outputs(graph: DStreamGraph) -> list[str]:
    """Return the names of the outputs that need their batches in order."""
    return [output.name for output in graph.outputs() if output.is_ordered]

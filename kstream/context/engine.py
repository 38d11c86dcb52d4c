"""Engine: makes the parts of a started context, connects them, and starts and stops them.

The StreamingContext owns the API and the state of the context; the engine owns the threads. An engine serves one start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kstream.batch import BatchInfo, LogLag
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time, listed
from kstream.checkpoint import BatchLog, NoLog
from kstream.clock import Clock, SettableClock
from kstream.conf import ConfigEntry, Settings
from kstream.context.checkpoint_opener import CheckpointOpener, OpenedCheckpoint
from kstream.context.restored_outputs import restore_outputs
from kstream.context.settings import CLOCK_JUMP, GRACEFUL_STOP_TIMEOUT
from kstream.dstream import DStreamGraph, ReceiverInputDStream
from kstream.dstream.ports import InputServices
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.dstream.state_files import StateFiles
from kstream.errors import ConfigurationError, FencedError
from kstream.listener import StreamingListenerBus, StreamingListenerStreamingStarted
from kstream.loop import THREADS, Runtime, Thread
from kstream.receiver import Receiver
from kstream.receiver.receiver_tracker import receiver_name
from kstream.scheduler import JobGenerator, JobGeneratorCallbacks, JobScheduler, SchedulerParts
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from kstream.scheduler.executor_allocation_manager import ExecutorAllocationClient, ExecutorAllocationManager
from kstream.scheduler.input_lags import InputLags
from kstream.scheduler.job_generator import PATIENCE_INTERVALS, run_each
from kstream.scheduler.job_scheduler import JobEnvironment, check_concurrent_jobs
from kstream.scheduler.rate_controller import RateController
from kstream.scheduler.rate_estimator import create_rate_estimator
from kstream.scheduler.retry_policy import HOLD, retry_policy
from kstream.scheduler.settings import (
    BACKPRESSURE_ENABLED,
    CONCURRENT_JOBS,
    FAILED_BATCH,
    MAX_BATCH_FAILURES,
    SKIP_EMPTY_BATCHES,
    UNREACHABLE_TIMEOUT,
)
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.storage import FileStore
from kstream.wal.settings import WRITE_AHEAD_LOG

logger = logging.getLogger(__name__)
_CUT_S = 2.0
"""Seconds for each waiting phase of a stop that is not graceful, and for running jobs after a graceful stop that did not finish."""
AN_HOUR_S = 3600.0
"""The default timeout of a graceful stop, if no restart can run unfinished work. It applies to the receivers, then to the batches."""
MakeReceivedBlocks = Callable[[Mapping[int, Receiver], FileStore | None, BatchLog], ReceivedBlocks]
"""(receivers by stream id, the checkpoint's store, its log) → the ReceivedBlocks that runs the receivers."""


@dataclass(frozen=True, slots=True)
class SparkServices:
    """What Spark does for an engine.

    Attributes:
        environment: prepares threads for Spark jobs.
        state_files: state_files(store, epoch) makes the writer and reader of state; None only for a graph without state.
        received_blocks: makes the ReceivedBlocks; None runs no receivers.
        allocation: asks the cluster manager for executors; None if nobody can.
    """

    environment: JobEnvironment
    state_files: Callable[[FileStore, int], StateFiles] | None = None
    received_blocks: MakeReceivedBlocks | None = None
    allocation: ExecutorAllocationClient | None = None


@dataclass(frozen=True, slots=True)
class EngineCallbacks:
    """The functions of the context that an engine calls.

    Attributes:
        on_error: on_error(message, error) gets each error that is reported, on the JobScheduler's event thread: of a failed batch that
            of the try that uses up its retries.
        on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over.
        on_exhausted: called once, at the end of a bounded run, on the JobGenerator's thread.
    """

    on_error: Callable[[str, BaseException], None]
    on_fenced: Callable[[FencedError], None]
    on_exhausted: Callable[[], None] = lambda: None


class Engine:
    """Starts and stops the parts of one context.

    A start opens the log and takes an epoch, then starts the JobScheduler, the listener bus, the receivers, the inputs, the batch timer and
    the executor allocation, in this order. See `stop` for the order of a stop.

    Threads: the caller holds the context's lock for `open`, `start` and `stop`. The other public methods may be called from any thread.
    """

    def __init__(
        self,
        settings: Settings,
        graph: DStreamGraph,
        clock: Clock,
        bus: StreamingListenerBus,
        store: FileStore | None,
        spark: SparkServices,
        callbacks: EngineCallbacks,
        runtime: Runtime = THREADS,
        log_store: FileStore | None = None,
    ) -> None:
        """
        Args:
            settings: those of the context.
            graph: the streams.
            clock: the clock of batch times.
            bus: the listener bus; the engine starts and stops it.
            store: the checkpoint; None without a checkpoint directory.
            spark: what Spark does for the engine.
            callbacks: the functions of the context.
            runtime: makes threads, queues and events.
            log_store: the same store, as the plan log is to use it; None uses `store`.

        Raises:
            ConfigurationError: the number of concurrent jobs cannot work, or a setting for failed batches has no meaning.
        """
        self._settings = settings
        self._graph = graph
        self._clock = clock
        self._bus = bus
        self._store = store
        self._spark = spark
        self._callbacks = callbacks
        self._runtime = runtime
        self._retry = retry_policy(settings)
        self._concurrent_jobs = check_concurrent_jobs(settings[CONCURRENT_JOBS])
        log_store = store if log_store is None else log_store
        self._opener = None if log_store is None else CheckpointOpener(log_store, graph, settings, clock)
        self._rate_controllers: Sequence[RateController] = ()
        self._allocation: ExecutorAllocationManager | None = None
        self._opened: OpenedCheckpoint | None = None
        self._received: ReceivedBlocks | None = None
        self._generator: JobGenerator | None = None
        self._scheduler: JobScheduler | None = None
        self._lifecycle: BatchLifecycle | None = None
        self._lags: InputLags | None = None
        self._states: StateCheckpointer | None = None
        self._was_cut_short = False

    def open(self) -> None:
        """Become the writer of the checkpoint and read its log. Blocks on the store. No batch is planned or run before `start`.

        After an error, call `stop`.

        Raises:
            ConfigurationError: a stream carries state, and there is no checkpoint directory; batches of an ordered output may be given up;
                the rate estimator cannot be made; or executor allocation cannot work.
            CheckpointError: the stored data cannot be used; see its subclasses.
            StorageError: the store failed.
        """
        self._graph.validate_at_start(checkpointing=self._store is not None)
        self._check_ordered_outputs()
        self._rate_controllers = self._make_rate_controllers()
        self._allocation = self._make_allocation()
        self._opened = OpenedCheckpoint(NoLog(), None) if self._opener is None else self._opener.open()

    def start(self) -> None:
        """Start the receivers and the batches. Calls `open` first, if that was not called.

        Blocks until the first pending and missed batches are submitted and the batch timer runs. After an error, call `stop`.

        Raises:
            ConfigurationError: as `open`.
            CheckpointError: the stored data cannot be used.
            StorageError: the store failed.
            Exception: an input could not start.
        """
        if self._opened is None:
            self.open()
        opened = self._opened
        assert opened is not None
        self._received = self._make_receivers(opened)
        self._wire(opened)
        assert self._scheduler is not None and self._generator is not None
        self._scheduler.start()
        if self._allocation is not None:
            self._bus.add(self._allocation)
        self._bus.start()
        self._bus.post(StreamingListenerStreamingStarted(self._clock.time_ms()))
        if self._received is not None:
            self._received.start(partial(self._scheduler.report_error, "a receiver does not start"))
        contents = opened.contents
        restore_outputs(self._graph, self._store, self.epoch, contents)
        if contents is not None and contents.meta is not None and contents.has_begun and contents.last_planned is not None:
            self._jump(contents.last_planned)
            self._generator.restart(contents.meta.zero_time, contents, opened.streams, contents.last_planned)
        else:
            self._generator.start_first_time(self._zero_time())
        self._opened = replace(opened, streams={})  # the streams have their plans; here they would be kept for good
        if self._allocation is not None:
            self._allocation.start()

    def _jump(self, last_planned: Time) -> None:
        """Set a settable clock to the last planned batch plus `spark.streaming.manualClock.jump`: a test gives the downtime by it."""
        jump = self._settings[CLOCK_JUMP]
        if jump is not None and isinstance(self._clock, SettableClock):
            self._clock.set_time(max(self._clock.time_ms(), last_planned.milliseconds + jump))

    @property
    def epoch(self) -> int:
        """The epoch of this driver; 0 before `open`, and without a checkpoint directory. Any thread."""
        return 0 if self._opened is None else self._opened.log.epoch

    @property
    def is_fenced(self) -> bool:
        """Whether this driver has found that another one has taken over. Any thread."""
        return self._is_fenced()

    def last_planned(self) -> Time | None:
        """Return the newest batch that has a plan, of this driver or an earlier one; None before the first. Any thread."""
        contents = None if self._opened is None else self._opened.contents
        before = None if contents is None else contents.last_planned
        mine = None if self._lifecycle is None else self._lifecycle.newest_planned()
        return max((time for time in (before, mine) if time is not None), default=None)

    @property
    def allocation(self) -> ExecutorAllocationManager | None:
        """The manager of this start's executors; None before `open`, and if executor allocation is off. Any thread."""
        return self._allocation

    @property
    def lifecycle(self) -> BatchLifecycle:
        """Where each planned batch stands; without batches before `start`. Any thread."""
        return self._lifecycle or BatchLifecycle(self._retry, self._clock.monotonic_ms, self._runtime)

    def rates(self) -> dict[int, int]:
        """Return the rate that back-pressure has computed last for each input, by stream id; none before the first. Any thread."""
        return {each.stream_id: each.latest_rate for each in self._rate_controllers if each.latest_rate >= 0}

    def lags(self) -> dict[int, LogLag]:
        """Return the lag of each input that reads logs, by stream id; none before the first plan. Any thread."""
        return {} if self._lags is None else self._lags.lags()

    def state_error(self) -> Exception | None:
        """Return why the state of the last batch that was due could not be written; None if it was. Any thread."""
        return None if self._states is None else self._states.write_error

    def error_policies(self) -> dict[int, str]:
        """Return the policy of each input for a record that fails, by stream id. Any thread."""
        return {stream.id: stream.errors_policy for stream in self._graph.active_inputs()}

    def tasks_settings(self) -> dict[int, ConfigEntry[int]]:
        """Return the setting by which small ranges share tasks, of each input that has one, by stream id. Any thread."""
        return {stream.id: stream.tasks_setting for stream in self._graph.active_inputs() if stream.tasks_setting is not None}

    def receivers(self) -> dict[int, str]:
        """Return the name of each receiver, whether it has ever started or not, by stream id. Any thread."""
        streams = (stream for stream in self._graph.active_inputs() if isinstance(stream, ReceiverInputDStream))
        return {stream.id: receiver_name(stream.receiver, stream.id) for stream in streams}

    def waiting_blocks(self) -> int | None:
        """Return the number of received blocks that are in no batch; None without receivers. Any thread."""
        return None if self._received is None else self._received.waiting_blocks()

    def wait_idle(self, timeout: float) -> bool:
        """Block until every batch that is due has ended, and listeners have got its events. Any thread.

        Returns at once on a thread of the engine (a job, a function of `transform`, a listener), because that thread would wait for itself.
        Returns early if the engine is stopped or fenced.

        Args:
            timeout: seconds for the batches.

        Returns:
            False if the timeout passed first.
        """
        generator, scheduler, lifecycle = self._generator, self._scheduler, self._lifecycle
        if generator is None or scheduler is None or lifecycle is None or self.is_own_thread():
            return True
        end = self._runtime.monotonic() + timeout
        if not generator.drain(timeout):
            return False
        starts = -1
        while starts != lifecycle.starts:  # a job may move the clock, and so make more batches due; an end may let a held batch start
            starts = lifecycle.starts
            while not lifecycle.wait_none_running(0.05):
                if scheduler.refuses_jobs:
                    return True
                if self._runtime.monotonic() > end:
                    return False
            if not (scheduler.drain(timeout) and generator.drain(timeout)):
                return False
        return True

    def timer_threads(self) -> list[Thread]:
        """Return the threads that wait on the clock; none before the start and after the end."""
        allocation = None if self._allocation is None else self._allocation.timer_thread()
        timers = [] if self._generator is None else self._generator.timer_threads()
        return timers if allocation is None else [*timers, allocation]

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a batch, in a function of `transform` or in a listener. A stop waits for all of these."""
        if self._generator is None or self._scheduler is None:
            return False
        return self._generator.is_own_thread() or self._scheduler.is_own_thread() or self._bus.is_own_thread()

    def stop(self, graceful: bool, timeout: float | None = None) -> None:
        """Stop the executor allocation, the receivers, the generator, the jobs and the listeners, in this order. Blocks until all have
        stopped.

        No executor ends while receivers store their last blocks. Receivers and generator stop before the jobs, so that no new data comes.
        Listeners stop last, so that they get the last events. May be called after a failed `open` or `start`, too.

        Args:
            graceful: plan all received data, and wait until every batch has ended. Otherwise no queued job starts.
            timeout: seconds for the receivers, and again for the batches. None is `patience` for a graceful stop, else 2 s.

        Raises:
            Exception: the first error of a part. The others are stopped nevertheless.
        """
        graceful = graceful and not self._was_cut_short
        if timeout is None:
            timeout = self.patience() if graceful else _CUT_S
        run_each(
            partial(self._stop_batches, graceful, timeout),
            *(output.stop for output in self._graph.outputs()),
            self._received and self._received.close,
            self._bus.stop,
            self._allocation and partial(self._bus.remove, self._allocation),
        )

    def _stop_batches(self, graceful: bool, timeout: float) -> None:
        """Stop the executor allocation, the receivers, the generator and the jobs, if they were made. Arguments and errors as of `stop`."""
        generator, scheduler, received = self._generator, self._scheduler, self._received
        if generator is None or scheduler is None:
            return
        in_time = False

        def stop_generator() -> None:
            nonlocal in_time
            began = self._runtime.monotonic()
            waiting = (lambda: False) if received is None else received.has_unallocated_blocks
            in_time = generator.stop(graceful, timeout, waiting)
            if not in_time and not scheduler.refuses_jobs:
                self._tell_of_the_rest(self._runtime.monotonic() - began)

        run_each(
            None if graceful else partial(scheduler.refuse_jobs, cut_short=True),
            self._allocation and self._allocation.stop,
            received and partial(received.stop, timeout),
            stop_generator,
            lambda: scheduler.stop(graceful and in_time, min(timeout, _CUT_S)),
        )

    def cut_short(self) -> None:
        """Make a graceful stop that runs end at once: no queued job starts, and running jobs get 2 s. Any thread; returns at once."""
        self._was_cut_short = True
        if self._generator is not None and self._scheduler is not None:
            self._scheduler.refuse_jobs(cut_short=True)
            self._generator.cut_short()

    @property
    def was_cut_short(self) -> bool:
        """Whether `cut_short` was called. Any thread."""
        return self._was_cut_short

    def _restart_runs_the_rest(self) -> bool:
        """Return whether a restart can run unfinished work: there is a checkpoint, and the data of every input outlives the driver."""
        return self._store is not None and all(stream.outlives_driver for stream in self._graph.active_inputs())

    def patience(self) -> float:
        """Return the timeout of a graceful stop in seconds. It applies to the receivers, then to the batches.

        The setting wins. Without it the timeout is ten batch intervals if a restart can run unfinished work, else an hour. Spark waits ten
        batch intervals, and an hour for jobs that it has submitted.
        """
        soon = PATIENCE_INTERVALS * self._graph.batch_duration.seconds
        said_ms = self._settings[GRACEFUL_STOP_TIMEOUT]
        if said_ms is not None:
            return said_ms / 1000
        return soon if self._restart_runs_the_rest() else AN_HOUR_S

    def _tell_of_the_rest(self, waited: float) -> None:
        """Log the batches and blocks that a graceful stop did not finish, and whether a restart runs them.

        Args:
            waited: how long it waited for the batches, in seconds.
        """
        assert self._lifecycle is not None
        left = sorted(self._lifecycle.open())
        rest = [f"{len(left)} {'batch' if len(left) == 1 else 'batches'} did not end within {waited:.1f} s: {listed(left)}"] if left else []
        blocks = self.waiting_blocks() or 0
        if blocks:
            rest.append(f"{blocks} received {'block is' if blocks == 1 else 'blocks are'} in no batch after {waited:.1f} s")
        said = "; ".join(rest) or f"a batch was still being planned after {waited:.1f} s"
        if self._restart_runs_the_rest():
            logger.warning("Graceful stop: %s. The next start runs the rest.", said)
        else:
            logger.error("Graceful stop: %s. No restart can run the rest: %s.", said, self._why_the_rest_is_lost())

    def _why_the_rest_is_lost(self) -> str:
        """Return why no restart can run the unfinished work, and the remedy, for the log."""
        longer = f"Set a longer {GRACEFUL_STOP_TIMEOUT}"
        if self._store is None:
            return f"there is no checkpoint directory. Set one (ssc.checkpoint). {longer}"
        lost = [stream for stream in self._graph.active_inputs() if not stream.outlives_driver]
        log = f" Set {WRITE_AHEAD_LOG}=true." if any(isinstance(stream, ReceiverInputDStream) for stream in lost) else ""
        return f"the data of {', '.join(map(repr, lost))} is lost with the driver.{log} {longer}"

    def _ordered_outputs(self) -> list[str]:
        return [output.name for output in self._graph.outputs() if output.is_ordered]

    def _check_ordered_outputs(self) -> None:
        """Raise ConfigurationError if a batch of an ordered output may be given up."""
        ordered, failures = self._ordered_outputs(), self._settings[MAX_BATCH_FAILURES]
        if ordered and failures:
            raise ConfigurationError(
                f"{MAX_BATCH_FAILURES} lets a batch be given up, but output {ordered[0]} writes each batch once and in order. Remove "
                "the setting: the batch is tried again until it succeeds",
                key=MAX_BATCH_FAILURES.key,
                value=failures,
            )

    def _wire(self, opened: OpenedCheckpoint) -> None:
        """Make the JobScheduler, the JobGenerator and their parts, and connect them. Starts nothing."""
        log = opened.log
        ordered = self._ordered_outputs()
        if ordered and not self._retry.hold:
            text = "output %s needs its batches in order, so each batch waits for the older ones, with all outputs (as under %s=%s)"
            logger.info(text, ordered[0], FAILED_BATCH, HOLD)
        retry = self._retry.with_order() if ordered else self._retry
        self._lifecycle = lifecycle = BatchLifecycle(retry, self._clock.monotonic_ms, self._runtime)
        self._lags = InputLags(lifecycle.unfinished, None if opened.contents is None else opened.contents.last_planned)
        self._states = states = StateCheckpointer(self._graph, self._store, log.epoch, log.probe, lambda: self._make_state_files(log.epoch))
        parts = SchedulerParts(
            graph=self._graph,
            clock=self._clock,
            log=log,
            environment=self._spark.environment,
            states=states,
            lifecycle=lifecycle,
            lags=self._lags,
            concurrent_jobs=self._concurrent_jobs,
            runtime=self._runtime,
            retry=retry,
            unreachable_timeout_ms=self._settings[UNREACHABLE_TIMEOUT],
            skip_empty_batches=self._settings[SKIP_EMPTY_BATCHES],
        )
        # The generator has the scheduler; the scheduler reaches the generator only by the callbacks below.
        self._scheduler = JobScheduler(
            parts, self._bus, self._callbacks.on_error, self._batch_ended, self._try_failed, self._state_lost, self._measured
        )
        self._generator = JobGenerator(
            parts,
            self._scheduler,
            InputServices(self._bus.post, self._is_fenced, self._received or NoReceivedBlocks(), lifecycle.in_line, opened.last_batches),
            JobGeneratorCallbacks(self._callbacks.on_fenced, self._callbacks.on_exhausted, self._clean_received),
            self._settings[MAX_BATCH_FAILURES],
        )

    def _is_fenced(self) -> bool:
        """Return whether this driver has found that another one has taken over. Any thread."""
        return self._generator is not None and self._generator.is_fenced

    def _clean_received(self, required: RequiredBatches) -> None:
        """Remove received blocks of batches that are not required. Blocks; called on the cleaner's thread."""
        if self._received is not None:
            self._received.clean_up(required)

    def _make_rate_controllers(self) -> list[RateController]:
        """Make a RateController for each input that adapts its rate. ConfigurationError as `open`."""
        backpressure, interval = self._settings[BACKPRESSURE_ENABLED], self._graph.batch_duration
        return [
            RateController(stream, create_rate_estimator(self._settings, interval) if backpressure else None)
            for stream in self._graph.active_inputs()
            if stream.adapts_rate
        ]

    def _make_allocation(self) -> ExecutorAllocationManager | None:
        """Make the manager of the executors, if the settings switch it on. ConfigurationError as `open`."""
        receivers = sum(isinstance(stream, ReceiverInputDStream) for stream in self._graph.active_inputs())
        duration_ms = self._graph.batch_duration.milliseconds
        return ExecutorAllocationManager.createIfEnabled(
            self._spark.allocation,
            self._settings,
            receivers,
            self._receivers_on_executors,
            self._newest_succeeded,
            duration_ms,
            self._clock,
            self._runtime,
        )

    def _receivers_on_executors(self) -> Mapping[str, int]:
        """Return how many receivers run on an executor, or may start there, by executor id. Any thread."""
        return {} if self._received is None else self._received.receivers_on_executors()

    def _newest_succeeded(self) -> Time | None:
        """Return the newest batch that was planned, if all planned batches have succeeded; else None. Any thread."""
        return None if self.lifecycle.unfinished() else self.lifecycle.newest_planned()

    def _make_receivers(self, opened: OpenedCheckpoint) -> ReceivedBlocks | None:
        """Make the ReceivedBlocks of the receiver streams, and recover the blocks of earlier drivers. Blocks on the store.

        Returns:
            None if no output needs a receiver stream.
        """
        streams = [stream for stream in self._graph.active_inputs() if isinstance(stream, ReceiverInputDStream)]
        if not streams or self._spark.received_blocks is None:
            return None
        received = self._spark.received_blocks({stream.id: stream.receiver for stream in streams}, self._store, opened.log)
        stored = [opened.streams[stream.id] for stream in streams if stream.id in opened.streams]
        received.recover({id for found in stored for plan in found.plans.values() for id in plan.block_ids}, opened.stream_now)
        return received

    def _make_state_files(self, epoch: int) -> StateFiles:
        """Make the writer and reader of state. Called only for a graph with state."""
        assert self._store is not None and self._spark.state_files is not None
        return self._spark.state_files(self._store, epoch)

    def _batch_ended(self, time: Time) -> None:
        """Pass the end of a batch to the JobGenerator. Any thread; returns at once."""
        assert self._generator is not None
        self._generator.on_batch_end(time)

    def _try_failed(self) -> None:
        """Tell the JobGenerator that a try of a batch has failed. Any thread; returns at once."""
        assert self._generator is not None
        self._generator.on_failed_try()

    def _state_lost(self, time: Time) -> None:
        """Pass a batch that is to be repaired to the JobGenerator. Any thread; returns at once."""
        assert self._generator is not None
        self._generator.on_lost(time)

    def _measured(self, info: BatchInfo) -> None:
        """Pass the figures of a batch that has ended to the inputs that adapt their rate. An error of an estimator is logged."""
        for controller in self._rate_controllers:
            try:
                controller.batch_completed(info)
            except Exception:
                logger.exception("the rate of input %d could not be computed after batch %s", controller.stream_id, info.batch_time)

    def _zero_time(self) -> Time:
        """Return the zero time of a stream without plans. With a checkpoint all drivers have the same. Raises as CheckpointOpener."""
        assert self._generator is not None
        zero = self._generator.first_zero_time()
        return zero if self._opener is None else self._opener.zero_time(zero)

"""Engine: the parts of a started context, connected; it starts and stops them in their order.

The StreamingContext owns the API and the state of the context; the engine owns the threads. An engine serves one start, and is made by an
EngineOpener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kstream.batch import BatchInfo, Json
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.checkpoint import BatchLog, LogContents
from kstream.checkpoint.missing_plans import forgotten
from kstream.checkpoint.outcomes import read_completion
from kstream.checkpoint.plan_log import nonce_of_epoch
from kstream.checkpoint.settled import in_settled
from kstream.clock import Clock, SettableClock
from kstream.conf import Settings
from kstream.context.checkpoint_opener import OpenedCheckpoint
from kstream.context.settings import CLOCK_JUMP
from kstream.context.unfinished_work import UnfinishedWork, left_in_words
from kstream.dstream import DStreamGraph, ReceiverInputDStream
from kstream.dstream.ports import InputServices
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.dstream.state_files import StateFiles
from kstream.errors import CorruptRecordError, FencedError, FormatVersionError, MissingFileError
from kstream.listener import StreamingListenerBus, StreamingListenerStreamingStarted
from kstream.loop import THREADS, Runtime, Thread
from kstream.monitoring.job_snapshot import EngineSnapshot
from kstream.output import Writer
from kstream.receiver import Receiver
from kstream.scheduler.batch_lifecycle import BatchLifecycle
from kstream.scheduler.executor_allocation_manager import ExecutorAllocationClient, ExecutorAllocationManager
from kstream.scheduler.input_lags import InputLags
from kstream.scheduler.job_generator import JobGenerator, JobGeneratorCallbacks, run_each
from kstream.scheduler.job_scheduler import JobEnvironment, JobScheduler, SchedulerParts
from kstream.scheduler.rate_controller import RateController
from kstream.scheduler.retry_policy import RetryPolicy
from kstream.scheduler.settings import CONCURRENT_JOBS, MAX_BATCH_FAILURES, SKIP_EMPTY_BATCHES, UNREACHABLE_TIMEOUT
from kstream.scheduler.state_checkpointer import StateCheckpointer, StoredStateCheckpointer
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
FIRST_EPOCH = 1
_CUT_S = 2.0
"""Seconds for each waiting phase of a stop that is not graceful, and for running jobs after a graceful stop that did not finish."""
MakeReceivedBlocks = Callable[[Mapping[int, Receiver], FileStore | None, BatchLog], ReceivedBlocks]
"""(receivers by stream id, the checkpoint's store, its log) → the ReceivedBlocks that runs the receivers."""


@dataclass(frozen=True, slots=True)
class SparkServices:
    """What Spark does for an engine.

    Attributes:
        environment: prepares threads for Spark jobs.
        state_files: state_files(store, epoch) makes the writer and reader of state. Called only for a graph with state.
        received_blocks: makes the ReceivedBlocks; None runs no receivers.
        allocation: asks the cluster manager for executors; None if nobody can.
    """

    environment: JobEnvironment
    state_files: Callable[[FileStore, int], StateFiles]
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


@dataclass(frozen=True, slots=True)
class EngineServices:
    """What a context gives to its engine.

    Attributes:
        settings: those of the context.
        graph: the streams.
        clock: the clock of batch times.
        bus: the listener bus; the engine starts and stops it.
        store: the checkpoint; None without a checkpoint directory.
        spark: what Spark does for the engine.
        callbacks: the functions of the context.
        runtime: makes threads, queues and events.
        log_store: the same store, as the plan log is to use it; None uses `store`.
    """

    settings: Settings
    graph: DStreamGraph
    clock: Clock
    bus: StreamingListenerBus
    store: FileStore | None
    spark: SparkServices
    callbacks: EngineCallbacks
    runtime: Runtime = THREADS
    log_store: FileStore | None = None


class Engine:
    """The parts of one context whose checkpoint is open: this driver is its writer.

    A start begins with the JobScheduler, then come the listener bus, the receivers, the inputs, the batch timer and the executor
    allocation, in this order. See `stop` for the order of a stop.

    Threads: the caller holds the context's lock for `start` and `stop`. The other public methods may be called from any thread.

    Attributes:
        lifecycle: where each planned batch stands. Any thread.
        allocation: the manager of the executors; None if executor allocation is off. Any thread.
    """

    def __init__(
        self,
        services: EngineServices,
        opened: OpenedCheckpoint,
        retry: RetryPolicy,
        rate_controllers: Sequence[RateController],
        allocation: ExecutorAllocationManager | None,
    ) -> None:
        """Make the parts and connect them. Opens the port for receivers; starts nothing.

        Args:
            services: what the context gives.
            opened: the checkpoint.
            retry: when a failed batch is tried again.
            rate_controllers: those of the inputs that adapt their rate.
            allocation: the manager of the executors; None if executor allocation is off.
        """
        self._services = services
        self._settings = services.settings
        self._graph = services.graph
        self._clock = services.clock
        self._bus = services.bus
        self._store = services.store
        self._runtime = services.runtime
        self._opened = opened
        self._rate_controllers = rate_controllers
        self.allocation = allocation
        self._unfinished = UnfinishedWork(self._settings, self._graph, self._store is not None)
        self._was_cut_short = False
        self.lifecycle = BatchLifecycle(retry, self._clock.monotonic_ms, self._runtime)
        self._lags = InputLags(self.lifecycle.unfinished, None if opened.contents is None else opened.contents.last_planned)
        self._states = self._make_states()
        self._received = self._make_receivers()
        parts = self._scheduler_parts(retry)
        # The generator has the scheduler; the scheduler reaches the generator only by these callbacks.
        self._scheduler = JobScheduler(
            parts,
            self._bus,
            services.callbacks.on_error,
            lambda time: self._generator.on_batch_end(time),
            lambda: self._generator.on_failed_try(),
            lambda time: self._generator.on_lost(time),
            self._measured,
        )
        self._generator = JobGenerator(
            parts,
            self._scheduler,
            self._input_services(),
            JobGeneratorCallbacks(services.callbacks.on_fenced, services.callbacks.on_exhausted, self._clean_received),
            self._settings[MAX_BATCH_FAILURES],
        )

    def _make_states(self) -> StateCheckpointer:
        if self._store is None:
            return StateCheckpointer(self._graph)
        files = partial(self._services.spark.state_files, self._store, self.epoch)
        return StoredStateCheckpointer(self._graph, self._store, self.epoch, self._opened.log.probe, files)

    def _make_receivers(self) -> ReceivedBlocks | None:
        """Make the ReceivedBlocks of the receiver streams; None if no output needs such a stream."""
        receivers = {stream.id: stream.receiver for stream in self._receiver_streams()}
        make = self._services.spark.received_blocks
        return make(receivers, self._store, self._opened.log) if receivers and make is not None else None

    def _receiver_streams(self) -> list[ReceiverInputDStream]:
        return [stream for stream in self._graph.active_inputs() if isinstance(stream, ReceiverInputDStream)]

    def _scheduler_parts(self, retry: RetryPolicy) -> SchedulerParts:
        return SchedulerParts(
            graph=self._graph,
            clock=self._clock,
            log=self._opened.log,
            environment=self._services.spark.environment,
            states=self._states,
            lifecycle=self.lifecycle,
            lags=self._lags,
            concurrent_jobs=self._settings[CONCURRENT_JOBS],
            runtime=self._runtime,
            retry=retry,
            unreachable_timeout_ms=self._settings[UNREACHABLE_TIMEOUT],
            skip_empty_batches=self._settings[SKIP_EMPTY_BATCHES],
        )

    def _input_services(self) -> InputServices:
        return InputServices(
            post_event=self._bus.post,
            is_fenced=lambda: self.is_fenced,
            received_blocks=self._received or NoReceivedBlocks(),
            open_batches=self.lifecycle.in_line,
            last_batches=self._opened.last_batches,
        )

    # -- the start

    def start(self) -> None:
        """Start the receivers and the batches.

        Blocks until the first pending and missed batches are submitted and the batch timer runs. After an error, call `stop`.

        Raises:
            CheckpointError: the stored data cannot be used.
            StorageError: the store failed.
            Exception: an input or an output could not start.
        """
        opened, contents = self._opened, self._opened.contents
        self._recover_received()
        self._scheduler.start()
        if self.allocation is not None:
            self._bus.add(self.allocation)
        self._bus.start()
        self._bus.post(StreamingListenerStreamingStarted(self._clock.time_ms()))
        if self._received is not None:
            self._received.start(partial(self._scheduler.report_error, "a receiver does not start"))
        restore_outputs(self._graph, self._store, self.epoch, contents)
        if contents is not None and contents.meta is not None and contents.has_begun and contents.last_planned is not None:
            self._jump(contents.last_planned)
            self._generator.restart(contents.meta, contents, opened.streams, contents.last_planned)
        else:
            self._generator.start_first_time(opened.zero_time(self._generator.first_zero_time()))
        self._opened = replace(opened, streams={})  # the streams have their plans; here they would be kept for good
        if self.allocation is not None:
            self.allocation.start()

    def _recover_received(self) -> None:
        """Recover the blocks that earlier drivers have received. Blocks on the store."""
        if self._received is None:
            return
        opened = self._opened
        stored = [opened.streams[stream.id] for stream in self._receiver_streams() if stream.id in opened.streams]
        self._received.recover({id for found in stored for plan in found.plans.values() for id in plan.block_ids}, opened.stream_now)

    def _jump(self, last_planned: Time) -> None:
        """Set a settable clock to the last planned batch plus `spark.streaming.manualClock.jump`: a test gives the downtime by it."""
        jump = self._settings[CLOCK_JUMP]
        if jump is not None and isinstance(self._clock, SettableClock):
            self._clock.set_time(max(self._clock.time_ms(), last_planned.milliseconds + jump))

    # -- what it knows

    @property
    def epoch(self) -> int:
        """The epoch of this driver; 0 without a checkpoint directory. Any thread."""
        return self._opened.log.epoch

    @property
    def is_fenced(self) -> bool:
        """Whether this driver has found that another one has taken over. Any thread."""
        return self._generator.is_fenced

    def newest_succeeded(self) -> Time | None:
        """Return the newest batch that was planned, if all planned batches have succeeded; else None. Any thread."""
        return None if self.lifecycle.unfinished() else self.lifecycle.newest_planned()

    def rates(self) -> dict[int, int]:
        """Return the rate that back-pressure has computed last for each input, by stream id; none before the first. Any thread."""
        return {each.stream_id: each.latest_rate for each in self._rate_controllers if each.latest_rate >= 0}

    def snapshot(self) -> EngineSnapshot:
        """Return what is known at this moment. Any thread; asks nobody, and never blocks for long."""
        return EngineSnapshot(
            epoch=self.epoch,
            is_fenced=self.is_fenced,
            last_planned=self._last_planned(),
            pending=self.lifecycle.pending(),
            retries=self.lifecycle.retries,
            rates=self.rates(),
            lags=self._lags.lags(),
            state_error=self._states.write_error,
            outage=self._generator.outage,
            waiting_blocks=self._waiting_blocks(),
            allocations=() if self.allocation is None else self.allocation.recent(),
        )

    def _waiting_blocks(self) -> int | None:
        """Return the number of received blocks that are in no batch; None without receivers."""
        return None if self._received is None else self._received.waiting_blocks()

    def _last_planned(self) -> Time | None:
        """Return the newest batch that has a plan, of this driver or an earlier one; None before the first."""
        contents = self._opened.contents
        before = None if contents is None else contents.last_planned
        return max((time for time in (before, self.lifecycle.newest_planned()) if time is not None), default=None)

    def receivers_on_executors(self) -> Mapping[str, int]:
        """Return how many receivers run on an executor, or may start there, by executor id. Any thread."""
        return {} if self._received is None else self._received.receivers_on_executors()

    def wait_idle(self, timeout: float) -> bool:
        """Block until every batch that is due has ended, and listeners have got its events. Any thread. Called after `start`.

        Returns at once on a thread of the engine (a job, a function of `transform`, a listener), because that thread would wait for itself.
        Returns early if the engine is stopped or fenced.

        Args:
            timeout: seconds for the batches.

        Returns:
            False if the timeout passed first.
        """
        if self.is_own_thread():
            return True
        end = self._runtime.monotonic() + timeout
        if not self._generator.drain(timeout):
            return False
        starts = -1
        # A job may move the clock, and so make more batches due; an end may let a held batch start.
        while starts != self.lifecycle.starts:
            starts = self.lifecycle.starts
            while not self.lifecycle.wait_none_running(0.05):
                if self._scheduler.refuses_jobs:
                    return True
                if self._runtime.monotonic() > end:
                    return False
            if not (self._scheduler.drain(timeout) and self._generator.drain(timeout)):
                return False
        return True

    def timer_threads(self) -> list[Thread]:
        """Return the threads that wait on the clock; none before the start and after the end."""
        allocation = None if self.allocation is None else self.allocation.timer_thread()
        timers = self._generator.timer_threads()
        return timers if allocation is None else [*timers, allocation]

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a batch, in a function of `transform` or in a listener. A stop waits for all of these."""
        return self._generator.is_own_thread() or self._scheduler.is_own_thread() or self._bus.is_own_thread()

    # -- the stop

    def stop(self, graceful: bool, timeout: float | None = None) -> None:
        """Stop the executor allocation, the receivers, the generator, the jobs and the listeners, in this order. Blocks until all have
        stopped.

        No executor ends while receivers store their last blocks. Receivers and generator stop before the jobs, so that no new data comes.
        Listeners stop last, so that they get the last events. May be called before `start` and after one that failed, too.

        Args:
            graceful: plan all received data, and wait until every batch has ended. Otherwise no queued job starts.
            timeout: seconds for the receivers, and again for the batches. None is `UnfinishedWork.patience` for a graceful stop, else 2 s.

        Raises:
            Exception: the first error of a part. The others are stopped nevertheless.
        """
        graceful = graceful and not self._was_cut_short
        if timeout is None:
            timeout = self._unfinished.patience() if graceful else _CUT_S
        run_each(
            partial(self._stop_batches, graceful, timeout),
            *(output.stop for output in self._graph.outputs()),
            self._received and self._received.close,
            self._bus.stop,
            self.allocation and partial(self._bus.remove, self.allocation),
        )

    def _stop_batches(self, graceful: bool, timeout: float) -> None:
        """Stop the executor allocation, the receivers, the generator and the jobs. Arguments and errors as of `stop`."""
        in_time = False

        def stop_generator() -> None:
            nonlocal in_time
            began = self._runtime.monotonic()
            waiting = (lambda: False) if self._received is None else self._received.has_unallocated_blocks
            in_time = self._generator.stop(graceful, timeout, waiting)
            if not in_time and not self._scheduler.refuses_jobs:
                self._tell_of_the_rest(self._runtime.monotonic() - began)

        run_each(
            None if graceful else partial(self._scheduler.refuse_jobs, cut_short=True),
            self.allocation and self.allocation.stop,
            self._received and partial(self._received.stop, timeout),
            stop_generator,
            lambda: self._scheduler.stop(graceful and in_time, min(timeout, _CUT_S)),
        )

    def _tell_of_the_rest(self, waited: float) -> None:
        """Log what a graceful stop has not finished after it `waited` so many seconds, and whether a restart runs it."""
        left = left_in_words(self.lifecycle.open(), self._waiting_blocks() or 0, waited)
        if self._unfinished.outlives_driver:
            logger.warning("Graceful stop: %s. The next start runs the rest.", left)
        else:
            logger.error("Graceful stop: %s. No restart can run the rest: %s.", left, self._unfinished.why_lost())

    def cut_short(self) -> None:
        """Make a graceful stop that runs end at once: no queued job starts, and running jobs get 2 s. Any thread; returns at once."""
        self._was_cut_short = True
        self._scheduler.refuse_jobs(cut_short=True)
        self._generator.cut_short()

    @property
    def was_cut_short(self) -> bool:
        """Whether `cut_short` was called. Any thread."""
        return self._was_cut_short

    # -- what its parts call

    def _clean_received(self, required: RequiredBatches) -> None:
        """Remove received blocks of batches that are not required. Blocks; called on the cleaner's thread."""
        if self._received is not None:
            self._received.clean_up(required)

    def _measured(self, info: BatchInfo) -> None:
        """Pass the figures of a batch that has ended to the inputs that adapt their rate. An error of an estimator is logged."""
        for controller in self._rate_controllers:
            try:
                controller.batch_completed(info)
            except Exception:
                logger.exception("the rate of input %d could not be computed after batch %s", controller.stream_id, info.batch_time)


def restore_outputs(graph: DStreamGraph, store: FileStore | None, epoch: int, contents: LogContents | None) -> None:
    """Call `restore` of each output that takes part in the life of a batch. Blocks on the store; asks nothing without such an output.

    Args:
        graph: the streams.
        store: the checkpoint; None without a checkpoint directory.
        epoch: that of the driver that starts.
        contents: those of the log; None without a checkpoint directory.

    Raises:
        CorruptRecordError: the record of an epoch is damaged.
        StorageError: the store failed.
        Exception: an output cannot take over.
    """
    outputs = graph.outputs()
    if not outputs:
        return
    if store is None or contents is None:
        writer, stored = Writer("", epoch, "", lambda _: None, lambda _time, _nonce: False), dict[str, Json]()
    else:
        writer = _writer(store, epoch, contents)
        stored = _newest_outcomes(store, contents, {output.name for output in outputs})
    for output in outputs:
        output.restore(writer, stored.get(output.name))


def _writer(store: FileStore, epoch: int, contents: LogContents) -> Writer:
    def nonce_of(number: int) -> str | None:
        try:
            return nonce_of_epoch(store, number)
        except MissingFileError:
            return None

    def knows(time: Time, nonce: str) -> bool:
        plan = contents.plans.get(time)
        return in_settled(time, contents.settled) if plan is None else plan.nonce == nonce

    job, nonce = nonce_of_epoch(store, FIRST_EPOCH), nonce_of_epoch(store, epoch)
    return Writer(job, epoch, nonce, nonce_of, knows, contents.given_up | (forgotten(store) - contents.plans.keys()))


def _newest_outcomes(store: FileStore, contents: LogContents, wanted: set[str]) -> dict[str, Json]:
    """Return the newest stored outcome of each of these outputs that has one: a read for each completion, until all are found.

    A damaged completion is a warning: its batch has ended, and an older one may tell as much.
    """
    found: dict[str, Json] = {}
    for time in sorted(contents.done, reverse=True):
        plan = contents.plans[time]
        if found.keys() == wanted or not wanted & set(plan.outputs):
            continue
        try:
            completion = read_completion(store, time, plan.epoch)
        except (CorruptRecordError, FormatVersionError) as e:
            logger.warning("the completion of batch %s cannot be read, so outputs are restored from an older one: %s", time, e)
            continue
        for name, value in () if completion is None else completion.outputs.items():
            if name in wanted:
                found.setdefault(name, value)
    return found

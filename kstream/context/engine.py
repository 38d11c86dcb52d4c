"""Engine: makes the parts of a started context, connects them, and starts and stops them.

The StreamingContext owns the API and the state of the context; the engine owns the threads. An engine serves one start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kstream.batch import BatchPlan, Json, PlannedInput, events
from kstream.batch_time import Duration, Time
from kstream.checkpoint import LogContents, Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.binding import (
    DROPPED,
    TOPICS,
    Binding,
    Names,
    bind,
    binding_of,
    called,
    mappings,
    names_of,
    not_allowed,
    rebound,
    renumbered,
)
from kstream.checkpoint.input_records import KeptOffsets, write_kept
from kstream.checkpoint.missing_plans import Skipped, check_no_plan_is_missing, has_gap
from kstream.checkpoint.reader import check_meta, delete_superseded, newest_plan, read_meta, record_takeover, write_meta
from kstream.clock import Clock, SettableClock
from kstream.conf import Settings
from kstream.dstream import DStreamGraph, InputDStream, ReceiverInputDStream
from kstream.dstream.ports import InputServices
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.dstream.receiver_input_dstream import WRITE_AHEAD_LOG
from kstream.errors import (
    AlreadyExistsError,
    FencedError,
    IntervalChangedError,
    NotRecoverableError,
    StreamVanishedError,
    TopicsChangedError,
)
from kstream.loop import THREADS, Runtime, Thread
from kstream.receiver import Receiver
from kstream.scheduler import JobGenerator, JobGeneratorParts, JobScheduler, JobSchedulerParts, StreamingListenerBus
from kstream.scheduler.completions import Completions
from kstream.scheduler.downtime import listed
from kstream.scheduler.graceful_stop import PATIENCE_INTERVALS
from kstream.scheduler.no_log import NoLog
from kstream.scheduler.ports import JobEnvironment, StatePort, check_concurrent_jobs
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches
from kstream.storage import FileStore

logger = logging.getLogger(__name__)
_CUT_S = 2.0
"""Seconds for each waiting phase of a stop that is not graceful, and for running jobs after a graceful stop that did not finish."""
AN_HOUR_S = 3600.0
"""The default timeout of a graceful stop, if no restart can run unfinished work. It applies to the receivers, then to the batches."""
MakeReceivedBlocks = Callable[[Mapping[int, Receiver], FileStore | None, "PlanLog | NoLog"], ReceivedBlocks]
"""(receivers by stream id, the checkpoint's store, its log) → the ReceivedBlocks that runs the receivers."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose writer this driver is. `contents` are those of its log, rebound; None without a checkpoint directory."""

    log: PlanLog | NoLog
    contents: LogContents | None
    followed: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    """Epoch → the numbers that the streams of that driver's graph have now (number then → number now)."""

    @property
    def plans(self) -> Iterable[BatchPlan]:
        """The plans of earlier drivers; none without a checkpoint directory."""
        return () if self.contents is None else self.contents.plans.values()

    def stream_now(self, epoch: int, stream: int) -> int | None:
        """Return the number that a stream of an earlier driver has now; None if it is gone.

        A driver that died before its first plan has stored no graph. Its streams keep their numbers.
        """
        return self.followed[epoch].get(stream) if epoch in self.followed else stream


class Engine:
    """Starts and stops the parts of one context.

    A start opens the log and takes an epoch, then starts the JobScheduler, the listener bus, the receivers, the inputs and the batch timer,
    in this order. See `stop` for the order of a stop.

    Threads: the caller holds the context's lock for `open`, `start` and `stop`. The other public methods may be called from any thread.
    """

    def __init__(
        self,
        settings: Settings,
        environment: JobEnvironment,
        graph: DStreamGraph,
        clock: Clock,
        bus: StreamingListenerBus,
        store: FileStore | None,
        on_error: Callable[[str, BaseException], None],
        on_fenced: Callable[[FencedError], None],
        on_exhausted: Callable[[], None] = lambda: None,
        runtime: Runtime = THREADS,
        state_port: Callable[[FileStore, int], StatePort] | None = None,
        received: MakeReceivedBlocks | None = None,
    ) -> None:
        """
        Args:
            settings: those of the context.
            environment: prepares threads for Spark jobs.
            graph: the streams.
            clock: the clock of batch times.
            bus: the listener bus; the engine starts and stops it.
            store: the checkpoint; None without a checkpoint directory.
            on_error: on_error(message, error) gets every error of a batch, on the JobScheduler's event thread.
            on_fenced: on_fenced(error) is called once, when this driver finds that another one has taken over.
            on_exhausted: called once, at the end of a bounded run, on the JobGenerator's thread.
            runtime: makes threads, queues and events.
            state_port: state_port(store, epoch) makes the writer and reader of state; None only for a graph without state.
            received: makes the ReceivedBlocks; None runs no receivers.

        Raises:
            ConfigurationError: the number of concurrent jobs cannot work.
        """
        self._settings = settings
        self._state_port = state_port
        self._make_received = received
        self._received: ReceivedBlocks | None = None
        self._runtime = runtime
        self._graph = graph
        self._clock = clock
        self._bus = bus
        self._store = store
        self._on_error = on_error
        self._on_fenced = on_fenced
        self._on_exhausted = on_exhausted
        self._concurrent_jobs = check_concurrent_jobs(settings.get("spark.streaming.concurrentJobs"))
        self._environment = environment
        self._generator: JobGenerator | None = None
        self._scheduler: JobScheduler | None = None
        self._unfinished: UnfinishedBatches | None = None
        self._opened: _Opened | None = None

    def open(self) -> None:
        """Become the writer of the checkpoint and read its log. Blocks on the store. No batch is planned or run before `start`.

        After an error, call `stop`.

        Raises:
            ConfigurationError: a stream carries state, and there is no checkpoint directory.
            CheckpointError: the stored data cannot be used; see its subclasses.
            StorageError: the store failed.
        """
        self._graph.validate_at_start(checkpointing=self._store is not None)
        self._opened = self._open()

    def start(self) -> None:
        """Start the receivers and the batches. Calls `open` first, if that was not called.

        Blocks until all pending and missed batches are submitted and the batch timer runs. After an error, call `stop`.

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
        self._wire(opened.log)
        assert self._scheduler is not None and self._generator is not None
        self._scheduler.start()
        self._bus.start()
        self._bus.post(events.StreamingListenerStreamingStarted(self._clock.time_ms()))
        if self._received is not None:
            self._received.start()
        contents = opened.contents
        if contents is not None and contents.meta is not None and contents.has_begun and contents.last_planned is not None:
            self._jump(contents.last_planned)
            self._generator.restart(contents.meta.zero_time, contents, contents.last_planned)
        else:
            self._generator.start_first_time(self._zero_time())

    def _jump(self, last_planned: Time) -> None:
        """Set a settable clock to the last planned batch plus `spark.streaming.manualClock.jump`: a test gives the downtime by it."""
        jump = self._settings.get("spark.streaming.manualClock.jump")
        if jump is not None and isinstance(self._clock, SettableClock):
            self._clock.set_time(max(self._clock.time_ms(), last_planned.milliseconds + jump))

    def wait_idle(self, timeout: float) -> bool:
        """Block until every batch that is due has ended, and listeners have got its events. Any thread.

        Returns at once on a thread of the engine (a job, a function of `transform`, a listener), because that thread would wait for itself.
        Returns early if the engine is stopped or fenced.

        Args:
            timeout: seconds for the batches.

        Returns:
            False if the timeout passed first.
        """
        generator, scheduler, unfinished = self._generator, self._scheduler, self._unfinished
        if generator is None or scheduler is None or unfinished is None or self.is_own_thread():
            return True
        end = self._runtime.monotonic() + timeout
        quiet = False
        while not quiet:  # a job may move the clock, and so make more batches due
            if not generator.drain(timeout):
                return False
            quiet = not unfinished.running()
            while not unfinished.wait_none_running(0.05):
                if scheduler.refuses_jobs:
                    return True
                if self._runtime.monotonic() > end:
                    return False
            if not scheduler.drain(timeout):
                return False
        return generator.drain(timeout)

    def timer_thread(self) -> Thread | None:
        """Return the thread of the batch timer; None before its start and after its end."""
        return None if self._generator is None else self._generator.timer_thread()

    def is_own_thread(self) -> bool:
        """Return whether the caller runs in a batch, in a function of `transform` or in a listener. A stop waits for all of these."""
        if self._generator is None or self._scheduler is None:
            return False
        return self._generator.is_own_thread() or self._scheduler.is_own_thread() or self._bus.is_own_thread()

    def stop(self, graceful: bool, timeout: float | None = None) -> None:
        """Stop the receivers, the generator, the jobs and the listeners, in this order. Blocks until all have stopped.

        Receivers and generator stop first, so that no new data comes. Listeners stop last, so that they get the last events. May be called
        after a failed `open` or `start`, too.

        Args:
            graceful: plan all received data, and wait until every batch has ended. Otherwise no queued job starts.
            timeout: seconds for the receivers, and again for the batches. None is `patience` for a graceful stop, else 2 s.
        """
        if timeout is None:
            timeout = self.patience() if graceful else _CUT_S
        if self._generator is not None and self._scheduler is not None:
            if not graceful:
                self._scheduler.refuse_jobs()
            if self._received is not None:
                self._received.stop(timeout)
            began = self._runtime.monotonic()
            waiting = (lambda: False) if self._received is None else self._received.has_unallocated_blocks
            in_time = self._generator.stop(graceful, timeout, waiting)
            if not in_time and not self._scheduler.refuses_jobs:
                self._tell_of_the_rest(self._runtime.monotonic() - began)
            self._scheduler.stop(graceful and in_time, min(timeout, _CUT_S))
        if self._received is not None:
            self._received.close()
        self._bus.stop()

    def _waiting(self) -> int:
        """Return the number of received blocks that are in no batch."""
        return 0 if self._received is None else self._received.waiting_blocks()

    def _restart_runs_the_rest(self) -> bool:
        """Return whether a restart can run unfinished work: there is a checkpoint, and the data of every input outlives the driver."""
        return self._store is not None and all(stream.outlives_driver for stream in self._graph.active_inputs())

    def patience(self) -> float:
        """Return the timeout of a graceful stop in seconds. It applies to the receivers, then to the batches.

        The setting wins. Without it the timeout is ten batch intervals if a restart can run unfinished work, else an hour. Spark waits ten
        batch intervals, and an hour for jobs that it has submitted.
        """
        soon = PATIENCE_INTERVALS * self._graph.batch_duration.seconds
        said_ms = self._settings.get("spark.streaming.gracefulStopTimeout")
        if said_ms is not None:
            return said_ms / 1000
        return soon if self._restart_runs_the_rest() else AN_HOUR_S

    def _tell_of_the_rest(self, waited: float) -> None:
        """Log the batches and blocks that a graceful stop did not finish, and whether a restart runs them.

        Args:
            waited: how long it waited for the batches, in seconds.
        """
        assert self._unfinished is not None
        left = sorted(self._unfinished.running())
        rest = [f"{len(left)} {'batch' if len(left) == 1 else 'batches'} did not end within {waited:.1f} s: {listed(left)}"] if left else []
        blocks = self._waiting()
        if blocks:
            rest.append(f"{blocks} received {'block is' if blocks == 1 else 'blocks are'} in no batch after {waited:.1f} s")
        said = "; ".join(rest) or f"a batch was still being planned after {waited:.1f} s"
        if self._restart_runs_the_rest():
            logger.warning("Graceful stop: %s. The next start runs the rest.", said)
        else:
            logger.error("Graceful stop: %s. No restart can run the rest: %s.", said, self._why_the_rest_is_lost())

    def _why_the_rest_is_lost(self) -> str:
        """Return why no restart can run the unfinished work, and the remedy, for the log."""
        longer = "Set a longer spark.streaming.gracefulStopTimeout"
        if self._store is None:
            return f"there is no checkpoint directory. Set one (ssc.checkpoint). {longer}"
        lost = [stream for stream in self._graph.active_inputs() if not stream.outlives_driver]
        log = f" Set {WRITE_AHEAD_LOG}=true." if any(isinstance(stream, ReceiverInputDStream) for stream in lost) else ""
        return f"the data of {', '.join(map(repr, lost))} is lost with the driver.{log} {longer}"

    def _wire(self, log: PlanLog | NoLog) -> None:
        """Make the JobScheduler, the JobGenerator and their parts, and connect them. Starts nothing."""
        unfinished = self._unfinished = UnfinishedBatches(self._runtime)
        states = StateCheckpointer(self._graph, self._store, log.epoch, log.probe, lambda: self._make_state_port(log.epoch))
        # The generator has the scheduler as a part; the scheduler reaches the generator only by this callback.
        completions = Completions(log, states, unfinished, self._graph.outcomes, self._batch_ended)
        self._scheduler = JobScheduler(
            JobSchedulerParts(
                clock=self._clock,
                log=log,
                environment=self._environment,
                listener_bus=self._bus,
                completions=completions,
                states=states,
                on_error=self._on_error,
                runtime=self._runtime,
            ),
            self._concurrent_jobs,
            max_wait_ms=self._graph.batch_duration.milliseconds,
        )
        self._generator = JobGenerator(
            JobGeneratorParts(
                graph=self._graph,
                clock=self._clock,
                log=log,
                scheduler=self._scheduler,
                environment=self._environment,
                unfinished=unfinished,
                states=states,
                services=InputServices(self._bus.post, self._is_fenced, self._received or NoReceivedBlocks()),
                runtime=self._runtime,
                on_fenced=self._on_fenced,
                on_exhausted=self._on_exhausted,
                before_clean=self._clean_received,
                max_batch_failures=self._settings.get("spark.streaming.kstream.maxBatchFailures"),
            )
        )

    def _is_fenced(self) -> bool:
        """Return whether this driver has found that another one has taken over. Any thread."""
        return self._generator is not None and self._generator.is_fenced

    def _clean_received(self, up_to: Time) -> None:
        """Remove received blocks of plans of this time and older. Blocks; called on the cleaner's thread."""
        if self._received is not None:
            self._received.clean_up(up_to)

    def _make_receivers(self, opened: _Opened) -> ReceivedBlocks | None:
        """Make the ReceivedBlocks of the receiver streams, and recover the blocks of earlier drivers. Blocks on the store.

        Returns:
            None if no output needs a receiver stream.
        """
        streams = [stream for stream in self._graph.active_inputs() if isinstance(stream, ReceiverInputDStream)]
        if not streams or self._make_received is None:
            return None
        received = self._make_received({stream.id: stream.receiver for stream in streams}, self._store, opened.log)
        stored = [stream.decode(plan.inputs[stream.id]) for plan in opened.plans for stream in streams if stream.id in plan.inputs]
        received.recover({block_id for plan in stored for block_id in plan.block_ids}, opened.stream_now)
        return received

    def _make_state_port(self, epoch: int) -> StatePort:
        """Make the writer and reader of state. Called only for a graph with state."""
        assert self._store is not None and self._state_port is not None
        return self._state_port(self._store, epoch)

    def _batch_ended(self, time: Time) -> None:
        """Pass the end of a batch to the JobGenerator. Any thread; returns at once."""
        assert self._generator is not None
        self._generator.on_batch_end(time)

    # -- the checkpoint

    def _open(self) -> _Opened:
        """Become the writer of the checkpoint, then read its log. Blocks on the store.

        The epoch is taken before the log is read. So no older driver can submit a batch whose plan is not in the log that was read. The
        newest plan is checked before that, so that a job that cannot continue from this checkpoint fences no running driver.

        Raises:
            CheckpointError: the stored data cannot be used; see its subclasses.
            StorageError: the store failed.
        """
        if self._store is None:
            return _Opened(NoLog(), None)
        newest = newest_plan(self._store)  # check first: a start that fails must not fence a running driver
        meta = read_meta(self._store)
        check_meta(self._store, meta, None if newest is None else newest.time)
        self._check_interval(meta)
        gap = has_gap(self._store, self._graph.batch_duration)
        if newest is not None and (gap or not self._goes_on_from(newest)):  # the newest plan may be a stray plan; the whole log shows that
            found = read_log(self._store)
            self._check_holes(rebound(found, self._check_streams(found).now))
        epoch = take_epoch(self._store, self._clock.time_ms())
        contents = read_log(self._store)
        check_meta(self._store, contents.meta, contents.last_planned)
        self._check_interval(contents.meta)
        binding = self._check_streams(contents)
        stored = rebound(contents, binding.now)
        self._check_holes(stored)
        record_takeover(self._store, contents, epoch)
        found = self._keep_left_behind(epoch, stored)
        delete_superseded(self._store, contents, epoch)
        log = PlanLog(self._store, epoch, contents, self._runtime.lock(), self._history())
        if contents.has_begun:
            level = logging.INFO if binding.unchanged else logging.WARNING
            text = "checkpoint %s: the job continues after batch %s:\n%s"
            logger.log(level, text, self._store.url, contents.last_planned, binding.report())
        self._warn_of_unneeded(binding, stored)
        return _Opened(log, found, mappings(contents.plans.values(), binding.now))

    def _check_holes(self, contents: LogContents) -> None:
        """Raise MissingPlanError if a plan is missing whose records are in no other plan. `contents` are rebound."""
        assert self._store is not None
        skipped = {stream.id: stored_skipped_between(stream) for stream in self._graph.active_inputs()}
        check_no_plan_is_missing(self._store, contents, self._graph.batch_duration, skipped)

    def _streams(self) -> Names:
        """Return the inputs of this job that an output needs: number → name, None without a name."""
        names = self._graph.input_names()
        return {stream.id: names.get(stream.id) for stream in self._graph.active_inputs()}

    def _allowed(self) -> list[str]:
        """Return the words of `spark.streaming.kstream.recovery.allow`."""
        return [word.strip() for word in self._settings.get("spark.streaming.kstream.recovery.allow").split(",")]

    def _goes_on_from(self, newest: BatchPlan) -> bool:
        """Return whether the newest plan alone shows that this job may continue from the checkpoint."""
        now = self._streams()
        binding = bind(names_of(newest), now)
        inputs = renumbered(newest, binding.matched, now).inputs
        streams = [stream for stream in self._graph.active_inputs() if stream.id in inputs]
        try:
            return not not_allowed(binding, self._allowed()) and not any(s.reads_nothing_of(s.decode(inputs[s.id]), None) for s in streams)
        except NotRecoverableError:  # `_check_streams` raises it again, unless this is a stray plan
            return False

    def _check_streams(self, contents: LogContents) -> Binding:
        """Bind the stored streams to those of this job. Words of `recovery.allow` prevent the first two errors.

        Raises:
            StreamVanishedError: the job lacks a stream whose offsets are stored.
            TopicsChangedError: a stream reads none of the topics whose offsets are stored for it.
            NotRecoverableError: the stored data of a stream belongs to another kind of input.
        """
        assert self._store is not None
        binding = binding_of(contents, self._streams())
        lost = not_allowed(binding, self._allowed())
        if lost:
            option = " ".join(f"--allow dropped:{name}" for name in lost)
            raise StreamVanishedError(
                f"{self._store.url} has offsets of streams that feed no output of this job: {', '.join(lost)} (a number is the position of "
                "a stream without a name). Put them back, under the name they had (DStream.setName). Or, to forget their offsets: "
                f"`kstream run {option}`, or spark.streaming.kstream.recovery.allow={','.join('dropped:' + name for name in lost)}. "
                f"The streams now:\n{binding.report()}",
                path=self._store.url,
                streams=lost,
            )
        self._check_topics(rebound(contents, binding.now), binding)
        return binding

    def _check_topics(self, contents: LogContents, binding: Binding) -> None:
        """Raise TopicsChangedError if a stream reads nothing of its stored data, unless `recovery.allow` permits it."""
        assert self._store is not None
        words = {TOPICS + called(binding.now, number): why for number, why in self._other_topics(contents).items()}
        refused = [word for word in words if word not in self._allowed()]
        if refused:
            option = " ".join(f"--allow {word}" for word in refused)
            raise TopicsChangedError(
                f"{self._store.url} seems to be the checkpoint of another job: {'; '.join(words[word] for word in refused)}. Start the job "
                f"with its own checkpoint directory. Or, if it shall read other topics from now on: `kstream run {option}`, or "
                f"spark.streaming.kstream.recovery.allow={','.join(refused)} (the stored offsets are kept for later).",
                path=self._store.url,
                streams=[word.removeprefix(TOPICS) for word in refused],
            )

    def _other_topics(self, contents: LogContents) -> dict[int, str]:
        """Return the streams of this job that read nothing of their stored data: number → the reason, in words."""
        found: dict[int, str] = {}
        for stream in self._graph.active_inputs():
            stored = _stored(contents, stream)
            why = "" if stored is None else stream.reads_nothing_of(*stored)
            if why:
                found[stream.id] = f"stream {called(self._streams(), stream.id)} {why}"
        return found

    def _warn_of_unneeded(self, binding: Binding, contents: LogContents) -> None:
        """Warn of words of `recovery.allow` that this start does not need: the name may be misspelt."""
        needed = {DROPPED + called(binding.stored, number) for number in binding.vanished}
        needed |= {TOPICS + called(binding.now, number) for number in self._other_topics(contents)}
        unneeded = [word for word in self._allowed() if word and word not in needed]
        if unneeded:
            logger.warning(
                "recovery.allow contains %s, which this start does not need: check the name, or remove the word", ", ".join(unneeded)
            )

    def _keep_left_behind(self, epoch: int, contents: LogContents) -> LogContents:
        """Store the kept offsets: those of partitions that the stored plans have and the next plans will not have. Blocks on the store.

        Args:
            epoch: this driver's.
            contents: of the log, rebound.

        Returns:
            The contents with the new kept offsets.
        """
        assert self._store is not None
        inputs: dict[int, Mapping[str, Json]] = {}
        for stream in self._graph.active_inputs():
            stored = _stored(contents, stream)
            left = None if stored is None else stream.left_behind(*stored)
            if left is not None:
                inputs[stream.id] = left.encode()
        kept = KeptOffsets(epoch, self._streams(), inputs)
        if inputs or contents.kept_offsets is not None:
            write_kept(self._store, kept)
        return replace(contents, kept_offsets=kept)

    def _history(self) -> Duration:
        """Return how long plans that no restart needs are kept."""
        return Duration(self._settings.get("spark.streaming.kstream.history"))

    def _check_interval(self, meta: Meta | None) -> None:
        """Raise IntervalChangedError if the stored batch interval differs from this job's."""
        given = self._graph.batch_duration
        if meta is not None and meta.interval != given:
            assert self._store is not None
            raise IntervalChangedError(
                f"{self._store.url} was written with a batch interval of {meta.interval}, this context has {given}: use the stored "
                "interval, or a new checkpoint directory",
                path=self._store.url,
                stored_ms=meta.interval.milliseconds,
                given_ms=given.milliseconds,
            )

    def _zero_time(self) -> Time:
        """Return the zero time of a stream without plans, and store it before the first plan. So all drivers have the same zero time.

        Raises:
            IntervalChangedError: another driver has stored a different batch interval.
            StorageError: the store failed.
        """
        assert self._generator is not None
        zero = self._generator.first_zero_time()
        if self._store is None:
            return zero
        try:
            write_meta(self._store, Meta(zero, self._graph.batch_duration))
            return zero
        except AlreadyExistsError:  # an earlier or concurrent driver stored it and has planned nothing: its zero time holds
            meta = read_meta(self._store)
            assert meta is not None
            self._check_interval(meta)
            return meta.zero_time


def _stored(contents: LogContents, stream: InputDStream) -> tuple[PlannedInput, PlannedInput | None] | None:
    """Return the newest stored plan of a stream and its kept offsets; None without a plan.

    Raises:
        NotRecoverableError: the stored data belongs to another kind of input.
    """
    newest, kept = contents.newest_data(stream.id), contents.kept_data(stream.id)
    return None if newest is None else (stream.decode(newest[1]), None if kept is None else stream.decode(kept))


def stored_skipped_between(stream: InputDStream) -> Skipped:
    """Return the `skipped_between` of a stream as a function of two encoded plans.

    For plans of another kind of input the function returns nothing. The start checks the newest plan separately.
    """

    def skipped(before: Mapping[str, Json], after: Mapping[str, Json]) -> Sequence[str]:
        try:
            plans = stream.decode(before), stream.decode(after)
        except NotRecoverableError:
            return ()
        return stream.skipped_between(*plans)

    return skipped

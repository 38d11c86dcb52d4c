"""Engine: the moving parts of one started context, made at start and wired to each other.

The context owns the API and the states; the engine owns threads. It is made for one start and never used again after `stop`.
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
"""For jobs that run, when they are not waited for."""
AN_HOUR_S = 3600.0
"""So long what no restart could run is waited for, twice: for receivers to end, and for batches."""
MakeReceivedBlocks = Callable[[Mapping[int, Receiver], FileStore | None, "PlanLog | NoLog"], ReceivedBlocks]
"""(receivers by stream, the checkpoint's store, its log) → what runs them."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint this driver has become the writer of. `contents` is None without a checkpoint directory."""

    log: PlanLog | NoLog
    contents: LogContents | None
    followed: Mapping[int, Mapping[int, int]] = field(default_factory=dict[int, Mapping[int, int]])
    """Epoch → where the streams of that driver's graph are now."""

    @property
    def plans(self) -> Iterable[BatchPlan]:
        return () if self.contents is None else self.contents.plans.values()

    def stream_now(self, epoch: int, stream: int) -> int | None:
        """Which stream it is now; of a driver that died before its first plan nothing is known, and its streams are where they are now."""
        return self.followed[epoch].get(stream) if epoch in self.followed else stream


class Engine:
    """Starts: log opened (epoch taken) → event loop and bus → inputs → generator. Stops in the opposite order."""

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
        """`state_port(store, epoch)` makes what writes and reads state. `received` makes what runs receivers and keeps their blocks. None,
        in a test: there are none."""
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
        """Become the writer of the checkpoint and read its log. No batch is planned or run before `start`. On an error: call `stop`."""
        self._graph.validate_at_start(checkpointing=self._store is not None)
        self._opened = self._open()

    def start(self) -> None:
        """Start receivers and batches, after `open` where that was not called. Returns when batches are being generated.

        On an error: call `stop`.
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
        """spark.streaming.manualClock.jump, with which a test says how long the driver was down."""
        jump = self._settings.get("spark.streaming.manualClock.jump")
        if jump is not None and isinstance(self._clock, SettableClock):
            self._clock.set_time(max(self._clock.time_ms(), last_planned.milliseconds + jump))

    def wait_idle(self, timeout: float) -> bool:
        """Blocks until every batch that was due has ended and listeners have heard of it; False if `timeout` seconds passed first.

        True at once from a thread of the engine's own – a job, a function of `transform`, a listener – which could not wait for itself;
        and as soon as the engine has been stopped or fenced.
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
        """The thread of the batch timer, while it ticks."""
        return None if self._generator is None else self._generator.timer_thread()

    def is_own_thread(self) -> bool:
        """Whether the caller runs in a batch, in a function of `transform` or in a listener, which a stop would wait for."""
        if self._generator is None or self._scheduler is None:
            return False
        return self._generator.is_own_thread() or self._scheduler.is_own_thread() or self._bus.is_own_thread()

    def stop(self, graceful: bool, timeout: float | None = None) -> None:
        """Receivers first, then the generator, so that nothing new comes; then the jobs; listeners last, so that they hear the end.

        Graceful: what has been received gets into a batch, so the timer ticks on until it has. The receivers, and then the batches, have
        `timeout` seconds to end; None: the setting, or as long as what cannot be had again asks for.
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
        """How many received blocks are in no batch."""
        return 0 if self._received is None else self._received.waiting_blocks()

    def _restart_runs_the_rest(self) -> bool:
        """Of a stop that did not wait: if there is a checkpoint, and all that was planned can be read again."""
        return self._store is not None and all(stream.outlives_driver for stream in self._graph.active_inputs())

    def patience(self) -> float:
        """Timeout of a graceful stop in seconds, once for receivers and once for batches.

        Spark waits ten batch intervals, and an hour for jobs that it has submitted.
        """
        soon = PATIENCE_INTERVALS * self._graph.batch_duration.seconds
        said_ms = self._settings.get("spark.streaming.gracefulStopTimeout")
        if said_ms is not None:
            return said_ms / 1000
        return soon if self._restart_runs_the_rest() else AN_HOUR_S

    def _tell_of_the_rest(self, waited: float) -> None:
        """Log the batches and blocks that a graceful stop has left, and whether a restart runs them."""
        assert self._unfinished is not None
        left = sorted(self._unfinished.running())
        rest = [f"{len(left)} {'batch' if len(left) == 1 else 'batches'} did not end within {waited:.1f} s: {listed(left)}"] if left else []
        blocks = self._waiting()
        if blocks:
            rest.append(f"{blocks} received {'block is' if blocks == 1 else 'blocks are'} in no batch after {waited:.1f} s")
        said = "; ".join(rest) or f"a batch was still being planned after {waited:.1f} s"
        if self._restart_runs_the_rest():
            logger.warning("Graceful stop: %s. The next start runs what is left.", said)
        else:
            logger.error("Graceful stop: %s. No restart can run what is left: %s.", said, self._why_the_rest_is_lost())

    def _why_the_rest_is_lost(self) -> str:
        """Why no restart can run what is left, and what to do about it."""
        longer = "Set a longer spark.streaming.gracefulStopTimeout"
        if self._store is None:
            return f"there is no checkpoint directory. Set one (ssc.checkpoint). {longer}"
        lost = [stream for stream in self._graph.active_inputs() if not stream.outlives_driver]
        log = f" Set {WRITE_AHEAD_LOG}=true." if any(isinstance(stream, ReceiverInputDStream) for stream in lost) else ""
        return f"the data of {', '.join(map(repr, lost))} is lost with the driver.{log} {longer}"

    def _wire(self, log: PlanLog | NoLog) -> None:
        unfinished = self._unfinished = UnfinishedBatches(self._runtime)
        states = StateCheckpointer(self._graph, self._store, log.epoch, log.probe, lambda: self._make_state_port(log.epoch))
        # The scheduler and the generator know each other; the scheduler only by this callback.
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
        return self._generator is not None and self._generator.is_fenced

    def _clean_received(self, up_to: Time) -> None:
        if self._received is not None:
            self._received.clean_up(up_to)

    def _make_receivers(self, opened: _Opened) -> ReceivedBlocks | None:
        """What runs the receivers of the streams, with the blocks that an earlier driver's have stored."""
        streams = [stream for stream in self._graph.active_inputs() if isinstance(stream, ReceiverInputDStream)]
        if not streams or self._make_received is None:
            return None
        received = self._make_received({stream.id: stream.receiver for stream in streams}, self._store, opened.log)
        stored = [stream.decode(plan.inputs[stream.id]) for plan in opened.plans for stream in streams if stream.id in plan.inputs]
        received.recover({block_id for plan in stored for block_id in plan.block_ids}, opened.stream_now)
        return received

    def _make_state_port(self, epoch: int) -> StatePort:
        assert self._store is not None and self._state_port is not None
        return self._state_port(self._store, epoch)

    def _batch_ended(self, time: Time) -> None:
        assert self._generator is not None
        self._generator.on_batch_end(time)

    # -- the checkpoint

    def _open(self) -> _Opened:
        """Becomes the writer, then reads: nobody older can submit anything that is not seen now."""
        if self._store is None:
            return _Opened(NoLog(), None)
        newest = newest_plan(self._store)  # all of this before a running driver is fenced for nothing
        meta = read_meta(self._store)
        check_meta(self._store, meta, None if newest is None else newest.time)
        self._check_interval(meta)
        gap = has_gap(self._store, self._graph.batch_duration)
        if newest is not None and (gap or not self._goes_on_from(newest)):  # the newest may be a stray: only the whole log says
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
            logger.log(level, "going on from %s after batch %s:\n%s", self._store.url, contents.last_planned, binding.report())
        self._warn_of_unneeded(binding, stored)
        return _Opened(log, found, mappings(contents.plans.values(), binding.now))

    def _check_holes(self, contents: LogContents) -> None:
        assert self._store is not None
        skipped = {stream.id: stored_skipped_between(stream) for stream in self._graph.active_inputs()}
        check_no_plan_is_missing(self._store, contents, self._graph.batch_duration, skipped)

    def _streams(self) -> Names:
        names = self._graph.input_names()
        return {stream.id: names.get(stream.id) for stream in self._graph.active_inputs()}

    def _allowed(self) -> list[str]:
        return [word.strip() for word in self._settings.get("spark.streaming.kstream.recovery.allow").split(",")]

    def _goes_on_from(self, newest: BatchPlan) -> bool:
        """Whether the newest plan alone shows that this job may go on from the checkpoint."""
        now = self._streams()
        binding = bind(names_of(newest), now)
        inputs = renumbered(newest, binding.matched, now).inputs
        streams = [stream for stream in self._graph.active_inputs() if stream.id in inputs]
        try:
            return not not_allowed(binding, self._allowed()) and not any(s.reads_nothing_of(s.decode(inputs[s.id]), None) for s in streams)
        except NotRecoverableError:  # raised again by `_check_streams` if the plan is no stray
            return False

    def _check_streams(self, contents: LogContents) -> Binding:
        """Binds the stored streams to those of this job.

        Raises:
            StreamVanishedError: the job lacks a stream whose offsets are stored.
            TopicsChangedError: a stream reads none of the topics whose offsets are stored for it.
            NotRecoverableError: what is stored for a stream is of another kind of input.

        Words of `recovery.allow` prevent the first two errors.
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
                f"As it stands:\n{binding.report()}",
                path=self._store.url, streams=lost,
            )  # fmt: skip
        self._check_topics(rebound(contents, binding.now), binding)
        return binding

    def _check_topics(self, contents: LogContents, binding: Binding) -> None:
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
        """The streams of this job that read nothing of what is stored for them, with what they say of it."""
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
        """Stores the offsets of partitions that the plans to come will not have. `contents` is rebound; so is what is returned."""
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
        return Duration(self._settings.get("spark.streaming.kstream.history"))

    def _check_interval(self, meta: Meta | None) -> None:
        given = self._graph.batch_duration
        if meta is not None and meta.interval != given:
            assert self._store is not None
            raise IntervalChangedError(
                f"{self._store.url} was written with a batch interval of {meta.interval}, this context has {given}: use the stored "
                "interval, or a new checkpoint directory",
                path=self._store.url, stored_ms=meta.interval.milliseconds, given_ms=given.milliseconds,
            )  # fmt: skip

    def _zero_time(self) -> Time:
        """The zero time of a stream without plans: stored before anything is planned, so that all drivers agree on it."""
        assert self._generator is not None
        zero = self._generator.first_zero_time()
        if self._store is None:
            return zero
        try:
            write_meta(self._store, Meta(zero, self._graph.batch_duration))
            return zero
        except AlreadyExistsError:  # a driver before us, or beside us, came this far and planned nothing: its zero time holds
            meta = read_meta(self._store)
            assert meta is not None
            self._check_interval(meta)
            return meta.zero_time


def _stored(contents: LogContents, stream: InputDStream) -> tuple[PlannedInput, PlannedInput | None] | None:
    """The newest stored plan of a stream and what is kept for it. NotRecoverableError if that is of another kind of input."""
    newest, kept = contents.newest_data(stream.id), contents.kept_data(stream.id)
    return None if newest is None else (stream.decode(newest[1]), None if kept is None else stream.decode(kept))


def stored_skipped_between(stream: InputDStream) -> Skipped:
    """`skipped_between` for stored plans. Between plans of another kind of input it sees nothing: the newest plan has been checked."""

    def skipped(before: Mapping[str, Json], after: Mapping[str, Json]) -> Sequence[str]:
        try:
            plans = stream.decode(before), stream.decode(after)
        except NotRecoverableError:
            return ()
        return stream.skipped_between(*plans)

    return skipped

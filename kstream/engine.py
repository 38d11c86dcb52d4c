"""Engine: the moving parts of one started context, made at start and wired to each other.

The context owns the API and the states; the engine owns threads. It is made for one start and never used again after `stop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kstream.batch import events
from kstream.batch_time import Duration, Time
from kstream.checkpoint import LogContents, Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.reader import adopt, read_meta, tidy, write_meta
from kstream.clock import Clock
from kstream.conf import Settings
from kstream.dstream import DStreamGraph
from kstream.dstream.state_rdd import StateFiles
from kstream.errors import AlreadyExistsError, FencedError, IntervalChangedError
from kstream.loop import THREADS, Runtime
from kstream.scheduler import InputInfoTracker, JobGenerator, JobScheduler, StreamingListenerBus
from kstream.scheduler.no_log import NoLog
from kstream.scheduler.ports import JobEnvironment, StatePort, check_concurrent_jobs
from kstream.scheduler.state_checkpointer import StateCheckpointer
from kstream.scheduler.unfinished import UnfinishedBatches
from kstream.storage import FileStore
from kstream.storage.open import SINGLE_WRITER
from kstream.storage.worker_store import place_for_workers


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint this driver has become the writer of. `contents` is None without a checkpoint directory."""

    log: PlanLog | NoLog
    contents: LogContents | None


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
    ) -> None:
        """`state_port(store, epoch)` makes what writes and reads state; None: Spark does."""
        self._settings = settings
        self._state_port = state_port or self._spark_state_files
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

    def start(self) -> None:
        """Returns when batches are being generated. On an error: call `stop`."""
        self._graph.validate_at_start(checkpointing=self._store is not None)
        opened = self._open()
        self._wire(opened.log)
        for stream in self._graph.active_inputs():
            stream.tell = self._bus.post
        assert self._scheduler is not None and self._generator is not None
        self._scheduler.start()
        self._bus.start()
        self._bus.post(events.StreamingListenerStreamingStarted(self._clock.time_ms()))
        contents = opened.contents
        if contents is not None and contents.meta is not None and contents.has_begun and contents.last_planned is not None:
            self._generator.restart(contents.meta.zero_time, contents, contents.last_planned)
        else:
            self._generator.start_first_time(self._zero_time())

    def stop(self, graceful: bool, timeout: float) -> None:
        """Receivers first, then the generator, so that nothing new comes; then the jobs; listeners last, so that they hear the end.

        Graceful: what has been received gets into a batch, so the timer ticks on until it has.
        """
        if self._generator is not None and self._scheduler is not None:
            if not graceful:
                self._scheduler.refuse_jobs()
            waiting = [stream.stop_receiving(timeout) for stream in self._graph.active_inputs()] if graceful else []
            in_time = self._generator.stop(graceful, timeout, wait_for_tick=any(waiting))
            self._scheduler.stop(graceful and in_time, min(timeout, 2.0))
        self._bus.stop()

    def _wire(self, log: PlanLog | NoLog) -> None:
        unfinished = UnfinishedBatches(self._runtime)
        interval = self._graph.batch_duration.milliseconds
        states = StateCheckpointer(self._graph, self._store, log.epoch, log.probe, lambda: self._make_state_port(log.epoch))
        # The scheduler and the generator know each other; the scheduler only by this callback.
        self._scheduler = JobScheduler(
            self._clock, log, self._environment, self._bus, unfinished, self._concurrent_jobs,
            on_batch_end=self._batch_ended, on_error=self._on_error, max_wait_ms=interval, outcomes=self._graph.outcomes,
            runtime=self._runtime, states=states,
        )  # fmt: skip
        self._generator = JobGenerator(
            self._graph, self._clock, log, self._scheduler, self._environment, InputInfoTracker(), unfinished,
            self._on_fenced, self._settings.get("spark.streaming.kstream.maxBatchFailures"), self._on_exhausted,
            self._runtime, states=states,
        )  # fmt: skip

    def _make_state_port(self, epoch: int) -> StatePort:
        assert self._store is not None
        return self._state_port(self._store, epoch)

    def _spark_state_files(self, store: FileStore, epoch: int) -> StatePort:
        place = place_for_workers(store, self._settings.get(SINGLE_WRITER))
        return StateFiles(self._graph.input_streams[0].ssc.sparkContext, store, place, epoch)

    def _batch_ended(self, time: Time, succeeded: bool) -> None:
        assert self._generator is not None
        self._generator.on_batch_end(time, succeeded)

    # -- the checkpoint

    def _open(self) -> _Opened:
        """Becomes the writer, then reads: nobody older can submit anything that is not seen now."""
        if self._store is None:
            return _Opened(NoLog(), None)
        self._check_interval(read_meta(self._store))  # before a running driver is fenced for nothing
        epoch = take_epoch(self._store, self._clock.time_ms())
        contents = read_log(self._store)
        self._check_interval(contents.meta)
        adopt(self._store, contents, epoch)
        tidy(self._store, contents, epoch)
        return _Opened(PlanLog(self._store, epoch, contents, self._runtime.lock(), self._history()), contents)

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

"""StreamingContext: the entry point; puts the rooms together and owns their life."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark import SparkConf, SparkContext

from kstream import connectors, crash_point
from kstream.batch_time import Duration, Seconds
from kstream.checkpoint.reader import has_checkpoint
from kstream.clock import Clock, FollowedClock, SystemClock, clock_named, given_clock
from kstream.conf import Settings
from kstream.context import recovery as restore
from kstream.context.engine import Engine
from kstream.context.factories import ContextServices, StreamFactories
from kstream.context.progress import BatchProgress, ProgressListener
from kstream.context.waiter import ContextWaiter, StreamingContextState
from kstream.dstream import DStream, DStreamGraph, QueueInputDStream, ReceiverInputDStream, TransformedDStream, UnionDStream
from kstream.dstream.arguments import takes_one_argument
from kstream.dstream.base import node_of
from kstream.dstream.queue_input_dstream import QUEUE_KIND
from kstream.dstream.recipe import Recipe, recorded
from kstream.errors import ConfigurationError, IllegalStateError, ListenerStopError, in_a_line, where_of
from kstream.listener import StreamingListener
from kstream.scheduler import StreamingListenerBus
from kstream.spark.checkpoint_store import make_checkpoint_directory, open_checkpoint, open_checkpoint_to_write, set_checkpoint_dir
from kstream.spark.executors import WAITING_TIME
from kstream.spark.job_environment import SparkJobEnvironment
from kstream.spark.receiver_runner import check_cores
from kstream.spark.receivers import open_received_blocks
from kstream.spark.shutdown import ShutdownHook
from kstream.spark.spark_context import make_spark_context
from kstream.spark.state_rdds import SparkStateRDDs

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.checkpoint.stored_graph import GraphRecord
    from kstream.storage import FileStore

logger = logging.getLogger(__name__)
T = TypeVar("T")
_LAST_STEPS_S = 60
"""For what a stop does when all it waits for has ended."""
__all__ = ["StreamingContext", "StreamingContextState"]


class StreamingContext(StreamFactories):
    """Main entry point: makes streams from sources, starts and stops their processing. The API is pyspark.streaming's.

    `sparkContext` is a SparkContext, or a SparkConf to make one of (found Java, workers over Unix sockets). `batchDuration` is
    seconds or a Duration. `jssc` is in pyspark's signature and must be None: there is no JVM's context behind this one. `clock`: else
    the one that spark.streaming.clock names, else the machine's. Build it in one thread; start and stop may be called from any. One
    context may be active at a time.
    """

    _activation_lock: ClassVar[threading.RLock] = threading.RLock()
    _active: ClassVar[StreamingContext | None] = None

    def __init__(
        self,
        sparkContext: SparkContext | SparkConf,
        batchDuration: float | Duration | None = None,
        jssc: Any = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        duration = _batch_duration(batchDuration, jssc)
        self._sc = make_spark_context(sparkContext) if isinstance(sparkContext, SparkConf) else sparkContext
        conf = self._sc.getConf()  # a copy of this context's own
        self._settings = Settings(conf, dict(conf.getAll()))
        self._graph = DStreamGraph(duration)
        self._clock = clock or given_clock() or clock_named(self._settings.get("spark.streaming.clock")) or SystemClock()
        self._services = ContextServices(
            self, self._sc, self._settings, self._graph, SparkStateRDDs(self._sc), self._clock, self._check_can_add
        )
        self._bus = StreamingListenerBus()
        self._progress = ProgressListener(duration, self._sc.appName or "")
        self._bus.add(self._progress)
        self._waiter = ContextWaiter()
        self._lock = threading.RLock()
        self._stop_wanted = threading.Event()
        self._state = StreamingContextState.INITIALIZED
        self._engine: Engine | None = None
        self._hook: ShutdownHook | None = None
        self._checkpoint: str | None = None
        configured = self._settings.get("spark.streaming.checkpoint.directory")
        if configured is not None:
            self.checkpoint(configured)

    @property
    def clock(self) -> Clock:
        """The clock that batch times come from: the machine's, or the one a test moves."""
        return self._clock

    def _check_can_add(self, what: str) -> None:
        if self._state is StreamingContextState.ACTIVE:
            raise IllegalStateError(f"adding new {what} after starting a context is not supported", state="active")
        if self._state is StreamingContextState.STOPPED:
            raise IllegalStateError(f"adding new {what} after stopping a context is not supported", state="stopped")

    # -- the active context, and recovery

    @classmethod
    def getActive(cls) -> StreamingContext | None:
        """The context that has been started and not stopped, if there is one. Takes no lock: user functions call it, too."""
        return cls._active

    @classmethod
    def getOrCreate(cls, checkpointPath: str, setupFunc: Callable[[], StreamingContext]) -> StreamingContext:
        """The context that `setupFunc` makes; if a stream has run in `checkpointPath`, it goes on from there exactly.

        `setupFunc` is called at every start. Stored offsets are bound to its input streams by name (`DStream.setName`), else by
        position, and state by position; start() reports what was kept. A stored graph is restored instead, and `setupFunc` is not
        called, if an earlier start set `spark.streaming.kstream.recovery=graph` in its SparkConf. The checkpoint directory of the
        context is set here.

        Raises:
            CheckpointError: the stored data cannot be trusted.
            GraphNotRestoredError: a stored graph cannot be restored.
        """
        store = open_checkpoint(checkpointPath)
        has_run = has_checkpoint(store)
        stored = restore.load_graph(store) if has_run and not restore.setup_is_demanded() else None
        if stored is not None:
            logger.info("restoring the graph stored in %s without calling setup", checkpointPath)
            context: Any = restore.make_again(stored, cls, lambda ssc, recipe: ssc._make_input(recipe))
        else:
            if has_run:
                logger.info("calling setup; the offsets stored in %s go to its streams by name or position", checkpointPath)
            context = setupFunc()
        if not isinstance(context, StreamingContext):
            raise ConfigurationError(
                f"setup must return the StreamingContext it has made, it returned {type(context).__name__}", key="setup", value=context
            )
        context.checkpoint(checkpointPath)
        return context

    @classmethod
    def getActiveOrCreate(cls, checkpointPath: str | None, setupFunc: Callable[[], StreamingContext]) -> StreamingContext:
        """The active context; if there is none, getOrCreate (or `setupFunc` alone, without a path)."""
        if not callable(setupFunc):
            raise TypeError(f"setupFunc should be callable, it is {setupFunc!r}")
        with cls._activation_lock:
            active = cls._active
            if active is not None:
                return active
            return setupFunc() if checkpointPath is None else cls.getOrCreate(checkpointPath, setupFunc)

    def _make_input(self, recipe: Recipe) -> DStream[Any]:
        if recipe.kind == QUEUE_KIND:
            raise QueueInputDStream.not_recoverable()
        return connectors.load(recipe.kind.partition("-")[0]).restore_input(self, recipe)

    # -- life

    def start(self) -> None:
        """Starts the processing and returns. From a checkpoint that has run before: goes on where that stopped.

        Every function for the workers is pickled here, once, to see that it can be. A second call does nothing. IllegalStateError after
        stop, or while another context is active. NotSerializableError for a function that cannot be pickled. If starting fails the
        context is STOPPED and the error raised.
        """
        with self._lock, StreamingContext._activation_lock:
            if self._state is StreamingContextState.ACTIVE:
                logger.warning("StreamingContext has already been started")
                return
            if self._state is StreamingContextState.STOPPED:
                raise IllegalStateError("StreamingContext has already been stopped, it cannot be started", state="stopped")
            other = StreamingContext._active
            if other is not None:
                raise IllegalStateError(
                    "Only one StreamingContext may be started in this process at a time; stop the active one first", state="active"
                )
            try:
                self._start_engine()
            except BaseException:
                self._state = StreamingContextState.STOPPED
                if self._engine is not None:
                    self._engine.stop(graceful=False)
                if self._hook is not None:
                    self._hook.remove()
                self._waiter.notify_stop()
                raise
            self._state = StreamingContextState.ACTIVE
            StreamingContext._active = self

    def _start_engine(self) -> None:
        crash_point.install_from_environment()
        if not self._graph.output_streams:
            raise ConfigurationError("No output operations registered, so nothing to execute (try pprint or foreachRDD)")
        stores_graph = restore.recovery_mode(self._settings) == restore.GRAPH and self._checkpoint is not None
        record = restore.dump_graph(self._recorder) if stores_graph else restore.check_functions(self._recorder)
        store = None if self._checkpoint is None else open_checkpoint_to_write(self._checkpoint, self._settings)
        if self._checkpoint is not None:
            set_checkpoint_dir(self._sc, self._checkpoint)
        environment = SparkJobEnvironment(self._sc, self._graph.batch_duration)
        self._graph.placement = environment.placement
        self._engine = Engine(
            self._settings,
            environment,
            self._graph,
            self._clock,
            self._bus,
            store,
            self._on_error,
            self._on_fenced,
            self._on_exhausted,
            received=partial(open_received_blocks, self._sc, self._settings, self._clock, self._bus.post, self._stop_wanted),
        )
        graceful = self._settings.get("spark.streaming.stopGracefullyOnShutdown")
        # Before anything runs: a SIGTERM that comes while missed batches are being planned waits for the start, then stops it.
        patience = 2 * (self._engine.patience() + self._graph.batch_duration.seconds) + _LAST_STEPS_S if graceful else 0
        self._hook = ShutdownHook(self._sc, graceful, partial(self.stop, True), patience)
        receivers = sum(isinstance(stream, ReceiverInputDStream) for stream in self._graph.active_inputs())
        if receivers:
            check_cores(self._sc, receivers, self._stop_wanted, self._settings.get(WAITING_TIME) / 1000)
        self._engine.open()
        if store is not None:
            self._store_graph(store, record)
        self._engine.start()
        if isinstance(self._clock, FollowedClock):
            self._clock.follow(self._engine)

    def _store_graph(self, store: FileStore, record: GraphRecord | None) -> None:
        """Store the graph, or remove one that this start was not made of. A batch runs after it: else a driver that is killed while missed
        batches run would leave an old graph to the next start."""
        if record is None:
            restore.drop_graph(store)
        else:
            restore.store_graph(store, record, self._graph, self._sc)
        restore.store_connections(store, self._graph)

    def _on_error(self, message: str, error: BaseException) -> None:
        where = where_of(error)
        logger.error("%s%s: %s", message, f" ({where})" if where else "", in_a_line(error), exc_info=error)
        self._waiter.notify_error(error)

    def _on_fenced(self, error: BaseException) -> None:
        self._on_error("this driver has been fenced", error)

    def _on_exhausted(self) -> None:
        """A bounded run is done: stop, but leave the SparkContext to whoever made it. From a thread of its own: stop joins the caller."""
        stop = partial(self.stop, stopSparkContext=False, stopGraceFully=True)
        threading.Thread(target=stop, name="bounded-run-end", daemon=True).start()

    def stop(self, stopSparkContext: bool | None = None, stopGraceFully: bool = False) -> None:
        """Stops the processing; with `stopSparkContext` (default: spark.streaming.stopSparkContextByDefault) Spark as well.

        Graceful: what has been received and planned so far is finished first – within `spark.streaming.gracefulStopTimeout`, by default ten
        batch intervals where a restart from the checkpoint runs the rest, and an hour where none could. Otherwise running jobs get 2 s, and
        what is unfinished runs at the next start from the checkpoint. May be called again.

        From inside a batch (an output function, or a function of `transform`): a graceful stop returns at once, and another thread does the
        stop. The batch ends first, its end is noted, and no restart runs it again. The state is ACTIVE until then; `awaitTermination` waits
        for it. If another stop is under way, any stop returns at once.

        Raises:
            ListenerStopError: the caller is a StreamingListener.
        """
        if self._bus.is_own_thread():
            raise ListenerStopError("stop() was called from inside a StreamingListener: call it from another thread", state="active")
        if stopSparkContext is None:
            stopSparkContext = self._settings.get("spark.streaming.stopSparkContextByDefault")
        if self._engine is not None and self._engine.is_own_thread():
            if self._stop_wanted.is_set():
                return  # another's stop, which holds the lock, waits for this batch
            if stopGraceFully:
                self._stop_from_another_thread(stopSparkContext)
                return
        self._stop_wanted.set()  # first: a start that waits for executors holds the lock
        with self._lock:
            try:
                if self._state is StreamingContextState.ACTIVE:
                    self._stop_engine(stopGraceFully)
                elif self._state is StreamingContextState.INITIALIZED:
                    logger.warning("StreamingContext has not been started yet")
                self._state = StreamingContextState.STOPPED
                if stopSparkContext:
                    self._sc.stop()
            except BaseException:
                self._stop_wanted.clear()
                raise
            finally:
                self._waiter.notify_stop()  # whatever failed, nobody is to wait for ever

    def _stop_from_another_thread(self, stopSparkContext: bool | None) -> None:
        """Stops gracefully without the caller, a batch that the stop has to wait for.

        The thread is no daemon: a program whose main thread ends meanwhile must not cut the batch short.
        """
        self._stop_wanted.set()
        try:
            threading.Thread(target=self.stop, args=(stopSparkContext, True), name="graceful-stop", daemon=False).start()
        except RuntimeError:  # the interpreter is ending
            self._stop_wanted.clear()
            raise

    def _stop_engine(self, graceful: bool) -> None:
        if isinstance(self._clock, FollowedClock) and self._engine is not None:
            self._clock.unfollow(self._engine)
        assert self._engine is not None
        self._engine.stop(graceful)
        with StreamingContext._activation_lock:
            if StreamingContext._active is self:
                StreamingContext._active = None
        if self._hook is not None:
            self._hook.remove()

    def getState(self) -> StreamingContextState:
        """INITIALIZED, ACTIVE or STOPPED."""
        return self._state

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Blocks until the context stops (or `timeout` seconds have passed); raises the first error of the streams."""
        self._waiter.wait(timeout)

    def awaitTerminationOrTimeout(self, timeout: float) -> bool:
        """Blocks as awaitTermination does; returns whether the context has stopped."""
        return self._waiter.wait(timeout)

    # -- settings of the context

    def remember(self, duration: float | Duration) -> None:
        """Makes every stream remember its RDDs at least so long (seconds or a Duration). Once: ConfigurationError the second time."""
        self._graph.remember(duration if isinstance(duration, Duration) else Seconds(duration))

    def checkpoint(self, directory: str | None) -> None:
        """Stores plans under this path or URL; None: nowhere. If a stream has run there, start() goes on where it stopped.

        A local directory is made at once; StorageError where it cannot be made. Nothing else is read or written before start().
        """
        self._check_can_add("checkpoint directories")
        if directory is not None:
            make_checkpoint_directory(directory)
        self._checkpoint = directory

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Tells the listener of every event from now on."""
        self._bus.add(streamingListener)

    def removeStreamingListener(self, streamingListener: StreamingListener) -> None:
        self._bus.remove(streamingListener)

    @property
    def lastProgress(self) -> BatchProgress | None:
        """What the batch that ended last did, as JSON values (`kstream.context.progress`); None before the first."""
        return self._progress.last()

    @property
    def recentProgress(self) -> list[BatchProgress]:
        """The same of the last 100 batches, in the order in which they ended."""
        return self._progress.recent()

    # -- streams

    @recorded
    def union(self, *dstreams: DStream[T]) -> DStream[T]:
        """Return a stream of all records of the streams, batch by batch. ValueError unless they slide together."""
        return dstreams[0] if len(dstreams) == 1 else DStream(UnionDStream([node_of(stream) for stream in dstreams]))

    @recorded
    def transform(self, dstreams: Sequence[DStream[Any]], transformFunc: Callable[..., RDD[T]]) -> DStream[T]:
        """Apply a function to the RDDs of several streams, batch by batch.

        Args:
            dstreams: streams that slide together.
            transformFunc: transformFunc(tuple of RDDs) or transformFunc(time, tuple of RDDs), on the driver; returns an RDD.

        Returns:
            A stream of the RDDs returned.
        """
        parents = [node_of(stream) for stream in dstreams]
        if takes_one_argument(transformFunc):
            return DStream(TransformedDStream(parents, lambda _time, *rdds: transformFunc(rdds)))
        return DStream(TransformedDStream(parents, lambda time, *rdds: transformFunc(time.to_datetime(), rdds)))

    def __repr__(self) -> str:
        return f"<StreamingContext {self._state.value}, {self._graph.batch_duration}, {len(self._graph.input_streams)} inputs>"


def _batch_duration(given: float | Duration | None, jssc: Any) -> Duration:
    """The batch duration of a new context. ConfigurationError where there is none to be had."""
    if jssc is not None:
        raise ConfigurationError("jssc must be None: no context of the JVM's streaming stands behind this one", key="jssc", value=jssc)
    if given is None:
        raise ConfigurationError("batchDuration is missing: give seconds, or a Duration", key="batchDuration", value=None)
    try:
        duration = given if isinstance(given, Duration) else Seconds(given)
    except TypeError as e:
        raise TypeError(f"batchDuration: {e}") from None
    if duration.milliseconds <= 0:
        raise ConfigurationError(f"batchDuration must be above zero, it is {duration}", key="batchDuration", value=duration)
    return duration

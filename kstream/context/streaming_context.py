"""StreamingContext: the public class that makes streams, and starts and stops their processing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark import SparkConf, SparkContext

from kstream import connectors, crash_point
from kstream.batch_time import Duration, Seconds
from kstream.checkpoint.given_path import check_directory, check_start
from kstream.checkpoint.settings import CHECKPOINT_DIRECTORY
from kstream.clock import Clock, FollowedClock, SystemClock, clock_named, given_clock
from kstream.conf import Settings
from kstream.context import recovery
from kstream.context.batch_lines import nobody_has_set_the_log_up, tell_of_lines
from kstream.context.continuous_engine import ContinuousEngine, ContinuousJob, ContinuousServices
from kstream.context.engine import Engine, EngineCallbacks, EngineServices
from kstream.context.engine_opener import EngineOpener
from kstream.context.factories import ContextServices, StreamFactories
from kstream.context.observers import Observers
from kstream.context.progress import BatchProgress
from kstream.context.settings import CLOCK, STOP_GRACEFULLY_ON_SHUTDOWN, STOP_SPARK_CONTEXT
from kstream.context.settings_table import check_settings
from kstream.context.spark_parts import SparkParts
from kstream.context.status import how_it_ended
from kstream.context.uncaught import log_error, print_errors_shortly
from kstream.context.unfinished_work import UnfinishedWork
from kstream.context.waiter import ContextWaiter, StreamingContextState
from kstream.continuous.stream import ContinuousStream
from kstream.dstream import DStreamGraph
from kstream.dstream.arguments import as_duration
from kstream.errors import ConfigurationError, IllegalStateError, ListenerStopError, in_a_line
from kstream.listener import StreamingListener, StreamingListenerBus
from kstream.public_call import public_call, refused
from kstream.scheduler.job_generator import run_each
from kstream.spark.checkpoint_store import CheckpointDirectory, make_checkpoint_directory
from kstream.spark.executors import known_executor_count
from kstream.spark.platforms import check_platform
from kstream.spark.shutdown import ShutdownHook
from kstream.spark.spark_context import make_spark_context
from kstream.spark.state_rdds import SparkStateRDDs
from kstream.storage import FileStore

if TYPE_CHECKING:
    from kstream.checkpoint.driver_status import DriverStatus
    from kstream.checkpoint.stop_request import StopRequest

logger = logging.getLogger(__name__)
T = TypeVar("T")
_LAST_STEPS_S = 60
"""Seconds for the last steps of a stop, after its two waiting phases."""
__all__ = ["StreamingContext", "StreamingContextState"]


class StreamingContext(StreamFactories):
    """Main entry point: makes streams from sources, and starts and stops their processing. The API is pyspark.streaming's.

    Build it in one thread; `start` and `stop` may be called from any. One context may be active at a time.

    Example:
        ssc = StreamingContext(SparkConf().setMaster("local[2]").setAppName("words"), 1)
        lines = ssc.socketTextStream("localhost", 9999)
        lines.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(operator.add).pprint()
        ssc.start()
        ssc.awaitTermination()

    Args:
        sparkContext: a SparkContext; or a SparkConf, of which a SparkContext is made. That looks for a Java, and connects workers over Unix
            sockets.
        batchDuration: the batch interval, in seconds or as a Duration.
        jssc: must be None. It exists for pyspark's signature: this context uses no StreamingContext of the JVM.
        clock: the clock of batch times. Default: the clock that `spark.streaming.clock` names, else the machine's.

    Raises:
        ConfigurationError: the batch interval is missing or not above zero, `jssc` is given, a setting cannot be
            read, or one is switched on that kstream does not have. Or Spark is reached by Spark Connect, which has no RDDs.
        TypeError: the batch interval is neither a number nor a Duration.
        JavaNotFoundError: there is no Java to make a SparkContext on.
    """

    _activation_lock: ClassVar[threading.RLock] = threading.RLock()
    _active: ClassVar[StreamingContext | None] = None
    _creation_lock: ClassVar[threading.RLock] = threading.RLock()
    """Held while `getActiveOrCreate` calls `setupFunc`, so that two threads do not start Spark at once. Taken before the other lock."""

    @public_call
    def __init__(
        self,
        sparkContext: SparkContext | SparkConf,
        batchDuration: float | Duration | None = None,
        jssc: Any = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        check_platform(sparkContext)
        duration = _batch_duration(batchDuration, jssc)
        if isinstance(sparkContext, SparkConf):
            check_settings(dict(sparkContext.getAll()))  # before Spark starts, which takes seconds
            sparkContext = make_spark_context(sparkContext)
        self._sc = sparkContext
        conf = self._sc.getConf()  # a copy of this context's own
        self._settings = Settings(conf, values := dict(conf.getAll()))
        for warning in check_settings(values):
            logger.warning("%s", warning)
        self._graph = DStreamGraph(duration)
        self._clock = clock or given_clock() or clock_named(self._settings[CLOCK]) or SystemClock()
        self._services = ContextServices(
            self, self._sc, self._settings, self._graph, SparkStateRDDs(self._sc), self._clock, self._check_can_add
        )
        self._bus = StreamingListenerBus()
        self._observers = Observers(
            self._sc.appName or "",
            self._settings,
            duration,
            self._clock,
            self._bus,
            parallelism=lambda: self._sc.defaultParallelism,
            executors=lambda: known_executor_count(self._sc),
        )
        self._spark: SparkParts | None = None
        self._waiter = ContextWaiter()
        self.await_stop = self._waiter.wait_for_stop
        """Blocks until the context has stopped, whatever errors come; for `kstream run`."""
        self._lock = threading.RLock()
        self._stop_wanted = threading.Event()
        self.stop_requested = False
        """Whether `kstream stop` has asked for the end of this context. Any thread."""
        self.is_supervised = self.is_started_again = False
        """Whether a supervisor has started this driver, and whether it starts the next one, for the status record. Set by `kstream run`."""
        self._state = StreamingContextState.INITIALIZED
        self._engine: Engine | ContinuousEngine | None = None
        self._continuous: ContinuousJob | None = None
        self._hook: ShutdownHook | None = None
        self._checkpoint: CheckpointDirectory | None = None
        configured = self._settings[CHECKPOINT_DIRECTORY]
        if configured is not None:
            self.checkpoint(configured)

    @property
    def clock(self) -> Clock:
        """The clock of batch times: the machine's, or the one that a test moves."""
        return self._clock

    def _check_can_add(self, what: str) -> None:
        """Raise IllegalStateError if the context has been started. `what` names the thing to add, in the plural, for the message."""
        if self._state is StreamingContextState.ACTIVE:
            raise IllegalStateError(f"adding new {what} after starting a context is not supported", state="active")
        if self._state is StreamingContextState.STOPPED:
            raise IllegalStateError(f"adding new {what} after stopping a context is not supported", state="stopped")

    # -- the active context, and recovery

    @classmethod
    def getActive(cls) -> StreamingContext | None:
        """Return the context that is started and not stopped; None if there is none. Any thread; takes no lock and never blocks."""
        return cls._active

    @classmethod
    @public_call
    def getOrCreate(cls, checkpointPath: str, setupFunc: Callable[[], StreamingContext]) -> StreamingContext:
        """Make the context of a job. If the job has run with this checkpoint before, `start` continues exactly where it stopped.

        `setupFunc` is called at every start. Stored offsets are bound to its input streams by name (`DStream.setName`), else by
        position, and state by position; `start` reports the result. Only if an earlier start had
        `spark.streaming.kstream.recovery=graph` in its SparkConf, the stored graph is restored and `setupFunc` is not called.

        Example:
            def setup():
                ssc = StreamingContext(SparkConf().setAppName("job"), 1)
                ssc.textFileStream("/data/in").count().pprint()
                return ssc

            ssc = StreamingContext.getOrCreate("/data/checkpoint", setup)
            ssc.start()
            ssc.awaitTermination()

        Args:
            checkpointPath: a path, or the URL of a store; it becomes the checkpoint directory of the context.
            setupFunc: makes a StreamingContext and all its streams, and returns the context.

        Returns:
            The context, not started.

        Raises:
            CheckpointError: the stored data cannot be trusted.
            GraphNotRestoredError: a stored graph cannot be restored.
            ConfigurationError: `setupFunc` has not returned a StreamingContext.
            StorageError: the store cannot be read, or the directory cannot be made.
        """
        directory = CheckpointDirectory(checkpointPath)
        context: Any = recovery.made_or_restored(directory, setupFunc, lambda stored: recovery.make_again(stored, cls))
        if not isinstance(context, StreamingContext):
            raise ConfigurationError(
                f"setup must return the StreamingContext it has made, it returned {type(context).__name__}", key="setup", value=context
            )
        context.checkpoint(checkpointPath)
        context._checkpoint = directory
        return context

    @classmethod
    def getActiveOrCreate(cls, checkpointPath: str | None, setupFunc: Callable[[], StreamingContext]) -> StreamingContext:
        """Return the active context; if there is none, make one.

        `start` and `stop` do not wait for `setupFunc`. A context that becomes active meanwhile is preferred to that of `setupFunc`.

        Args:
            checkpointPath: as of `getOrCreate`; None calls `setupFunc` alone.
            setupFunc: as of `getOrCreate`.

        Raises:
            TypeError: `setupFunc` cannot be called.
            KStreamError: as `getOrCreate`.
        """
        if not callable(setupFunc):
            raise TypeError(f"setupFunc should be callable, it is {setupFunc!r}")
        if (active := cls._active_now()) is not None:
            return active
        with cls._creation_lock:
            active = cls._active_now()
            if active is None:
                made = setupFunc() if checkpointPath is None else cls.getOrCreate(checkpointPath, setupFunc)
                active = cls._active_now() or made
                if active is not made:
                    logger.warning("another context has become active while setup ran: it is returned, and not the one that setup made")
            return active

    @classmethod
    def _active_now(cls) -> StreamingContext | None:
        """Return the active context; None if there is none. Blocks while a context starts."""
        with cls._activation_lock:
            return cls._active

    # -- life

    @public_call
    def start(self) -> None:
        """Start the processing and return. With a checkpoint that has run before, continue where it stopped.

        The call blocks until the stored pending and missed batches are submitted; with receivers also until the cluster has enough cores.
        Every function for the workers is pickled once, as a check. A second call does nothing but log a warning. If the start fails, the
        context is STOPPED.

        Raises:
            IllegalStateError: the context was stopped, or another one is active.
            ConfigurationError: there is no output operation, a setting cannot work, or `kstream run` is to start the context.
            NotSerializableError: a function cannot be pickled.
            NotEnoughCoresError: the cluster has not given the cores that receivers need.
            CheckpointError: the stored data cannot be used; the subclass and the message say why.
            StorageError: the store of the checkpoint failed.
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
            is_silent = nobody_has_set_the_log_up()  # now: the page adds a handler of its own
            try:
                self._start_engine()
            except BaseException:
                self._undo_start()
                raise
            self._state = StreamingContextState.ACTIVE
            StreamingContext._active = self
            print_errors_shortly()
            if is_silent:
                tell_of_lines()

    def _undo_start(self) -> None:
        """Stop what a start that failed has started. An error of that is logged and not raised: the error of the start is."""
        stop_engine = self._engine and partial(self._engine.stop, graceful=False)
        try:
            run_each(stop_engine, partial(self._observers.ended, "start failed"), self._release, self._waiter.notify_stop)
        except BaseException as e:
            logger.error("the context did not start, and its stop failed as well: %s", in_a_line(e))

    def _release(self) -> None:
        """End the watch of the JVM, remove the hook, become STOPPED, and let another context of this process become active."""
        try:
            run_each(self._spark and self._spark.stop, self._hook and self._hook.remove)
        finally:
            self._state = StreamingContextState.STOPPED
            with StreamingContext._activation_lock:
                if StreamingContext._active is self:
                    StreamingContext._active = None

    def _start_engine(self) -> None:
        """Check the graph, open the checkpoint, store the graph or its absence, and start the engine. Raises as `start`."""
        check_start()
        crash_point.install_from_environment()
        if self._continuous is not None:
            self._start_continuous(self._continuous)
            return
        if not self._graph.output_streams:
            raise ConfigurationError("No output operations registered, so nothing to execute (try pprint or foreachRDD)")
        stores_graph = recovery.recovery_mode(self._settings) == recovery.GRAPH and self._checkpoint is not None
        record = recovery.dump_graph(self._recorder) if stores_graph else recovery.check_functions(self._recorder)
        store = None if self._checkpoint is None else self._checkpoint.open_to_write(self._sc, self._settings)
        self._spark = spark = SparkParts(self._sc, self._settings, partial(self._on_error, "this driver has lost its JVM"))
        spark.start(self._observers.has_ui)
        opener = self._make_opener(spark, store)
        # Before anything runs: a SIGTERM that comes while missed batches are planned waits for the start, and then stops the context.
        self._hook = self._install_shutdown_hook(UnfinishedWork(self._settings, self._graph, store is not None))
        spark.wait_for_cores(self._graph, self._stop_wanted)
        self._observers.start(self._graph, store, spark.ui)
        self._engine = engine = opener.open()
        self._observers.opened(engine)
        if store is not None:
            recovery.store_for_restarts(store, record, self._graph, self._sc)
            self._observers.collector.is_supervised = self.is_supervised
            self._observers.report(store, self._stop_on_request)
        engine.start()
        if isinstance(self._clock, FollowedClock):
            self._clock.follow(engine)

    def _start_continuous(self, job: ContinuousJob) -> None:
        """Start the engine of a continuous stream. Raises as `start`."""
        job.output  # noqa: B018 – there must be one
        if self._graph.output_streams:
            raise ConfigurationError("a context has either a continuous stream or streams of batches. Give each a job of its own")
        if self._checkpoint is None:
            raise ConfigurationError("a continuous stream needs a checkpoint directory: set one (ssc.checkpoint)")
        store = self._checkpoint.open_to_write(self._sc, self._settings)
        self._spark = spark = SparkParts(self._sc, self._settings, partial(self._on_error, "this driver has lost its JVM"))
        spark.start(self._observers.has_ui)
        self._hook = self._install_shutdown_hook(UnfinishedWork(self._settings, self._graph, True))
        self._observers.start(self._graph, store, spark.ui)
        callbacks = EngineCallbacks(self._on_error, partial(self._on_error, "this driver has been fenced"))
        services = ContinuousServices(self._settings, self._clock, self._bus, store, callbacks, self._sc.defaultParallelism)
        self._engine = engine = ContinuousEngine.open(services, job, self._graph, self._sc)
        self._observers.opened(engine)
        self._observers.report(store, self._stop_on_request)
        engine.start()

    @public_call
    def continuousStream(self, consumerStrategy: Any) -> ContinuousStream[Any]:
        """Return a stream that is processed without batches, in milliseconds: its tasks read, compute and write without a break.

        A context has either one continuous stream or streams of batches. It needs a checkpoint directory.

        Args:
            consumerStrategy: what is read: a strategy of `ConsumerStrategies`. Records are ConsumerRecords.

        Raises:
            ConfigurationError: the context has a continuous stream already.
            TypeError: `consumerStrategy` is no strategy.
            IllegalStateError: the context has started.
        """
        self._check_can_add("a continuous stream")
        if self._continuous is not None:
            raise ConfigurationError("a context has one continuous stream, and this one has it already")
        self._continuous = job = ContinuousJob(connectors.continuous_source(consumerStrategy))
        return ContinuousStream(job.add)

    def _make_opener(self, spark: SparkParts, store: FileStore | None) -> EngineOpener:
        """Make the opener of this context's engine. `store` is the checkpoint."""
        services = spark.services(self._graph, self._clock, self._bus.post, self._stop_wanted)
        callbacks = EngineCallbacks(self._on_error, partial(self._on_error, "this driver has been fenced"), self._on_exhausted)
        log_store = self._observers.measured(store)
        return EngineOpener(
            EngineServices(self._settings, self._graph, self._clock, self._bus, store, services, callbacks, log_store=log_store)
        )

    def _install_shutdown_hook(self, unfinished: UnfinishedWork) -> ShutdownHook:
        """Install the hook that stops this context when the driver is asked to end."""
        graceful = self._settings[STOP_GRACEFULLY_ON_SHUTDOWN]
        patience = 2 * (unfinished.patience() + self._graph.batch_duration.seconds) + _LAST_STEPS_S if graceful else 0
        return ShutdownHook(self._sc, graceful, partial(self.stop, True), patience)

    def _on_error(self, message: str, error: BaseException) -> None:
        """Log an error of the streams, and wake the threads in `awaitTermination`. Called on threads of the engine."""
        log_error(logger, message, error)
        self._observers.history.note_error(message, error)
        self._waiter.notify_error(error)

    def _on_exhausted(self) -> None:
        """Stop the context gracefully after a bounded run, but not the SparkContext.

        A new thread calls `stop`, because `stop` waits for the thread that calls this method.
        """
        stop = partial(self.stop, stopSparkContext=False, stopGraceFully=True)
        threading.Thread(target=stop, name="bounded-run-end", daemon=True).start()

    def stop(self, stopSparkContext: bool | None = None, stopGraceFully: bool = False) -> None:
        """Stop the processing, and block until it has stopped. Any thread; may be called again.

        Without `stopGraceFully` running jobs get 2 s; unfinished batches run at the next start from the checkpoint.

        From inside a batch (an output function, or a function of `transform`) a graceful stop returns at once; another thread stops the
        context. The batch ends first and is recorded as done, so no restart runs it again. The state is ACTIVE until then;
        `awaitTermination` waits for the stop. If another stop runs already, a stop from inside a batch returns at once.

        Args:
            stopSparkContext: also stop the SparkContext. Default: `spark.streaming.stopSparkContextByDefault`.
            stopGraceFully: first finish all data that was received and planned so far, within `spark.streaming.gracefulStopTimeout`. Its
                default is ten batch intervals if a restart from the checkpoint can run the rest, else an hour.

        Raises:
            ListenerStopError: the caller is a StreamingListener.
            Exception: the first error of a part. The context has stopped nevertheless. (That of an input goes to `awaitTermination`.)
        """
        if self._bus.is_own_thread():
            raise ListenerStopError("stop() was called from inside a StreamingListener: call it from another thread", state="active")
        if stopSparkContext is None:
            stopSparkContext = self._settings[STOP_SPARK_CONTEXT]
        if self._engine is not None and self._engine.is_own_thread():
            if self._stop_wanted.is_set():
                return  # the other stop holds the lock and waits for this batch
            if stopGraceFully:
                self._stop_from_another_thread(stopSparkContext, True)
                return
        self._stop_wanted.set()  # first: a start that waits for executors holds the lock
        with self._lock:
            engine = self._engine if self._state is StreamingContextState.ACTIVE else None
            stop_engine = engine and partial(self._stop_engine, engine, stopGraceFully)
            if self._state is StreamingContextState.INITIALIZED:
                logger.warning("StreamingContext has not been started yet")
                self._state = StreamingContextState.STOPPED
            try:  # whatever failed, no thread may wait without end
                run_each(stop_engine, self._sc.stop if stopSparkContext else None, self._waiter.notify_stop)
            except BaseException:
                self._stop_wanted.clear()
                raise

    def _stop_on_request(self, request: StopRequest) -> None:
        """Stop as `kstream stop` has asked for. Called on the reporter's thread, for which the stop waits; returns at once."""
        self.stop_requested = True
        logger.info("stop request of %s: the context stops %s", request.asked_by, "at once" if request.now else "after its planned batches")
        if request.now and self._stop_wanted.is_set() and self._engine is not None:
            self._engine.cut_short()
        else:
            self._stop_from_another_thread(None, not request.now)

    def _stop_from_another_thread(self, stopSparkContext: bool | None, graceful: bool) -> None:
        """Stop on another thread: the caller is a batch, or the reporter, that the stop has to wait for.

        The thread is no daemon: if the main thread of the program ends meanwhile, the batch must not be cut short.
        """
        self._stop_wanted.set()
        try:
            name = "graceful-stop" if graceful else "stop"
            threading.Thread(target=self.stop, args=(stopSparkContext, graceful), name=name, daemon=False).start()
        except RuntimeError:  # the interpreter is ending
            self._stop_wanted.clear()
            raise

    def _stop_engine(self, engine: Engine | ContinuousEngine, graceful: bool) -> None:
        """Stop the engine, and make this context inactive. Blocks until all parts have stopped; the first error is raised after that."""
        clock, in_order = self._clock, False

        def stop_engine() -> None:
            nonlocal in_order
            engine.stop(graceful)
            in_order = graceful and not engine.was_cut_short

        def tell_end() -> None:
            self._observers.ended(how_it_ended(in_order, self._waiter.error, self.stop_requested, self.is_started_again))

        unfollow = partial(clock.unfollow, engine) if isinstance(clock, FollowedClock) and isinstance(engine, Engine) else None
        run_each(unfollow, stop_engine, tell_end, self._release)

    def getState(self) -> StreamingContextState:
        """Return INITIALIZED, ACTIVE or STOPPED. Any thread."""
        return self._state

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Block until the context stops, or an error comes. Any thread.

        An error does not stop the context: its streams continue.

        Args:
            timeout: seconds; None waits without a limit.

        Raises:
            Exception: the first error of the streams. Every later call raises it again.
        """
        self._waiter.wait(timeout)

    def awaitTerminationOrTimeout(self, timeout: float) -> bool:
        """Block until the context stops, an error comes, or the timeout passes. Any thread.

        Args:
            timeout: seconds.

        Returns:
            Whether the context has stopped.

        Raises:
            Exception: the first error of the streams. Every later call raises it again.
        """
        return self._waiter.wait(timeout)

    # -- settings of the context

    def remember(self, duration: float | Duration) -> None:
        """Make every stream remember its RDDs at least for a duration. Call it before `start`: a later call has no effect.

        Args:
            duration: seconds, or a Duration.

        Raises:
            ConfigurationError: a duration is set already.
            TypeError: `duration` is neither a number nor a Duration.
        """
        self._graph.remember(as_duration(duration))

    @public_call
    def checkpoint(self, directory: str | None) -> None:
        """Set the checkpoint directory. If a job has run with it before, `start` continues where that job stopped.

        A local directory is created at once. Nothing else is read or written before `start`.

        Args:
            directory: a path, or the URL of a store; None is no checkpoint.

        Raises:
            StorageError: the directory cannot be created.
            ConfigurationError: the URL has a password in it, or `kstream run` was given another checkpoint.
            IllegalStateError: the context has been started.
        """
        self._check_can_add("checkpoint directories")
        if directory is not None:
            check_directory(directory)
            make_checkpoint_directory(directory)
        self._checkpoint = None if directory is None else CheckpointDirectory(directory)

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Send every event from now on to a listener. Any thread.

        Args:
            streamingListener: its methods are called one after the other, on one thread of their own.
        """
        self._bus.add(streamingListener)

    def removeStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Send no more events to a listener. Any thread."""
        self._bus.remove(streamingListener)

    @property
    def lastProgress(self) -> BatchProgress | None:
        """The progress of the batch that ended last, as JSON values (`kstream.context.progress`); None before the first. Any thread."""
        return next(iter(self._observers.progress(1)), None)

    @property
    def recentProgress(self) -> list[BatchProgress]:
        """The progress of the last 100 batches, in the order in which they ended. Any thread."""
        return self._observers.progress()

    def status(self) -> DriverStatus | None:
        """Return the status of this driver at this moment; None before the start. Any thread; asks no store.

        The same is in the checkpoint, for `kstream status`, up to 20 s older.
        """
        return self._observers.status() if self._observers.has_started else None

    @property
    def metricsUrl(self) -> str | None:
        """The address of the metrics for Prometheus; None unless the context runs and a port is set. Any thread."""
        return self._observers.metrics_url

    @property
    def uiUrl(self) -> str | None:
        """The address of the page, without a token; None unless the context runs and the page is enabled. Any thread."""
        return self._observers.ui_url

    def __repr__(self) -> str:
        return f"<StreamingContext {self._state.value}, {self._graph.batch_duration}, {len(self._graph.input_streams)} inputs>"


def _batch_duration(given: float | Duration | None, jssc: Any) -> Duration:
    """Return the batch interval of a new context.

    Raises:
        ConfigurationError: `jssc` is given, or the interval is missing or not above zero.
        TypeError: the interval is neither a number nor a Duration.
    """
    if jssc is not None:
        raise ConfigurationError("jssc must be None: this context does not wrap one of the JVM", key="jssc", value=jssc)
    if given is None:
        raise ConfigurationError("batchDuration is missing: give seconds, or a Duration", key="batchDuration", value=None)
    try:
        duration = given if isinstance(given, Duration) else Seconds(given)
    except TypeError as e:
        raise refused(TypeError(f"batchDuration: {e}")) from None
    if duration.milliseconds <= 0:
        raise ConfigurationError(f"batchDuration must be above zero, it is {duration}", key="batchDuration", value=duration)
    return duration

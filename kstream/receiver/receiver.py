"""Receiver: the class that users subclass to bring in records from any source. ReceiverSupervisor runs a receiver in this process.

The names are Spark's (`Receiver.scala`, `ReceiverSupervisor.scala`).
"""

from __future__ import annotations

import enum
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kstream.batch.plan import Json
from kstream.clock import Clock
from kstream.errors import IllegalStateError
from kstream.loop import THREADS
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener
from kstream.receiver.block_writer import ReceiverBlockWriter

logger = logging.getLogger(__name__)


class Receiver(ABC):
    """A source that pushes records by itself. `ssc.receiverStream(MyReceiver())` makes a stream of them:

        class Ticks(Receiver):
            def onStart(self):
                threading.Thread(target=self.run, daemon=True).start()

            def run(self):
                while not self.isStopped():
                    self.store(next_tick())

            def onStop(self):
                pass

    A receiver runs in a Python worker of an executor, in a task of its own that takes a core. It is pickled when the context starts, so
    make sockets, locks and threads in `onStart`. After a failure, and after a restart of the driver, `onStart` is called again, on the
    same object or on another one.

    Any number of threads may call the methods that store, report, restart and stop. These raise IllegalStateError if no stream runs the
    receiver.
    """

    storageLevel: Any = None
    """A pyspark StorageLevel: where the blocks are kept, and on how many executors; None is MEMORY_AND_DISK_2."""
    _supervisor: ReceiverSupervisor | None = None

    def __init__(self, storageLevel: Any = None) -> None:
        self.storageLevel = storageLevel

    @abstractmethod
    def onStart(self) -> None:
        """Start the threads that bring in the records, and return. An exception stops the receiver, and listeners get it.

        A thread of the supervisor calls this.
        """

    @abstractmethod
    def onStop(self) -> None:
        """End the threads that `onStart` started. On a graceful stop, records stored before this returns still get into a batch.

        A thread of the supervisor calls this, or the thread that calls `stop`.
        """

    def preferredLocation(self) -> str | None:
        """The host where the receiver should run; called on the driver.

        Returns:
            A host name; None for any host.
        """
        return None

    def store(self, dataItem: Any) -> None:
        """Add one record to the open block, which is stored safely after it is closed. Blocks for the rate limit.

        Args:
            dataItem: The record. It is pickled later, when its block is written.

        Raises:
            IllegalStateError: the receiver has been stopped for good.
        """
        self._running.store(dataItem)

    def storeEach(self, dataItems: Iterable[Any]) -> None:
        """Store each record as `store` does, at a tenth of the cost: for a receiver that gets many records at a time.

        Under a rate limit (`spark.streaming.receiver.maxRate`) each record enters a block as soon as it has its permit, and this returns
        when the last one has entered. Without a limit the records are pickled at once.

        Args:
            dataItems: The records.

        Raises:
            IllegalStateError: the receiver has been stopped for good. Records that had entered a block are stored, the rest is not.
            Exception: a record cannot be pickled, without a rate limit. No record is stored then.
        """
        self._running.store_each(dataItems)

    def storeAll(self, dataItems: Iterable[Any], metadata: Json = None) -> None:
        """Store records as one block, that is one partition (Spark's `store` of an iterator or a buffer).

        Block until the block is stored and the driver has acknowledged it. Then the receiver may confirm the records to their source.
        Stored means: in the write-ahead log if there is one, else on as many executors of the storage level as took it, at least one.
        No rate limit applies.

        Args:
            dataItems: The records.
            metadata: A JSON value that goes with the block to the driver.

        Raises:
            BlockNotStoredError: none of the records will be in a batch.
            RpcError: the driver did not answer; the records may be in a batch.
            IllegalStateError: no stream runs the receiver, or it has been stopped for good.
            TypeError, ValueError: the metadata is no JSON value. Nothing is stored.
            Exception: a record cannot be pickled, or an error of `dataItems`. Nothing is stored.
        """
        self._running.store_all(dataItems, metadata)

    def storeBytes(self, pickled: bytes, metadata: Json = None) -> None:
        """Store records as one block, as `storeAll` does (Spark's `store` of a ByteBuffer). How many there are stays unknown to the driver.

        Args:
            pickled: A list of records, as one `pickle.dumps(records)` gives it.
            metadata: A JSON value that goes with the block to the driver.

        Raises:
            ValueError: there are no bytes.
            TypeError, ValueError: the metadata is no JSON value. Nothing is stored.
            BlockNotStoredError, RpcError, IllegalStateError: as `storeAll` raises them.
        """
        self._running.store_bytes(pickled, metadata)

    def createBlockGenerator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        """Make one more BlockGenerator, with this receiver's settings and rate (Spark's `supervisor.createBlockGenerator`).

        Use it in a receiver that must know which of its records are in which block. The listener's `onPushBlock` gets the block, and
        stores it by `storeAll`. The receiver starts the generator in `onStart` and stops it in `onStop`. The end of the task stops all
        generators that still run.

        Args:
            listener: Gets the blocks; see BlockGeneratorListener for its threads.

        Raises:
            IllegalStateError: no stream runs the receiver.
        """
        return self._running.create_block_generator(listener)

    def reportError(self, message: str, throwable: BaseException | None = None) -> None:
        """Report an error that does not end the receiver to the log and to the listeners. May block until the driver has answered.

        Args:
            message: The event, for the log and the listeners.
            throwable: The error, if there is one.
        """
        self._running.report_error(message, throwable)

    def restart(self, message: str, error: BaseException | None = None, millisecond: int | None = None) -> None:
        """Stop the receiver and start it again after a delay. Returns at once: a thread of the supervisor does the work.

        The call changes nothing while a restart is under way, and after the receiver has been stopped for good.

        Args:
            message: The reason, for the log and the listeners.
            error: The error, if there is one.
            millisecond: The delay in ms; None is `spark.streaming.receiverRestartDelay`.
        """
        self._running.restart(message, error, millisecond)

    def stop(self, message: str, error: BaseException | None = None) -> None:
        """End this run of the receiver. While the stream runs the driver starts another run, on the best executor, as Spark does.

        The call blocks, because this thread calls `onStop`.

        Args:
            message: The reason, for the log and the listeners.
            error: The error, if there is one.
        """
        self._running.stop_self(message, error)

    def isStarted(self) -> bool:
        """Return whether the receiver has been started and not stopped, for a restart or for good. Any thread."""
        return self._supervisor is not None and self._supervisor.is_started()

    def isStopped(self) -> bool:
        """Return whether the receiver is stopped, for a restart or for good. If so its threads should end. Any thread."""
        return self._supervisor is None or self._supervisor.is_stopped()

    @property
    def streamId(self) -> int:
        """The id of its input stream. IllegalStateError if no stream runs the receiver."""
        return self._running.stream_id

    @property
    def _running(self) -> ReceiverSupervisor:
        """The supervisor. IllegalStateError if no stream runs the receiver."""
        if self._supervisor is None:
            raise IllegalStateError(f"{type(self).__name__} is not run by a stream: give it to ssc.receiverStream and start", state="new")
        return self._supervisor

    def attach(self, supervisor: ReceiverSupervisor) -> None:
        """Set the supervisor that runs the receiver. The supervisor calls this before `onStart`."""
        self._supervisor = supervisor

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_supervisor", None)
        return state


class SupervisorState(enum.Enum):
    """The states of a supervisor's receiver: INITIALIZED → STARTED ⇄ STOPPED."""

    INITIALIZED = "initialized"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ReceiverNews:
    """An event in the life of a receiver, for listeners."""

    kind: str
    """`started`, `stopped`, or `error` for an error that does not end the receiver."""
    message: str = ""
    error: BaseException | None = None
    for_good: bool = False
    """Whether a stop is for good; otherwise a restart follows."""


class ReceiverSupervisor:
    """The supervisor of one receiver run. It starts, restarts and stops the receiver.

    Each start, each restart and the driver's stop has a thread of its own, which ends when `onStart` or `onStop` has returned. So a
    method of the receiver that blocks holds up nothing else. A stop by the receiver itself runs on the thread that calls it. `_lock`
    guards `_state` and `_restarting`.
    """

    def __init__(
        self,
        receiver: Receiver,
        stream_id: int,
        writer: ReceiverBlockWriter,
        clock: Clock,
        restart_delay_ms: int,
        tell: Callable[[ReceiverNews], None] = lambda _news: None,
        on_start_returned: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a supervisor, and attach the receiver to it. `start` starts the receiver.

        Args:
            receiver: The receiver.
            stream_id: The id of its stream.
            writer: Writes the records that the receiver stores. `stop` closes it.
            clock: The clock of the restart delay.
            restart_delay_ms: The delay of a restart that names no delay.
            tell: Called with starts, stops and errors, on any thread.
            on_start_returned: Called after each `onStart` that has not raised, on its thread.
        """
        self._receiver = receiver
        self._stream_id = stream_id
        self._writer = writer
        self._clock = clock
        self._delay = restart_delay_ms
        self._tell = tell
        self._on_start_returned = on_start_returned
        self._state = SupervisorState.INITIALIZED
        self._restarting = False
        self._over = THREADS.event()
        self._lock = threading.Lock()
        receiver.attach(self)

    # -- for the stream

    def start(self) -> None:
        """Start the receiver. Returns at once: `onStart` runs on a thread of its own."""
        self._spawn(self._start_receiver, "start")

    def stop(self, timeout: float) -> bool:
        """Stop the receiver for good. Block until its `onStop` has returned or timed out, and every record is stored. Idempotent.

        Records that the receiver stores until then are kept. Later it can store none.

        Args:
            timeout: The seconds that this waits for `onStop`. The wait for the records has no limit.

        Returns:
            Whether `onStop` has returned in time.
        """
        self._over.set()
        done = THREADS.event()

        def stop() -> None:
            self._stop_receiver("Stopped by driver", None)
            done.set()

        self._spawn(stop, "stop")
        in_time = done.wait(timeout)
        if not in_time:
            logger.warning("onStop of the receiver of stream %d did not return within %s s", self._stream_id, timeout)
        self._writer.close()
        return in_time

    def _spawn(self, work: Callable[[], None], what: str) -> None:
        THREADS.thread(work, f"Receiver-{self._stream_id}-{what}").start()

    # -- for the receiver, from any thread. Each method is the implementation of the Receiver's method of that name.

    @property
    def stream_id(self) -> int:
        return self._stream_id

    def store(self, record: Any) -> None:
        self._writer.add(record)

    def store_each(self, records: Iterable[Any]) -> None:
        self._writer.add_each(records)

    def store_all(self, records: Iterable[Any], metadata: Json = None) -> None:
        self._writer.add_all(records, metadata)

    def store_bytes(self, pickled: bytes, metadata: Json = None) -> None:
        self._writer.add_bytes(pickled, metadata)

    def create_block_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        return self._writer.new_generator(listener)

    def report_error(self, message: str, error: BaseException | None) -> None:
        logger.warning("Reported error by receiver for stream %d: %s", self._stream_id, _text(message, error))
        self._tell(ReceiverNews("error", message, error))

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """Start a thread that restarts the receiver, unless a restart is under way or the receiver is stopped for good."""
        with self._lock:
            if self._restarting or self._over.is_set():
                return
            self._restarting = True
        delay = self._delay if delay_ms is None else delay_ms
        self._spawn(lambda: self._restart(message, error, delay), "restart")

    def stop_self(self, message: str, error: BaseException | None) -> None:
        """Stop the receiver for good, on this thread; see `Receiver.stop`."""
        self._over.set()
        self._stop_receiver(message, error)

    def is_started(self) -> bool:
        return self._state is SupervisorState.STARTED

    def is_stopped(self) -> bool:
        return self._state is SupervisorState.STOPPED

    # -- on the supervisor's threads

    def _restart(self, reason: str, error: BaseException | None, delay_ms: int) -> None:
        """Stop the receiver, wait for the delay, and start it again, unless it is stopped for good meanwhile."""
        message = f"Restarting receiver with delay {delay_ms} ms: {reason}"
        logger.warning("%s", _text(message, error))
        self._stop_receiver(message, error)
        until = self._clock.monotonic_ms() + delay_ms
        while (left := until - self._clock.monotonic_ms()) > 0:
            if self._clock.wait(left, self._over):
                return
        self._start_receiver()

    def _start_receiver(self) -> None:
        """Call `onStart`, unless the receiver is stopped for good. An error of `onStart` stops the receiver for good."""
        with self._lock:
            if self._over.is_set():
                return
            self._state, self._restarting = SupervisorState.STARTED, False
        logger.info("Starting receiver %d", self._stream_id)
        self._tell(ReceiverNews("started"))
        try:
            self._receiver.onStart()
        except Exception as e:
            message = f"Error starting receiver {self._stream_id}"
            logger.error("%s", message, exc_info=e)
            self.stop_self(message, e)
        else:
            self._on_start_returned()

    def _stop_receiver(self, message: str, error: BaseException | None) -> None:
        """Call `onStop` if the receiver is started, and post the stop. An error of `onStop` is logged."""
        with self._lock:
            was, self._state = self._state, SupervisorState.STOPPED
        if was is not SupervisorState.STARTED:
            return
        logger.info("Stopping receiver %d with message: %s", self._stream_id, _text(message, error))
        try:
            self._receiver.onStop()
        except Exception as e:
            logger.error("Error stopping receiver %d", self._stream_id, exc_info=e)
        self._tell(ReceiverNews("stopped", message, error, self._over.is_set()))


def _text(message: str, error: BaseException | None) -> str:
    return message if error is None else f"{message}: {type(error).__name__}: {error}"

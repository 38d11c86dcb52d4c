"""Receiver: what users subclass to bring records in from anywhere. The names are Spark's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol

from kstream.batch.plan import Json
from kstream.errors import IllegalStateError
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener


class Supervisor(Protocol):
    """What a receiver asks of whoever runs it. Any thread."""

    @property
    def stream_id(self) -> int: ...
    def store(self, record: Any) -> None: ...
    def store_each(self, records: Iterable[Any]) -> None: ...
    def store_all(self, records: Iterable[Any], metadata: Json) -> None: ...
    def store_bytes(self, pickled: bytes, metadata: Json) -> None: ...
    def create_block_generator(self, listener: BlockGeneratorListener) -> BlockGenerator: ...
    def report_error(self, message: str, error: BaseException | None) -> None: ...
    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None: ...
    def stop_self(self, message: str, error: BaseException | None) -> None: ...
    def is_started(self) -> bool: ...
    def is_stopped(self) -> bool: ...


class Receiver(ABC):
    """A source of records that come by themselves. `ssc.receiverStream(MyReceiver())` makes a stream of them:

        class Ticks(Receiver):
            def onStart(self):
                threading.Thread(target=self.run, daemon=True).start()

            def run(self):
                while not self.isStopped():
                    self.store(next_tick())

            def onStop(self):
                pass

    It runs in a Python worker of an executor, in a task of its own that takes a core; so it is pickled when the context starts: make
    sockets, locks and threads in `onStart`. After a failure, and after a restart of the driver, `onStart` is called again, on the same
    object or on another one.
    """

    storageLevel: Any = None
    """A pyspark StorageLevel: where the blocks are kept, and on how many executors; None is MEMORY_AND_DISK_2."""
    _supervisor: Supervisor | None = None

    def __init__(self, storageLevel: Any = None) -> None:
        self.storageLevel = storageLevel

    @abstractmethod
    def onStart(self) -> None:
        """Starts what brings the records in – a thread – and returns. What it raises stops the receiver; listeners are told."""

    @abstractmethod
    def onStop(self) -> None:
        """Ends what `onStart` started. On a graceful stop, what is stored before it returns still gets into a batch."""

    def preferredLocation(self) -> str | None:
        """The host on which it would best run, asked for on the driver; None: anywhere."""
        return None

    def store(self, dataItem: Any) -> None:
        """One record, into the block that is being filled; kept for good when that is closed. Any thread, any number at once.

        Waits for the rate limit (`spark.streaming.receiver.maxRate`). IllegalStateError after the receiver has been stopped for good.
        """
        self._running.store(dataItem)

    def storeEach(self, dataItems: Iterable[Any]) -> None:
        """Stores each record as `store` does, at a tenth of the cost: for a receiver that gets many records at a time.

        Under a rate limit each record enters a block as soon as it has its permit, and this returns when the last one has entered.
        IllegalStateError after the receiver has been stopped for good: the records that had entered are stored, the rest is not. Without
        a limit the records are pickled at once, and an error of pickling is raised here: none of them is stored then.
        """
        self._running.store_each(dataItems)

    def storeAll(self, dataItems: Iterable[Any], metadata: Json = None) -> None:
        """Many records as one block, that is one partition (Spark's `store` of an iterator or a buffer).

        Returns when the block is kept as well as was promised and the driver knows it: the source may be told that it has arrived.
        BlockNotStoredError, and none of it will be in a batch; RpcError, and it may or may not be. `metadata`, a JSON value, goes with
        the block to the driver. IllegalStateError after the receiver has been stopped for good.
        """
        self._running.store_all(dataItems, metadata)

    def storeBytes(self, pickled: bytes, metadata: Json = None) -> None:
        """As `storeAll`, of a list of records that has been pickled elsewhere (Spark's `store` of a ByteBuffer), by one call of dumps.
        Nobody counts them."""
        self._running.store_bytes(pickled, metadata)

    def createBlockGenerator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        """One more BlockGenerator, with this receiver's settings and rate (Spark's `supervisor.createBlockGenerator`).

        For a receiver that wants to know which of its records are in which block: the listener's `onPushBlock` gives it the block, to
        be stored by `storeAll`. Whoever asked starts and stops it, in `onStart` and `onStop`; what is left is stopped with the task.
        """
        return self._running.create_block_generator(listener)

    def reportError(self, message: str, throwable: BaseException | None = None) -> None:
        """Tells the log and the listeners of a fault that the receiver gets over by itself."""
        self._running.report_error(message, throwable)

    def restart(self, message: str, error: BaseException | None = None, millisecond: int | None = None) -> None:
        """Stops the receiver and starts it again after so long (`spark.streaming.receiverRestartDelay` without it). Returns at once.

        While one restart is under way, another changes nothing.
        """
        self._running.restart(message, error, millisecond)

    def stop(self, message: str, error: BaseException | None = None) -> None:
        """Ends this run of the receiver. While the stream runs its tracker starts another one, where it finds best, as Spark's does."""
        self._running.stop_self(message, error)

    def isStarted(self) -> bool:
        """Whether it has been started and not stopped, be it for a restart."""
        return self._supervisor is not None and self._supervisor.is_started()

    def isStopped(self) -> bool:
        """Whether its threads are to end: it is stopped, for good or for a restart."""
        return self._supervisor is None or self._supervisor.is_stopped()

    @property
    def streamId(self) -> int:
        """The id of its input stream."""
        return self._running.stream_id

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise IllegalStateError(f"{type(self).__name__} is not run by a stream: give it to ssc.receiverStream and start", state="new")
        return self._supervisor

    def attach(self, supervisor: Supervisor) -> None:
        """For whoever runs it, before `onStart`."""
        self._supervisor = supervisor

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_supervisor", None)
        return state

"""Receivers in the driver's process, for tests without Spark: the tracker, the supervisor and the messages are the product's."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kstream.clock import Clock, SystemClock
from kstream.dstream.received_blocks import ReceivedBlocks
from kstream.errors import BlocksLostError, IllegalStateError
from kstream.receiver import Receiver, ReceiverSupervisor, messages
from kstream.receiver.block_generator import BlockGenerator, BlockGeneratorListener, BlockIds
from kstream.receiver.block_reading import BlockLocations, Replica
from kstream.receiver.executor_process import ExecutorProcess
from kstream.receiver.messages import TrackerLink
from kstream.receiver.received_block_handler import ReceivedBlockStoreResult
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, Location
from kstream.receiver.receiver_task import PeerStores, ReceiverSession
from kstream.receiver.receiver_tracker import ReceiverTracker, ReceiverTrackerConfig
from kstream.rpc import RpcCredentials, to_body
from kstream.storage import FileStore
from kstream.wal import FileBasedWriteAheadLog, create_log_for_driver
from tests.fakes import FakeConf, FakeRDD

PATIENCE = 20.0
STORE = Replica("driver", "localhost", 0)


class ListSink:
    """Keeps what is stored, in order, until it is closed."""

    def __init__(self) -> None:
        self.stored: list[Any] = []
        self.calls: list[tuple[str, Any]] = []
        self.closed = False

    def add(self, record: Any) -> None:
        self._add("record", record, [record])

    def add_each(self, records: Iterable[Any]) -> None:
        for record in records:
            self.add(record)

    def add_all(self, records: Iterable[Any], metadata: Any = None) -> None:
        self._add("block", metadata, list(records))

    def add_bytes(self, pickled: bytes, metadata: Any = None) -> None:
        self._add("bytes", metadata, pickle.loads(pickled))

    def new_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        return BlockGenerator(listener, BlockIds(0), SystemClock())

    def close(self) -> None:
        self.closed = True

    def _add(self, how: str, what: Any, records: list[Any]) -> None:
        if self.closed:
            raise IllegalStateError("the receiver's stream has stopped: nothing can be stored any more", state="stopped")
        self.calls.append((how, what))
        self.stored.extend(records)


class Sink:
    """Each call of store is a block, which the tracker knows when it returns."""

    def __init__(self, executor: InDriver, link: TrackerLink, stream: int) -> None:
        self.executor, self.link, self.ids = executor, link, BlockIds(stream)
        self.closed = False

    def add(self, record: Any) -> None:
        self.add_all([record])

    def add_each(self, records: Iterable[Any]) -> None:
        self.add_all(records)

    def add_bytes(self, pickled: bytes, metadata: Any = None) -> None:
        self.add_all(pickle.loads(pickled), metadata)

    def new_generator(self, listener: BlockGeneratorListener) -> BlockGenerator:
        return BlockGenerator(listener, self.ids, self.executor.clock)

    def add_all(self, records: Iterable[Any], metadata: Any = None) -> None:
        if self.closed:
            raise IllegalStateError("the receiver's stream has stopped: nothing can be stored any more", state="stopped")
        kept, name = list(records), self.ids.next()
        handle = None
        if self.executor.log is not None:
            handle = self.executor.log.write(pickle.dumps(kept), self.executor.clock.time_ms())
        self.executor.blocks[name] = kept
        assert self.link.add_block(name, ReceivedBlockStoreResult(len(kept), ("driver",), handle, self.executor.clock.time_ms()), metadata)

    def close(self) -> None:
        self.closed = True


class InDriver:
    """One executor, the driver: what runs receivers, and what reads their blocks. With a `log` they are in there, too."""

    def __init__(self, clock: Clock, log: FileBasedWriteAheadLog | None = None) -> None:
        self.clock, self.log = clock, log
        self.blocks: dict[str, list[Any]] = {}
        self.tracker: ReceiverTracker | None = None
        self.not_found: dict[str, str] = {}

    def ask(self, what: str, body: bytes) -> bytes:
        """As an RpcClient."""
        assert self.tracker is not None
        return self.tracker.handlers[what](body)

    # -- ReceiverRunner

    def executors(self) -> list[ExecutorLocation]:
        return [ExecutorLocation("localhost", "driver")]

    def start_stores(self, at_least: int = 0) -> None:
        self.ask(messages.REGISTER_STORE, to_body(executor="driver", host="localhost", port=0))

    def forget_store(self, executor: str) -> None: ...
    def cancel(self, stream_id: int) -> None: ...
    def first_attempt_runs(self, stage: int) -> bool:
        return False

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: Callable[[str], None]) -> None:
        link: Any = TrackerLink(self, stream_id, run)  # pyright: ignore[reportArgumentType]

        def task() -> None:
            executor = ExecutorProcess(0, "driver", "localhost")
            if link.register(executor, "localhost")["accepted"]:
                session = ReceiverSession(link, executor, "localhost", PeerStores(RpcCredentials(""), []))
                sink, writer = self.sink(link, stream_id)
                supervisor = ReceiverSupervisor(receiver, stream_id, sink, self.clock, 2000, session.on_news, link.on_start_returned)
                supervisor.start()
                threading.Thread(target=session.follow, args=(supervisor, writer), daemon=True).start()
                session.over.wait()
                supervisor.stop(PATIENCE)
                link.deregister(*session.reason)
            ended("")

        threading.Thread(target=task, daemon=True).start()

    def sink(self, link: TrackerLink, stream_id: int) -> tuple[Any, Any]:
        """What a receiver stores into, and what does the driver's commands."""
        return Sink(self, link, stream_id), self

    def acknowledged_before(self) -> int:
        return self.clock.time_ms()

    def clean(self, threshold_ms: int) -> None:
        """What a receiver's ReceiverBlockWriter do with the driver's order."""
        assert self.log is not None
        self.log.clean(threshold_ms, True)

    # -- BlockReader

    def rdd(self, places: Sequence[BlockLocations], tolerate_loss: bool) -> Any:
        return FakeRDD([record for place in places for record in self._read(place, tolerate_loss)])

    def _read(self, place: BlockLocations, tolerate_loss: bool) -> list[Any]:
        if place.replicas and place.block_id in self.blocks:
            return self.blocks[place.block_id]
        if place.handle is not None and place.log is not None:
            return pickle.loads(place.log(place.handle))
        if not tolerate_loss:
            raise BlocksLostError(f"received block {place.block_id} is lost", time=None, stream=None, blocks=[])
        self.not_found[place.block_id] = "executor driver does not have it"
        return []

    def lost(self) -> Mapping[str, str]:
        return self.not_found

    def forget(self, names: Iterable[str]) -> None: ...

    def remove(self, store: Replica, names: Sequence[str]) -> None:
        assert store == STORE
        for name in names:
            self.blocks.pop(name, None)

    def end(self, store: Replica) -> None:
        self.blocks.clear()

    def close(self) -> None: ...


def received_in_driver(
    executor: InDriver, clock: Clock, tell: Callable[[Any], None], receivers: Mapping[int, Receiver], store: FileStore | None, log: Any
) -> ReceivedBlocks:
    """In the place of open_received_blocks."""
    written = None if store is None else create_log_for_driver(FakeConf(), store, probe=log.probe)
    blocks = ReceivedBlockTracker(receivers, clock, written, log.epoch)
    executor.tracker = ReceiverTracker(receivers, executor, blocks, clock, tell, config=ReceiverTrackerConfig(restart_delay_ms=0))
    return ReceivedBlocks(executor.tracker, blocks, executor, None if executor.log is None else executor.log.read)


def executors_of(tracker: ReceiverTracker) -> dict[int, str | None]:
    """Where each receiver runs, by stream; None for one that runs nowhere."""
    running = {stream: entry.info.running for stream, entry in tracker._entries.items()}
    return {stream: None if place is None else place.executor_id for stream, place in running.items()}

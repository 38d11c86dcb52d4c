"""A receiver's task against a driver's tracker, in threads of this process: two executors that are ports, and no Spark."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstream import Receiver
from kstream.clock import SystemClock
from kstream.errors import KStreamError, RpcError
from kstream.listener import StreamingListenerReceiverStarted, StreamingListenerReceiverStopped
from kstream.receiver import messages, receiver_task
from kstream.receiver.block_generator import RateLimiter
from kstream.receiver.block_reading import BlockLocations, read_block
from kstream.receiver.block_store import BlockStore
from kstream.receiver.block_store_process import StoreAddress
from kstream.receiver.executor_process import ExecutorProcess
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, Location
from kstream.receiver.receiver_task import OwnBlockStoreClient, PeerStores, ReceiverSession, ReceiverTask, ReceiverTaskConfig
from kstream.receiver.receiver_tracker import ReceiverTracker, ReceiverTrackerConfig
from kstream.rpc import RpcCredentials, RpcServer, to_body
from tests.receivers import executors_of

PATIENCE = 60.0


class Executors:
    """Runs receivers' tasks in threads, each on the first of its candidates."""

    def __init__(self, names: Sequence[str], credentials: RpcCredentials, around: ReceiverTaskConfig, folder: Path) -> None:
        self.credentials, self.around = credentials, around
        self.stores = {name: BlockStore(1_000_000, folder / name) for name in names}
        self.servers = {name: RpcServer(credentials, {}, store) for name, store in self.stores.items()}
        self.current = threading.local()
        self.tracker: ReceiverTracker | None = None
        self.threads: list[threading.Thread] = []

    def executors(self) -> list[ExecutorLocation]:
        return [ExecutorLocation("127.0.0.1", name) for name in self.servers]

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: Callable[[str], None]) -> None:
        def task() -> None:
            place = candidates[0]
            assert isinstance(place, ExecutorLocation)
            self.current.executor = place.executor_id
            reason = ""
            try:
                for _ in ReceiverTask(receiver, stream_id, run, self.around)("unused"):
                    pass
            except RpcError as e:  # the driver is gone
                reason = str(e)
            ended(reason)

        self.threads.append(threading.Thread(target=task, daemon=True))
        self.threads[-1].start()

    def start_stores(self, at_least: int = 0) -> None:
        for name in self.servers:
            self._told(name)

    def start_store(self, _around: ReceiverTaskConfig, _folder: str) -> tuple[ExecutorProcess, StoreAddress]:
        """In the place of the launcher's, which looks for a JVM."""
        name = self.current.executor
        return ExecutorProcess(0, name, "127.0.0.1"), self._told(name)

    def _told(self, name: str) -> StoreAddress:
        address = StoreAddress("127.0.0.1", self.servers[name].port, 0)
        assert self.tracker is not None
        self.tracker.handlers["RegisterBlockStore"](
            to_body(executor=name, host=address.host, port=address.port)
        )  # fmt: skip
        return address

    def forget_store(self, executor: str) -> None: ...
    def cancel(self, stream_id: int) -> None: ...
    def first_attempt_runs(self, stage: int) -> bool:
        return False

    def close(self) -> None:
        for server in self.servers.values():
            server.close()


class World:
    def __init__(self, receiver: Receiver, executors: Executors, server: RpcServer) -> None:
        self.changed = threading.Condition()
        self.events: list[Any] = []
        self.executors, self.server = executors, server
        self.blocks = ReceivedBlockTracker([0], SystemClock())
        self.tracker = ReceiverTracker(
            {0: receiver}, executors, self.blocks, SystemClock(), self.hear, ReceiverTrackerConfig(restart_delay_ms=0)
        )
        executors.tracker = self.tracker
        server.answer(self.tracker.handlers)
        self.tracker.start()

    def hear(self, event: Any) -> None:
        with self.changed:
            self.events.append(type(event))
            self.changed.notify_all()

    def wait_events(self, *kinds: type) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.events[: len(kinds)] == list(kinds), PATIENCE), self.events

    def records(self) -> list[Any]:
        """All that was received, in order of the blocks."""
        waiting = self.blocks.get_unallocated_blocks(0)
        places = [BlockLocations(block.block_id, block.num_records, self.tracker.replicas(block)) for block in waiting]
        return [record for place in places for record in read_block(place, self.executors.credentials)]


@contextmanager
def running(receiver: Receiver, folder: Path, monkeypatch: pytest.MonkeyPatch, executors: str = "12") -> Generator[World]:
    credentials = RpcCredentials.new()
    server = RpcServer(credentials, {})
    around = ReceiverTaskConfig(
        "127.0.0.1", server.port, credentials, 1_000_000, 1_000_000, block_interval_ms=10, restart_delay_ms=0
    )  # fmt: skip
    made = Executors(list(executors), credentials, around, folder)
    monkeypatch.setattr(receiver_task, "start_store", made.start_store)
    world = World(receiver, made, server)
    yield world
    world.tracker.stop(PATIENCE)
    for thread in made.threads:
        thread.join(PATIENCE)
    server.close()
    made.close()


class Scripted(Receiver):
    """Does one thing each time it is started, on a thread; then waits until it is stopped."""

    def __init__(self, *script: Callable[[Receiver], Any]) -> None:
        super().__init__()
        self.script: Iterator[Callable[[Receiver], Any]] = iter(script)
        self.done = threading.Semaphore(0)

    def onStart(self) -> None:
        step = next(self.script, None)

        def run() -> None:
            if step is not None:
                step(self)
            self.done.release()

        threading.Thread(target=run, daemon=True).start()

    def onStop(self) -> None: ...

    def wait_done(self) -> None:
        assert self.done.acquire(timeout=PATIENCE)


STARTED, STOPPED = StreamingListenerReceiverStarted, StreamingListenerReceiverStopped


def one_by_one(count: int) -> Callable[[Receiver], None]:
    return lambda receiver: [receiver.store(n) for n in range(count)] and None


def test_what_is_stored_one_by_one_is_in_blocks_in_order_when_the_receiver_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop drains: what had been stored is acknowledged by the driver before the task ends."""
    receiver = Scripted(one_by_one(1000))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        assert world.tracker.stop(PATIENCE)
        assert world.records() == list(range(1000))
        for store in world.executors.stores.values():
            assert store.usage()["blocks"] == len(world.blocks.get_unallocated_blocks(0))


def test_a_block_of_its_own_is_known_to_the_driver_when_storing_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Scripted(lambda r: r.storeAll(["a", "b"]))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        [block] = world.blocks.get_unallocated_blocks(0)
        assert block.num_records == 2 and sorted(block.executors) == ["1", "2"]
        assert world.records() == ["a", "b"]


def test_a_receiver_that_stops_itself_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour TR1."""
    receiver = Scripted(lambda r: r.stop("enough"), lambda r: r.storeAll([1]))
    with running(receiver, tmp_path, monkeypatch) as world:
        world.wait_events(STARTED, STOPPED, STARTED)
        receiver.wait_done()
        receiver.wait_done()
        assert world.records() == [1]


def test_a_task_that_spark_starts_on_another_executor_ends_without_running_its_receiver_which_is_scheduled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[list[str]] = []
    run = Executors.run

    def first_on_another(
        self: Executors, receiver: Receiver, stream_id: int, number: int, candidates: Sequence[Location], ended: Callable[[str], None]
    ) -> None:
        places.append([str(place) for place in candidates])
        run(self, receiver, stream_id, number, [ExecutorLocation("127.0.0.1", "2")] if number == 1 else candidates, ended)

    monkeypatch.setattr(Executors, "run", first_on_another)
    monkeypatch.setattr(Executors, "executors", lambda _self: [ExecutorLocation("127.0.0.1", "1")])
    receiver = Scripted(lambda r: r.storeAll([1]), lambda r: r.storeAll([2]))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        assert world.records() == [1], "it was started once"
        assert places == [["executor_127.0.0.1_1"]] * 2 and executors_of(world.tracker) == {0: "1"}
        assert world.events == [STARTED]


def test_a_restart_is_heard_as_a_stop_and_a_start_and_is_no_new_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Scripted(lambda r: r.restart("broken"), lambda r: r.storeAll([1]))
    with running(receiver, tmp_path, monkeypatch) as world:
        world.wait_events(STARTED, STOPPED, STARTED)
        receiver.wait_done()
        receiver.wait_done()
        assert world.records() == [1]
        assert world.tracker._entries[0].run == 1


def test_a_rate_reaches_the_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour TR1."""
    rates: list[int] = []
    reached = threading.Event()
    monkeypatch.setattr(RateLimiter, "updateRate", lambda _self, rate: (rates.append(rate), reached.set()))
    with running(Scripted(), tmp_path, monkeypatch) as world:
        world.wait_events(STARTED)
        world.tracker.send_rate_update(0, 100)
        assert reached.wait(PATIENCE) and rates == [100]


def test_a_receiver_whose_driver_is_gone_ends_and_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    receiver = Scripted()
    monkeypatch.setattr(receiver, "onStop", ended.set)
    with running(receiver, tmp_path, monkeypatch) as world:
        world.wait_events(STARTED)
        world.server.close()
        assert ended.wait(PATIENCE)
    [said] = [record for record in caplog.records if "its driver does not answer; the task ends: " in record.getMessage()]
    assert said.exc_info is None and "\n" not in said.getMessage()


def test_a_block_that_is_in_no_store_any_more_is_an_error_that_says_who_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Scripted(lambda r: r.storeAll([1]))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        [block] = world.blocks.get_unallocated_blocks(0)
        world.executors.stores["1"].remove([block.block_id])
        assert world.records() == [1]
        world.executors.stores["2"].remove([block.block_id])
        with pytest.raises(Exception, match=r"is lost: executor . does not have it; executor . does not have it"):
            world.records()


def test_pickled_records_are_a_block_that_nobody_has_counted_and_its_metadata_reaches_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark behaviour BH2."""
    receiver = Scripted(lambda r: r.storeBytes(pickle.dumps(["a", "b"]), {"offset": 7}))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        [block] = world.blocks.get_unallocated_blocks(0)
        assert (block.num_records, block.metadata) == (None, {"offset": 7})
        assert world.records() == ["a", "b"]


def test_a_receivers_own_generator_tells_it_what_is_in_which_block_and_the_stop_drains_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Knowing(Scripted):
        """Its records with their offsets, the way a reliable receiver keeps them."""

        def onStart(self) -> None:
            self.open: list[int] = []
            self.offsets: dict[str, list[int]] = {}
            self.generator = self.createBlockGenerator(self)
            self.generator.start()
            super().onStart()

        def onAddData(self, data: Any, metadata: Any) -> None:
            self.open.append(metadata)

        def onGenerateBlock(self, blockId: str) -> None:
            self.offsets[blockId], self.open = self.open, []

        def onPushBlock(self, blockId: str, arrayBuffer: list[Any]) -> None:
            self.storeAll(arrayBuffer, self.offsets.pop(blockId))

        def onError(self, message: str, throwable: BaseException) -> None:
            raise throwable

    def add(receiver: Any) -> None:
        for n in range(100):
            receiver.generator.addDataWithCallback(str(n), n)

    receiver = Knowing(add)
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        assert world.tracker.stop(PATIENCE)
        blocks = world.blocks.get_unallocated_blocks(0)
        assert [offset for block in blocks for offset in block.metadata] == list(range(100))
        assert world.records() == [str(n) for n in range(100)]


def test_ten_threads_that_store_a_thousand_records_each_have_stored_ten_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark behaviour IS7."""

    def store(receiver: Receiver) -> None:
        threads = [threading.Thread(target=lambda n=n: [receiver.store((n, i)) for i in range(1000)]) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    receiver = Scripted(store)
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        assert world.tracker.stop(PATIENCE)
        found = world.records()
        assert len(found) == 10_000 and all([i for n, i in found if n == thread] == list(range(1000)) for thread in range(10))


def test_many_stored_at_once_are_as_many_stored_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Scripted(lambda r: r.storeEach(range(5000)))
    with running(receiver, tmp_path, monkeypatch) as world:
        receiver.wait_done()
        assert world.tracker.stop(PATIENCE)
        assert world.records() == list(range(5000))


def test_a_store_that_has_died_while_its_executor_lives_is_started_again_by_the_next_block(tmp_path: Path) -> None:
    credentials, stores, servers = RpcCredentials.new(), [BlockStore(1000, tmp_path / n) for n in "12"], list[RpcServer]()

    def start() -> StoreAddress:
        servers.append(RpcServer(credentials, {}, stores[len(servers)]))
        return StoreAddress("127.0.0.1", servers[-1].port, 0)

    own = OwnBlockStoreClient("1", "127.0.0.1", start().port, credentials, start)
    own.put("a", [b"a"], "memory")
    servers[0].close()
    own.put("b", [b"b"], "memory")
    own.put("c", [b"c"], "memory")
    assert len(servers) == 2 and [stores[1].get(name) for name in "bc"] == [(b"b",), (b"c",)]
    servers[1].close()


def test_where_no_store_can_be_started_again_the_block_is_refused_there(tmp_path: Path) -> None:
    def start() -> StoreAddress:
        raise KStreamError("the block store of this executor did not come up: no memory")

    own = OwnBlockStoreClient("1", "127.0.0.1", 1, RpcCredentials.new(), start)
    with pytest.raises(RpcError, match="no memory"):
        own.put("a", [b"a"], "memory")


class Blocks:
    """Stored blocks all of which, up to some moment, the driver knows of."""

    def __init__(self) -> None:
        self.told = 1000
        self.cleaned: list[int] = []

    def acknowledged_before(self) -> int:
        return self.told

    def clean(self, threshold_ms: int) -> None:
        self.cleaned.append(threshold_ms)


def test_a_clean_up_goes_no_further_than_what_was_told_before_the_receiver_asked_for_orders() -> None:
    """What is told while the driver answers, its answer may not know."""
    blocks: Any = Blocks()

    class Link:
        stream_id = 0
        orders = iter([{"command": messages.CLEANUP_OLD_BLOCKS, "threshold": 2000}, {"command": messages.STOP_RECEIVER}])

        def next_command(self) -> dict[str, Any]:
            blocks.told = 3000
            return {**next(self.orders), "peers": []}

    link: Any = Link()
    session = ReceiverSession(link, ExecutorProcess(0, "1", "host1"), "host1", PeerStores(RpcCredentials(""), []))
    session.follow(None, blocks)  # pyright: ignore[reportArgumentType]
    assert blocks.cleaned == [1000] and session.reason[0] == "Stopped by driver"

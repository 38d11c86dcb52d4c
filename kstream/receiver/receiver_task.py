"""The long-running Spark task that is a receiver: what happens in the worker, from its registration to its end."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.clock import SystemClock
from kstream.errors import KStreamError, RpcError, RpcUnreachableError
from kstream.loop import THREADS
from kstream.receiver import messages
from kstream.receiver.block_generator import BlockIds
from kstream.receiver.block_store_launcher import StoreAddress, find_or_start
from kstream.receiver.block_store_process import Order, remove_blocks
from kstream.receiver.executor_process import ExecutorProcess, executor_of_this_worker
from kstream.receiver.packed_records import Dumps, dumps_plain
from kstream.receiver.rate_limiter import RateLimiter
from kstream.receiver.received_block_handler import (
    BlockStoreBasedBlockHandler,
    ReceivedBlockHandler,
    WriteAheadLogBasedBlockHandler,
)
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_logs import ReceiverLogs
from kstream.receiver.receiver_supervisor import ReceiverNews, ReceiverSupervisor
from kstream.receiver.storage_level import keeping
from kstream.receiver.stored_blocks import StoredBlocks
from kstream.receiver.tracker_link import TrackerLink
from kstream.rpc import RpcClient, RpcCredentials

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
"""Where a store listens in local mode. On a cluster it is the name that Spark has for the executor's machine."""
_STOP_S = 30.0
_HEARTBEAT_S = 5.0
_COPY_LOOKS_S = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every task of one context's receivers is told: where the driver listens, its credentials, the sizes. Pickled into the tasks."""

    driver_host: str
    driver_port: int
    credentials: RpcCredentials
    memory_bytes: int
    most_block_bytes: int
    block_interval_ms: int = 200
    block_queue_size: int = 10
    restart_delay_ms: int = 2000
    most_failures: int = 1
    max_rate: int | None = None
    initial_rate: int | None = None
    logs: ReceiverLogs | None = None
    """None: receivers write no write-ahead log."""
    block_store_timeout_s: float = 30.0

    def driver(self) -> RpcClient:
        """A client of the driver's port; a call may wait as long as the driver keeps `NextCommand` waiting."""
        return RpcClient(self.driver_host, self.driver_port, self.credentials, 60)


def start_store(around: Surroundings, folder: str) -> tuple[ExecutorProcess, StoreAddress]:
    """The store of this worker's executor, known to the driver when this returns. `folder`: one that all workers of the executor share,
    and no other executor has."""
    executor = executor_of_this_worker()
    order = Order(
        executor.pid,
        around.credentials,
        executor.host or LOOPBACK,
        around.memory_bytes,
        around.most_block_bytes,
        f"{folder}/kstream-blocks-{executor.pid}-{_whose(around.credentials.token)}",
    )
    address = find_or_start(order)
    with_driver = around.driver()
    with_driver.ask(
        messages.REGISTER_STORE, messages.to_body(executor=executor.executor_id, host=address.host, port=address.port)
    )  # fmt: skip
    with_driver.close()
    return executor, address


def _whose(token: str) -> str:
    """Each start of a context has stores of its own, also where one executor serves several: no one must clear another's away."""
    return hashlib.sha256(token.encode()).hexdigest()[:12]


class ExecutorStore:
    """One executor's store, as the handler wants it."""

    def __init__(self, executor_id: str, host: str, port: int, credentials: RpcCredentials) -> None:
        self.executor_id = executor_id
        self._client = RpcClient(host, port, credentials)

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        self._client.put(name, chunks, how)

    def remove(self, name: str) -> None:
        remove_blocks(self._client, [name])


class OwnStore(ExecutorStore):
    """This executor's. One that has died, while the executor lives, is started anew by the next block: `start` gives its address."""

    def __init__(self, executor_id: str, host: str, port: int, credentials: RpcCredentials, start: Callable[[], StoreAddress]) -> None:
        super().__init__(executor_id, host, port, credentials)
        self._credentials = credentials
        self._start = start

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        try:
            super().put(name, chunks, how)
        except RpcUnreachableError as e:
            logger.warning("the block store of this executor has died, and what it had with it; another is started: %s", e)
            try:
                address = self._start()
            except (KStreamError, OSError) as error:
                raise RpcError(f"no block store could be started again: {error}", place=e.facts["place"]) from error
            self._client = RpcClient(address.host, address.port, self._credentials)
            super().put(name, chunks, how)


class ReceiverTask:
    """One try to run one receiver. `run` is its number."""

    def __init__(self, receiver: Receiver, stream_id: int, run: int, around: Surroundings) -> None:
        self._receiver = receiver
        self._stream = stream_id
        self._run = run
        self._around = around

    def __call__(self, folder: str, dumps: Dumps = dumps_plain) -> Generator[str]:
        """Until the driver says stop, or is gone, or the receiver stops itself. Yields now and then, so that Spark does not take the worker
        for dead. `dumps` pickles what is received."""
        executor, address = start_store(self._around, folder)
        link = self._link()
        answer = link.register(executor, address.host)
        if not answer["accepted"]:
            logger.info("receiver %d is not to run here", self._stream)
            return
        peers = _Peers(self._around.credentials, answer["peers"])
        own = OwnStore(
            executor.executor_id, address.host, address.port, self._around.credentials, lambda: start_store(self._around, folder)[1]
        )  # fmt: skip
        life = _Life(link, executor, address.host, peers)
        blocks = self._blocks(own, peers, link, dumps)
        supervisor = ReceiverSupervisor(
            self._receiver, self._stream, blocks, SystemClock(), self._around.restart_delay_ms, life.hear
        )  # fmt: skip
        blocks.open()
        supervisor.start()
        THREADS.thread(lambda: life.follow(supervisor, blocks), f"Receiver-{self._stream}-orders").start()
        try:
            while not life.over.wait(_HEARTBEAT_S):
                yield ""
        finally:
            life.over.set()
            supervisor.stop(_STOP_S)
            link.deregister(*life.why)

    def wait_for_first_attempt(self, stage: int) -> Generator[str]:
        """What a speculative copy does instead: it takes no part, and must not end, either, for Spark would then end the other one."""
        link = self._link()
        while link.first_attempt_runs(stage):
            yield ""
            time.sleep(_COPY_LOOKS_S)

    def failed(self, error: BaseException) -> None:
        """Tells the driver why the task ends before its time."""
        self._link().report(f"Error starting receiver {self._stream}", error)

    def _link(self) -> TrackerLink:
        return TrackerLink(self._around.driver(), self._stream, self._run)

    def _blocks(self, own: ExecutorStore, peers: _Peers, link: TrackerLink, dumps: Dumps) -> StoredBlocks:
        around = self._around
        kept = keeping(self._receiver.storageLevel, around.logs is not None)
        handler: ReceivedBlockHandler = BlockStoreBasedBlockHandler(own, peers, kept.how, kept.replicas, around.most_failures)
        if around.logs is not None:
            log = around.logs.open(self._stream)
            handler = WriteAheadLogBasedBlockHandler(handler, log, SystemClock().time_ms, around.block_store_timeout_s)
        limiter = RateLimiter(SystemClock(), around.max_rate, around.initial_rate)
        return StoredBlocks(
            handler, link.add_block, link.report, BlockIds(self._stream), SystemClock(), around.block_interval_ms,
            around.block_queue_size, limiter, dumps,
        )  # fmt: skip


class _Life:
    """Of a receiver that runs: what its supervisor says goes to the driver, what the driver says to the supervisor.

    `over` is set when the task is to end: stopped by the driver or by itself, orphaned, or not wanted here any more; `why` says so.
    """

    def __init__(self, link: TrackerLink, executor: ExecutorProcess, host: str, peers: _Peers) -> None:
        self._link = link
        self._executor = executor
        self._host = host
        self._peers = peers
        self._registered = True
        self.over = THREADS.event()
        self.why: tuple[str, BaseException | None] = ("Its task was ended", None)

    def hear(self, news: ReceiverNews) -> None:
        """From the supervisor. A restart is a stop and a start to the driver too, as in Spark."""
        if news.kind == "error":
            self._link.report(news.message, news.error)
        elif news.kind == "stopped" and news.for_good:
            if not self.over.is_set():
                self._end(news.message, news.error)
        elif news.kind == "stopped":
            self._registered = False
            self._link.deregister(news.message, news.error)
        elif not self._registered:
            self._registered = True
            self._register_again()

    def follow(self, supervisor: ReceiverSupervisor, blocks: StoredBlocks) -> None:
        """On a thread of its own, until it is over."""
        try:
            while not self.over.is_set():
                told = blocks.told_before()  # first: what is told while the driver answers, its answer need not know
                self._do(self._link.next_command(), supervisor, blocks, told)
        except Exception as e:
            logger.warning("receiver %d has lost its driver", self._link.stream_id, exc_info=e)
            self._end("Lost its driver", e)

    def _do(self, order: Mapping[str, Any], supervisor: ReceiverSupervisor, blocks: StoredBlocks, told: int) -> None:
        self._peers.are(order["peers"])
        command = order["command"]
        if command == messages.STOP_RECEIVER:
            self._end("Stopped by driver", None)
        elif command == messages.RESTART_RECEIVER:
            supervisor.restart(order["message"], None, None)
        elif command == messages.UPDATE_RATE_LIMIT:
            blocks.update_rate(order["rate"])
        elif command == messages.CLEANUP_OLD_BLOCKS:
            blocks.clean(min(order["threshold"], told))

    def _register_again(self) -> None:
        try:
            if self._link.register(self._executor, self._host)["accepted"]:
                return
            self._end("It is not to run here any more", None)
        except RpcError as e:
            self._end("Lost its driver", e)

    def _end(self, message: str, error: BaseException | None) -> None:
        self.why = (message, error)
        self.over.set()


class _Peers:
    """The stores of the other executors, as the driver last told."""

    def __init__(self, credentials: RpcCredentials, told: Sequence[Sequence[Any]]) -> None:
        self._credentials = credentials
        self._stores: dict[tuple[str, str, int], ExecutorStore] = {}
        self.are(told)

    def are(self, told: Sequence[Sequence[Any]]) -> None:
        before = self._stores
        self._stores = {
            (executor, host, port): before.get((executor, host, port)) or ExecutorStore(executor, host, port, self._credentials)
            for executor, host, port in told
        }

    def __call__(self) -> list[ExecutorStore]:
        return list(self._stores.values())

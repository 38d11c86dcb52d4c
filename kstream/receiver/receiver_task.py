"""The long-running Spark task that runs a receiver in a worker, from the receiver's registration to its end."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.clock import SystemClock
from kstream.errors import RpcError, one_line
from kstream.loop import THREADS
from kstream.receiver import messages
from kstream.receiver.block_generator import BlockIds, RateLimiter
from kstream.receiver.block_reading import ReceiverLogs
from kstream.receiver.block_store import BlockStoreClient, OwnBlockStoreClient, StoreAddress, effective_storage_level
from kstream.receiver.block_store_process import BlockStoreSpec, find_or_start
from kstream.receiver.block_writer import BlockWriterConfig, Dumps, ReceiverBlockWriter, dumps_plain
from kstream.receiver.executor_process import ExecutorProcess, executor_of_this_worker
from kstream.receiver.messages import TrackerLink
from kstream.receiver.received_block_handler import BlockStoreBasedBlockHandler, ReceivedBlockHandler, WriteAheadLogBasedBlockHandler
from kstream.receiver.receiver import Receiver, ReceiverNews, ReceiverSupervisor
from kstream.rpc import RpcClient, RpcCredentials, to_body

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
"""The address on which a store listens in local mode. On a cluster it listens on Spark's name of the executor's machine."""
_STOP_TIMEOUT_S = 30.0
_HEARTBEAT_S = 5.0
_COPY_POLL_S = 1.0
_DRIVER_TIMEOUT_S = 60
"""Seconds without an answer after which the driver counts as unreachable. The driver holds back `NextCommand` for a shorter time."""


@dataclass(frozen=True, slots=True)
class ReceiverTaskConfig:
    """The settings of all receiver tasks of one start of a context, with the driver's address and credentials. Pickled into the tasks."""

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
        """Make a client of the driver's RpcServer. Sends nothing."""
        return RpcClient(self.driver_host, self.driver_port, self.credentials, _DRIVER_TIMEOUT_S)


def start_store(config: ReceiverTaskConfig, folder: str) -> tuple[ExecutorProcess, StoreAddress]:
    """Find or start the store of this worker's executor, and register it with the driver. Blocks.

    Args:
        config: The settings of the tasks.
        folder: A folder that all workers of the executor share, and no other executor has.

    Returns:
        The executor, and the address of its store.

    Raises:
        KStreamError: this process is no worker of Spark, or the store did not start.
        RpcError: the store or the driver does not answer.
    """
    executor = executor_of_this_worker()
    spec = BlockStoreSpec(
        executor.pid,
        config.credentials,
        executor.host or LOOPBACK,
        config.memory_bytes,
        config.most_block_bytes,
        f"{folder}/kstream-blocks-{executor.pid}-{_digest(config.credentials.token)}",
    )
    address = find_or_start(spec)
    driver = config.driver()
    driver.ask(messages.REGISTER_STORE, to_body(executor=executor.executor_id, host=address.host, port=address.port))
    driver.close()
    return executor, address


def _digest(token: str) -> str:
    """Return the part of a store's folder name that belongs to one start of a context.

    One executor may serve several contexts, each with a store of its own.
    """
    return hashlib.sha256(token.encode()).hexdigest()[:12]


class ReceiverTask:
    """The task of one receiver run. `run` is the number of the run."""

    def __init__(self, receiver: Receiver, stream_id: int, run: int, config: ReceiverTaskConfig) -> None:
        self._receiver = receiver
        self._stream = stream_id
        self._run = run
        self._config = config

    def __call__(self, folder: str, dumps: Dumps = dumps_plain) -> Generator[str]:
        """Run the receiver until the driver stops it or is gone, the receiver stops itself, or the caller closes the generator.

        If the driver refuses the run, the generator ends at once.

        Args:
            folder: The argument of `start_store`.
            dumps: Pickles a list of received records.

        Yields:
            An empty string every few seconds, so that Spark does not take the worker for dead.

        Raises:
            KStreamError: the run could not begin; see `start_store`.
        """
        executor, address = start_store(self._config, folder)
        link = self._link()
        answer = link.register(executor, address.host)
        if not answer["accepted"]:
            logger.info("receiver %d: the driver refuses this run; the task ends", self._stream)
            return
        peers = PeerStores(self._config.credentials, answer["peers"])
        own = OwnBlockStoreClient(
            executor.executor_id,
            address.host,
            address.port,
            self._config.credentials,
            lambda: start_store(self._config, folder)[1],
        )
        session = ReceiverSession(link, executor, address.host, peers)
        writer = self._writer(own, peers, link, dumps)
        delay_ms = self._config.restart_delay_ms
        supervisor = ReceiverSupervisor(
            self._receiver, self._stream, writer, SystemClock(), delay_ms, session.on_news, link.on_start_returned
        )
        writer.open()
        supervisor.start()
        THREADS.thread(lambda: session.follow(supervisor, writer), f"Receiver-{self._stream}-commands").start()
        try:
            while not session.over.wait(_HEARTBEAT_S):
                yield ""
        finally:
            session.over.set()
            supervisor.stop(_STOP_TIMEOUT_S)
            link.deregister(*session.reason)

    def wait_for_first_attempt(self, stage: int) -> Generator[str]:
        """Wait, as a speculative copy, until the first attempt has ended. Yields as `__call__`. RpcError if the driver does not answer.

        A copy must not run the receiver. If the copy ended first, Spark would end the first attempt.
        """
        link = self._link()
        while link.first_attempt_runs(stage):
            yield ""
            time.sleep(_COPY_POLL_S)

    def failed(self, error: BaseException) -> None:
        """Report the error with which the task has failed to the driver. Blocks; an RpcError is logged."""
        self._link().report(f"Error starting receiver {self._stream}", error, ends=True)

    def _link(self) -> TrackerLink:
        return TrackerLink(self._config.driver(), self._stream, self._run)

    def _writer(self, own: BlockStoreClient, peers: PeerStores, link: TrackerLink, dumps: Dumps) -> ReceiverBlockWriter:
        """Make the writer of the receiver's blocks, with a write-ahead log if the config has logs."""
        config = self._config
        level = effective_storage_level(self._receiver.storageLevel, config.logs is not None)
        replicas = BlockStoreBasedBlockHandler(own, peers, level.level, level.replicas, config.most_failures)
        handler: ReceivedBlockHandler = replicas
        if config.logs is not None:
            log = config.logs.open(self._stream)
            handler = WriteAheadLogBasedBlockHandler(replicas, log, SystemClock().time_ms, config.block_store_timeout_s)
        limiter = RateLimiter(SystemClock(), config.max_rate, config.initial_rate)
        sizes = BlockWriterConfig(config.block_interval_ms, config.block_queue_size)
        return ReceiverBlockWriter(handler, link.add_block, link.report, BlockIds(self._stream), SystemClock(), sizes, limiter, dumps)


class ReceiverSession:
    """The connection of a running receiver with the driver.

    The supervisor's news go to the driver, and the driver's commands go to the supervisor. `on_news` is called on threads of the
    supervisor and, for errors, of the receiver. `follow` has a thread of its own. The task waits for `over`, which is set when the task
    should end. Then the driver or the receiver itself has stopped the receiver, the driver is gone, or another run has replaced this one.
    `reason` is set before `over`.
    """

    def __init__(self, link: TrackerLink, executor: ExecutorProcess, host: str, peers: PeerStores) -> None:
        self._link = link
        self._executor = executor
        self._host = host
        self._peers = peers
        self._registered = True
        self.over = THREADS.event()
        self.reason: tuple[str, BaseException | None] = ("Its task was ended", None)

    def on_news(self, news: ReceiverNews) -> None:
        """Send an event of the receiver to the driver. Blocks. A restart is a stop and a start for the driver, too, as in Spark."""
        if news.kind == "error":
            self._link.report(news.message, news.error)
        elif news.kind == "stopped" and news.for_good:
            if not self.over.is_set():
                self._end(news.message, news.error)
        elif news.kind == "stopped":
            self._registered = False
            self._link.deregister(news.message, news.error, ends=False)
        elif not self._registered:
            self._registered = True
            self._register_again()

    def follow(self, supervisor: ReceiverSupervisor, writer: ReceiverBlockWriter) -> None:
        """Ask the driver for commands and do them, until the session is over. An error of the driver ends the session. Blocks."""
        try:
            while not self.over.is_set():
                acknowledged = writer.acknowledged_before()  # taken before the request: the answer may not consider blocks sent meanwhile
                self._do(self._link.next_command(), supervisor, writer, acknowledged)
        except Exception as e:
            unexpected = None if isinstance(e, RpcError) else e
            logger.warning(
                "receiver %d: its driver does not answer; the task ends: %s", self._link.stream_id, one_line(e), exc_info=unexpected
            )
            self._end("Lost its driver", e)

    def _do(self, answer: Mapping[str, Any], supervisor: ReceiverSupervisor, writer: ReceiverBlockWriter, acknowledged: int) -> None:
        """Use the list of stores in an answer of the driver, and do its command."""
        self._peers.update(answer["peers"])
        command = answer["command"]
        if command == messages.STOP_RECEIVER:
            self._end("Stopped by driver", None)
        elif command == messages.UPDATE_RATE_LIMIT:
            writer.update_rate(answer["rate"])
        elif command == messages.CLEANUP_OLD_BLOCKS:
            writer.clean(min(answer["threshold"], acknowledged))

    def _register_again(self) -> None:
        """Register the receiver after a restart. End the session if the driver refuses it or does not answer."""
        try:
            if self._link.register(self._executor, self._host)["accepted"]:
                return
            self._end("It is not to run here any more", None)
        except RpcError as e:
            self._end("Lost its driver", e)

    def _end(self, message: str, error: BaseException | None) -> None:
        self.reason = (message, error)
        self.over.set()


class PeerStores:
    """The clients of the stores in the driver's last answer. One thread calls `update`; any thread may call the object.

    The map is replaced as a whole, so that no lock is needed.
    """

    def __init__(self, credentials: RpcCredentials, peers: Sequence[Sequence[Any]]) -> None:
        self._credentials = credentials
        self._stores: dict[tuple[str, str, int], BlockStoreClient] = {}
        self.update(peers)

    def update(self, peers: Sequence[Sequence[Any]]) -> None:
        """Replace the stores by a list of [executor, host, port]. Clients of stores that remain are kept."""
        before = self._stores
        self._stores = {
            (executor, host, port): before.get((executor, host, port)) or BlockStoreClient(executor, host, port, self._credentials)
            for executor, host, port in peers
        }

    def __call__(self) -> list[BlockStoreClient]:
        return list(self._stores.values())

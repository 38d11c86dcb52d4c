"""The long-running Spark task that is a receiver: what happens in the worker, from its registration to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kstream.clock import SystemClock
from kstream.errors import RpcError
from kstream.loop import THREADS
from kstream.loop.runtime import Event
from kstream.receiver import messages
from kstream.receiver.block_generator import BlockIds
from kstream.receiver.block_store_launcher import StoreAddress, find_or_start
from kstream.receiver.block_store_process import Order
from kstream.receiver.executor_process import ExecutorProcess, executor_of_this_worker
from kstream.receiver.rate_limiter import RateLimiter
from kstream.receiver.received_block_handler import BlockStoreBasedBlockHandler, StoredBlock
from kstream.receiver.receiver import Receiver
from kstream.receiver.receiver_supervisor import ReceiverNews, ReceiverSupervisor
from kstream.receiver.stored_blocks import StoredBlocks
from kstream.rpc import RpcClient

logger = logging.getLogger(__name__)
_STOP_S = 30.0
_HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every task of one context's receivers is told: where the driver listens, the token, the sizes. Pickled into the tasks."""

    driver_host: str
    driver_port: int
    token: str
    memory_bytes: int
    most_block_bytes: int
    bind_host: str
    block_interval_ms: int = 200
    block_queue_size: int = 10
    restart_delay_ms: int = 2000
    replicas: int = 2
    most_failures: int = 1
    max_rate: int | None = None
    initial_rate: int | None = None
    how: str = "memory-and-disk"

    def driver(self) -> RpcClient:
        """A client of the driver's port; a call may wait as long as the driver keeps `NextCommand` waiting."""
        return RpcClient(self.driver_host, self.driver_port, self.token, 60)


def start_store(around: Surroundings, folder: str) -> tuple[ExecutorProcess, StoreAddress]:
    """The store of this worker's executor, known to the driver when this returns. `folder`: one that all workers of the executor share,
    and no other executor has."""
    executor = executor_of_this_worker()
    order = Order(
        executor.pid,
        around.token,
        around.bind_host,
        around.memory_bytes,
        around.most_block_bytes,
        f"{folder}/kstream-blocks-{executor.pid}",
    )
    address = replace(find_or_start(order), host=executor.host or around.driver_host)
    with_driver = around.driver()
    with_driver.ask(
        messages.REGISTER_STORE, messages.to_body(executor=executor.executor_id, host=address.host, port=address.port)
    )  # fmt: skip
    with_driver.close()
    return executor, address


class ExecutorStore:
    """One executor's store, as the handler wants it."""

    def __init__(self, executor_id: str, host: str, port: int, token: str) -> None:
        self.executor_id = executor_id
        self._client = RpcClient(host, port, token)

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        self._client.put(name, chunks, how)


class ReceiverTask:
    """One try to run one receiver. `run` is its number."""

    def __init__(self, receiver: Receiver, stream_id: int, run: int, around: Surroundings) -> None:
        self._receiver = receiver
        self._stream = stream_id
        self._run = run
        self._around = around

    def __call__(self, folder: str) -> Generator[str]:
        """Until the driver says stop, or is gone. Yields now and then, so that Spark does not take the worker for dead."""
        executor, address = start_store(self._around, folder)
        driver = self._around.driver()
        said = {"stream": self._stream, "run": self._run}
        answer = messages.of_body(
            driver.ask(messages.REGISTER_RECEIVER, messages.to_body(**said, executor=executor.executor_id, host=address.host))
        )
        if not answer["accepted"]:
            logger.info("receiver %d is not to run here", self._stream)
            return
        peers = _Peers(self._around.token, answer["peers"])
        own = ExecutorStore(executor.executor_id, address.host, address.port, self._around.token)
        blocks = self._blocks(own, peers, driver)
        supervisor = ReceiverSupervisor(
            self._receiver, self._stream, blocks, SystemClock(), self._around.restart_delay_ms, self._tell(driver)
        )  # fmt: skip
        over = THREADS.event()
        orders = _Orders(driver, said, supervisor, blocks, peers, over)
        blocks.open()
        supervisor.start()
        THREADS.thread(orders.follow, f"Receiver-{self._stream}-orders").start()
        try:
            while not over.wait(_HEARTBEAT_S):
                yield ""
        finally:
            supervisor.stop(_STOP_S)
            told = messages.to_body(**said, message=orders.ended, error=orders.error)
            _try(lambda: driver.ask(messages.DEREGISTER_RECEIVER, told))

    def failed(self, error: BaseException) -> None:
        """Tells the driver why the task ends before its time."""
        driver = self._around.driver()
        self._report(driver, f"Error starting receiver {self._stream}", error)
        driver.close()

    def _blocks(self, own: ExecutorStore, peers: _Peers, driver: RpcClient) -> StoredBlocks:
        around = self._around

        def add_block(name: str, stored: StoredBlock) -> bool:
            body = messages.to_body(stream=self._stream, id=name, records=stored.num_records, executors=stored.executors, metadata=None)
            return messages.of_body(driver.ask(messages.ADD_BLOCK, body))["added"]

        def on_error(message: str, error: BaseException) -> None:
            self._report(driver, message, error)

        handler = BlockStoreBasedBlockHandler(own, peers, around.how, around.replicas, around.most_failures)
        limiter = RateLimiter(SystemClock(), around.max_rate, around.initial_rate)
        return StoredBlocks(
            handler, add_block, on_error, BlockIds(self._stream), SystemClock(), around.block_interval_ms, around.block_queue_size, limiter
        )  # fmt: skip

    def _tell(self, driver: RpcClient) -> Callable[[ReceiverNews], None]:
        def tell(news: ReceiverNews) -> None:
            if news.kind == "error":
                self._report(driver, news.message, news.error)

        return tell

    def _report(self, driver: RpcClient, message: str, error: BaseException | None) -> None:
        said = "" if error is None else f"{type(error).__name__}: {error}"
        _try(lambda: driver.ask(messages.REPORT_ERROR, messages.to_body(stream=self._stream, message=message, error=said)))


class _Orders:
    """What the driver tells the receiver to do. `over` is set when the task is to end: stopped by the driver or by itself, or orphaned."""

    def __init__(
        self, driver: RpcClient, said: dict[str, Any], supervisor: ReceiverSupervisor, blocks: StoredBlocks, peers: _Peers, over: Event
    ) -> None:  # fmt: skip
        self._driver = driver
        self._said = said
        self._supervisor = supervisor
        self._blocks = blocks
        self._peers = peers
        self._over = over
        self.ended, self.error = "Stopped by itself", ""

    def follow(self) -> None:
        """On a thread of its own, until it is over."""
        try:
            while not self._supervisor.is_over():
                if not self._do(messages.of_body(self._driver.ask(messages.NEXT_COMMAND, messages.to_body(**self._said)))):
                    break
        except Exception as e:
            logger.warning("receiver %s has lost its driver", self._said["stream"], exc_info=e)
            self.ended, self.error = "Lost its driver", str(e)
        finally:
            self._over.set()

    def _do(self, order: Mapping[str, Any]) -> bool:
        """Whether the receiver goes on."""
        self._peers.are(order["peers"])
        command = order["command"]
        if command == messages.STOP_RECEIVER:
            self.ended = "Stopped by driver"
            return False
        if command == messages.RESTART_RECEIVER:
            self._supervisor.restart(order["message"], None, None)
        elif command == messages.UPDATE_RATE_LIMIT:
            self._blocks.update_rate(order["rate"])
        return True


class _Peers:
    """The stores of the other executors, as the driver last told."""

    def __init__(self, token: str, told: Sequence[Sequence[Any]]) -> None:
        self._token = token
        self._stores: dict[tuple[Any, ...], ExecutorStore] = {}
        self.are(told)

    def are(self, told: Sequence[Sequence[Any]]) -> None:
        before = self._stores
        self._stores = {
            (executor, host, port): before.get((executor, host, port)) or ExecutorStore(executor, host, port, self._token)
            for executor, host, port in told
        }

    def __call__(self) -> list[ExecutorStore]:
        return list(self._stores.values())


def _try(tell: Callable[[], object]) -> None:
    """What cannot be told is in the executor's log."""
    try:
        tell()
    except RpcError as e:
        logger.warning("%s", e)

"""The Spark side of a context's receivers: the driver's port, their tasks, stores and logs, and received blocks as RDDs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.checkpoint import BatchLog
from kstream.clock import Clock
from kstream.conf import Settings, parse_bool
from kstream.dstream.received_blocks import ReceivedBlocks
from kstream.errors import BlocksLostError, ConfigurationError
from kstream.loop import Event
from kstream.receiver import Receiver
from kstream.receiver.block_reading import BlockLocations, OpensStore, ReceiverLogs, Replica, read_block
from kstream.receiver.block_store import END, effective_storage_level, remove_blocks
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_task import LOOPBACK, ReceiverTaskConfig
from kstream.receiver.receiver_tracker import ReceiverTracker, ReceiverTrackerConfig
from kstream.receiver.settings import (
    BLOCK_INTERVAL,
    BLOCK_QUEUE_SIZE,
    BLOCK_STORE_MEMORY,
    BLOCK_STORE_TIMEOUT,
    MAX_REPLICATION_FAILURES,
    RECEIVER_MAX_RATE,
    RECEIVER_PORT,
    RESTART_DELAY,
)
from kstream.rpc import RpcClient, RpcCredentials, RpcServer
from kstream.rpc.settings import RPC_ENCRYPT
from kstream.scheduler.settings import INITIAL_RATE
from kstream.spark.executors import block_locations, free_executors, is_local, known_executors, set_receivers
from kstream.spark.hadoop_file_store import HadoopFileStore
from kstream.spark.receiver_runner import SparkReceiverRunner
from kstream.spark.worker_rdd import WorkerRDD
from kstream.storage import FileStore
from kstream.storage.open import place_for_workers
from kstream.storage.settings import SINGLE_WRITER
from kstream.wal import create_log_for_driver
from kstream.wal.settings import WRITE_AHEAD_LOG

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

MOST_BLOCK_BYTES = 512 * 1024 * 1024
_SPARKS_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")
_LOG_SETTINGS = "spark.streaming."
_STORE_TIMEOUT_S = 10.0


def open_received_blocks(
    sc: SparkContext,
    settings: Settings,
    clock: Clock,
    tell: Callable[[Any], None],
    stop_wanted: Event,
    receivers: Mapping[int, Receiver],
    store: FileStore | None,
    log: BatchLog,
) -> ReceivedBlocks:
    """Make the received blocks of one start, and open the driver's port. The thread that starts the context calls this function.

    It also notes on `sc` where receivers run; see `free_executors`. `ReceivedBlocks.close` closes the port and removes the note.

    Args:
        sc: The SparkContext.
        settings: The settings of the context.
        clock: The clock of the driver.
        tell: Posts an event to the listeners; any thread.
        stop_wanted: Set when the context is to stop. It ends later waits for executors.
        receivers: The receivers by stream id.
        store: The checkpoint's store; None without a checkpoint.
        log: The log of plans.

    Raises:
        ConfigurationError: a setting cannot work, or executors reach no store of the write-ahead logs.
        RpcError: the driver cannot listen on its address.
        StorageError: the JVM does not answer for a store of Hadoop.
    """
    logs = _receiver_logs(sc, settings, store) if settings[WRITE_AHEAD_LOG] else None
    credentials = rpc_credentials(settings, clock)
    bind, advertised = driver_addresses(sc)
    server = RpcServer(credentials, {}, host=bind, port=settings[RECEIVER_PORT])
    try:
        config = _task_config(settings, advertised, server.port, credentials, logs)
        runner = SparkReceiverRunner(sc, config, stop_wanted)
        replicas = max(effective_storage_level(receiver.storageLevel, logs is not None).replicas for receiver in receivers.values())
        driver_log = None if store is None else create_log_for_driver(settings.source, store, probe=log.probe)
        blocks = ReceivedBlockTracker(receivers, clock, driver_log, log.epoch)
        tracker = ReceiverTracker(receivers, runner, blocks, clock, tell, ReceiverTrackerConfig(stores_at_first=replicas))
        reader = SparkBlockReader(sc, credentials)
    except BaseException:
        server.close()
        raise
    server.answer(tracker.handlers)
    set_receivers(sc, tracker.receivers_on_executors)
    return ReceivedBlocks(tracker, blocks, reader, None if logs is None else logs.read, server)


def driver_addresses(sc: SparkContext) -> tuple[str, str]:
    """Return the address on which the driver listens, and the one that executors use: those of Spark's own driver."""
    if is_local(sc):
        return LOOPBACK, LOOPBACK
    conf = sc.getConf()
    advertised = conf.get("spark.driver.host") or LOOPBACK
    return conf.get("spark.driver.bindAddress") or advertised, advertised


def rpc_credentials(settings: Settings, clock: Clock) -> RpcCredentials:
    """Make new credentials. They encrypt if the setting is true, or if it is not set and Spark encrypts its own messages."""
    encrypt = settings[RPC_ENCRYPT]
    if encrypt is None:
        encrypt = any(parse_bool(settings.source.get(key) or "false") for key in _SPARKS_ENCRYPTION)
    if not encrypt:
        return RpcCredentials.new()
    return RpcCredentials.new_encrypting(datetime.fromtimestamp(clock.time_ms() / 1000, timezone.utc))


def _task_config(
    settings: Settings, driver_host: str, driver_port: int, credentials: RpcCredentials, logs: ReceiverLogs | None
) -> ReceiverTaskConfig:
    """Return the settings that the tasks of receivers and stores need. `logs` is None without write-ahead logs."""
    return ReceiverTaskConfig(
        driver_host,
        driver_port,
        credentials,
        memory_bytes=settings[BLOCK_STORE_MEMORY],
        most_block_bytes=MOST_BLOCK_BYTES,
        block_interval_ms=settings[BLOCK_INTERVAL],
        block_queue_size=settings[BLOCK_QUEUE_SIZE],
        restart_delay_ms=settings[RESTART_DELAY],
        most_failures=settings[MAX_REPLICATION_FAILURES],
        max_rate=settings[RECEIVER_MAX_RATE] or None,
        initial_rate=settings[INITIAL_RATE] or None,
        logs=logs,
        block_store_timeout_s=settings[BLOCK_STORE_TIMEOUT],
    )


def place_of(store: FileStore, single_writer: bool) -> OpensStore | None:
    """Return the address by which workers open a checkpoint's store; None if only the driver can reach the store (memory://).

    Asks the driver's JVM for a store of Hadoop; raises StorageError if the JVM does not answer.
    """
    return store.for_workers() if isinstance(store, HadoopFileStore) else place_for_workers(store, single_writer)


def _receiver_logs(sc: SparkContext, settings: Settings, store: FileStore | None) -> ReceiverLogs:
    """Return the settings and the place of the receivers' write-ahead logs.

    Raises:
        ConfigurationError: there is no checkpoint, or executors cannot write to its store.
    """
    if store is None:
        raise ConfigurationError(
            "Cannot enable receiver write-ahead log without checkpoint directory set. Please use streamingContext.checkpoint() to set the "
            "checkpoint directory. See documentation for more details.",
            key=WRITE_AHEAD_LOG.key,
            value=True,
        )
    place = place_of(store, settings[SINGLE_WRITER])
    if place is None:
        raise ConfigurationError(
            f"{WRITE_AHEAD_LOG} is true, but executors cannot write to the checkpoint directory {store.url} themselves: use one on a file "
            "system that all share, on HDFS or on an object store",
            key=WRITE_AHEAD_LOG.key,
            value=store.url,
        )
    conf = tuple(sorted((key, value) for key, value in sc.getConf().getAll() if key.startswith(_LOG_SETTINGS)))
    return ReceiverLogs(conf, place)


# -- blocks as RDDs


class SparkBlockReader:
    """The BlockReader of one start of a context: it reads blocks in tasks. Any thread; `_lock` guards `_clients`."""

    def __init__(self, sc: SparkContext, credentials: RpcCredentials) -> None:
        self._sc = sc
        self._credentials = credentials
        self._lock = threading.Lock()
        self._clients: dict[Replica, RpcClient] = {}
        self._lost: Any = sc.accumulator({}, _LostBlocksParam())  # pyright: ignore[reportArgumentType] # Spark asks for no base class

    def rdd(self, blocks: Sequence[BlockLocations], tolerate_loss: bool) -> RDD[Any]:
        """Make an RDD with a partition for each block. A task prefers an executor that has its block and a core without a receiver.

        A task that runs elsewhere reads its block over the network, or from the write-ahead log. The locations come from the list of
        executors that was found last, without a call to the JVM; the tracker renews the list every few seconds.

        Args:
            blocks: The places of each block.
            tolerate_loss: Whether a lost block is an empty partition and appears in `lost`. Otherwise its task fails with BlocksLostError.
        """
        locations = self._locations(blocks)
        read = partial(_read, tuple(blocks), self._credentials, self._lost if tolerate_loss else None)
        return WorkerRDD(self._sc, len(blocks), read, locations if any(locations) else None)

    def _locations(self, blocks: Sequence[BlockLocations]) -> list[list[str]]:
        """Return the locations that the task of each block prefers, in Spark's notation."""
        there = known_executors(self._sc)
        holders = [[replica.executor_id for replica in block.replicas] for block in blocks]
        found = block_locations(holders, there, free_executors(self._sc, there))
        return [[str(location) for location in locations] for locations in found]

    def lost(self) -> Mapping[str, str]:
        """Return the lost blocks that tasks of RDDs that tolerate losses have met: the error text by block id."""
        known: dict[str, str] = self._lost.value
        return dict(known)

    def forget(self, block_ids: Iterable[str]) -> None:
        """Remove blocks from `lost`."""
        known: dict[str, str] = self._lost.value
        for block_id in block_ids:
            known.pop(block_id, None)

    def remove(self, store: Replica, block_ids: Sequence[str]) -> None:
        """Remove blocks from a store. Blocks. Raises RpcError if the store does not answer."""
        remove_blocks(self._client(store), block_ids)

    def end(self, store: Replica) -> None:
        """End a store with all its blocks. Blocks. Raises RpcError if the store does not answer."""
        self._client(store).ask(END)

    def _client(self, store: Replica) -> RpcClient:
        """Return the client of a store; create it at the first use."""
        with self._lock:
            return self._clients.setdefault(store, RpcClient(store.host, store.port, self._credentials, _STORE_TIMEOUT_S))

    def close(self) -> None:
        """Close the clients of the stores. From now on `free_executors` counts no receivers."""
        set_receivers(self._sc, None)
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


class _LostBlocksParam:
    """The rule by which Spark's accumulator merges the lost blocks of tasks.

    A task adds to an empty map. Spark's accumulator thread adds a task's map to the driver's map.
    """

    def zero(self, value: dict[str, str]) -> dict[str, str]:
        """Return the empty map of a task."""
        return {}

    def addInPlace(self, value1: dict[str, str], value2: dict[str, str]) -> dict[str, str]:
        """Add the second map to the first, and return the first."""
        value1.update(value2)
        return value1


def _read(blocks: Sequence[BlockLocations], credentials: RpcCredentials, lost: Any, index: int) -> Iterator[Any]:
    """Return the records of the block at `index`, in a worker.

    If the block is lost and `lost` is an accumulator, there are no records, and the accumulator gets the loss.

    Raises:
        BlocksLostError: the block is lost, and `lost` is None.
    """
    try:
        return read_block(blocks[index], credentials)
    except BlocksLostError as e:
        if lost is None:
            raise
        lost.add({blocks[index].block_id: str(e)})
        return iter(())

"""What a context's receivers need of Spark, put together: a port on the driver, tasks, stores, logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kstream.checkpoint import PlanLog
from kstream.clock import Clock
from kstream.conf import Settings, parse_bool
from kstream.dstream.receiver_input_dstream import WRITE_AHEAD_LOG
from kstream.errors import ConfigurationError
from kstream.loop.runtime import Event
from kstream.receiver import Receiver
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_logs import OpensStore, ReceiverLogs
from kstream.receiver.receiver_task import LOOPBACK, Surroundings
from kstream.receiver.storage_level import keeping
from kstream.rpc import RpcCredentials, RpcServer
from kstream.scheduler.no_log import NoLog
from kstream.scheduler.received_input import ReceivedInput
from kstream.scheduler.receiver_tracker import ReceiverTracker
from kstream.spark.block_reader import SparkBlockReader
from kstream.spark.executors import is_local, set_receivers
from kstream.spark.hadoop_file_store import HadoopFileStore
from kstream.spark.receiver_runner import SparkReceiverRunner
from kstream.storage import FileStore
from kstream.storage.file_store import SINGLE_WRITER
from kstream.storage.open import place_for_workers
from kstream.wal import create_log_for_driver

if TYPE_CHECKING:
    from pyspark import SparkContext

MOST_BLOCK_BYTES = 512 * 1024 * 1024
PORT = "spark.streaming.kstream.receiver.port"
ENCRYPT = "spark.streaming.kstream.rpc.encrypt"
_SPARKS_ENCRYPTION = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")
_LOG_SETTINGS = "spark.streaming."


class SparkReceivedInput(ReceivedInput):
    """A ReceivedInput with the driver's port, which is open from the making until `close`. Credentials of its own each time."""

    def __init__(
        self, sc: SparkContext, settings: Settings, clock: Clock, tell: Callable[[Any], None], stop_wanted: Event,
        receivers: Mapping[int, Receiver], store: FileStore | None, log: PlanLog | NoLog,
    ) -> None:  # fmt: skip
        """Open the driver's port. It is closed again if the rest fails.

        ConfigurationError where the settings cannot be met, RpcError where the driver's address cannot be had. A start that waits for
        executors does so no longer when `stop_wanted` is set.
        """
        logs = _receiver_logs(sc, settings, store) if settings.get(WRITE_AHEAD_LOG) else None
        credentials = _credentials(settings, clock)
        bind, advertised = _addresses(sc)
        self._server = RpcServer(credentials, {}, host=bind, port=settings.get(PORT))
        try:
            around = _surroundings(settings, advertised, self._server.port, credentials, logs)
            runner = SparkReceiverRunner(sc, around, stop_wanted)
            replicas = max(keeping(receiver.storageLevel, logs is not None).replicas for receiver in receivers.values())
            driver_log = None if store is None else create_log_for_driver(settings.source, store, probe=log.probe)
            blocks = ReceivedBlockTracker(receivers, clock, driver_log, log.epoch)
            tracker = ReceiverTracker(receivers, runner, blocks, clock, tell, stores_at_first=replicas)
            reader = SparkBlockReader(sc, credentials)
        except BaseException:
            self._server.close()
            raise
        self._server.answer(tracker.handlers)
        self._sc = sc
        set_receivers(sc, tracker.receivers_on_executors)
        super().__init__(tracker, blocks, reader, None if logs is None else logs.read)

    def close(self) -> None:
        set_receivers(self._sc, None)
        self._server.close()
        super().close()


def _addresses(sc: SparkContext) -> tuple[str, str]:
    """Where the driver listens, and how executors call it: as Spark's own driver does."""
    if is_local(sc):
        return LOOPBACK, LOOPBACK
    conf = sc.getConf()
    advertised = conf.get("spark.driver.host") or LOOPBACK
    return conf.get("spark.driver.bindAddress") or advertised, advertised


def _credentials(settings: Settings, clock: Clock) -> RpcCredentials:
    """Encrypting if so told, or else if Spark encrypts what it sends itself."""
    encrypt = settings.get(ENCRYPT)
    if encrypt is None:
        encrypt = any(parse_bool(settings.source.get(key) or "false") for key in _SPARKS_ENCRYPTION)
    if not encrypt:
        return RpcCredentials.new()
    return RpcCredentials.new_encrypting(datetime.fromtimestamp(clock.time_ms() / 1000, timezone.utc))


def _surroundings(
    settings: Settings, driver_host: str, driver_port: int, credentials: RpcCredentials, logs: ReceiverLogs | None
) -> Surroundings:
    return Surroundings(
        driver_host,
        driver_port,
        credentials,
        memory_bytes=settings.get("spark.streaming.kstream.blockStore.memory"),
        most_block_bytes=MOST_BLOCK_BYTES,
        block_interval_ms=settings.get("spark.streaming.blockInterval"),
        block_queue_size=settings.get("spark.streaming.blockQueueSize"),
        restart_delay_ms=settings.get("spark.streaming.receiverRestartDelay"),
        most_failures=settings.get("spark.storage.maxReplicationFailures"),
        max_rate=settings.get("spark.streaming.receiver.maxRate") or None,
        initial_rate=settings.get("spark.streaming.backpressure.initialRate") or None,
        logs=logs,
        block_store_timeout_s=settings.get("spark.streaming.receiver.blockStoreTimeout"),
    )


def place_of(store: FileStore, single_writer: bool) -> OpensStore | None:
    """Where workers find a checkpoint's store; None where they cannot (memory://). May ask the driver's JVM."""
    return store.for_workers() if isinstance(store, HadoopFileStore) else place_for_workers(store, single_writer)


def _receiver_logs(sc: SparkContext, settings: Settings, store: FileStore | None) -> ReceiverLogs:
    if store is None:
        raise ConfigurationError(
            "Cannot enable receiver write-ahead log without checkpoint directory set. Please use streamingContext.checkpoint() to set the "
            "checkpoint directory. See documentation for more details.",
            key=WRITE_AHEAD_LOG, value=True,
        )  # fmt: skip
    place = place_of(store, settings.get(SINGLE_WRITER))
    if place is None:
        raise ConfigurationError(
            f"{WRITE_AHEAD_LOG} is true, but executors cannot write to the checkpoint directory {store.url} themselves: use one on a file "
            "system that all share, on HDFS or on an object store",
            key=WRITE_AHEAD_LOG, value=store.url,
        )  # fmt: skip
    conf = tuple(sorted((key, value) for key, value in sc.getConf().getAll() if key.startswith(_LOG_SETTINGS)))
    return ReceiverLogs(conf, place)

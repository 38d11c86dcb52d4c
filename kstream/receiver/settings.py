"""The settings of receivers and of the blocks that they store."""

from __future__ import annotations

from kstream.conf import BYTES, INT, MILLISECONDS, STR, ConfigEntry

RECEIVER_MAX_RATE: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.receiver.maxRate",
    INT,
    0,
    "Maximum records per second that a receiver stores one by one; 0 is no limit.",
)
BLOCK_INTERVAL: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.blockInterval",
    MILLISECONDS,
    200,
    "A receiver makes a block of the records of this interval; a block is a partition.",
)
BLOCK_QUEUE_SIZE: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.blockQueueSize",
    INT,
    10,
    "Maximum blocks of a receiver that wait to be stored; beyond it, blocks grow.",
)
RESTART_DELAY: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.receiverRestartDelay",
    MILLISECONDS,
    2000,
    "Delay before a receiver is restarted after a failure.",
)
BLOCK_STORE_TIMEOUT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.receiver.blockStoreTimeout",
    INT,
    30,
    "Seconds within which a block must be stored and logged.",
)
MAX_REPLICATION_FAILURES: ConfigEntry[int] = ConfigEntry(
    "spark.storage.maxReplicationFailures",
    INT,
    1,
    "Executors that may fail to store the second replica of a block.",
)
RECEIVER_ON_DATA_LOSS: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.receiver.onDataLoss",
    STR,
    "fail",
    "Policy for received blocks that are lost: fail (the batch fails), skip (continue, with a ledger entry) or report (skip, and post "
    "an event to listeners).",
    words=("fail", "skip", "report"),
)
BLOCK_STORE_MEMORY: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.blockStore.memory",
    BYTES,
    128 * 1024 * 1024,
    "Memory of each executor for received blocks, outside Spark's own (add it to memoryOverhead); more goes to disk.",
)
WAITING_TIME: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.receiver.maxRegisteredResourcesWaitingTime",
    MILLISECONDS,
    600_000,
    "Timeout of a start with receivers that waits for executors with enough cores; in local mode it does not wait.",
)
RECEIVER_PORT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.receiver.port",
    INT,
    0,
    "Port of the driver for its receivers; 0 is any.",
)

"""The table of all settings, in the groups and the order of docs/settings.md: those of the core, and those that connectors bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce

from kstream.checkpoint import settings as checkpoint
from kstream.conf import ConfigEntry, Settings, SettingsTable
from kstream.connectors import installed_settings
from kstream.context import settings as context
from kstream.continuous import settings as continuous
from kstream.dstream import settings as dstream
from kstream.files import settings as files
from kstream.metrics import settings as metrics
from kstream.offsets import settings as offsets
from kstream.receiver import settings as receiver
from kstream.rpc import settings as rpc
from kstream.scheduler import settings as scheduler
from kstream.scheduler.executor_allocation_policy import allocation_policy
from kstream.storage import settings as storage
from kstream.ui import settings as ui
from kstream.wal import settings as wal

GROUPS: Mapping[str, Sequence[ConfigEntry[object]]] = {
    "Batches": (
        scheduler.CONCURRENT_JOBS,
        scheduler.SKIP_EMPTY_BATCHES,
        scheduler.UNREACHABLE_TIMEOUT,
        dstream.UNPERSIST,
    ),
    "Continuous processing": (
        continuous.TASKS,
        continuous.EPOCH_INTERVAL,
    ),
    "Failed batches": (
        scheduler.RETRIES,
        scheduler.FAILED_BATCH,
        scheduler.MAX_HELD_BATCHES,
        scheduler.MAX_BATCH_FAILURES,
    ),
    "Records that fail": (
        offsets.ON_RECORD_ERROR,
        offsets.DEAD_LETTER_TOPIC,
        offsets.MAX_ERROR_RATIO,
    ),
    "Checkpoint and restart": (
        checkpoint.CHECKPOINT_DIRECTORY,
        offsets.DOWNTIME,
        context.RECOVERY,
        context.RECOVERY_ALLOW,
        checkpoint.HISTORY,
        storage.SINGLE_WRITER,
    ),
    "The end of a context": (
        context.STOP_GRACEFULLY_ON_SHUTDOWN,
        context.GRACEFUL_STOP_TIMEOUT,
        context.STOP_SPARK_CONTEXT,
    ),
    "How many records a batch has": (
        scheduler.BACKPRESSURE_ENABLED,
        scheduler.INITIAL_RATE,
        scheduler.RATE_ESTIMATOR,
        scheduler.PID_PROPORTIONAL,
        scheduler.PID_INTEGRAL,
        scheduler.PID_DERIVED,
        scheduler.PID_MIN_RATE,
    ),
    "Logs and files": (
        files.MIN_REMEMBER,
        offsets.LOG_FIRST_BATCH_RECORDS,
        offsets.LOG_MAX_RATE_PER_PARTITION,
        offsets.LOG_ON_DATA_LOSS,
        files.SPLIT_BYTES,
    ),
    "Receivers": (
        receiver.RECEIVER_MAX_RATE,
        receiver.BLOCK_INTERVAL,
        receiver.BLOCK_QUEUE_SIZE,
        receiver.RESTART_DELAY,
        receiver.BLOCK_STORE_TIMEOUT,
        receiver.MAX_REPLICATION_FAILURES,
        receiver.RECEIVER_ON_DATA_LOSS,
        receiver.BLOCK_STORE_MEMORY,
        receiver.WAITING_TIME,
        receiver.RECEIVER_PORT,
        rpc.RPC_ENCRYPT,
    ),
    "Write-ahead logs of receivers": (
        wal.WRITE_AHEAD_LOG,
        wal.RECEIVER_LOG_CLASS,
        wal.RECEIVER_LOG_ROLLING_INTERVAL,
        wal.RECEIVER_LOG_MAX_FAILURES,
        wal.RECEIVER_LOG_CLOSE_FILE,
        wal.DRIVER_LOG_CLASS,
        wal.DRIVER_LOG_ROLLING_INTERVAL,
        wal.DRIVER_LOG_MAX_FAILURES,
        wal.DRIVER_LOG_ALLOW_BATCHING,
        wal.DRIVER_LOG_BATCHING_TIMEOUT,
        wal.DRIVER_LOG_CLOSE_FILE,
    ),
    "Executor allocation": (
        scheduler.ALLOCATION_ENABLED,
        scheduler.MIN_EXECUTORS,
        scheduler.MAX_EXECUTORS,
        scheduler.SCALING_INTERVAL,
        scheduler.SCALING_UP_RATIO,
        scheduler.SCALING_DOWN_RATIO,
    ),
    "Metrics": (
        metrics.METRICS_PORT,
        metrics.METRICS_HOST,
        metrics.METRICS_MAX_PARTITIONS,
    ),
    "Page": (
        ui.UI_ENABLED,
        ui.UI_PORT,
        ui.UI_HOST,
        ui.UI_TOKEN,
        ui.RETAINED_BATCHES,
    ),
    "Tests": (
        context.CLOCK,
        context.CLOCK_JUMP,
    ),
}
WITHOUT_EFFECT = {
    "spark.streaming.minRememberDuration": files.MIN_REMEMBER.key,
    **dict.fromkeys(
        (
            "spark.streaming.dynamicAllocation.testing",
            "spark.streaming.extraListeners",
            "spark.streaming.raw.maxBlockSizeBytes",
            "spark.streaming.sessionByKey.deltaChainThreshold",
        ),
        "",
    ),
}


@cache
def settings_table() -> SettingsTable:
    """Return the table of all settings. The first call imports the connectors."""
    return reduce(SettingsTable.with_connector, installed_settings(), SettingsTable(GROUPS, WITHOUT_EFFECT))


def check_settings(values: Mapping[str, str]) -> list[str]:
    """Check each setting of streaming (`SettingsTable.check`), and those that must fit each other.

    Args:
        values: all settings of an application, also those of Spark.

    Returns:
        Warnings.

    Raises:
        ConfigurationError: a setting cannot be read, or cannot work with the others.
    """
    warnings = settings_table().check(values)
    allocation_policy(Settings(values))
    return warnings

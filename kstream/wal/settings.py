"""The settings of write-ahead logs."""

from __future__ import annotations

from kstream.conf import BOOL, INT, MILLISECONDS, STR, ConfigEntry

WRITE_AHEAD_LOG: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.receiver.writeAheadLog.enable",
    BOOL,
    False,
    "Log received data in the checkpoint before it is acknowledged: it survives driver and executors.",
)
RECEIVER_LOG_CLASS: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.receiver.writeAheadLog.class",
    STR,
    None,
    "Dotted name of your own WriteAheadLog class for received data. Its constructor takes the configuration, or no argument.",
)
RECEIVER_LOG_ROLLING_INTERVAL: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs",
    INT,
    60,
    "Seconds until a receiver's log begins a new file.",
)
RECEIVER_LOG_MAX_FAILURES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.receiver.writeAheadLog.maxFailures",
    INT,
    3,
    "Attempts of a write to a receiver's log before it fails.",
)
RECEIVER_LOG_CLOSE_FILE: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.receiver.writeAheadLog.closeFileAfterWrite",
    BOOL,
    False,
    "A file for each write to a receiver's log; always so on stores whose files cannot grow.",
)
DRIVER_LOG_CLASS: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.class",
    STR,
    None,
    "Dotted name of your own WriteAheadLog class for the driver. Its constructor takes the configuration, or no argument.",
)
DRIVER_LOG_ROLLING_INTERVAL: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.rollingIntervalSecs",
    INT,
    60,
    "Seconds until the driver's log begins a new file.",
)
DRIVER_LOG_MAX_FAILURES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.maxFailures",
    INT,
    3,
    "Attempts of a write to the driver's log before it fails.",
)
DRIVER_LOG_ALLOW_BATCHING: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.allowBatching",
    BOOL,
    True,
    "Write all records that wait for the driver's log as one record.",
)
DRIVER_LOG_BATCHING_TIMEOUT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.batchingTimeout",
    MILLISECONDS,
    5000,
    "How long a record waits for its batch to be written to the driver's log before it fails.",
)
DRIVER_LOG_CLOSE_FILE: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.driver.writeAheadLog.closeFileAfterWrite",
    BOOL,
    False,
    "A file for each write to the driver's log; always so on stores whose files cannot grow.",
)

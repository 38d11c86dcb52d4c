"""The settings of the start and the end of a context, and of its clock."""

from __future__ import annotations

from kstream.conf import BOOL, MILLISECONDS, STR, ConfigEntry

RECOVERY: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.recovery",
    STR,
    "setup",
    "setup: every start calls `setup`. graph: the graph is stored, functions included, and a restart does not call `setup`.",
)
RECOVERY_ALLOW: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.recovery.allow",
    STR,
    "",
    "Permissions for a restart, separated by commas. `dropped:NAME`: forget the offsets of a stream that the job no longer has. "
    "`topics:NAME`: let a stream read none of the topics that it has offsets of. `interval:MS`: change the batch interval after batch "
    "MS, the last one. `window:ID`: begin a window with an inverse anew, because its duration has changed. `output:NAME`: let pending "
    "batches end without an output that the job no longer has.",
)
STOP_GRACEFULLY_ON_SHUTDOWN: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.stopGracefullyOnShutdown",
    BOOL,
    False,
    "On SIGTERM finish the planned batches before stopping.",
)
GRACEFUL_STOP_TIMEOUT: ConfigEntry[int | None] = ConfigEntry(
    "spark.streaming.gracefulStopTimeout",
    MILLISECONDS,
    None,
    "Timeout of each of the two phases of a graceful stop: receivers, then batches. The default is 10 batch intervals. It is an hour if "
    "no restart could run the rest: no checkpoint, receivers without a write-ahead log, a queueStream.",
)
STOP_SPARK_CONTEXT: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.stopSparkContextByDefault",
    BOOL,
    True,
    "Whether stop() also stops the SparkContext.",
)
CLOCK: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.clock",
    STR,
    None,
    "For tests: the class of the clock, such as kstream.testing.ManualClock.",
)
CLOCK_JUMP: ConfigEntry[int | None] = ConfigEntry(
    "spark.streaming.manualClock.jump",
    MILLISECONDS,
    None,
    "For tests: a restart sets a settable clock to this time after the last planned batch.",
)

"""The settings of continuous processing."""

from __future__ import annotations

from kstream.conf import INT, MILLISECONDS, ConfigEntry

TASKS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.continuous.tasks",
    INT,
    0,
    "Tasks of a continuous stream, each with a core of its own; 0 is one for each partition, at most `spark.default.parallelism`.",
)
EPOCH_INTERVAL: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.continuous.epochInterval",
    MILLISECONDS,
    0,
    "An epoch of a continuous stream is written this long after its first record; 0 is 100 ms exactly once, and 1 s at least once.",
)

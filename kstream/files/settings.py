"""The settings of file streams."""

from __future__ import annotations

from kstream.conf import INT, MILLISECONDS, ConfigEntry

MIN_REMEMBER: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.fileStream.minRememberDuration",
    MILLISECONDS,
    60_000,
    "How far back a file stream looks for files that show up late; rounded up to whole batches.",
)
SPLIT_BYTES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.fileStream.splitBytes",
    INT,
    33_554_432,
    "Bytes of a file that one task reads (Spark's on a local disk); one task reads a compressed file.",
)

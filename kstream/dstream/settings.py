"""The settings of streams."""

from __future__ import annotations

from kstream.conf import BOOL, ConfigEntry

UNPERSIST: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.unpersist",
    BOOL,
    True,
    "Unpersist generated RDDs as they fall out of the remember duration.",
)

"""The settings of streams."""

from __future__ import annotations

from kstream.conf import BOOL, STR, ConfigEntry

UNPERSIST: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.unpersist",
    BOOL,
    True,
    "Unpersist generated RDDs as they fall out of the remember duration.",
)
ON_RECORD_ERROR: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.onRecordError",
    STR,
    "fail",
    "Policy for a record for which a decoder or an operator on records fails: fail (the batch fails), skip (continue without it) or "
    "dead-letter (write it to the dead-letter topic, and continue).",
)

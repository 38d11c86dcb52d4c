"""The settings of inputs that are logs, and those of the stream of a Log."""

from __future__ import annotations

from kstream.conf import FLOAT, INT, STR, ConfigEntry

DOWNTIME: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.downtime",
    STR,
    "catch-up",
    "Batches missed while no driver ran: catch-up (the first one reads all data) or by-timestamp (each reads the records of its time).",
)
ON_RECORD_ERROR: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.onRecordError",
    STR,
    "fail",
    "Policy for a record for which a decoder or an operator on records fails: fail (the batch fails), skip (continue without it) or "
    "dead-letter (write it to the dead-letter topic, and continue).",
)
DEAD_LETTER_TOPIC: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.kstream.deadLetterTopic",
    STR,
    None,
    "The topic for records that fail, under onRecordError=dead-letter.",
)
MAX_ERROR_RATIO: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.kstream.maxErrorRatio",
    FLOAT,
    0.1,
    "The largest part of a batch's records, of 100 at least, that may fail under skip and dead-letter; above it the batch fails.",
)
LOG_FIRST_BATCH_RECORDS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.log.firstBatchRecords",
    INT,
    100_000,
    "Maximum records of a partition in the first batch of a start, for the stream of a Log; 0 is no limit.",
)
LOG_MAX_RATE_PER_PARTITION: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.log.maxRatePerPartition",
    INT,
    0,
    "Maximum records a second of a partition of a Log; 0 is no limit.",
)
LOG_ON_DATA_LOSS: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.log.onDataLoss",
    STR,
    "fail",
    "Records of a Log gone before they were read: fail (the batch fails), skip (continue, with a ledger entry) or report (skip, and "
    "post an event to listeners).",
    words=("fail", "skip", "report"),
)

"""The settings of Kafka streams."""

from __future__ import annotations

from kstream.conf import BOOL, BYTES, INT, MILLISECONDS, STR, ConfigEntry, SettingsTable

ON_DATA_LOSS: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.kafka.onDataLoss",
    STR,
    "fail",
    "Policy for records that are gone before they were read: fail (the batch fails), skip (continue, with a ledger entry) or report "
    "(skip, and post an event to listeners).",
)
MAX_TASKS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.maxTasks",
    INT,
    0,
    "Maximum tasks per batch of a Kafka stream; 0 is one per partition.",
)
MAX_RECORDS_PER_TASK: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.maxRecordsPerTask",
    INT,
    0,
    "Ranges of more records are read by several tasks, in order; 0 disables this.",
)
MAX_RETRIES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kafka.maxRetries",
    INT,
    1,
    "Retries of the look-up of latest offsets. During a leader election it is retried for default.api.timeout.ms.",
)
POLL_TIMEOUT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kafka.consumer.poll.ms",
    MILLISECONDS,
    120_000,
    "How long a task waits for the next record of its range.",
)
ALLOW_NON_CONSECUTIVE_OFFSETS: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.kafka.allowNonConsecutiveOffsets",
    BOOL,
    False,
    "Count real records (compacted or transactional topics) instead of trusting the ranges.",
)
MAX_RATE_PER_PARTITION: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kafka.maxRatePerPartition",
    INT,
    0,
    "Maximum records per second and partition; 0 is no limit.",
)
MIN_RATE_PER_PARTITION: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kafka.minRatePerPartition",
    INT,
    1,
    "Minimum records per batch (not per second) and partition under a rate limit.",
)
FIRST_BATCH_RECORDS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.firstBatchRecords",
    INT,
    100_000,
    "Maximum records of a partition in the first batch of a start. After a restart the last batches in the checkpoint limit it, too. "
    "Later batches take what fits their interval, until the stream has caught up. 0 switches these limits off.",
)
MAX_BYTES_PER_BATCH: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.maxBytesPerBatch",
    BYTES,
    0,
    "Maximum bytes of a batch, such as `256m`, by the length of the records of the last batch; 0 is no limit.",
)
MIN_RECORDS_PER_BATCH: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.minRecordsPerBatch",
    INT,
    0,
    "A batch of a Kafka stream with fewer records takes none, and they wait for a later batch, up to `kafka.maxWait`.",
)
MAX_WAIT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.kafka.maxWait",
    MILLISECONDS,
    60_000,
    "The longest wait for `kafka.minRecordsPerBatch`.",
)

KAFKA_SETTINGS = SettingsTable(
    {
        "Reading Kafka": (
            ON_DATA_LOSS,
            MAX_TASKS,
            MAX_RECORDS_PER_TASK,
            MAX_RETRIES,
            POLL_TIMEOUT,
            ALLOW_NON_CONSECUTIVE_OFFSETS,
        ),
        "How many records a batch has": (
            MAX_RATE_PER_PARTITION,
            MIN_RATE_PER_PARTITION,
            FIRST_BATCH_RECORDS,
            MAX_BYTES_PER_BATCH,
            MIN_RECORDS_PER_BATCH,
            MAX_WAIT,
        ),
    },
    without_effect=dict.fromkeys(
        (
            "spark.streaming.kafka.consumer.cache.enabled",
            "spark.streaming.kafka.consumer.cache.initialCapacity",
            "spark.streaming.kafka.consumer.cache.loadFactor",
            "spark.streaming.kafka.consumer.cache.maxCapacity",
            "spark.streaming.kafka.consumer.cache.timeout",
        ),
        "",
    ),
)

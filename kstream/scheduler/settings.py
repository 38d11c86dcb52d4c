"""The settings of batches: jobs, failed batches, rates and executor allocation."""

from __future__ import annotations

from kstream.conf import BOOL, FLOAT, INT, MILLISECONDS, SECONDS, STR, ConfigEntry

CONCURRENT_JOBS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.concurrentJobs",
    INT,
    1,
    "Output operations run at the same time; above 1 needs pinned threads.",
    least=1,
)
SKIP_EMPTY_BATCHES: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.kstream.skipEmptyBatches",
    BOOL,
    False,
    "A batch without data ends without your functions, if the job has no window and no state. After a downtime such batches are left out.",
)
UNREACHABLE_TIMEOUT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.unreachableTimeout",
    MILLISECONDS,
    600_000,
    "How long brokers or the store may be away before awaitTermination raises the error; no record is lost. 0: at once, as in Spark.",
)
RETRIES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.batch.retries",
    INT,
    0,
    "How often the driver tries a failed batch again before awaitTermination raises its error; back-off 1 s to 60 s. 0: as in Spark.",
    least=0,
)
FAILED_BATCH: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.failedBatch",
    STR,
    "continue",
    "continue: later batches run, as in Spark. hold: they wait until the failed batch has succeeded, so outputs see batches in order.",
    words=("continue", "hold"),
)
MAX_HELD_BATCHES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.maxHeldBatches",
    INT,
    1000,
    "How many planned batches may wait for a failed one. Beyond it no batch is planned, and the next plan takes the records.",
    least=1,
)
MAX_BATCH_FAILURES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.maxBatchFailures",
    INT,
    0,
    "How often restarts run a failed batch before it is given up: it goes to the ledger, and the stream continues. 0: never.",
)
BACKPRESSURE_ENABLED: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.backpressure.enabled",
    BOOL,
    False,
    "Adapt the rate of inputs to the speed of the last batches.",
)
INITIAL_RATE: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.backpressure.initialRate",
    INT,
    0,
    "Records a second before the first measurement; 0 is no limit.",
)
RATE_ESTIMATOR: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.backpressure.rateEstimator",
    STR,
    "pid",
    "pid, or the dotted name of your own kstream.RateEstimator.",
)
PID_PROPORTIONAL: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.backpressure.pid.proportional",
    FLOAT,
    1.0,
    "Weight of the error: the rate minus the processing speed.",
)
PID_INTEGRAL: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.backpressure.pid.integral",
    FLOAT,
    0.2,
    "Weight of the records that waited because batches were late.",
)
PID_DERIVED: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.backpressure.pid.derived",
    FLOAT,
    0.0,
    "Weight of the change of the error.",
)
PID_MIN_RATE: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.backpressure.pid.minRate",
    FLOAT,
    100.0,
    "Lowest rate of a stream, in records a second.",
)
ALLOCATION_ENABLED: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.dynamicAllocation.enabled",
    BOOL,
    False,
    "Executors follow the processing time of the batches. Not beside `spark.dynamicAllocation.enabled`, and not in local mode.",
)
MIN_EXECUTORS: ConfigEntry[int | None] = ConfigEntry(
    "spark.streaming.dynamicAllocation.minExecutors",
    INT,
    None,
    "Minimum of executors; default: the number of receivers, 1 at least.",
)
MAX_EXECUTORS: ConfigEntry[int | None] = ConfigEntry(
    "spark.streaming.dynamicAllocation.maxExecutors",
    INT,
    None,
    "Maximum of executors; default: no limit.",
)
SCALING_INTERVAL: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.dynamicAllocation.scalingInterval",
    SECONDS,
    60,
    "After each such time the average processing time decides. A number without a unit is seconds.",
)
SCALING_UP_RATIO: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.dynamicAllocation.scalingUpRatio",
    FLOAT,
    0.9,
    "From this ratio of processing time and batch interval on, more executors are asked for: as many as the rounded ratio.",
)
SCALING_DOWN_RATIO: ConfigEntry[float] = ConfigEntry(
    "spark.streaming.dynamicAllocation.scalingDownRatio",
    FLOAT,
    0.3,
    "Up to this ratio one executor without a receiver ends.",
)

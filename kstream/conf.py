"""Every setting that kstream reads: key, type, default and meaning, in one table.

`Settings` reads them from any object with `get(key)`, such as a SparkConf. The tables of docs/settings.md are generated from
`GROUPS` (`python -m kstream.conf`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.errors import ConfigurationError
from kstream.nearest_name import did_you_mean, nearest_names


class ConfSource(Protocol):
    """A source of settings as text, such as pyspark's SparkConf."""

    def get(self, key: str, /) -> str | None:
        """Return the text of a setting; None if it is not set."""
        ...


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting.

    `kind` is one of bool, int, float, ms (a time such as `10s`), s (the same; a number without a unit is seconds), bytes (such as `64m`),
    str.
    """

    key: str
    kind: str
    default: Any
    meaning: str


_BATCHES = (
    ConfigEntry("spark.streaming.concurrentJobs", "int", 1, "Output operations run at the same time; above 1 needs pinned threads."),
    ConfigEntry(
        "spark.streaming.kstream.skipEmptyBatches",
        "bool",
        False,
        "A batch without data ends without your functions, if the job has no window and no state. "
        "After a downtime such batches are left out.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.unreachableTimeout",
        "ms",
        600_000,
        "How long brokers or the store may be away before awaitTermination raises the error; no record is lost. 0: at once, as in Spark.",
    ),
    ConfigEntry("spark.streaming.unpersist", "bool", True, "Unpersist generated RDDs as they fall out of the remember duration."),
)
_FAILED_BATCHES = (
    ConfigEntry(
        "spark.streaming.kstream.batch.retries",
        "int",
        0,
        "How often the driver tries a failed batch again before awaitTermination raises its error; back-off 1 s to 60 s. 0: as in Spark.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.failedBatch",
        "str",
        "continue",
        "continue: later batches run, as in Spark. hold: they wait until the failed batch has succeeded, so outputs see batches in order.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.maxHeldBatches",
        "int",
        1000,
        "How many planned batches may wait for a failed one. Beyond it no batch is planned, and the next plan takes the records.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.maxBatchFailures",
        "int",
        0,
        "How often restarts run a failed batch before it is given up: it goes to the ledger, and the stream continues. 0: never.",
    ),
)
_RECORDS_THAT_FAIL = (
    ConfigEntry(
        "spark.streaming.kstream.onRecordError",
        "str",
        "fail",
        "Policy for a record for which a decoder or an operator on records fails: fail (the batch fails), skip (continue without it) or "
        "dead-letter (write it to the dead-letter topic, and continue).",
    ),
    ConfigEntry(
        "spark.streaming.kstream.deadLetterTopic", "str", None, "The topic for records that fail, under onRecordError=dead-letter."
    ),
    ConfigEntry(
        "spark.streaming.kstream.maxErrorRatio",
        "float",
        0.1,
        "The largest part of a batch's records, of 100 at least, that may fail under skip and dead-letter; above it the batch fails.",
    ),
)
_CHECKPOINT_AND_RESTART = (
    ConfigEntry("spark.streaming.checkpoint.directory", "str", None, "Checkpoint directory of a new context."),
    ConfigEntry(
        "spark.streaming.kstream.downtime",
        "str",
        "catch-up",
        "Batches missed while no driver ran: catch-up (the first one reads all data) or by-timestamp (each reads the records of its time).",
    ),
    ConfigEntry(
        "spark.streaming.kstream.recovery",
        "str",
        "setup",
        "setup: every start calls `setup`. graph: the graph is stored, functions included, and a restart does not call `setup`.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.recovery.allow",
        "str",
        "",
        "Permissions for a restart, separated by commas. `dropped:NAME`: forget the offsets of a stream that the job no longer has. "
        "`topics:NAME`: let a stream read none of the topics that it has offsets of. "
        "`interval:MS`: change the batch interval after batch MS, the last one. "
        "`window:ID`: begin a window with an inverse anew, because its duration has changed. "
        "`output:NAME`: let pending batches end without an output that the job no longer has.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.history", "ms", 86_400_000, "How long plans that no restart needs are kept for replays; 0 keeps none."
    ),
    ConfigEntry(
        "spark.streaming.kstream.checkpoint.singleWriter",
        "bool",
        False,
        "Declares that there is never a second driver. Then a checkpoint may be on a store that cannot create a file only if it is absent.",
    ),
)
_THE_END_OF_A_CONTEXT = (
    ConfigEntry("spark.streaming.stopGracefullyOnShutdown", "bool", False, "On SIGTERM finish the planned batches before stopping."),
    ConfigEntry(
        "spark.streaming.gracefulStopTimeout",
        "ms",
        None,
        "Timeout of each of the two phases of a graceful stop: receivers, then batches. The default is 10 batch intervals. It is an hour "
        "if no restart could run the rest: no checkpoint, receivers without a write-ahead log, a queueStream.",
    ),
    ConfigEntry("spark.streaming.stopSparkContextByDefault", "bool", True, "Whether stop() also stops the SparkContext."),
)
_READING_KAFKA = (
    ConfigEntry(
        "spark.streaming.kstream.kafka.onDataLoss",
        "str",
        "fail",
        "Policy for records that are gone before they were read: fail (the batch fails), skip (continue, with a ledger entry) or report "
        "(skip, and post an event to listeners).",
    ),
    ConfigEntry("spark.streaming.kstream.kafka.maxTasks", "int", 0, "Maximum tasks per batch of a Kafka stream; 0 is one per partition."),
    ConfigEntry(
        "spark.streaming.kstream.kafka.maxRecordsPerTask",
        "int",
        0,
        "Ranges of more records are read by several tasks, in order; 0 disables this.",
    ),
    ConfigEntry(
        "spark.streaming.kafka.maxRetries",
        "int",
        1,
        "Retries of the look-up of latest offsets. During a leader election it is retried for default.api.timeout.ms.",
    ),
    ConfigEntry("spark.streaming.kafka.consumer.poll.ms", "ms", 120_000, "How long a task waits for the next record of its range."),
    ConfigEntry(
        "spark.streaming.kafka.allowNonConsecutiveOffsets",
        "bool",
        False,
        "Count real records (compacted or transactional topics) instead of trusting the ranges.",
    ),
)
_HOW_MANY_RECORDS_A_BATCH_HAS = (
    ConfigEntry("spark.streaming.kafka.maxRatePerPartition", "int", 0, "Maximum records per second and partition; 0 is no limit."),
    ConfigEntry(
        "spark.streaming.kafka.minRatePerPartition",
        "int",
        1,
        "Minimum records per batch (not per second) and partition under a rate limit.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.kafka.firstBatchRecords",
        "int",
        100_000,
        "Maximum records of a partition in the first batch of a start. After a restart the last batches in the checkpoint limit it, too. "
        "Later batches take what fits their interval, until the stream has caught up. 0 switches these limits off.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.kafka.maxBytesPerBatch",
        "bytes",
        0,
        "Maximum bytes of a batch, such as `256m`, by the length of the records of the last batch; 0 is no limit.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.kafka.minRecordsPerBatch",
        "int",
        0,
        "A batch of a Kafka stream with fewer records takes none, and they wait for a later batch, up to `kafka.maxWait`.",
    ),
    ConfigEntry("spark.streaming.kstream.kafka.maxWait", "ms", 60_000, "The longest wait for `kafka.minRecordsPerBatch`."),
    ConfigEntry("spark.streaming.backpressure.enabled", "bool", False, "Adapt the rate of inputs to the speed of the last batches."),
    ConfigEntry("spark.streaming.backpressure.initialRate", "int", 0, "Records a second before the first measurement; 0 is no limit."),
    ConfigEntry(
        "spark.streaming.backpressure.rateEstimator",
        "str",
        "pid",
        "pid, or the dotted name of your own kstream.RateEstimator.",
    ),
    ConfigEntry("spark.streaming.backpressure.pid.proportional", "float", 1.0, "Weight of the error: the rate minus the processing speed."),
    ConfigEntry("spark.streaming.backpressure.pid.integral", "float", 0.2, "Weight of the records that waited because batches were late."),
    ConfigEntry("spark.streaming.backpressure.pid.derived", "float", 0.0, "Weight of the change of the error."),
    ConfigEntry("spark.streaming.backpressure.pid.minRate", "float", 100.0, "Lowest rate of a stream, in records a second."),
)
_LOGS_AND_FILES = (
    ConfigEntry(
        "spark.streaming.fileStream.minRememberDuration",
        "ms",
        60_000,
        "How far back a file stream looks for files that show up late; rounded up to whole batches.",
    ),
    ConfigEntry("spark.streaming.kstream.log.firstBatchRecords", "int", 100_000, "As `kafka.firstBatchRecords`, for the stream of a Log."),
    ConfigEntry(
        "spark.streaming.kstream.log.maxRatePerPartition", "int", 0, "Maximum records a second of a partition of a Log; 0 is no limit."
    ),
    ConfigEntry(
        "spark.streaming.kstream.log.onDataLoss",
        "str",
        "fail",
        "Records of a Log gone before they were read: fail, skip or report, as for Kafka.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.fileStream.splitBytes",
        "int",
        33_554_432,
        "Bytes of a file that one task reads (Spark's on a local disk); one task reads a compressed file.",
    ),
)
_RECEIVERS = (
    ConfigEntry(
        "spark.streaming.receiver.maxRate", "int", 0, "Maximum records per second that a receiver stores one by one; 0 is no limit."
    ),
    ConfigEntry(
        "spark.streaming.blockInterval", "ms", 200, "A receiver makes a block of the records of this interval; a block is a partition."
    ),
    ConfigEntry(
        "spark.streaming.blockQueueSize", "int", 10, "Maximum blocks of a receiver that wait to be stored; beyond it, blocks grow."
    ),
    ConfigEntry("spark.streaming.receiverRestartDelay", "ms", 2000, "Delay before a receiver is restarted after a failure."),
    ConfigEntry("spark.streaming.receiver.blockStoreTimeout", "int", 30, "Seconds within which a block must be stored and logged."),
    ConfigEntry("spark.storage.maxReplicationFailures", "int", 1, "Executors that may fail to store the second replica of a block."),
    ConfigEntry(
        "spark.streaming.kstream.receiver.onDataLoss",
        "str",
        "fail",
        "Policy for received blocks that are lost: fail (the batch fails), skip (continue, with a ledger entry) or report (skip, and post "
        "an event to listeners).",
    ),
    ConfigEntry(
        "spark.streaming.kstream.blockStore.memory",
        "bytes",
        128 * 1024 * 1024,
        "Memory of each executor for received blocks, outside Spark's own (add it to memoryOverhead); more goes to disk.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.receiver.maxRegisteredResourcesWaitingTime",
        "ms",
        600_000,
        "Timeout of a start with receivers that waits for executors with enough cores; in local mode it does not wait.",
    ),
    ConfigEntry("spark.streaming.kstream.receiver.port", "int", 0, "Port of the driver for its receivers; 0 is any."),
    ConfigEntry(
        "spark.streaming.kstream.rpc.encrypt",
        "bool",
        None,
        "Encrypt the traffic of receivers and executors with each other and the driver; default: `spark.network.crypto.enabled`.",
    ),
)
_WRITE_AHEAD_LOGS_OF_RECEIVERS = (
    ConfigEntry(
        "spark.streaming.receiver.writeAheadLog.enable",
        "bool",
        False,
        "Log received data in the checkpoint before it is acknowledged: it survives driver and executors.",
    ),
    ConfigEntry(
        "spark.streaming.receiver.writeAheadLog.class",
        "str",
        None,
        "Dotted name of your own WriteAheadLog class for received data. Its constructor takes the configuration, or no argument.",
    ),
    ConfigEntry(
        "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs", "int", 60, "Seconds until a receiver's log begins a new file."
    ),
    ConfigEntry("spark.streaming.receiver.writeAheadLog.maxFailures", "int", 3, "Attempts of a write to a receiver's log before it fails."),
    ConfigEntry(
        "spark.streaming.receiver.writeAheadLog.closeFileAfterWrite",
        "bool",
        False,
        "A file for each write to a receiver's log; always so on stores whose files cannot grow.",
    ),
    ConfigEntry(
        "spark.streaming.driver.writeAheadLog.class",
        "str",
        None,
        "Dotted name of your own WriteAheadLog class for the driver. Its constructor takes the configuration, or no argument.",
    ),
    ConfigEntry("spark.streaming.driver.writeAheadLog.rollingIntervalSecs", "int", 60, "Seconds until the driver's log begins a new file."),
    ConfigEntry("spark.streaming.driver.writeAheadLog.maxFailures", "int", 3, "Attempts of a write to the driver's log before it fails."),
    ConfigEntry(
        "spark.streaming.driver.writeAheadLog.allowBatching",
        "bool",
        True,
        "Write all records that wait for the driver's log as one record.",
    ),
    ConfigEntry(
        "spark.streaming.driver.writeAheadLog.batchingTimeout",
        "ms",
        5000,
        "How long a record waits for its batch to be written to the driver's log before it fails.",
    ),
    ConfigEntry(
        "spark.streaming.driver.writeAheadLog.closeFileAfterWrite",
        "bool",
        False,
        "A file for each write to the driver's log; always so on stores whose files cannot grow.",
    ),
)
_EXECUTOR_ALLOCATION = (
    ConfigEntry(
        "spark.streaming.dynamicAllocation.enabled",
        "bool",
        False,
        "Executors follow the processing time of the batches. Not beside `spark.dynamicAllocation.enabled`, and not in local mode.",
    ),
    ConfigEntry(
        "spark.streaming.dynamicAllocation.minExecutors",
        "int",
        None,
        "Minimum of executors; default: the number of receivers, 1 at least.",
    ),
    ConfigEntry("spark.streaming.dynamicAllocation.maxExecutors", "int", None, "Maximum of executors; default: no limit."),
    ConfigEntry(
        "spark.streaming.dynamicAllocation.scalingInterval",
        "s",
        60,
        "After each such time the average processing time decides. A number without a unit is seconds.",
    ),
    ConfigEntry(
        "spark.streaming.dynamicAllocation.scalingUpRatio",
        "float",
        0.9,
        "From this ratio of processing time and batch interval on, more executors are asked for: as many as the rounded ratio.",
    ),
    ConfigEntry(
        "spark.streaming.dynamicAllocation.scalingDownRatio", "float", 0.3, "Up to this ratio one executor without a receiver ends."
    ),
)
_METRICS = (
    ConfigEntry(
        "spark.streaming.kstream.metrics.port", "int", None, "Port of the driver for Prometheus; 0 is any. Without it there are no metrics."
    ),
    ConfigEntry(
        "spark.streaming.kstream.metrics.host", "str", "127.0.0.1", "Address for the port of the metrics: that of this machine only."
    ),
    ConfigEntry(
        "spark.streaming.kstream.metrics.maxPartitions",
        "int",
        1000,
        "Up to so many partitions of all inputs have metrics of their own; more are counted by topic.",
    ),
)
_PAGE = (
    ConfigEntry("spark.streaming.kstream.ui.enabled", "bool", False, "Show the batches of this driver on a page, and as JSON."),
    ConfigEntry("spark.streaming.kstream.ui.port", "int", 4050, "Port of the driver for the page; 0 is any."),
    ConfigEntry(
        "spark.streaming.kstream.ui.host",
        "str",
        "127.0.0.1",
        "Address for the port of the page: that of this machine only. With any other a request needs the token.",
    ),
    ConfigEntry(
        "spark.streaming.kstream.ui.token",
        "str",
        None,
        "Token that a request for the page needs. Without it a page that other machines reach makes one, and logs it once.",
    ),
    ConfigEntry(
        "spark.streaming.ui.retainedBatches",
        "int",
        100,
        "How many batches that have ended the page shows with all facts, such as their offsets. Of 1,000 it has a row. Spark's default is "
        "1000: there the facts of a batch are one line of text.",
    ),
)
_TESTS = (
    ConfigEntry("spark.streaming.clock", "str", None, "For tests: the class of the clock, such as kstream.testing.ManualClock."),
    ConfigEntry(
        "spark.streaming.manualClock.jump",
        "ms",
        None,
        "For tests: a restart sets a settable clock to this time after the last planned batch.",
    ),
)

GROUPS: Mapping[str, tuple[ConfigEntry, ...]] = {
    "Batches": _BATCHES,
    "Failed batches": _FAILED_BATCHES,
    "Records that fail": _RECORDS_THAT_FAIL,
    "Checkpoint and restart": _CHECKPOINT_AND_RESTART,
    "The end of a context": _THE_END_OF_A_CONTEXT,
    "Reading Kafka": _READING_KAFKA,
    "How many records a batch has": _HOW_MANY_RECORDS_A_BATCH_HAS,
    "Logs and files": _LOGS_AND_FILES,
    "Receivers": _RECEIVERS,
    "Write-ahead logs of receivers": _WRITE_AHEAD_LOGS_OF_RECEIVERS,
    "Executor allocation": _EXECUTOR_ALLOCATION,
    "Metrics": _METRICS,
    "Page": _PAGE,
    "Tests": _TESTS,
}
"""The settings by what they are about, as docs/settings.md shows them."""

ENTRIES: tuple[ConfigEntry, ...] = tuple(entry for entries in GROUPS.values() for entry in entries)

BY_KEY = {entry.key: entry for entry in ENTRIES}

PREFIX = "spark.streaming."
"""The settings of streaming begin with it: Spark's and those of kstream."""

WITHOUT_EFFECT = {
    "spark.streaming.minRememberDuration": "spark.streaming.fileStream.minRememberDuration",
    **dict.fromkeys(
        (
            "spark.streaming.dynamicAllocation.testing",
            "spark.streaming.extraListeners",
            "spark.streaming.kafka.consumer.cache.enabled",
            "spark.streaming.kafka.consumer.cache.initialCapacity",
            "spark.streaming.kafka.consumer.cache.loadFactor",
            "spark.streaming.kafka.consumer.cache.maxCapacity",
            "spark.streaming.kafka.consumer.cache.timeout",
            "spark.streaming.raw.maxBlockSizeBytes",
            "spark.streaming.sessionByKey.deltaChainThreshold",
        ),
        "",
    ),
}
"""Settings that Spark reads and kstream does not → the setting to use instead; "" if there is none."""

_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*")
_TIME = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")


def parse_time_ms(text: str) -> int:
    """Parse a time string of Spark (`500`, `500ms`, `10s`, `2m`, `1h`) into milliseconds. ValueError if `text` is no time."""
    match = _TIME.fullmatch(text.lower())
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a time: {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def parse_seconds(text: str) -> float:
    """Parse a time string of Spark into seconds; a number without a unit is seconds. ValueError if `text` is no time."""
    return parse_time_ms(f"{text}s" if text.strip().isdecimal() else text) / 1000


def parse_bytes(text: str) -> int:
    """Parse a size of Spark (`1048576`, `512k`, `64m`, `1g`) into bytes. ValueError if `text` is no size."""
    match = _SIZE.fullmatch(text.lower())
    if not match:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) * 1024 ** " kmgt".index(match[2] or " ")


def parse_bool(text: str) -> bool:
    """Parse `true` or `false`, in any case. ValueError if it is neither."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError(f"neither true nor false: {text!r}")
    return value


_PARSERS: dict[str, Any] = {
    "bool": parse_bool,
    "int": int,
    "float": float,
    "ms": parse_time_ms,
    "s": parse_seconds,
    "bytes": parse_bytes,
    "str": str,
}


class Settings:
    """Typed view of a configuration.

    Args:
        source: the configuration.
        values: a copy of all its settings, which `get` reads in place of the source: a SparkConf calls the JVM for each key. Later changes
            of the source then have no effect.
    """

    def __init__(self, source: ConfSource, values: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._values = source if values is None else values
        self._overrides: dict[str, str] = {}

    def override(self, key: str, value: str) -> None:
        """Set the text of a setting, for options of commands. From now on it wins over the source, unless it is empty.

        Raises:
            KeyError: the key is not in the table.
        """
        self._overrides[BY_KEY[key].key] = value

    def get(self, key: str) -> Any:
        """Return the parsed value of a setting; its default if it is not set.

        Raises:
            ConfigurationError: the text cannot be parsed as the setting's kind.
            KeyError: the key is not in the table.
        """
        entry = BY_KEY[key]
        text = self._overrides.get(key) or self._values.get(key)
        if text is None:
            return entry.default
        try:
            return _PARSERS[entry.kind](text)
        except ValueError as e:
            raise ConfigurationError(f"{key} is {text!r}, which is not a {entry.kind}: {entry.meaning}", key=key, value=text) from e


def check_settings(values: Mapping[str, str]) -> list[str]:
    """Check all settings of streaming that are set, also those that nobody reads. The values of unknown ones are in no message.

    Args:
        values: all settings of an application.

    Returns:
        Warnings: settings that have no effect, and unknown ones with the nearest name.

    Raises:
        ConfigurationError: a value cannot be read.
    """
    ours = {key: text for key, text in values.items() if key.startswith(PREFIX)}
    settings = Settings(ours)
    for key in sorted(ours):
        if key in BY_KEY:
            settings.get(key)
    dead = sorted(key for key in ours if key in WITHOUT_EFFECT)
    unknown = sorted(ours.keys() - BY_KEY.keys() - WITHOUT_EFFECT.keys())
    return [*([_told_of_dead(dead)] if dead else []), *(_told_of_unknown(key) for key in unknown)]


def _told_of_dead(keys: Sequence[str]) -> str:
    """Return the warning about settings of Spark without effect."""
    named = ", ".join(f"{key} (use {WITHOUT_EFFECT[key]})" if WITHOUT_EFFECT[key] else key for key in keys)
    return f"settings of Spark that have no effect in kstream: {named}"


def _told_of_unknown(key: str) -> str:
    """Return the warning about a setting that neither Spark nor kstream has."""
    known = {_without_prefix(other): other for other in BY_KEY}
    hint = did_you_mean([known[name] for name in nearest_names(_without_prefix(key), known)])
    return f"setting {key} is unknown and has no effect. {hint or '`python -m kstream.conf` lists the settings.'}"


def _without_prefix(key: str) -> str:
    """Return the part of a key by which it is compared: what all keys have in common makes them no more alike."""
    return key.removeprefix(PREFIX).removeprefix("kstream.")


def text_of(value: Any) -> str:
    """Return the value of a setting as one writes it in a SparkConf; "" for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def markdown_tables() -> str:
    """Return the tables of docs/settings.md, one for each group."""
    return "\n\n".join(f"## {name}\n\n{_table(entries)}" for name, entries in GROUPS.items())


def _table(entries: Sequence[ConfigEntry]) -> str:
    """Return the table of some settings."""
    rows = [f"| `{e.key}` | {e.kind} | {text_of(e.default)} | {e.meaning} |" for e in entries]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(markdown_tables())

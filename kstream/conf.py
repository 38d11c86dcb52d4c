"""Every setting that kstream reads: key, type, default and meaning, in one table.

`Settings` reads them from any object with `get(key)`, such as a SparkConf. The README's table is generated from `ENTRIES`
(`python -m kstream.conf`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.errors import ConfigurationError


class ConfSource(Protocol):
    """A source of settings as text, such as pyspark's SparkConf."""

    def get(self, key: str, /) -> str | None:
        """Return the text of a setting; None if it is not set."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting. `kind` is one of bool, int, float, ms (a time such as `10s`), bytes (such as `64m`), str."""

    key: str
    kind: str
    default: Any
    meaning: str


ENTRIES: tuple[Entry, ...] = (
    Entry("spark.streaming.concurrentJobs", "int", 1, "Output operations run at the same time; above 1 needs pinned threads."),
    Entry("spark.streaming.checkpoint.directory", "str", None, "Checkpoint directory of a new context."),
    Entry("spark.streaming.stopGracefullyOnShutdown", "bool", False, "On SIGTERM finish the planned batches before stopping."),
    Entry("spark.streaming.stopSparkContextByDefault", "bool", True, "Whether stop() also stops the SparkContext."),
    Entry(
        "spark.streaming.gracefulStopTimeout",
        "ms",
        None,
        "Timeout of each of the two phases of a graceful stop: receivers, then batches. The default is 10 batch intervals. It is an hour "
        "if no restart could run the rest: no checkpoint, receivers without a write-ahead log, a queueStream.",
    ),
    Entry("spark.streaming.clock", "str", None, "For tests: the class of the clock, such as kstream.testing.ManualClock."),
    Entry(
        "spark.streaming.manualClock.jump",
        "ms",
        None,
        "For tests: a restart sets a settable clock to this time after the last planned batch.",
    ),
    Entry("spark.streaming.unpersist", "bool", True, "Unpersist generated RDDs as they fall out of the remember duration."),
    Entry("spark.streaming.kafka.maxRatePerPartition", "int", 0, "Maximum records per second and partition; 0 is no limit."),
    Entry(
        "spark.streaming.kafka.minRatePerPartition",
        "int",
        1,
        "Minimum records per batch (not per second) and partition under a rate limit.",
    ),
    Entry(
        "spark.streaming.kafka.maxRetries",
        "int",
        1,
        "Retries of the look-up of latest offsets. During a leader election it is retried for default.api.timeout.ms.",
    ),
    Entry("spark.streaming.kafka.consumer.poll.ms", "ms", 120_000, "How long a task waits for the next record of its range."),
    Entry(
        "spark.streaming.kafka.allowNonConsecutiveOffsets",
        "bool",
        False,
        "Count real records (compacted or transactional topics) instead of trusting the ranges.",
    ),
    Entry(
        "spark.streaming.fileStream.minRememberDuration",
        "ms",
        60_000,
        "How far back a file stream looks for files that show up late; rounded up to whole batches.",
    ),
    Entry("spark.streaming.blockInterval", "ms", 200, "A receiver makes a block of the records of this interval; a block is a partition."),
    Entry("spark.streaming.blockQueueSize", "int", 10, "Maximum blocks of a receiver that wait to be stored; beyond it, blocks grow."),
    Entry("spark.streaming.receiver.maxRate", "int", 0, "Maximum records per second that a receiver stores one by one; 0 is no limit."),
    Entry("spark.streaming.receiverRestartDelay", "ms", 2000, "Delay before a receiver is restarted after a failure."),
    Entry("spark.storage.maxReplicationFailures", "int", 1, "Executors that may fail to store the second replica of a block."),
    Entry(
        "spark.streaming.receiver.writeAheadLog.enable",
        "bool",
        False,
        "Log received data in the checkpoint before it is acknowledged: it survives driver and executors.",
    ),
    Entry("spark.streaming.receiver.blockStoreTimeout", "int", 30, "Seconds within which a block must be stored and logged."),
    Entry(
        "spark.streaming.receiver.writeAheadLog.class",
        "str",
        None,
        "Dotted name of your own WriteAheadLog class for received data. Its constructor takes the configuration, or no argument.",
    ),
    Entry("spark.streaming.receiver.writeAheadLog.rollingIntervalSecs", "int", 60, "Seconds until a receiver's log begins a new file."),
    Entry("spark.streaming.receiver.writeAheadLog.maxFailures", "int", 3, "Attempts of a write to a receiver's log before it fails."),
    Entry(
        "spark.streaming.receiver.writeAheadLog.closeFileAfterWrite",
        "bool",
        False,
        "A file for each write to a receiver's log; always so on stores whose files cannot grow.",
    ),
    Entry(
        "spark.streaming.driver.writeAheadLog.class",
        "str",
        None,
        "Dotted name of your own WriteAheadLog class for the driver. Its constructor takes the configuration, or no argument.",
    ),
    Entry("spark.streaming.driver.writeAheadLog.rollingIntervalSecs", "int", 60, "Seconds until the driver's log begins a new file."),
    Entry("spark.streaming.driver.writeAheadLog.maxFailures", "int", 3, "Attempts of a write to the driver's log before it fails."),
    Entry(
        "spark.streaming.driver.writeAheadLog.allowBatching",
        "bool",
        True,
        "Write all records that wait for the driver's log as one record.",
    ),
    Entry(
        "spark.streaming.driver.writeAheadLog.batchingTimeout",
        "ms",
        5000,
        "How long a record waits for its batch to be written to the driver's log before it fails.",
    ),
    Entry(
        "spark.streaming.driver.writeAheadLog.closeFileAfterWrite",
        "bool",
        False,
        "A file for each write to the driver's log; always so on stores whose files cannot grow.",
    ),
    Entry("spark.streaming.backpressure.enabled", "bool", False, "Adapt the rate to the processing speed (not active yet)."),
    Entry("spark.streaming.backpressure.initialRate", "int", 0, "Rate before the first measurement; 0 is not used."),
    Entry(
        "spark.streaming.kstream.recovery",
        "str",
        "setup",
        "setup: every start calls `setup`. graph: the graph is stored, functions included, and a restart does not call `setup`.",
    ),
    Entry(
        "spark.streaming.kstream.recovery.allow",
        "str",
        "",
        "Permissions for a restart, separated by commas. `dropped:NAME`: forget the offsets of a stream that the job no longer has. "
        "`topics:NAME`: let a stream read none of the topics that it has offsets of.",
    ),
    Entry(
        "spark.streaming.kstream.downtime",
        "str",
        "catch-up",
        "Batches missed while no driver ran: catch-up (the first one reads all data) or by-timestamp (each reads the records of its time).",
    ),
    Entry("spark.streaming.kstream.kafka.maxTasks", "int", 0, "Maximum tasks per batch of a Kafka stream; 0 is one per partition."),
    Entry(
        "spark.streaming.kstream.kafka.maxRecordsPerTask",
        "int",
        0,
        "Ranges of more records are read by several tasks, in order; 0 disables this.",
    ),
    Entry(
        "spark.streaming.kstream.kafka.onDataLoss",
        "str",
        "fail",
        "Policy for records that are gone before they were read: fail (the batch fails), skip (continue, with a ledger entry) or report "
        "(skip, and post an event to listeners).",
    ),
    Entry("spark.streaming.kstream.log.maxRatePerPartition", "int", 0, "Maximum records a second of a partition of a Log; 0 is no limit."),
    Entry(
        "spark.streaming.kstream.log.onDataLoss",
        "str",
        "fail",
        "Records of a Log gone before they were read: fail, skip or report, as for Kafka.",
    ),
    Entry(
        "spark.streaming.kstream.fileStream.splitBytes",
        "int",
        33_554_432,
        "Bytes of a file that one task reads (Spark's on a local disk); one task reads a compressed file.",
    ),
    Entry(
        "spark.streaming.kstream.receiver.onDataLoss",
        "str",
        "fail",
        "Policy for received blocks that are lost: fail (the batch fails), skip (continue, with a ledger entry) or report (skip, and post "
        "an event to listeners).",
    ),
    Entry(
        "spark.streaming.kstream.blockStore.memory",
        "bytes",
        128 * 1024 * 1024,
        "Memory of each executor for received blocks, outside Spark's own (add it to memoryOverhead); more goes to disk.",
    ),
    Entry(
        "spark.streaming.kstream.receiver.maxRegisteredResourcesWaitingTime",
        "ms",
        600_000,
        "Timeout of a start with receivers that waits for executors with enough cores; in local mode it does not wait.",
    ),
    Entry("spark.streaming.kstream.receiver.port", "int", 0, "Port of the driver for its receivers; 0 is any."),
    Entry(
        "spark.streaming.kstream.rpc.encrypt",
        "bool",
        None,
        "Encrypt the traffic of receivers and executors with each other and the driver; default: `spark.network.crypto.enabled`.",
    ),
    Entry(
        "spark.streaming.kstream.unreachableTimeout",
        "ms",
        600_000,
        "How long brokers or the store may be away before awaitTermination raises the error; no record is lost. 0: at once, as in Spark.",
    ),
    Entry("spark.streaming.kstream.history", "ms", 86_400_000, "How long plans that no restart needs are kept for replays; 0 keeps none."),
    Entry(
        "spark.streaming.kstream.checkpoint.singleWriter",
        "bool",
        False,
        "Declares that there is never a second driver. Then a checkpoint may be on a store that cannot create a file only if it is absent.",
    ),
    Entry(
        "spark.streaming.kstream.maxBatchFailures",
        "int",
        0,
        "How often restarts run a failed batch before it is given up: it goes to the ledger, and the stream continues. 0: never.",
    ),
)

BY_KEY = {entry.key: entry for entry in ENTRIES}
_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*")
_TIME = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")


def parse_time_ms(text: str) -> int:
    """Parse a time string of Spark (`500`, `500ms`, `10s`, `2m`, `1h`) into milliseconds. ValueError if `text` is no time."""
    match = _TIME.fullmatch(text.lower())
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a time: {text!r}")
    return int(match[1]) * _UNITS[match[2]]


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


_PARSERS: dict[str, Any] = {"bool": parse_bool, "int": int, "float": float, "ms": parse_time_ms, "bytes": parse_bytes, "str": str}


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


def markdown_table() -> str:
    """Return the README's table of settings."""
    rows = [f"| `{e.key}` | {e.kind} | {'' if e.default is None else e.default} | {e.meaning} |" for e in ENTRIES]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(markdown_table())

"""SourceOptions: the options of the data source `kstream`, with the names and meanings of Spark's Kafka source. Pure.

OPTIONS is the table of all of them; the tables of docs/structured.md are generated from it (`python -m kstream_kafka.structured.options`).
Spark gives a data source its options as text, with names in lower case. An option that Spark has and kstream refuses is in REFUSED, with
the reason. Spark ignores an unknown option, and so reads from the wrong place if `startingOffsets` is misspelt. Here it is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kstream.nearest_name import did_you_mean, nearest_names
from kstream.offsets.positions import Position, Positions
from kstream.storage import StorePlace
from kstream_kafka.client.params import COMMON, CONSUMER, RENAMED, KafkaParams
from kstream_kafka.client.schema_registry import PREFIX
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.planning.subscription import Subscribed
from kstream_kafka.reader.registry_options import SCHEMA_ID
from kstream_kafka.structured.option_kinds import KINDS, LATE_STARTS, Kind, MalformedError

if TYPE_CHECKING:
    from kstream_kafka.reader.value_formats import Mode

logger = logging.getLogger("kstream.kafka")

Query: TypeAlias = Literal["stream", "batch"]
"""The kind of a query: `spark.readStream` or `spark.read`."""
KAFKA = "kafka."
"""The prefix of Kafka parameters among the options."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: the name, as Spark writes it.
        kind: the kind of its value, one of KINDS.
        default: the default, as one writes it; "" for none.
        queries: the queries that have it. A stream refuses an option of batches. A batch ignores one of streams, as in Spark.
        meaning: what it does, for people.
    """

    name: str
    kind: str
    default: str
    queries: tuple[Query, ...]
    meaning: str


_BOTH: tuple[Query, ...] = ("stream", "batch")
_STREAM: tuple[Query, ...] = ("stream",)
_BATCH: tuple[Query, ...] = ("batch",)

OPTIONS = (
    Option("subscribe", "topics", "", _BOTH, "Topics, separated by commas. Each must exist."),
    Option(
        "subscribePattern",
        "pattern",
        "",
        _BOTH,
        "All topics whose whole name matches a pattern of Python's `re`, except those that begin with `__`.",
    ),
    Option("assign", "partitions", "", _BOTH, 'Only these partitions: `{"orders":[0,1],"users":[2]}`.'),
    Option(
        "startingOffsets",
        "offsets",
        "latest, in a batch earliest",
        _BOTH,
        'Where the first run of a query begins: `earliest`, `latest`, or `{"orders":{"0":23,"1":-1}}` with all partitions; −2 is earliest, '
        "−1 is latest. A restart continues at its checkpoint. A partition found later begins at its first record. A batch cannot begin at "
        "`latest`.",
    ),
    Option(
        "startingTimestamp",
        "timestamp",
        "",
        _BOTH,
        "Begin at the first record with this timestamp or a later one, in ms since 1970. Wins over the two others.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "timestamps",
        "",
        _BOTH,
        'The same with a timestamp for each partition: `{"orders":{"0":1700000000000}}`. Wins over `startingOffsets`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "late start",
        "error",
        _BOTH,
        "If a partition has no record of the starting time or later: `error` fails the query, `latest` begins at the end of the log.",
    ),
    Option(
        "endingOffsets",
        "offsets",
        "latest",
        _BATCH,
        "Where a batch ends, exclusively: `latest` or offsets as JSON, in which −1 is latest.",
    ),
    Option(
        "endingTimestamp",
        "timestamp",
        "",
        _BATCH,
        "End before the first record with this timestamp or a later one, in ms since 1970. Wins over the two others.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "timestamps",
        "",
        _BATCH,
        "The same with a timestamp for each partition. Wins over `endingOffsets`.",
    ),
    Option(
        "failOnDataLoss",
        "bool",
        "true",
        _BOTH,
        "Whether a query fails when records are gone before it could read them. If not, it continues with those that are there. What the "
        "planner of a stream finds is in its log, and in the ledger of `checkpointLocation`. What only a task sees, because it went after "
        "the batch was planned, is a warning in the log of its executor.",
    ),
    Option(
        "checkpointLocation",
        "place",
        "",
        _STREAM,
        "The `checkpointLocation` of the query once more, which Spark does not tell a source. With `failOnDataLoss=false` lost records "
        "have entries in its ledger then: `kstream ledger`. Spark has no such option.",
    ),
    Option("maxOffsetsPerTrigger", "number", "", _STREAM, "The most offsets of a micro-batch, shared among the partitions by their lags."),
    Option(
        "minOffsetsPerTrigger",
        "number",
        "",
        _STREAM,
        "The fewest offsets of a micro-batch. Until they are there the query waits, up to `maxTriggerDelay`.",
    ),
    Option("maxTriggerDelay", "time", "15m", _STREAM, "The longest wait for `minOffsetsPerTrigger`."),
    Option(
        "maxBytesPerTrigger",
        "size",
        "",
        _STREAM,
        "The most bytes of a micro-batch, about: a look at some of the next records tells how long they are. Spark has no such option.",
    ),
    Option("minPartitions", "number", "", _BOTH, "The fewest tasks of a read, if there are so many offsets: long ranges are split."),
    Option("maxRecordsPerPartition", "number", "", _BOTH, "The most offsets of a task: longer ranges are split."),
    Option(
        "maxPartitions",
        "number",
        "",
        _BOTH,
        "The most tasks of a read: neighbouring ranges share a task. It wins over the two options above. Spark has no such option.",
    ),
    Option(
        "value.format",
        "format",
        "",
        _BOTH,
        "Decodes values: `json` to the fields of the schema, `text` to a STRING; `avro` and `protobuf` by a [schema registry]"
        "(schema-registry.md). Else they are bytes.",
    ),
    Option(
        "mode", "mode", "permissive", _BOTH, "What a value that does not fit does: `permissive` makes its fields null, `fail` is an error."
    ),
    Option("includeHeaders", "bool", "false", _BOTH, "Whether there is a column `headers`. A schema that names it has it, too."),
    Option("kafkaConsumer.pollTimeoutMs", "milliseconds", "120000", _BOTH, "How long a task waits for the next record."),
    Option(
        "fetchOffset.numRetries", "count", "3", _BOTH, "How often a request for offsets is tried again, outside of elections and outages."
    ),
    Option("fetchOffset.retryIntervalMs", "milliseconds", "200", _BOTH, "The pause before that. Spark waits 1000 ms."),
)
"""Every option, except the Kafka parameters `kafka.…`."""

REFUSED = {
    "groupIdPrefix": ("names the consumer group of a query, and kstream joins none", "Leave it out."),
    "path": ("is no place in Kafka", "Call load() without a path, and name the topics by the option subscribe."),
}
"""Options that Spark has and kstream refuses → the reason, and what to do."""

_STARTING = "Set the option startingOffsets to earliest or latest. A query keeps its offsets in its checkpoint."
_COLUMNS = "The columns key and value are bytes: decode them with functions of DataFrames."
_CALLBACK = "Set sasl.oauthbearer.method=oidc with a token endpoint instead."
REFUSED_PARAMETERS = {
    "auto.offset.reset": ("is not what decides where a query begins", _STARTING),
    "key.deserializer": ("would be a Java class, which nothing here can call", _COLUMNS),
    "value.deserializer": ("would be a Java class, which nothing here can call", _COLUMNS),
    "enable.auto.commit": ("would commit offsets of records that no query has processed", "Leave it out."),
    "interceptor.classes": ("would be a Java class, which nothing here can call", "Leave it out."),
    "oauth_cb": ("is a Python function, and an option is text", _CALLBACK),
    "error_cb": ("is a Python function, and an option is text", "Leave it out."),
    "stats_cb": ("is a Python function, and an option is text", "Leave it out."),
    "throttle_cb": ("is a Python function, and an option is text", "Leave it out."),
}
"""Kafka parameters that a query refuses → the reason, and what to do. The first five are refused by Spark, too."""

STRATEGIES = ("subscribe", "subscribePattern", "assign")
"""The options of which exactly one says what is read."""
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
"""The options for the start of a query; the first that is given wins."""
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The options for the end of a batch; the first that is given wins."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a query begins, or where a batch ends. Immutable.

    Attributes:
        option: the name of the option that says it.
        positions: the position of each partition. Kinds: "earliest", "latest", "offset" and "time".
    """

    option: str
    positions: Positions


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query, parsed. Immutable; can be pickled. `repr` shows no secret.

    Attributes:
        topics: the topics and partitions.
        params: the Kafka parameters.
        starts: where the query begins; None for the default of its kind.
        ends: where a batch ends; None for the end of each log.
        late_start: what happens to a starting time after all records: one of LATE_STARTS.
        fail_on_data_loss: whether a query fails when records are gone.
        checkpoint: the checkpoint of the query, for its ledger; None for no ledger.
        max_offsets: the most offsets of a micro-batch; None for no limit.
        min_offsets: the fewest offsets of a micro-batch; None for no wait.
        max_delay_ms: the longest wait for `min_offsets`, in ms.
        max_bytes: the most bytes of a micro-batch; None for no limit.
        min_tasks: the fewest tasks of a read; None if nothing is split for it.
        max_records_per_task: the most offsets of a task; None for no limit.
        max_tasks: the most tasks of a read; None for no limit.
        value_format: the format of the values; None if they stay bytes.
        mode: what becomes of a value that does not fit.
        format_options: the options of a format whose schemas are in a schema registry: `schema.registry.…` and `value.schema.id`.
        include_headers: whether the default schema has the column `headers`.
        poll_timeout_ms: how long a task waits for the next record, in ms.
        retries: how often a request for offsets is tried again.
        given: the names of the options that the user has set.
    """

    topics: Subscribed
    params: KafkaParams
    starts: Bound | None = None
    ends: Bound | None = None
    late_start: str = LATE_STARTS[0]
    fail_on_data_loss: bool = True
    checkpoint: StorePlace | None = None
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    max_bytes: int | None = None
    min_tasks: int | None = None
    max_records_per_task: int | None = None
    max_tasks: int | None = None
    value_format: str | None = None
    mode: Mode = "permissive"
    format_options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    include_headers: bool = False
    poll_timeout_ms: int = 120_000
    retries: int = 3
    given: frozenset[str] = field(default_factory=frozenset[str])

    @staticmethod
    def parse(given: Mapping[str, str]) -> SourceOptions:
        """Parse the options of a data source. Sends no request.

        Args:
            given: name → text, the names in any case.

        Returns:
            The options, for a query of either kind: `of_stream` and `of_batch` check what only one of them has.

        Raises:
            SourceOptionError: an option is unknown, refused or malformed, or does not go with another one.
            KafkaConfigError: a Kafka parameter is unknown or cannot work.
        """
        texts = {name.lower(): text for name, text in given.items()}
        values = parsed(OPTIONS, texts)
        of_format = {name: text for name, text in texts.items() if name.startswith(PREFIX) or name == SCHEMA_ID}
        for name in texts:
            if not name.startswith(KAFKA) and name not in _BY_LOWER_CASE and name not in of_format:
                raise _unknown(name)
        if of_format and values.get("value.format") not in OF_REGISTRY:
            hint = f"Set the option value.format to {' or '.join(OF_REGISTRY)}."
            raise SourceOptionError(next(iter(of_format)), "is for values whose schemas are in a schema registry", hint)
        if (least := values.get("minOffsetsPerTrigger")) and (most := values.get("maxOffsetsPerTrigger")) and least > most:
            raise SourceOptionError("minOffsetsPerTrigger", f"is {least}, more than maxOffsetsPerTrigger, which is {most}")
        if "mode" in values and "value.format" not in values:
            raise SourceOptionError("mode", "is for values that are decoded", "Set the option value.format, too.")
        return SourceOptions(
            topics=_topics(values),
            params=kafka_params(texts, REFUSED_PARAMETERS, values.get("fetchOffset.retryIntervalMs")),
            starts=_first(STARTS, values),
            ends=_first(ENDS, values),
            given=frozenset(values),
            format_options=of_format,
            **{attribute: values[name] for name, attribute in _ATTRIBUTES.items() if name in values},
        )

    def of_stream(self) -> SourceOptions:
        """Return the options of a stream: without a start it begins at the ends of the logs.

        Raises:
            SourceOptionError: an option is only for batches.
        """
        for name in self._of_others("stream"):
            raise SourceOptionError(name, "is for batches: a stream has no end", "Leave it out, or use spark.read.")
        return self if self.starts is not None else replace(self, starts=Bound("startingOffsets", Positions(Position("latest"))))

    def of_batch(self) -> SourceOptions:
        """Return the options of a batch: by default from the first records to the ends of the logs. Logs the options without effect.

        Raises:
            SourceOptionError: the batch would begin at the end of a log, or end at its first record.
        """
        starts = self.starts or Bound("startingOffsets", Positions(Position("earliest")))
        ends = self.ends or Bound("endingOffsets", Positions(Position("latest")))
        _refuse_kind(starts, "latest", "a batch has an end, so it cannot begin at latest")
        _refuse_kind(ends, "earliest", "a batch cannot end at earliest")
        for name in self._of_others("batch"):
            logger.warning("option %s of the data source kstream has no effect in a batch", name)
        return replace(self, starts=starts, ends=ends)

    def _of_others(self, query: Query) -> list[str]:
        """Return the given options that queries of this kind do not have, in the order of OPTIONS."""
        return [option.name for option in OPTIONS if option.name in self.given and query not in option.queries]


OF_REGISTRY = ("avro", "protobuf")
"""The formats of values whose schemas are in a schema registry."""
_BY_LOWER_CASE = {option.name.lower(): option for option in OPTIONS}
_ATTRIBUTES = {
    "startingOffsetsByTimestampStrategy": "late_start",
    "failOnDataLoss": "fail_on_data_loss",
    "checkpointLocation": "checkpoint",
    "maxOffsetsPerTrigger": "max_offsets",
    "minOffsetsPerTrigger": "min_offsets",
    "maxTriggerDelay": "max_delay_ms",
    "maxBytesPerTrigger": "max_bytes",
    "minPartitions": "min_tasks",
    "maxRecordsPerPartition": "max_records_per_task",
    "maxPartitions": "max_tasks",
    "value.format": "value_format",
    "mode": "mode",
    "includeHeaders": "include_headers",
    "kafkaConsumer.pollTimeoutMs": "poll_timeout_ms",
    "fetchOffset.numRetries": "retries",
}
"""option → attribute of SourceOptions, where the value is the attribute."""


def starting_positions(text: str) -> Positions:
    """Return the positions of a value of `startingOffsets`. SourceOptionError if it is malformed."""
    return _parsed(_BY_LOWER_CASE["startingoffsets"], text, KINDS)


def parsed(options: Iterable[Option], texts: Mapping[str, str], kinds: Mapping[str, Kind] | None = None) -> dict[str, Any]:
    """Return the values of the options that are given, by name. SourceOptionError if a text is malformed.

    Args:
        options: the options there are.
        texts: name in lower case → text.
        kinds: the kinds of their values; None for KINDS.
    """
    return {option.name: _parsed(option, texts[option.name.lower()], kinds or KINDS) for option in options if option.name.lower() in texts}


def _parsed(option: Option, text: str, kinds: Mapping[str, Kind]) -> Any:
    """Return the value of an option. SourceOptionError if its text is malformed."""
    parse, wanted = kinds[option.kind]
    try:
        return parse(text.strip())
    except ValueError as e:
        reason = str(e) if isinstance(e, MalformedError) else f"is {text!r}"
        raise SourceOptionError(option.name, reason, f"Give {wanted}.") from None


def _unknown(name: str) -> SourceOptionError:
    """Return the error for an option that does not exist, with the nearest names, or for one that is refused."""
    refused = {key.lower(): (key, *words) for key, words in REFUSED.items()}
    if name in refused:
        return SourceOptionError(*refused[name])
    if name in COMMON | CONSUMER | RENAMED.keys():
        return SourceOptionError(name, "is a Kafka parameter", did_you_mean([KAFKA + name]))
    near = nearest_names(name, [option.name for option in OPTIONS])
    return SourceOptionError(name, "is unknown", did_you_mean(near) or "docs/structured.md has all options.")


def _topics(values: Mapping[str, Any]) -> Subscribed:
    """Return the subscription. SourceOptionError unless exactly one of STRATEGIES is given."""
    found = [name for name in STRATEGIES if name in values]
    if len(found) != 1:
        reason = "is missing" if not found else f"is given together with {' and '.join(found[1:])}"
        raise SourceOptionError(found[0] if found else STRATEGIES[0], reason, f"Give one of {', '.join(STRATEGIES)}.")
    return values[found[0]]


def kafka_params(texts: Mapping[str, str], refused: Mapping[str, tuple[str, str]], retry_interval_ms: int | None = None) -> KafkaParams:
    """Return the Kafka parameters among the options.

    Args:
        texts: name in lower case → text.
        refused: the parameters that a query refuses → the reason, and what to do.
        retry_interval_ms: the pause between two requests for offsets; None for the default.

    Raises:
        SourceOptionError: a parameter is refused, or no broker is named.
        KafkaConfigError: as `KafkaParams.parse`.
    """
    given: dict[str, Any] = {name.removeprefix(KAFKA): text for name, text in texts.items() if name.startswith(KAFKA)}
    for name in given:
        if name in refused:
            raise SourceOptionError(KAFKA + name, *refused[name])
    if "bootstrap.servers" not in given and "metadata.broker.list" not in given:
        raise SourceOptionError(KAFKA + "bootstrap.servers", "is missing", "Give host:port of a broker.")
    if retry_interval_ms is not None:
        given["refresh.leader.backoff.ms"] = retry_interval_ms
    return KafkaParams.parse(given)


def _first(names: Iterable[str], values: Mapping[str, Any]) -> Bound | None:
    """Return the bound that the first of these options says that is given; None if none is given."""
    return next((Bound(name, values[name]) for name in names if name in values), None)


def _refuse_kind(bound: Bound, kind: str, why: str) -> None:
    """Raise SourceOptionError if the bound of a batch has a position of this kind."""
    default, each = bound.positions.default, bound.positions.each
    if default is not None and default.kind == kind:
        raise SourceOptionError(bound.option, f"is {kind!r}: {why}")
    if at := sorted(p for p, position in each.items() if position.kind == kind):
        topic, partition = at[0]
        raise SourceOptionError(bound.option, f"is {kind} for {topic}-{partition}: {why}")


# -- the tables of docs/structured.md


def markdown_tables(options: Iterable[Option], refused: Mapping[str, tuple[str, str]]) -> str:
    """Return tables of docs/structured.md: the options of a source or a sink, and those that are refused."""
    rows = [f"| `{o.name}` | {o.kind} | {_shown(o.default)} | {' and '.join(o.queries)} | {o.meaning} |" for o in options]
    table = "\n".join(["| option | value | default | query | meaning |", "|---|---|---|---|---|", *rows])
    reasons = "\n".join(f"| `{name}` | It {reason}. {hint} |" for name, (reason, hint) in refused.items())
    return f"{table}\n\nThese options are refused:\n\n| option | reason |\n|---|---|\n{reasons}"


def of_kafka(refused: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return refused Kafka parameters by the names that they have among the options."""
    return {KAFKA + name: words for name, words in refused.items()}


def _shown(default: str) -> str:
    """Return a default for a cell of the table."""
    return f"`{default}`" if default and " " not in default else default


if __name__ == "__main__":
    print(markdown_tables(OPTIONS, REFUSED | of_kafka(REFUSED_PARAMETERS)))

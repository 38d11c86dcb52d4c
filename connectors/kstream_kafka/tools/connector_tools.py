"""KafkaTools: the methods of this connector that the commands of `kstream` call. Also the Kafka parameters of a command line.

Loads librdkafka only to ask the brokers. Names of parameters may be Java's or librdkafka's. Values may be secret: no message here shows
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kstream.batch.plan import kind_of
from kstream.connectors import ConnectorTools, Finding, LogRecord, NeededPackage, ResetResult
from kstream.errors import ConfigurationError
from kstream.offsets.offset_range import OffsetRange, Partition, PlannedRange, UnreadableRange, stored_ranges
from kstream.offsets.topic_offsets import by_partition
from kstream_kafka.client.params import RENAMED
from kstream_kafka.planning.plan import KAFKA, KafkaPlan

BOOTSTRAP = "bootstrap.servers"
_BOOTSTRAP_NAMES = (BOOTSTRAP, "metadata.broker.list")
_NAME = re.compile(r"[a-z]+(\.[a-z0-9]+)+")


class KafkaTools(ConnectorTools):
    """The tools of direct streams. Their plan data is the stored form of a KafkaPlan."""

    name = "Kafka"
    input_kind = "kafka-direct"
    leaves_out = True
    worker_modules = ("kstream_kafka.reader.range_consumer",)
    packages = (
        NeededPackage("confluent-kafka", "confluent_kafka", "To read Kafka"),
        NeededPackage("pyarrow", "pyarrow", "To read Kafka as DataFrames"),
    )
    command_sections: Mapping[str, Sequence[str]] = MappingProxyType(
        {
            "Records": ("dlq", "produce", "tail"),
            "Exactly-once outputs": ("sink", "audit"),
            "Structured Streaming": ("structured",),
            "A first look": ("demo", "broker"),
        }
    )
    client_loggers = ("kstream.kafka.librdkafka", "kstream.kafka.zookeeper")

    def ranges(self, data: Mapping[str, Any]) -> list[PlannedRange] | None:
        """Return the ranges in plan data, empty ones included; None if the data is no stored KafkaPlan. Pure."""
        return stored_ranges(data.get("ranges")) if kind_of(data) == KAFKA else None

    def waiting(self, data: Mapping[str, Any]) -> Collection[Partition]:
        """Return the partitions of plan data that wait, because their given start is past the end of their log. Pure."""
        return {(str(topic), int(partition)) for topic, partition in data.get("ahead", ())}

    def read_parameters(self, bootstrap: str | None, params: Sequence[str], file: str | None) -> dict[str, Any]:
        """Read the Kafka parameters of a command line; see the function `read_parameters`. Raises ConfigurationError."""
        return read_parameters(bootstrap, params, file)

    def connection(self, stored: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Merge the stored parameters with the given ones, which win. None if nothing is stored and no broker is given."""
        return None if stored is None and not names_brokers(given) else merged(stored or {}, given)

    def log_ends(self, connection: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask for the end of each partition's log: the last stable offset under read_committed.

        Sends one request per broker. Blocks for at most `default.api.timeout.ms` of the parameters; longer only while some brokers answer.

        Raises:
            KafkaError: the parameters cannot work, or the brokers do not give the ends.
        """
        from kstream_kafka.client.driver_client import KafkaDriverClient
        from kstream_kafka.client.params import KafkaParams

        client = KafkaDriverClient(KafkaParams.parse(connection))
        try:
            return {p: end.offset for p, end in client.latest(partitions).items()}
        finally:
            client.close()

    def read_records(
        self, connection: Mapping[str, Any], data: Mapping[str, Any], ranges: Sequence[PlannedRange]
    ) -> Iterator[LogRecord | UnreadableRange]:
        """Read the records of ranges with a consumer like a worker's; see the function `read_records`. Lazy; blocks."""
        from kstream_kafka.tools.record_reading import read_records

        return read_records(connection, data, ranges)

    def examine(self, connection: Mapping[str, Any], data: Mapping[str, Any]) -> list[Finding]:
        """Look whether a direct stream could read on; see the function `examine`. Asks the brokers. Blocks."""
        from kstream_kafka.tools.examination import examine

        return examine(connection, data)

    def query_offsets(self, offset: Any) -> Mapping[Partition, int] | None:
        """Return the offsets of Spark's Kafka source and of `format("kstream")`, which have one form; None for another one. Pure."""
        return by_partition(offset)

    def plan_at(self, offsets: Mapping[Partition, int]) -> dict[str, Any]:
        """Return the stored form of a KafkaPlan that reads nothing and ends at these offsets, without topic ids. Pure."""
        return KafkaPlan.without_epochs([OffsetRange(*p, at, at) for p, at in sorted(offsets.items())]).encode()

    def reset(self, connection: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str]) -> ResetResult:
        """Return the plan data by which a stream goes on at other offsets; see `reset_offsets`. Stores nothing. Blocks on brokers."""
        from kstream_kafka.tools.offset_reset import reset_offsets

        return reset_offsets(connection, data, to, topics)

    def rewind(self, data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str]) -> ResetResult:
        """Return the plan data by which a stream goes back to the beginning of the plan `then`; see `rewound_offsets`. Asks no broker."""
        from kstream_kafka.tools.offset_reset import rewound_offsets

        return rewound_offsets(data, then, topics)

    def empty_plan_at(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return plan data that reads nothing and ends at the offsets where `data` ends. Pure."""
        from kstream_kafka.tools.offset_reset import empty_plan_at

        return empty_plan_at(data)


# -- parameters


def read_parameters(bootstrap: str | None, params: Sequence[str], file: str | None) -> dict[str, Any]:
    """Read the Kafka parameters of a command line. Reads the file, if there is one.

    Args:
        bootstrap: the value of `--bootstrap`, which wins over the others.
        params: the values of `--param`, each KEY=VALUE, which win over the file.
        file: the path of `--params-file`.

    Raises:
        ConfigurationError: an option has no value, or the file cannot be read.
    """
    given = read_file(Path(file)) if file is not None else {}
    for text in params:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            name = key if equals or _NAME.fullmatch(key) else "(not shown: it may hold a secret)"
            raise ConfigurationError(f"--param {name!r} has no value: give KEY=VALUE", key="param", value=name)
        given[key.strip()] = value
    if bootstrap is not None:
        for name in _BOOTSTRAP_NAMES:
            given.pop(name, None)
        given[BOOTSTRAP] = bootstrap
    return given


def names_brokers(params: Mapping[str, Any]) -> bool:
    """Return whether the parameters hold the address of a broker."""
    return any(params.get(name) for name in _BOOTSTRAP_NAMES)


def merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return both kinds of parameters together. A given one wins over a stored one, also if the two have different names for it."""
    taken = {RENAMED.get(name, name) for name in given}
    return {**{name: value for name, value in stored.items() if RENAMED.get(name, name) not in taken}, **given}


def read_file(path: Path) -> dict[str, Any]:
    """Read the parameters in a file: a JSON object if the name ends with `.json`, else Java properties.

    Raises:
        ConfigurationError: the file cannot be read, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}", key="params-file", value=str(path)) from e
    if path.suffix != ".json":
        return dict(parse_properties(text))
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ConfigurationError(f"{path} is not JSON: {e}", key="params-file", value=str(path)) from e
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object of Kafka parameters", key="params-file", value=str(path))
    return found


_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*")
_ENTRY = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse Java properties: `key=value`, `key: value` or `key value`, `#` and `!` comments, escapes, `\` before a line break."""
    found: dict[str, str] = {}
    for line in _CONTINUED.sub(r"\1", text.replace("\r\n", "\n")).split("\n"):
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        match = _ENTRY.match(line)
        assert match is not None  # both parts may be empty
        key, value = (_ESCAPE.sub(_unescaped, part) for part in match.groups())
        found[key] = value
    return found


def _unescaped(match: re.Match[str]) -> str:
    """Return the character that an escape stands for."""
    escape = match.group(1)
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(escape, escape)

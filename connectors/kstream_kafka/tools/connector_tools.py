"""KafkaTools: what the commands of `kstream` ask of this connector. Loads librdkafka only to ask the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kstream.connectors import ConnectorTools, Partition, PlannedRange, ResetResult
from kstream_kafka.tools.parameters import merged, names_brokers, read_parameters


class KafkaTools(ConnectorTools):
    """The tools of direct streams. Their plan data is the stored form of a KafkaPlan."""

    name = "Kafka"
    input_kind = "kafka-direct"
    client_loggers = ("kstream.kafka.librdkafka", "kstream.kafka.zookeeper")

    def ranges(self, data: Mapping[str, Any]) -> list[PlannedRange] | None:
        stored = data.get("ranges")
        if not isinstance(stored, list) or not all(isinstance(row, list) and len(row) == 4 for row in stored):
            return None
        return [PlannedRange(str(topic), int(partition), int(begin), int(until)) for topic, partition, begin, until in stored]

    def waiting(self, data: Mapping[str, Any]) -> Collection[Partition]:
        return {(str(topic), int(partition)) for topic, partition in data.get("ahead", ())}

    def read_parameters(self, bootstrap: str | None, params: Sequence[str], file: str | None) -> dict[str, Any]:
        return read_parameters(bootstrap, params, file)

    def connection(self, stored: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Merge stored and given parameters, whose names may be of either dialect. A stream with a secret stores none."""
        return None if stored is None and not names_brokers(given) else merged(stored or {}, given)

    def log_ends(self, connection: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask for the end of each partition's log: the last stable offset under read_committed.

        One request per broker. Blocks for at most `default.api.timeout.ms` of the parameters, and as long again for a retry.
        """
        from kstream_kafka.client.driver_client import KafkaDriverClient
        from kstream_kafka.client.params import KafkaParams

        client = KafkaDriverClient(KafkaParams.parse(connection))
        try:
            return {p: end.offset for p, end in client.latest(partitions).items()}
        finally:
            client.close()

    def reset(self, connection: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str]) -> ResetResult:
        from kstream_kafka.tools.offset_reset import reset_offsets

        return reset_offsets(connection, data, to, topics)

    def rewind(self, data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str]) -> ResetResult:
        from kstream_kafka.tools.offset_reset import rewound_offsets

        return rewound_offsets(data, then, topics)

    def empty_plan_at(self, data: Mapping[str, Any]) -> dict[str, Any]:
        from kstream_kafka.tools.offset_reset import empty_plan_at

        return empty_plan_at(data)

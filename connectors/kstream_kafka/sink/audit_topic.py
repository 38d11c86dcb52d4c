"""AuditTopic: the topic that has an entry for each batch that an output or a query has written, as the driver writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from kstream.batch import PlannedInput
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer, store
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.sink.audit import AuditEntry, InputRanges, encode_entry, key_of

NEW_TOPIC = {"cleanup.policy": "delete"}
"""Settings of a new topic. How long it keeps entries is up to the brokers' own, as with the topics that are written."""


class AuditTopic:
    """The entries of one output, or of a query. Driver; one thread at a time. All methods but `close` block on the brokers.

    Its clients are made at the first entry, and kept.
    """

    def __init__(self, params: KafkaParams, prefix: str) -> None:
        """
        Args:
            params: the Kafka parameters.
            prefix: begins the name of the topic.
        """
        self.name = audit_topic(prefix)
        self._params = params.uncommitted()
        self._client: KafkaDriverClient | None = None
        self._producer: RecordProducer | None = None

    def ends(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """Return topic → the end of each partition, also behind what no transaction has committed. Makes the topic of the audit if needed.

        Raises:
            KafkaError: the brokers do not answer, or refuse this client.
        """
        try:
            return self._ends(topics)
        except BaseException:
            self.close()
            raise

    def append(self, entry: AuditEntry) -> None:
        """Write an entry. Its `ends` are those of now: the batch must be committed. Makes the topic if there is none.

        Raises:
            KafkaError: the brokers do not answer, or refuse this client.
        """
        try:
            self._append(replace(entry, ends=self._ends(entry.digests)))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the clients. The next entry makes new ones."""
        client, self._client, self._producer = self._client, None, None
        if client is not None:
            client.close()

    def _ends(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """As `ends`. A topic that is gone is left out."""
        client = self._client
        if client is None:
            client = self._client = KafkaDriverClient(self._params)
            client.create_topic(self.name, 1, NEW_TOPIC)
        names = set(topics)
        there = client.describe_topics(names) if names else {}
        if unanswered := sorted(names - there.keys()):
            raise KafkaError(f"Kafka has not told the partitions of {', '.join(unanswered)}", reason="no answer")
        partitions = [(topic, partition) for topic, numbers in there.items() for partition in numbers]
        found = client.latest(partitions) if partitions else {}
        ends = defaultdict[str, list[int]](list)
        for (topic, _), end in sorted(found.items()):
            ends[topic].append(end.offset)
        return ends

    def _append(self, entry: AuditEntry) -> None:
        producer = self._producer
        if producer is None:
            producer = self._producer = RecordProducer(self._params.producer())
        words = f"output {entry.output}: batch {entry.time_ms} ms could not be noted for the audit"
        store(producer, self.name, key_of(entry), encode_entry(entry), {0}, words)


def audit_topic(prefix: str) -> str:
    return f"{prefix}-audit"


def input_ranges(inputs: Mapping[int, PlannedInput]) -> InputRanges:
    """Return the records of a batch that are in Kafka, by the number of the stream. Pure."""
    found = {
        str(stream): [(r.topic, r.partition, r.fromOffset, r.untilOffset) for r in plan.ranges if r.count()]
        for stream, plan in sorted(inputs.items())
        if isinstance(plan, KafkaPlan)
    }
    return {stream: ranges for stream, ranges in found.items() if ranges}

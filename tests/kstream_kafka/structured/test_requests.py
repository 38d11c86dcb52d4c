"""What a trigger asks of the brokers, counted by the client itself: librdkafka's mock cluster of two brokers, a thousand partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.demo.embedded_broker import EmbeddedBroker
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.readers import KafkaStreamReader

BROKERS, TOPICS, PARTITIONS = 2, 250, 4
"""A topic of the mock cluster has four partitions."""
TRIGGERS = 5


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a cluster with a record in one partition of each topic."""
    with EmbeddedBroker(brokers=BROKERS) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(TOPICS):
            producer.produce(f"t{number}", b"1", partition=0)
        assert producer.flush(60) == 0
        yield broker.bootstrap


class CountedQuery:
    """A query of all topics of a cluster, whose triggers are made as Spark makes them."""

    def __init__(self, bootstrap: str) -> None:
        subscribed = ",".join(f"t{number}" for number in range(TOPICS))
        options = SourceOptions.parse({"kafka.bootstrap.servers": bootstrap, "subscribe": subscribed, "startingOffsets": "earliest"})
        self.client = KafkaDriverClient(options.params, 200, statistics_ms=100)
        self.reader = KafkaStreamReader(options.of_stream(), ("value",), lambda _: self.client)
        self.at: dict[str, Any] = self.reader.initialOffset()

    def trigger(self) -> int:
        """Make a trigger, and return the number of records that it reads."""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        self.reader.reportLatestOffset()
        if end == self.at:
            return 0
        partitions = self.reader.partitions(self.at, end)
        self.reader.commit(end)
        self.at = end
        return sum(split.range.count() for partition in partitions for split in partition.splits)

    def requests(self) -> dict[str, dict[str, int]]:
        """The requests so far: broker → kind → number."""
        self.client.requests_sent("")
        return {broker: dict(kinds) for broker, kinds in self.client._sent.items()}


def test_a_trigger_of_a_thousand_partitions_sends_one_ListOffsets_to_each_broker_and_nothing_else(cluster: str) -> None:
    query = CountedQuery(cluster)
    query.trigger()  # the first batch is empty, and stores the start
    assert query.trigger() == TOPICS  # new leaders may need to be asked twice
    producer, read = Producer({"bootstrap.servers": cluster}), 0
    before = query.requests()
    for number in range(TRIGGERS):
        if number % 2:
            producer.produce("t7", b"2", partition=1)
            assert producer.flush(20) == 0
        read += query.trigger()
    after = query.requests()
    sent = [{kind: n - before[broker].get(kind, 0) for kind, n in kinds.items()} for broker, kinds in after.items()]
    sent = [{kind: n for kind, n in kinds.items() if n} for kinds in sent]
    assert read == TRIGGERS // 2
    assert [kinds for kinds in sent if kinds] == [{"ListOffsets": TRIGGERS}] * BROKERS

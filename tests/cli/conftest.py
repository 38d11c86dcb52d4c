"""The cluster that `kstream lag` asks, of a checkpoint of kstream and of a query."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kstream_kafka.demo.embedded_broker import MockCluster


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster with 100 records in partitions 0 and 1 of `orders`, and 20 in partition 0 of `clicks`."""
    cluster = MockCluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for topic, partition, records in (("orders", 0, 100), ("orders", 1, 100), ("clicks", 0, 20)):
        for i in range(records):
            producer.produce(topic, str(i), partition=partition)
    assert producer.flush(10) == 0
    yield cluster.bootstrap
    del cluster

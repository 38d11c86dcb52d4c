"""The broker fixture itself."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from integration.kafka_broker import KafkaBroker, running_broker


def values(broker: KafkaBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        found += [m.value() for m in consumer.consume(count - len(found), 10)]
    consumer.close()
    return found


def test_a_killed_broker_comes_back_with_what_it_acknowledged(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create_topic("t", 1)
        broker.produce("t", ((str(i), f"value-{i}", 0) for i in range(1000)))
        broker.kill9()
        broker.restart()
        assert values(broker, "t", 1000) == [f"value-{i}".encode() for i in range(1000)]

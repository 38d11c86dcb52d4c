"""The writing side of Kafka that the embedded broker and the order feed need; with the reading clients the only user of confluent_kafka.

Not a sink for streams: an acknowledged producer for tests and the demo, and librdkafka's mock cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from kstream_kafka.client.librdkafka import client_log
from kstream_kafka.errors import KafkaError

OnAcknowledged = Callable[[int, int], None]
"""Called with (partition, offset) once the broker has the record."""


class AcknowledgedProducer:
    """Sends records and says of each whether Kafka has it. Idempotent: a retry never makes a second copy. One thread."""

    def __init__(self, bootstrap: str) -> None:
        # One request at a time: on a new topic a first batch may be refused and the second taken; the first, sent again, would pass for a
        # duplicate, and be lost without a word.
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "max.in.flight": 1, "linger.ms": 5}
        self._producer: Any = _made(settings)
        self.refused: list[str] = []
        """What the client said of each record it gave up."""

    def send(self, topic: str, key: bytes, value: bytes, on_acknowledged: OnAcknowledged) -> None:
        """Queues a record; its callback comes from `serve` or `flush`. Blocks only while the queue is full."""

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                on_acknowledged(message.partition(), message.offset())
            else:
                self.refused.append(error.str())

        while True:
            try:
                self._producer.produce(topic, key=key, value=value, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def serve(self) -> None:
        """Delivers the callbacks that wait."""
        self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        """Waits for what was sent, at most so long; returns how many records are still without an answer."""
        return self._producer.flush(seconds)


class MockCluster:
    """librdkafka's mock cluster: a Kafka on loopback that lives as long as this object.

    Topics make themselves on first use with 4 partitions; some 5 MB a partition are kept. No compaction, no topic ids.
    """

    def __init__(self, brokers: int = 1) -> None:
        self._producer: Any = _made({"test.mock.num.brokers": brokers})
        metadata = self._producer.list_topics(timeout=10)
        self.bootstrap = ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())


def _made(settings: dict[str, Any]) -> Any:
    try:
        return Producer(settings, logger=client_log)
    except KafkaException as e:
        reason = e.args[0].str()
        raise KafkaError(f"a Kafka producer could not be made: {reason}", reason=reason) from e

"""A job with an errors policy, and the dead letters of a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kstream_kafka import KafkaUtils, value_only

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET
from kstream import StreamingContext


def loads(raw: bytes) -> Any:
    return json.loads(raw)


class Job:
    """A bounded run over all records of a topic, and what its output got."""

    def __init__(self, sc: Any, kafka: KafkaBroker, checkpoint: Path | None = None) -> None:
        self.kafka = kafka
        self.ssc = StreamingContext(sc, 0.5)
        if checkpoint is not None:
            self.ssc.checkpoint(str(checkpoint))
        self.seen: list[Any] = []

    def stream(self, topic: str, **given: Any) -> Any:
        params = {"bootstrap.servers": self.kafka.bootstrap}
        decoding = {"valueDecoder": loads, "messageHandler": value_only, **given}
        return KafkaUtils.createDirectStream(self.ssc, [topic], params, "earliest", untilOffsets="latest", **decoding)

    def run(self, stream: Any) -> list[Any]:
        """Run to the end of the topic; what the stream gave, sorted."""
        stream.foreachRDD(lambda rdd: self.seen.extend(rdd.collect()))
        self.ssc.start()
        try:
            assert self.ssc.awaitTerminationOrTimeout(60)
        finally:
            self.ssc.stop(stopSparkContext=False)
        return sorted(self.seen)


def letters_in(kafka: KafkaBroker, topic: str) -> list[Any]:
    """All records of a dead-letter topic with one partition, as messages."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "letters", **QUIET})
    begin, end = kafka.log_range(topic)
    found: list[Any] = []
    consumer.assign([TopicPartition(topic, 0, begin)])
    while len(found) < end - begin:
        found += [m for m in consumer.consume(100, 1.0) if m.error() is None]
    consumer.close()
    return found

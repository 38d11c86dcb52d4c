"""What a reader of committed records finds in the topic of a job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from integration.kafka_handle import KafkaHandle
from integration.sink_faults.batches import TIMEOUT_MS, SinkJob

SETTLED_S = TIMEOUT_MS / 2000
"""Seconds in which the brokers must have written the markers of what has ended. A time-out would end a transaction only later."""


def breaches_of(kafka: KafkaHandle, job: SinkJob) -> list[str]:
    """Return what is wrong: records that are missing or there twice, transactions that are open. `kafka`: the broker without a proxy."""
    if left := open_partitions(kafka, job):
        return [f"a transaction stays open in {', '.join(left)}"]
    return breaches_in(committed(kafka, job.topic), job)


def breaches_in(found: Counter[str], job: SinkJob) -> list[str]:
    """Return what is wrong with values that were found so many times. Pure."""
    wanted = job.wanted()
    missing, unknown = wanted - found.keys(), found.keys() - wanted
    twice = [value for value, count in found.items() if count > 1]
    kinds: Mapping[str, list[str]] = {"missing": sorted(missing), "there and not written": sorted(unknown), "there twice": sorted(twice)}
    return [f"{len(values)} records are {words}, such as {values[0]}" for words, values in kinds.items() if values]


def committed(kafka: KafkaHandle, topic: str) -> Counter[str]:
    """Return how often each value is in a topic without open transactions, for a reader of committed records. Blocks."""
    found: Counter[str] = Counter()
    left = set(kafka.partitions(topic))
    reader: Any = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    reader.assign([TopicPartition(topic, number, 0) for number in left])
    while left:
        message = reader.poll(30)
        assert message is not None, f"{topic} was not read to its end"
        if message.error() is None:
            found[message.value().decode()] += 1
        else:
            left.discard(message.partition())
    reader.close()
    return found


def open_partitions(kafka: KafkaHandle, job: SinkJob) -> list[str]:
    """Return the partitions of the topic and of the receipts whose last stable offset stays below their high watermark. Blocks."""
    until = time.monotonic() + SETTLED_S
    while True:
        try:
            stable, high = (_ends(kafka, job, level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED))
            left = sorted(name for name, end in high.items() if stable[name] < end)
            if not left or time.monotonic() > until:
                return left
        except KafkaException as e:  # the broker has not learned yet that it leads a new topic
            if time.monotonic() > until or e.args[0].code() != KafkaError.UNKNOWN_LEADER_EPOCH:
                raise
        time.sleep(0.05)


def _ends(kafka: KafkaHandle, job: SinkJob, level: IsolationLevel) -> dict[str, int]:
    places = [TopicPartition(topic, number) for topic in (job.topic, job.receipts) for number in kafka.partitions(topic)]
    latest = cast(OffsetSpec, OffsetSpec.latest())
    asked = kafka.admin.list_offsets(dict.fromkeys(places, latest), isolation_level=level)
    return {f"{place.topic}-{place.partition}": answer.result(30).offset for place, answer in asked.items()}

"""Kafka as the sink of a driver that is killed: a topic that `saveToKafka` writes, and one that an idempotent producer writes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from integration import commands
from integration.exactness.database import DIE_IN_WRITE, NAIVE, ONCE
from kstream import DStream

SINK_PARTITIONS = 3
_is_patched = False


def value_of(driver: int, place: str) -> str:
    """The value of a record. Its first call in a worker makes the worker kill the driver in a commit, if it is to."""
    global _is_patched
    if not _is_patched:
        _is_patched = True
        _kill_in_commit(driver, int(os.environ.get(DIE_IN_WRITE, 0)))
    return place


def _kill_in_commit(driver: int, nth: int) -> None:
    """Let the nth commit kill the driver: an odd one before it is done, an even one after."""
    from kstream_kafka.client.transaction import Transaction

    commit, calls = Transaction.commit, 0

    def dies(self: Transaction) -> None:
        nonlocal calls
        calls += 1
        if calls == nth and nth % 2:
            _kill(driver)
        commit(self)
        if calls == nth:
            _kill(driver)

    Transaction.commit = dies


def _kill(driver: int) -> None:
    os.kill(driver, signal.SIGKILL)
    signal.pause()  # until the JVM has ended, and Spark's daemon ends this worker


def produce_naively(bootstrap: str, places: Iterator[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for place in places:
        producer.produce(NAIVE, place)
        producer.poll(0)
    assert producer.flush(60) == 0


def write_to(stream: DStream[str], bootstrap: str) -> None:
    """Write a stream of places to both topics."""
    stream.foreachRDD(lambda rdd: rdd.foreachPartition(partial(produce_naively, bootstrap)))
    stream.saveToKafka(ONCE, {"bootstrap.servers": bootstrap}, value=partial(value_of, os.getpid()))


def breaches_of_audit(bootstrap: str) -> list[str]:
    """What `kstream audit` says, if it is not that everything is proved."""
    code, said, error = commands.run("audit", f"kafka {ONCE}", "--bootstrap", bootstrap)
    return [] if code == 0 else [f"kstream audit ended with {code}", *said.splitlines(), *error.splitlines()]


def rows(bootstrap: str, topic: str) -> Counter[str]:
    """How often each value is in a topic, for a reader of committed records."""
    reader: Any = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    found: Counter[str] = Counter()
    reader.assign([TopicPartition(topic, p, 0) for p in range(SINK_PARTITIONS)])
    left = set(range(SINK_PARTITIONS))
    while left:
        for message in reader.consume(1000, 0.5):
            if message.error() is None:
                found[message.value().decode()] += 1
            elif message.offset() >= reader.get_watermark_offsets(TopicPartition(topic, message.partition()), timeout=10)[1]:
                left.discard(message.partition())
    reader.close()
    return found

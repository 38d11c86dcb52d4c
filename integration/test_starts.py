"""Every start position, across a restart and with partitions that come later: exact, on the real broker."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kstream_kafka import ConsumerStrategies, KafkaUtils, LocationStrategies, consumer_record
from kstream_kafka import TopicPartition as Partition

from integration.kafka_broker import KafkaBroker
from kstream import StreamingContext

if TYPE_CHECKING:
    from pyspark import SparkContext

INTERVAL_S = 1
Offsets = dict[int, set[int]]


class Collected:
    """What each stream handed out: by batch time, so that a batch that ran again counts once."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, datetime], list[tuple[int, int]]] = {}

    def sink(self, name: str) -> Callable[[datetime, Any], None]:
        def batch(at: datetime, rdd: Any) -> None:
            self._batches[name, at] = rdd.map(lambda r: (r.partition, r.offset)).collect()

        return batch

    def offsets(self, name: str) -> dict[int, list[int]]:
        """Per partition the offsets in the order of the batches."""
        found: dict[int, list[int]] = defaultdict(list)
        for (stream, _at), records in sorted(self._batches.items(), key=lambda item: item[0]):
            for partition, offset in records if stream == name else ():
                found[partition].append(offset)
        return dict(found)


def streams(ssc: StreamingContext, bootstrap: str, topic: str, group: str) -> dict[str, Any]:
    """One stream for each way to say where to begin."""
    common = {"bootstrap.servers": bootstrap, "metadata.max.age.ms": 500}
    early, late = {**common, "auto.offset.reset": "earliest"}, {**common, "auto.offset.reset": "latest"}
    hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
    p0, p1 = Partition(topic, 0), Partition(topic, 1)

    def old(params: dict[str, Any], start: Any = None, topics: Any = None) -> Any:
        return KafkaUtils.createDirectStream(ssc, topics or [topic], params, start, messageHandler=consumer_record)

    def new(strategy: Any) -> Any:
        return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)

    return {
        "earliest": old(early),
        "latest": old(late),
        "fromOffsets": old(late, {p0: 3, p1: 15}),
        "time": old(late, hour_ago),
        "ago": old(late, "-30m"),
        "back": old(late, "-5"),
        "mixed": new(ConsumerStrategies.Subscribe([topic], early, {p0: "-2", p1: hour_ago})),
        "partly": new(ConsumerStrategies.Subscribe([topic], early, {p0: 3})),
        "committed": new(ConsumerStrategies.Subscribe([topic], {**late, "group.id": group})),
        "pattern": new(ConsumerStrategies.SubscribePattern(re.escape(topic), late)),
        "assign": new(ConsumerStrategies.Assign([p1], early)),
    }


BEGINS: dict[str, dict[int, int]] = {
    "earliest": {0: 0, 1: 0}, "latest": {0: 20, 1: 20}, "fromOffsets": {0: 3, 1: 15}, "time": {0: 10, 1: 10}, "ago": {0: 10, 1: 10},
    "back": {0: 15, 1: 15}, "mixed": {0: 18, 1: 10}, "partly": {0: 3, 1: 0}, "committed": {0: 4, 1: 7}, "pattern": {0: 20, 1: 20},
    "assign": {1: 0},
}  # fmt: skip
"""Where each begins in a topic of 20 records a partition: 10 of two hours ago, 10 of five minutes ago."""
FIXED = {"fromOffsets", "assign"}
"""Streams that read just the partitions named."""


@contextmanager
def started(sc: SparkContext, checkpoint: Path, bootstrap: str, topic: str, group: str, collected: Collected) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, INTERVAL_S)
    ssc.checkpoint(str(checkpoint))
    for name, stream in streams(ssc, bootstrap, topic, group).items():
        stream.foreachRDD(collected.sink(name))
    ssc.start()
    try:
        yield ssc
    finally:
        ssc.stop(stopSparkContext=False)


def produce(kafka: KafkaBroker, topic: str, partitions: list[int], count: int, age_s: float = 0) -> None:
    now = int((time.time() - age_s) * 1000)
    kafka.produce(topic, [("k", "v", p, now) for p in partitions for _ in range(count)])


def commit(kafka: KafkaBroker, group: str, offsets: list[TopicPartition]) -> None:
    """Again, while the broker is still loading its group coordinator."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        done = kafka.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result(30)
        if all(at.error is None for at in done.topic_partitions):
            return
        time.sleep(0.2)
    raise AssertionError(f"the offsets of {group} could not be committed")


def wait_until_read(collected: Collected, ends: dict[int, int]) -> None:
    """Until every stream has everything from its beginning up to `ends` – or says what it has instead."""

    def missing() -> list[str]:
        wrong: list[str] = []
        for name, begins in BEGINS.items():
            wanted = {p: list(range(begins.get(p, 0), end)) for p, end in ends.items() if name not in FIXED or p in begins}
            if collected.offsets(name) != {p: offsets for p, offsets in wanted.items() if offsets}:
                wrong.append(f"{name}: {collected.offsets(name)} instead of {wanted}")
        return wrong

    end = time.monotonic() + 60
    while missing() and time.monotonic() < end:
        time.sleep(0.2)
    assert missing() == []


@pytest.mark.timeout(300)
def test_every_start_is_exact_over_a_restart_and_a_new_partition_begins_at_its_beginning_under_latest_too(
    kafka: KafkaBroker, topic: Callable[..., str], sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf: Any = sc._conf  # pyright: ignore[reportPrivateUsage]
    one_task = conf.__class__(_jconf=conf._jconf.clone()).set("spark.streaming.kstream.kafka.maxTasks", "1")
    monkeypatch.setattr(sc, "getConf", lambda: one_task)
    name, group, collected = topic(2), f"g-{tmp_path.name}", Collected()
    produce(kafka, name, [0, 1], 10, age_s=7200)
    produce(kafka, name, [0, 1], 10, age_s=300)
    commit(kafka, group, [TopicPartition(name, 0, 4), TopicPartition(name, 1, 7)])
    with started(sc, tmp_path, kafka.bootstrap, name, group, collected):
        wait_until_read(collected, {0: 20, 1: 20})
        produce(kafka, name, [0, 1], 5)
        wait_until_read(collected, {0: 25, 1: 25})
    produce(kafka, name, [0, 1], 5)
    kafka.add_partitions(name, 3)
    produce(kafka, name, [2], 5)
    with started(sc, tmp_path, kafka.bootstrap, name, group, collected):
        wait_until_read(collected, {0: 30, 1: 30, 2: 5})
        kafka.add_partitions(name, 4)
        produce(kafka, name, [3], 5)
        produce(kafka, name, [0, 2], 1)
        wait_until_read(collected, {0: 31, 1: 30, 2: 6, 3: 5})

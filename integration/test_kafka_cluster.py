"""Leaders that die under a stream, on three real nodes: right counts, or an error that says what is lost – never other records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, LocationStrategies, OffsetRange, value_only

from integration.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> Callable[..., str]:
    """Makes a topic nobody else uses."""

    def make(partitions: int = 1, **how: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        kafka_cluster.create_topic(name, partitions, **how)
        return name

    return make


def params(cluster: KafkaCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}


def numbers(count: int, start: int = 0) -> list[tuple[None, str, int]]:
    return [(None, str(i), 0) for i in range(start, start + count)]


@contextmanager
def dead(cluster: KafkaCluster, node: int) -> Iterator[None]:
    """The node is killed at the beginning of the block and up again at its end."""
    cluster.kill9(node)
    try:
        yield
    finally:
        cluster.restart(node)


def test_a_leader_that_dies_between_plan_and_read_costs_time_and_nothing_else(sc: Any, kafka_cluster: KafkaCluster, topic: Any) -> None:
    name = topic()
    kafka_cluster.produce(name, numbers(5000))
    seen: list[list[int]] = []
    from kstream import StreamingContext

    ssc = StreamingContext(sc, 0.5)
    stream = KafkaUtils.createDirectStream(ssc, [name], params(kafka_cluster), messageHandler=value_only, untilOffsets="latest")
    victim = kafka_cluster.leader(name)

    def batch(rdd: Any) -> None:
        if not seen:  # the plan is made, and durable were there a checkpoint
            kafka_cluster.kill9(victim)
        seen.append(rdd.map(int).collect())

    stream.foreachRDD(batch)
    ssc.start()
    try:
        assert ssc.awaitTerminationOrTimeout(120), "the bounded run did not end"
    finally:
        ssc.stop(stopSparkContext=False)
        kafka_cluster.restart(victim)
    assert [n for part in seen for n in part] == list(range(5000))


def test_a_leader_that_dies_during_a_long_read_costs_no_record_and_repeats_none(sc: Any, kafka_cluster: KafkaCluster, topic: Any) -> None:
    name = topic()
    kafka_cluster.produce(name, [(None, f"{i:06d}" + "x" * 200, 0) for i in range(200_000)])
    rdd = KafkaUtils.createRDD(sc, params(kafka_cluster), [OffsetRange(name, 0, 0, 200_000)], LocationStrategies.PreferConsistent)
    began = Path(sc._temp_dir) / f"{name}-began"

    def slowly(records: Any) -> Any:
        for count, record in enumerate(records):
            if count == 20_000:
                began.touch()
            if count > 20_000 and count % 10_000 == 0:
                time.sleep(0.5)  # so that most is still to be fetched when the leader dies
            yield record.offset

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: rdd.mapPartitions(slowly).collect())
        while not began.exists():
            assert not reading.done(), reading.result()
            time.sleep(0.02)
        with dead(kafka_cluster, kafka_cluster.leader(name)):
            assert not reading.done(), "the read was over before the leader died"
            offsets = reading.result(120)
    assert offsets == list(range(200_000))

"""Partitions, topics and brokers that come and go while a stream runs."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kstream_kafka import ConsumerStrategies, KafkaUtils, LocationStrategies, OffsetRange, value_only

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import KafkaHandle
from integration.reading import Collected, error_of, running, wait_until
from kstream import StreamingContext
from kstream.context import StreamingContextState

MakeTopic = Callable[..., str]


def params(kafka: KafkaHandle, reset: str = "earliest") -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": reset, "metadata.max.age.ms": 300, "default.api.timeout.ms": 5000}


def by_pattern(ssc: StreamingContext, kafka: KafkaHandle, pattern: str, reset: str = "earliest") -> Any:
    strategy = ConsumerStrategies.SubscribePattern(pattern, params(kafka, reset))
    return KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, messageHandler=value_only)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_topic_that_a_pattern_gains_is_read_from_its_beginning_under_latest_too(sc: Any, kafka: KafkaBroker, reset: str) -> None:
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(f"{prefix}-a", 1)
    kafka.produce(f"{prefix}-a", [(None, "a0", 0)])
    ssc, collected = StreamingContext(sc, 0.5), Collected()
    by_pattern(ssc, kafka, re.escape(prefix) + "-.*", reset).foreachRDD(collected)
    first = ["a0"] if reset == "earliest" else []
    with running(ssc):
        wait_until(lambda: collected.batches and collected.records == first, "the first batch")
        kafka.create_topic(f"{prefix}-b", 2)
        kafka.produce(f"{prefix}-b", [(None, "b0", 0), (None, "b1", 1)])
        kafka.create_topic(f"x{prefix}-b", 1)  # only part of its name matches
        kafka.produce(f"x{prefix}-b", [(None, "other", 0)])
        kafka.produce(f"{prefix}-a", [(None, "a1", 0)])
        wait_until(lambda: len(collected.records) == len(first) + 3, "reading the new topic")
        batches = collected.batches
        wait_until(lambda: collected.batches >= batches + 2, "two more batches")
    assert sorted(collected.records) == sorted([*first, "a1", "b0", "b1"])


def test_a_pattern_that_matches_nothing_yet_waits_for_its_first_topic(sc: Any, kafka: KafkaBroker) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    ssc, collected = StreamingContext(sc, 0.5), Collected()
    by_pattern(ssc, kafka, name, "latest").foreachRDD(collected)
    with running(ssc):
        wait_until(lambda: collected.batches >= 2, "empty batches")
        kafka.create_topic(name, 1)
        kafka.produce(name, [(None, "first", 0)])
        wait_until(lambda: collected.records, "reading the first topic")
    assert collected.records == ["first"]


def two_topics(kafka: KafkaHandle) -> tuple[str, str, str]:
    """A prefix, and two topics that begin with it, of one record each."""
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    kept, gone = f"{prefix}-kept", f"{prefix}-gone"
    for name in (kept, gone):
        kafka.create_topic(name, 1)
        kafka.produce(name, [(None, f"{name} 0", 0)])
    return prefix, kept, gone


def test_a_topic_named_by_the_user_and_deleted_is_one_clear_error_and_nothing_of_the_others_is_lost(sc: Any, kafka: KafkaBroker) -> None:
    """The batches after the deletion are not planned; a stream started anew without the topic goes on, from the very next record."""
    _, kept, gone = two_topics(kafka)
    ssc, collected = StreamingContext(sc, 0.5), Collected()
    KafkaUtils.createDirectStream(ssc, [kept, gone], params(kafka), messageHandler=value_only).foreachRDD(collected)
    with running(ssc):
        wait_until(lambda: len(collected.records) == 2, "reading both topics")
        kafka.delete_topic(gone)
        said = error_of(ssc)
        kafka.produce(kept, [(None, f"{kept} 1", 0)])
        assert ssc.getState() == StreamingContextState.ACTIVE, "an error ends no stream"
    assert said.startswith(f"PartitionRevokedError: Partitions {gone}-0 are being read") and "\n" not in said and kept not in said
    assert len(collected.records) == 2
    ssc, collected = StreamingContext(sc, 0.5), Collected()
    stream = KafkaUtils.createDirectStream(ssc, [kept], params(kafka), {(kept, 0): 1}, messageHandler=value_only)
    stream.foreachRDD(collected)
    with running(ssc):
        wait_until(lambda: collected.records, "reading on without it")
    assert collected.records == [f"{kept} 1"]


def test_a_topic_chosen_by_a_pattern_and_deleted_is_let_go_and_the_stream_reads_the_others(sc: Any, kafka: KafkaBroker) -> None:
    prefix, kept, gone = two_topics(kafka)
    ssc, collected, topics = StreamingContext(sc, 0.5), Collected(), list[set[str]]()
    stream = by_pattern(ssc, kafka, prefix + "-.*")
    stream.foreachRDD(collected)
    stream.foreachRDD(lambda rdd: topics.append({r.topic for r in rdd.offsetRanges()}))
    with running(ssc):
        wait_until(lambda: len(collected.records) == 2, "reading both topics")
        kafka.delete_topic(gone)
        kafka.produce(kept, [(None, f"{kept} 1", 0)])
        wait_until(lambda: len(collected.records) == 3, "reading the topic that is left")
        wait_until(lambda: topics[-1] == {kept}, "the end of the doubt whether the topic is gone")
        assert not ssc.awaitTerminationOrTimeout(1), "and no error"
        kafka.create_topic(f"{prefix}-new", 1)
        kafka.produce(f"{prefix}-new", [(None, "new", 0)])
        wait_until(lambda: len(collected.records) == 4, "reading a topic that comes later")
    assert collected.records[2:] == [f"{kept} 1", "new"]


def test_a_broker_that_restarts_between_plan_and_read_costs_a_wait_and_nothing_else(sc: Any, own_kafka: KafkaBroker) -> None:
    own_kafka.create_topic("t", 2)
    own_kafka.produce("t", [(None, f"{p}:{i}", p) for p in range(2) for i in range(1000)])
    planned, killed = threading.Event(), threading.Event()

    def between() -> None:
        if not planned.is_set():
            planned.set()
            assert killed.wait(60)

    ssc, collected = StreamingContext(sc, 1), Collected(between)
    stream = KafkaUtils.createDirectStream(ssc, ["t"], params(own_kafka), messageHandler=value_only)
    stream.foreachRDD(collected)
    with running(ssc):
        assert planned.wait(60)
        own_kafka.kill9()
        killed.set()
        own_kafka.restart()
        wait_until(lambda: len(collected.records) == 2000, "the planned batch")
        own_kafka.produce("t", [(None, "later", 0)])
        wait_until(lambda: len(collected.records) == 2001, "the batches after it")
    assert collected.records == [*(f"{p}:{i}" for p in range(2) for i in range(1000)), "later"]
    assert collected.ranges[:2] == [OffsetRange("t", p, 0, 1000) for p in range(2)]

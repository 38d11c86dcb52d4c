"""Offsets without a record: compaction, transactions, and what was removed – a gap is no loss, and a loss is never a gap."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from kstream_kafka import KafkaUtils, LocationStrategies, OffsetRange, value_only

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET, produce_all
from integration.reading import Collected, Reader, error_of, running, wait_until
from kstream import StreamingContext

MakeTopic = Callable[..., str]
COMMITTED = {"isolation.level": "read_committed"}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "86400000"}


@pytest.fixture(params=["RDD", "DataFrame"])
def reader(request: pytest.FixtureRequest, sc: Any, kafka: KafkaBroker) -> Reader:
    return Reader(request.param, sc, kafka)


@pytest.fixture
def setting(sc: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets a configuration key of the shared SparkContext for one test."""
    keys: list[str] = []

    def set_one(key: str, value: str) -> None:
        keys.append(key)
        sc._conf.set(key, value)

    yield set_one
    for key in keys:
        sc._conf._jconf.remove(key)


def remove(kafka: KafkaBroker, topic: str, below: int) -> None:
    (removed,) = kafka.admin.delete_records([TopicPartition(topic, 0, below)]).values()
    removed.result(30)


def transactional(kafka: KafkaBroker) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"x-{uuid.uuid4().hex[:8]}", **QUIET})
    producer.init_transactions(30)
    return producer


# -- compaction


@pytest.fixture(scope="module")
def compacted(sc: Any, kafka: KafkaBroker) -> str:
    """A topic the cleaner has been through: of the offsets [0, 16) only 5, 10–14 and the tombstone 15 are left; 16 rolled the segment."""
    topic = f"compacted-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1, COMPACTED)
    rounds = [("abcde", 1), (["kept", "a", "gone", "b", "c"], 2), ("abcde", 3)]
    kafka.produce(topic, [(key, f"{key}{version}", 0) for keys, version in rounds for key in keys] + [("gone", None, 0)])
    time.sleep(0.2)  # the segment's age, by the broker's clock
    kafka.produce(topic, [("roll", "x", 0)])  # ends the segment: the newest one is never compacted
    reader = Reader("RDD", sc, kafka)
    wait_until(lambda: len(reader.offsets(topic, 0, 16)) == 7, "compaction")
    return topic


def test_of_a_compacted_log_just_the_records_left_are_read_wherever_a_range_begins_or_ends(reader: Reader, compacted: str) -> None:
    left = [5, 10, 11, 12, 13, 14, 15]
    for start, until in ((0, 16), (0, 17), (3, 6), (5, 10), (6, 11), (8, 12), (14, 15)):
        expected = [offset for offset in [*left, 16] if start <= offset < until]
        assert reader.offsets(compacted, start, until) == expected, (start, until)


@pytest.mark.parametrize("empty", [(0, 5), (6, 10), (2, 3), (9, 10)])
def test_a_range_of_which_compaction_left_nothing_is_empty_and_no_error(reader: Reader, compacted: str, empty: tuple[int, int]) -> None:
    assert reader.offsets(compacted, *empty) == []


def test_a_tombstone_is_a_record_without_a_value(reader: Reader, compacted: str) -> None:
    (tombstone,) = reader.records([OffsetRange(compacted, 0, 15, 16)])
    assert (tombstone.key, tombstone.value) == (b"gone", None)


def test_counts_of_a_compacted_log_are_those_of_its_records_when_offsets_may_have_gaps(
    sc: Any, kafka: KafkaBroker, compacted: str, setting: Callable[[str, str], None]
) -> None:
    params = {"bootstrap.servers": kafka.bootstrap}
    ranges = [OffsetRange(compacted, 0, start, until) for start, until in ((0, 5), (5, 10), (10, 16))]
    assert KafkaUtils.createRDD(sc, params, ranges).count() == 16, "by default the ranges are believed"
    setting("spark.streaming.kafka.allowNonConsecutiveOffsets", "true")
    rdd = KafkaUtils.createRDD(sc, params, ranges, valueDecoder=None)
    assert (rdd.count(), rdd.isEmpty(), rdd.first()) == (7, False, ("kept", b"kept2"))
    assert [key for key, _ in rdd.take(3)] == ["kept", "a", "b"] and len(rdd.take(100)) == 7
    nothing = KafkaUtils.createRDD(sc, params, ranges[:1])
    assert (nothing.count(), nothing.isEmpty(), nothing.take(1)) == (0, True, [])


def test_a_stream_over_a_compacted_log_counts_its_records(
    sc: Any, kafka: KafkaBroker, compacted: str, setting: Callable[[str, str], None]
) -> None:
    setting("spark.streaming.kafka.allowNonConsecutiveOffsets", "true")
    setting("spark.streaming.kafka.maxRatePerPartition", "10")  # 5 offsets a batch: the first holds no record
    counts: list[tuple[int, bool, int]] = []
    ssc = StreamingContext(sc, 0.5)
    params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "earliest"}
    stream = KafkaUtils.createDirectStream(ssc, [compacted], params, untilOffsets="latest")
    stream.foreachRDD(lambda rdd: counts.append((rdd.count(), rdd.isEmpty(), len(rdd.take(9)))))
    ssc.start()
    assert ssc.awaitTerminationOrTimeout(60)
    assert counts == [(0, True, 0), (1, False, 1), (5, False, 5), (2, False, 2)]


# -- transactions


@pytest.fixture(scope="module")
def transactions(kafka: KafkaBroker) -> str:
    """0 plain · 1–3 aborted, 4 a marker · 5 plain · 6, 7 committed, 8 a marker · 9, 10 aborted, 11 a marker, the log's last offset."""
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    producer = transactional(kafka)

    def transaction(count: int, end: Callable[[float], object]) -> None:
        producer.begin_transaction()
        produce_all(producer, topic, [(None, "in a transaction", 0)] * count)
        end(30)
        # The coordinator writes the marker later: until then the log has no stable end.
        wait_until(lambda: kafka.log_range(topic, committed=True)[1] == kafka.log_range(topic)[1], "the end of a transaction")

    kafka.produce(topic, [(None, "plain", 0)])
    transaction(3, producer.abort_transaction)
    kafka.produce(topic, [(None, "plain", 0)])
    transaction(2, producer.commit_transaction)
    transaction(2, producer.abort_transaction)
    return topic


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_markers_are_no_records_and_what_was_aborted_is_none_under_read_committed(reader: Reader, transactions: str, level: str) -> None:
    records = [0, 5, 6, 7] if level == "read_committed" else [0, 1, 2, 3, 5, 6, 7, 9, 10]
    for start, until in ((0, 12), (0, 9), (1, 6), (3, 8), (2, 5), (7, 9), (0, 2)):
        found = reader.offsets(transactions, start, until, {"isolation.level": level})
        assert found == [offset for offset in records if start <= offset < until], (start, until)


@pytest.mark.parametrize("nothing", [(1, 5), (4, 5), (8, 9), (8, 12), (9, 12), (11, 12)])
def test_a_range_of_markers_and_aborted_records_is_empty_also_at_the_end_of_the_log(
    reader: Reader, transactions: str, nothing: tuple[int, int]
) -> None:
    assert reader.offsets(transactions, *nothing, COMMITTED) == []


def test_counts_of_a_transactional_log_are_those_of_its_records_when_offsets_may_have_gaps(
    sc: Any, kafka: KafkaBroker, transactions: str, setting: Callable[[str, str], None]
) -> None:
    setting("spark.streaming.kafka.allowNonConsecutiveOffsets", "true")
    params = {"bootstrap.servers": kafka.bootstrap, **COMMITTED}
    rdd = KafkaUtils.createRDD(sc, params, [OffsetRange(transactions, 0, 0, 12)])
    assert (rdd.count(), rdd.isEmpty(), len(rdd.take(9))) == (4, False, 4)
    assert KafkaUtils.createRDD(sc, params, [OffsetRange(transactions, 0, 8, 12)]).isEmpty()


@pytest.mark.parametrize("end", ["aborted", "committed"])
def test_an_open_transaction_blocks_no_batch_and_what_lies_behind_it_comes_when_it_ends(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, end: str
) -> None:
    name, producer = topic(), transactional(kafka)
    committed, uncommitted = Collected(), Collected()
    ssc = StreamingContext(sc, 0.5)
    for collected, level in ((committed, "read_committed"), (uncommitted, "read_uncommitted")):
        params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "earliest", "isolation.level": level}
        KafkaUtils.createDirectStream(ssc, [name], params, messageHandler=value_only).foreachRDD(collected)
    kafka.produce(name, [(None, "before", 0)] * 2)
    producer.begin_transaction()
    produce_all(producer, name, [(None, "within", 0)] * 3)
    kafka.produce(name, [(None, "after", 0)])
    with running(ssc):
        wait_until(lambda: len(uncommitted.records) == 6, "reading all that is not committed")
        wait_until(lambda: committed.records, "reading what lies below the transaction")
        batches = committed.batches
        wait_until(lambda: committed.batches >= batches + 3, "batches while the transaction is open")
        assert committed.records == ["before"] * 2 and committed.ranges == [OffsetRange(name, 0, 0, 2)]
        producer.abort_transaction(30) if end == "aborted" else producer.commit_transaction(30)
        wait_until(lambda: "after" in committed.records, "reading past the transaction")
    assert committed.records == ["before"] * 2 + (["within"] * 3 if end == "committed" else []) + ["after"]
    assert uncommitted.records == ["before"] * 2 + ["within"] * 3 + ["after"]


# -- what was removed is lost, and that is said


@pytest.mark.parametrize("kept_from", [4, 9, 12])
def test_records_removed_inside_or_beyond_a_range_are_a_loss_and_never_a_gap(
    reader: Reader, kafka: KafkaBroker, topic: MakeTopic, kept_from: int
) -> None:
    name = topic()
    kafka.produce(name, [(None, "v", 0)] * 15)
    remove(kafka, name, kept_from)
    lost = min(kept_from, 9)
    with pytest.raises(Exception, match=rf"RecordsRemovedError: {name}-0 \[2, 9\): records \[2, {lost}\) were removed"):
        reader.offsets(name, 2, 9)
    assert reader.offsets(name, kept_from, 15) == list(range(kept_from, 15))


def test_compaction_and_removal_in_one_range_are_a_loss(reader: Reader, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """[0, 6) holds one record after compaction; what was removed of it cannot be told from what was compacted."""
    name = topic(1, {**COMPACTED, "cleanup.policy": "compact,delete"})
    kafka.produce(name, [("a", str(i), 0) for i in range(6)])
    time.sleep(0.2)
    kafka.produce(name, [("roll", "x", 0)])
    wait_until(lambda: reader.offsets(name, 0, 6) == [5], "compaction")
    remove(kafka, name, 3)
    with pytest.raises(Exception, match=r"records \[0, 3\) were removed"):
        reader.offsets(name, 0, 6)
    assert reader.offsets(name, 3, 7) == [5, 6]


def test_retention_that_overtakes_a_planned_batch_fails_it_and_names_what_is_lost(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """Real retention: a segment older than retention.ms goes once another one has begun."""
    name = topic(1, {"segment.ms": "100"})
    kafka.produce(name, [(None, "old", 0)] * 5)
    time.sleep(0.2)
    kafka.produce(name, [(None, "new", 0)] * 5)

    def outdate() -> None:
        if collected.batches == 1:
            kafka.configure_topic(name, {"retention.ms": "1"})
            wait_until(lambda: kafka.log_range(name)[0] >= 5, "retention")

    collected = Collected(outdate)
    ssc = StreamingContext(sc, 0.5)
    params = {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "earliest"}
    KafkaUtils.createDirectStream(ssc, [name], params, messageHandler=value_only).foreachRDD(collected)
    with running(ssc):
        assert f"RecordsRemovedError: {name}-0 [0, 10): records [0, " in error_of(ssc)
    assert collected.records == []


def test_records_removed_while_they_are_being_read_are_a_loss(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """What has been fetched is given out; the next fetch is refused, and says where it stood."""
    name, count = topic(), 60_000
    kafka.produce(name, [(None, "x" * 500, 0)] * count)
    params = {"bootstrap.servers": kafka.bootstrap, "librdkafka.queued.max.messages.kbytes": "1024"}
    rdd = KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 0, count)], LocationStrategies.PreferConsistent, messageHandler=value_only)
    bootstrap = kafka.bootstrap

    def then_remove(records: Any) -> Iterator[int]:
        from confluent_kafka import TopicPartition  # C classes do not go into a pickled function
        from confluent_kafka.admin import AdminClient

        for number, _ in enumerate(records):
            if number == 100:
                admin = AdminClient({"bootstrap.servers": bootstrap})
                (removed,) = admin.delete_records([TopicPartition(name, 0, count - 10)]).values()
                removed.result(30)
            yield number

    with pytest.raises(Exception, match=rf"RecordsRemovedError: {name}-0 \[0, {count}\): records \[\d\d+, {count - 10}\) were removed"):
        rdd.mapPartitions(then_remove).collect()

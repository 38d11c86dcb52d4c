"""KafkaRDD and the direct stream's planning against a real broker: Spark behaviours KR1–KR3 and KD1, and every error a user may meet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from kstream_kafka import KafkaRDD, KafkaUtils, OffsetRange, TopicAndPartition, value_only
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import BrokerUnreachableError, KafkaConfigError, UnknownTopicError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads

from integration.kafka_broker import KafkaBroker
from kstream import StreamingContext
from kstream.batch_time import Duration

MakeTopic = Callable[..., str]
NOWHERE = "127.0.0.1:1"


def params(kafka: KafkaBroker, **given: Any) -> KafkaParams:
    return KafkaParams.parse({"bootstrap.servers": kafka.bootstrap, **{k.replace("_", "."): v for k, v in given.items()}})


def rdd_of(
    sc: Any, kafka: KafkaBroker, *ranges: OffsetRange, decoding: Decoding | None = None, exact_counts: bool = True, **options: Any
) -> KafkaRDD:
    given, splits = options.get("params") or params(kafka), options.get("splits") or [RangeSplit(r) for r in ranges]
    reads = RangeReads.of(splits, given.executor(), 120_000)
    return KafkaRDD(sc, ranges, reads, decoding or Decoding(), exact_counts=exact_counts)


def fill(kafka: KafkaBroker, topic: str, values: range, partition: int = 0) -> None:
    kafka.produce(topic, [(None, str(i), partition) for i in values])


def values(sc: Any, kafka: KafkaBroker, *ranges: OffsetRange, **options: Any) -> list[str]:
    return rdd_of(sc, kafka, *ranges, decoding=Decoding(message_handler=value_only), **options).collect()


# -- Spark behaviours KR1 – KR3


def test_KR1_count_take_and_isEmpty(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    kafka.produce(t, [("k", "the", 0), ("k", "quick", 0), ("k", "brown", 0), ("k", "fox", 0)])
    rdd = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 4))
    assert rdd.count() == 4 and not rdd.isEmpty()
    assert rdd.take(1) == [("k", "the")] and rdd.first() == ("k", "the")
    assert [v for _, v in rdd.take(14)] == ["the", "quick", "brown", "fox"]
    assert rdd.take(0) == []
    empty = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 0))
    assert empty.isEmpty() and empty.count() == 0 and empty.collect() == [] and empty.take(3) == []


def test_KR1_a_range_past_the_end_fails_when_it_is_computed_and_says_where_the_log_ends(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(4))
    beyond = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 10))
    with pytest.raises(Exception, match=rf"LogTruncatedError: {t}-0 \[0, 10\): the partition ends at 4"):
        beyond.collect()


def test_KR2_a_range_is_those_records_however_many_come_later(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(18))
    handler = Decoding(message_handler=lambda m: m.offset)
    assert rdd_of(sc, kafka, OffsetRange(t, 0, 0, 18), decoding=handler).collect() == list(range(18))
    later = rdd_of(sc, kafka, OffsetRange(t, 0, 18, 18))
    fill(kafka, t, range(18, 30))
    assert later.collect() == []
    assert values(sc, kafka, OffsetRange(t, 0, 18, 19)) == ["18"]


def test_KR3_a_compacted_topic_counts_real_records_when_told_to(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    t = topic(1, config)
    kafka.produce(t, [(k, v, 0) for k, v in ["a1", "b1", "a2", "b2", "c1", "c2", "b3"]])
    time.sleep(0.2)  # the segment's age, by the broker's clock
    kafka.produce(t, [("roll", "x", 0)])  # ends the segment: the newest one is never compacted
    whole = OffsetRange(t, 0, 0, 7)
    real = rdd_of(sc, kafka, whole, exact_counts=False)
    deadline = time.monotonic() + 60
    while real.count() != 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert real.collect() == [("a", "2"), ("c", "2"), ("b", "3")]
    assert real.count() == 3 and real.take(1) == [("a", "2")] and not real.isEmpty()
    assert rdd_of(sc, kafka, whole).count() == 7
    gone = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 2), exact_counts=False)
    assert gone.isEmpty() and gone.count() == 0


# -- the RDD among RDDs


def test_partition_i_holds_the_records_of_range_i(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(3)
    for partition in range(3):
        fill(kafka, t, range(10 * partition, 10 * partition + 5), partition)
    ranges = [OffsetRange(t, 2, 1, 4), OffsetRange(t, 0, 0, 0), OffsetRange(t, 1, 0, 5)]
    rdd = rdd_of(sc, kafka, *ranges, decoding=Decoding(message_handler=value_only))
    assert rdd.offsetRanges() == ranges and rdd.getNumPartitions() == 3
    assert rdd.glom().collect() == [["21", "22", "23"], [], ["10", "11", "12", "13", "14"]]
    assert rdd.take(4) == ["21", "22", "23", "10"]


def test_it_pipelines_unites_caches_shuffles_and_zips(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic(2)
    fill(kafka, t, range(6), 0)
    fill(kafka, t, range(6, 10), 1)
    rdd = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 6), OffsetRange(t, 1, 0, 4), decoding=Decoding(message_handler=value_only))
    numbers = rdd.map(int).filter(lambda n: n % 2 == 0)
    assert numbers.collect() == [0, 2, 4, 6, 8]
    assert sorted(rdd.union(rdd).map(int).collect()) == sorted([*range(10), *range(10)])
    assert rdd.map(lambda v: (int(v) % 2, int(v))).reduceByKey(lambda a, b: a + b).collectAsMap() == {0: 20, 1: 25}
    assert rdd.coalesce(1).glom().map(len).collect() == [10]
    assert rdd.zip(rdd).collect() == [(v, v) for v in map(str, range(10))]
    cached = rdd_of(sc, kafka, OffsetRange(t, 0, 0, 6)).cache()
    assert cached.map(len).collect() == cached.map(len).collect() == [2] * 6
    cached.unpersist()


def test_more_records_than_a_chunk_come_whole_and_in_order(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(25_000))
    assert values(sc, kafka, OffsetRange(t, 0, 3, 24_998)) == [str(i) for i in range(3, 24_998)]


def test_a_reader_that_stops_early_leaves_the_consumer_fit_for_the_next_batch(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(3000))
    whole = OffsetRange(t, 0, 0, 3000)
    for _ in range(3):
        assert rdd_of(sc, kafka, whole).take(1) == [(None, "0")]
        assert values(sc, kafka, OffsetRange(t, 0, 2990, 2992)) == ["2990", "2991"]
        assert len(values(sc, kafka, whole)) == 3000


# -- transactions, retention


def test_the_end_of_a_range_may_be_transaction_markers_and_aborted_records(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": t})
    producer.init_transactions(30)
    for number, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(t, str(number), partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    whole = OffsetRange(t, 0, 0, 8)
    committed = params(kafka, isolation_level="read_committed")
    assert values(sc, kafka, whole) == ["0", "1", "2", "3"]
    assert values(sc, kafka, whole, params=committed) == ["0", "2"]
    assert values(sc, kafka, OffsetRange(t, 0, 2, 4), params=committed) == []


def test_with_read_committed_the_plan_ends_before_an_open_transaction(kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(2))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": t})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(t, "open", partition=0)
    producer.flush(30)
    ends = {level: KafkaDriverClient(params(kafka, isolation_level=level)).latest([(t, 0)])[t, 0].offset
            for level in ("read_committed", "read_uncommitted")}  # fmt: skip
    producer.abort_transaction(30)
    assert ends == {"read_committed": 2, "read_uncommitted": 3}


def test_records_removed_before_they_were_read_are_an_error_that_names_them(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(10))
    (removed,) = kafka.admin.delete_records([TopicPartition(t, 0, 6)]).values()
    removed.result(30)
    with pytest.raises(Exception, match=rf"RecordsRemovedError: {t}-0 \[2, 9\): records \[2, 6\) were removed"):
        values(sc, kafka, OffsetRange(t, 0, 2, 9))
    assert values(sc, kafka, OffsetRange(t, 0, 6, 10)) == ["6", "7", "8", "9"]


# -- the driver's questions


def test_a_thousand_partitions_are_planned_with_one_ListOffsets_per_broker(kafka: KafkaBroker, topic: MakeTopic):
    t = topic(1000)
    # So many retries for the first answer only: a thousand new leaders take their time, and the count below allows none.
    client = KafkaDriverClient(params(kafka), max_retries=200, statistics_ms=100)
    partitions = client.partitions(subscription([t]))
    assert len(client.latest(partitions)) == 1000
    before = client.requests_sent("ListOffsets")
    batches = 5
    for _ in range(batches):
        assert {end.offset for end in client.latest(partitions).values()} == {0}
    after = client.requests_sent("ListOffsets")
    assert after and all(after[broker] - before.get(broker, 0) <= batches for broker in after), (before, after)
    kafka.delete_topic(t)


def test_the_broker_names_its_leader_epoch_and_takes_it_back(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    fill(kafka, t, range(3))
    end = KafkaDriverClient(params(kafka)).latest([(t, 0)])[t, 0]
    assert end.offset == 3 and end.leader_epoch is not None
    assert values(sc, kafka, OffsetRange(t, 0, 1, 3), splits=[RangeSplit(OffsetRange(t, 0, 1, 3), end.leader_epoch)]) == ["1", "2"]


def test_an_unreachable_broker_is_one_error_that_names_it_and_not_a_screen_of_lines(capfd: pytest.CaptureFixture[str]):
    given = KafkaParams.parse({"bootstrap.servers": NOWHERE, "default.api.timeout.ms": 1500})
    began = time.monotonic()
    with pytest.raises(BrokerUnreachableError, match=rf"{NOWHERE} answered within 1500 ms.*refused") as caught:
        KafkaDriverClient(given).partitions(subscription(["t"]))
    assert time.monotonic() - began < 5
    assert caught.value.retriable
    assert capfd.readouterr().err == ""


def test_an_unknown_topic_is_an_error_and_is_not_created(kafka: KafkaBroker):
    """Spark behaviour K8a."""
    with pytest.raises(UnknownTopicError, match="no topic 'never-made'"):
        KafkaDriverClient(params(kafka)).partitions(subscription(["never-made"]))
    assert "never-made" not in kafka.admin.list_topics(timeout=10).topics


def test_a_value_librdkafka_refuses_is_an_error_that_names_the_parameter(kafka: KafkaBroker):
    with pytest.raises(KafkaConfigError, match=r"socket.timeout.ms.*refused"):
        KafkaDriverClient(params(kafka, socket_timeout_ms="900000000"))


# -- the stream


def test_KD1_every_record_of_every_topic_once_and_the_ranges_tell_how_many(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    topics = [topic(), topic(2), topic()]
    for t in topics:
        fill(kafka, t, range(16))
    given = {TopicAndPartition(t, 0): 2 if t == topics[0] else 0 for t in topics} | {TopicAndPartition(topics[1], 1): 0}
    seen: list[tuple[list[OffsetRange], list[int]]] = []
    ssc = StreamingContext(sc, Duration(500))
    stream = KafkaUtils.createDirectStream(ssc, topics, {"bootstrap.servers": kafka.bootstrap}, given)
    stream.foreachRDD(lambda rdd: seen.append((rdd.offsetRanges(), rdd.glom().map(len).collect())))
    ssc.start()
    try:
        deadline = time.monotonic() + 60
        while sum(sum(sizes) for _, sizes in seen) < 46 and time.monotonic() < deadline:
            ssc.awaitTerminationOrTimeout(0.1)
    finally:
        ssc.stop(stopSparkContext=False)
    assert sum(sum(sizes) for _, sizes in seen) == 46
    assert all([r.count() for r in ranges] == sizes for ranges, sizes in seen)
    assert all(len(ranges) == 4 for ranges, _ in seen)


def test_KP1_transform_and_foreachRDD_get_the_ranges_and_a_handler_gets_the_message(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    kafka.produce(t, [("k", str(i), 0) for i in range(6)])
    transformed: list[OffsetRange] = []
    out: list[Any] = []
    ssc = StreamingContext(sc, Duration(500))
    kafka_params = {"metadata.broker.list": kafka.bootstrap, "auto.offset.reset": "smallest"}
    stream = KafkaUtils.createDirectStream(ssc, [t], kafka_params, messageHandler=lambda m: (m.key, m.message, m.offset))

    def note(rdd: Any) -> Any:
        transformed.extend(r for r in rdd.offsetRanges() if r.count())
        return rdd

    stream.transform(note).foreachRDD(lambda _time, rdd: out.extend(rdd.collect()))
    ssc.start()
    try:
        deadline = time.monotonic() + 60
        while len(out) < 6 and time.monotonic() < deadline:
            ssc.awaitTerminationOrTimeout(0.1)
    finally:
        ssc.stop(stopSparkContext=False)
    assert transformed == [OffsetRange(t, 0, 0, 6)]
    assert out == [("k", str(i), i) for i in range(6)]


@pytest.mark.parametrize("what", ["broker", "topic"])
def test_a_stream_that_cannot_begin_fails_start_with_one_clear_error(sc: Any, kafka: KafkaBroker, what: str):
    bootstrap, error = (NOWHERE, BrokerUnreachableError) if what == "broker" else (kafka.bootstrap, UnknownTopicError)
    ssc = StreamingContext(sc, Duration(500))
    stream = KafkaUtils.createDirectStream(ssc, ["never-made"], {"bootstrap.servers": bootstrap, "default.api.timeout.ms": 1500})
    stream.foreachRDD(lambda rdd: None)
    with pytest.raises(error):
        ssc.start()
    assert StreamingContext.getActive() is None

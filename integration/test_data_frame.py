"""DataFrames of Kafka ranges against a real broker: every column exact, SQL over them, and what they do not read."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import KafkaRDD, OffsetRange
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import NOT_PACKED, Packing, RangeSplit
from kstream_kafka.reader.data_frame import COLUMNS, SCHEMA, kafka_data_frame
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads

from integration.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]


def executor(kafka: KafkaBroker) -> dict[str, Any]:
    return KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}).executor()


def frame(spark: SparkSession, kafka: KafkaBroker, *ranges: OffsetRange, packing: Packing = NOT_PACKED, headers: bool = True) -> DataFrame:
    reads = RangeReads.of([RangeSplit(r) for r in ranges], executor(kafka), 10_000, packing)
    return kafka_data_frame(spark, reads, COLUMNS if headers else COLUMNS[:-1])


def numbers(kafka: KafkaBroker, topic: str, each: int, partitions: int) -> list[OffsetRange]:
    """So many records a partition, the value being the partition and the offset."""
    kafka.produce(topic, [(None, f"{p}:{i}", p) for p in range(partitions) for i in range(each)])
    return [OffsetRange(topic, p, 0, each) for p in range(partitions)]


def test_every_column_is_what_was_produced(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t, stamp = topic(1), 1_700_000_000_123
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    headers: list[Any] = [("trace", b"\x00\xff"), ("none", None), ("trace", b"")]
    producer.produce(t, b"\xfe\x00", b"k", timestamp=stamp, headers=headers)
    producer.produce(t, None, b"gone", timestamp=stamp + 1)
    producer.produce(t, b"", None, timestamp=stamp + 2)
    assert producer.flush(30) == 0
    df = frame(spark, kafka, OffsetRange(t, 0, 0, 3))
    assert df.schema == SCHEMA
    found = [row.asDict(recursive=True) for row in df.orderBy("offset").collect()]
    # Naive datetimes of pyspark are in the time zone of this process, whatever that of the session.
    times = [datetime.fromtimestamp(stamp // 1000).replace(microsecond=123000 + 1000 * i) for i in range(3)]
    common = {"topic": t, "partition": 0, "timestampType": 0}
    told = [{"key": key, "value": value and bytearray(value)} for key, value in headers]
    assert found == [
        {"key": b"k", "value": b"\xfe\x00", "offset": 0, "timestamp": times[0], "headers": told, **common},
        {"key": b"gone", "value": None, "offset": 1, "timestamp": times[1], "headers": None, **common},
        {"key": None, "value": b"", "offset": 2, "timestamp": times[2], "headers": None, **common},
    ]


def test_a_topic_of_LogAppendTime_has_the_brokers_time(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t, before = topic(1, {"message.timestamp.type": "LogAppendTime"}), time.time()
    kafka.produce(t, [("k", "v", 0, 1_000)])
    [row] = frame(spark, kafka, OffsetRange(t, 0, 0, 1)).collect()
    assert row.timestampType == 1
    assert before - 1 <= row.timestamp.timestamp() <= time.time() + 1


def test_timestamps_show_in_the_time_zone_of_the_session(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t, session = topic(1), spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    at = datetime(2026, 3, 1, 20, 0, 0, 250_000, timezone.utc)
    kafka.produce(t, [("k", "v", 0, round(at.timestamp() * 1000))])
    [row] = frame(session, kafka, OffsetRange(t, 0, 0, 1)).selectExpr("CAST(timestamp AS STRING) AS text", "hour(timestamp) AS h").collect()
    assert (row.text, row.h) == ("2026-03-02 01:30:00.25", 1)


def test_SQL_over_several_partitions(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    df = frame(spark, kafka, *numbers(kafka, topic(3), 400, 3))
    df.createOrReplaceTempView("numbers")
    query = "SELECT partition, count(*) AS n, sum(CAST(split(CAST(value AS STRING), ':')[1] AS INT)) AS s, max(offset) AS last "
    rows = spark.sql(query + "FROM numbers WHERE offset >= 10 GROUP BY partition ORDER BY partition").collect()
    assert [tuple(row) for row in rows] == [(p, 390, sum(range(10, 400)), 399) for p in range(3)]
    assert df.rdd.getNumPartitions() == 3
    assert df.rdd.glom().map(lambda part: {row.partition for row in part}).collect() == [{0}, {1}, {2}]


def test_a_part_of_a_log_longer_than_a_chunk_is_read_whole_and_in_order(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    numbers(kafka, t, 25_000, 1)
    df = frame(spark, kafka, OffsetRange(t, 0, 5, 24_990))
    assert [row.offset for row in df.select("offset").collect()] == list(range(5, 24_990))
    assert df.count() == 24_985


def test_large_records_arrive_whole(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    kafka.produce(t, [(None, bytes([i]) * 900_000, 0) for i in range(40)])
    rows = frame(spark, kafka, OffsetRange(t, 0, 0, 40)).selectExpr("offset", "length(value) AS n", "substring(value, -1) AS end").collect()
    assert [(row.offset, row.n, row.end) for row in rows] == [(i, 900_000, bytes([i])) for i in range(40)]


def test_packed_into_few_tasks_and_coalesced_every_range_is_read_once(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    ranges = numbers(kafka, topic(6), 20, 6)
    expected = sorted((p, i) for p in range(6) for i in range(20))
    packed = frame(spark, kafka, *ranges, packing=Packing(max_tasks=2))
    assert packed.rdd.getNumPartitions() == 2
    for df in (packed, frame(spark, kafka, *ranges).coalesce(1), frame(spark, kafka, *ranges).repartition(3)):
        assert sorted((row.partition, row.offset) for row in df.collect()) == expected


def test_no_ranges_and_empty_ranges_are_an_empty_frame_with_the_schema(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    for df in (frame(spark, kafka), frame(spark, kafka, OffsetRange(t, 0, 0, 0))):
        assert df.schema == SCHEMA and df.collect() == []
    assert frame(spark, kafka, headers=False).columns == SCHEMA.names[:-1]


def test_without_headers_the_column_is_not_there(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    df = frame(spark, kafka, *numbers(kafka, topic(), 3, 1), headers=False)
    assert df.columns == SCHEMA.names[:-1] and df.count() == 3


def test_a_limit_ends_the_read_early_and_the_next_action_reads_anew(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    df = frame(spark, kafka, *numbers(kafka, topic(), 30_000, 1))
    assert [row.offset for row in df.limit(3).collect()] == [0, 1, 2]
    assert df.count() == 30_000


def test_a_session_of_the_builder_on_the_same_context(sc: Any, kafka: KafkaBroker, topic: MakeTopic):
    from pyspark.sql import SparkSession

    assert frame(SparkSession.builder.getOrCreate(), kafka, *numbers(kafka, topic(2), 5, 2)).count() == 10


def test_an_RDDs_reads_make_a_frame_of_the_same_records(sc: Any, spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    ranges = numbers(kafka, topic(2), 50, 2)
    rdd = KafkaRDD(sc, ranges, RangeReads.of([RangeSplit(r) for r in ranges], executor(kafka), 120_000), Decoding())
    values = kafka_data_frame(spark, rdd.reads).selectExpr("CAST(value AS STRING) AS v").collect()
    assert [row.v for row in values] == rdd.values().collect()


def test_a_range_past_the_end_fails_and_says_where_the_log_ends(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic):
    t = topic()
    numbers(kafka, t, 4, 1)
    with pytest.raises(Exception, match=rf"LogTruncatedError: {t}-0 \[0, 10\): the partition ends at 4"):
        frame(spark, kafka, OffsetRange(t, 0, 0, 10)).count()

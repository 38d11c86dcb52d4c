"""What users of Spark's Kafka APIs call, on the real broker: both forms of streams and RDDs, commits, DataFrames, bounded runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from kstream_kafka import (
    Broker,
    ConsumerRecord,
    ConsumerStrategies,
    HasOffsetRanges,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
    TopicAndPartition,
)
from kstream_kafka.errors import RangesNotAvailableError
from pyspark.sql import SparkSession

from integration.kafka_broker import KafkaBroker
from integration.kafka_tools import described
from kstream import BatchTime, StreamingContext

if TYPE_CHECKING:
    from pyspark import SparkContext

Topic = Callable[..., str]
WAIT_S = 60


def run_to_the_end(ssc: StreamingContext) -> None:
    """Runs a bounded stream; it must end by itself."""
    ssc.start()
    assert ssc.awaitTerminationOrTimeout(WAIT_S), "the bounded run did not end"


def committed(kafka: KafkaBroker, group: str, topic: str, partitions: int) -> dict[int, int]:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in range(partitions)])
    answers = kafka.admin.list_consumer_group_offsets([wanted])[group].result(30).topic_partitions
    return {at.partition: at.offset for at in answers if at.offset >= 0}


@pytest.fixture(scope="module", autouse=True)
def _groups(kafka: KafkaBroker) -> None:
    """These tests are about commits, not about a broker that has just started."""
    kafka.create_topic("commits-of-nobody")
    kafka.wait_for_groups("commits-of-nobody")


@pytest.fixture
def params(kafka: KafkaBroker) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "earliest"}


def test_a_bounded_run_reads_what_is_there_commits_it_ends_by_itself_and_leaves_spark_running(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any], tmp_path: Path
) -> None:
    name, group = topic(2), f"g-{tmp_path.name}"
    kafka.produce(name, [("k", f"v{i}", i % 2) for i in range(20)])
    seen: list[Any] = []
    told: list[Any] = []

    def run() -> None:
        ssc = StreamingContext(sc, 0.5)
        ssc.checkpoint(str(tmp_path / "checkpoint"))
        strategy = ConsumerStrategies.Subscribe([name], {**params, "group.id": group})
        stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy, untilOffsets="latest")

        def batch(rdd: Any) -> None:
            seen.extend(rdd.map(lambda r: r.value).collect())
            stream.commitAsync(rdd.offsetRanges(), lambda offsets, error: told.append((offsets, error)))

        stream.foreachRDD(batch)
        run_to_the_end(ssc)

    run()
    assert sorted(seen) == sorted(f"v{i}" for i in range(20))
    assert [error for _, error in told] == [None], "a stop waits for the answers to commits"
    assert committed(kafka, group, name, 2) == {0: 10, 1: 10}
    kafka.produce(name, [("k", "later", 0)])
    run()  # the same checkpoint, a day later: a new run, up to the new end
    assert seen.count("later") == 1 and len(seen) == 21
    assert sc.parallelize([1]).count() == 1


def published_run(sc: SparkContext, params: dict[str, Any], topic: str, group: str, checkpoint: Path) -> None:
    """A bounded run that publishes its offsets to the group."""
    ssc = StreamingContext(sc, 0.5)
    ssc.checkpoint(str(checkpoint))
    stream = KafkaUtils.createDirectStream(ssc, [topic], params, untilOffsets="latest").publishOffsets(group)
    stream.foreachRDD(lambda rdd: rdd.count())
    run_to_the_end(ssc)


def test_publishOffsets_lets_kafka_consumer_groups_show_the_lag_of_the_job(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any], tmp_path: Path
) -> None:
    name, group = topic(2), f"g-{tmp_path.name}"
    kafka.produce(name, [("k", "v", i % 2) for i in range(20)])
    published_run(sc, params, name, group, tmp_path / "checkpoint")
    assert committed(kafka, group, name, 2) == {0: 10, 1: 10}, "a graceful stop sends the last offsets"
    kafka.produce(name, [("k", "later", 1)] * 3)
    rows = described(kafka.bootstrap, group)
    assert sorted((row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows) == [
        (name, "0", "10", "0"),
        (name, "1", "10", "3"),
    ]
    published_run(sc, params, name, group, tmp_path / "checkpoint")
    assert committed(kafka, group, name, 2) == {0: 10, 1: 13}


def test_publishOffsets_to_a_group_that_consumers_use_is_a_warning_and_the_job_runs(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, group = topic(1), f"g-{tmp_path.name}"
    kafka.produce(name, [("k", "v", 0)] * 5)
    member: Any = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0})
    joined: list[Any] = []
    member.subscribe([name], on_assign=lambda _member, partitions: joined.extend(partitions))
    try:
        for _ in range(WAIT_S * 10):
            if not joined:
                member.poll(0.1)
        assert joined, "the consumer did not join its group"
        published_run(sc, params, name, group, tmp_path / "checkpoint")
    finally:
        member.close()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and group in r.getMessage()]
    assert f"only the live members of the consumer group '{group}'" in warning and "give the job a group of its own" in warning
    assert committed(kafka, group, name, 1) == {}
    kafka.produce(name, [("k", "v", 0)])
    published_run(sc, params, name, group, tmp_path / "checkpoint")
    assert committed(kafka, group, name, 1) == {0: 6}, "the consumer has left, and the next batch commits for both"


def test_records_of_the_new_form_have_everything_kafka_keeps(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name, moment = topic(1), 1_700_000_000_123
    producer: Any = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce(name, b"\xff", "k", 0, timestamp=moment, headers=[("h", b"1"), ("h", None)])
    producer.produce(name, None, None, 0, timestamp=moment)
    assert producer.flush(30) == 0
    ssc = StreamingContext(sc, 0.5)
    strategy = ConsumerStrategies.Assign([TopicAndPartition(name, 0)], params)
    stream = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferBrokers, strategy, valueDecoder=None, untilOffsets="latest")
    records: list[Any] = []
    stream.foreachRDD(lambda rdd: records.extend(rdd.collect()))
    run_to_the_end(ssc)
    assert records == [
        ConsumerRecord(name, 0, 0, moment, 0, "k", b"\xff", (("h", b"1"), ("h", None)), 0),
        ConsumerRecord(name, 0, 1, moment, 0, None, None, (), 0),
    ]


def test_KP1_offset_ranges_are_there_inside_transform_and_foreachRDD_and_not_on_what_is_made_of_the_rdd(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name = topic(1)
    kafka.produce(name, [("k", "v", 0)] * 6)
    ssc = StreamingContext(sc, 0.5)
    stream = KafkaUtils.createDirectStream(ssc, [name], params, untilOffsets={TopicAndPartition(name, 0): 6})
    found: list[Any] = []

    def remember(rdd: Any) -> Any:
        found.append(rdd.offsetRanges())
        return rdd.map(lambda kv: kv[1])

    stream.transform(remember).foreachRDD(lambda rdd: found.append(isinstance(rdd, HasOffsetRanges)))
    stream.foreachRDD(lambda time, rdd: found.append((type(time), rdd.offsetRanges())))
    run_to_the_end(ssc)
    ranges = [OffsetRange(name, 0, 0, 6)]
    assert found[0] == ranges and False in found and (BatchTime, ranges) in found


def test_KR1_createRDD_reads_just_its_ranges_and_refuses_those_past_the_end_at_once(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name = topic(2)
    kafka.produce(name, [("k", f"{p}:{i}", p) for i in range(4) for p in range(2)])
    leaders = {TopicAndPartition(name, 0): Broker("127.0.0.1", 9092)}
    rdd = KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 0, 4), OffsetRange(name, 1, 2, 3)], leaders)
    assert rdd.map(lambda kv: kv[1]).collect() == ["0:0", "0:1", "0:2", "0:3", "1:2"]
    handled = KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 1, 2)], messageHandler=lambda m: f"{m.topic} {m.partition} {m.offset}")
    assert handled.collect() == [f"{name} 0 1"]
    with pytest.raises(RangesNotAvailableError, match="not available"):
        KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 0, 5)])


def test_KR1_createRDD_of_the_new_form_fails_only_when_it_is_computed(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name = topic(1)
    kafka.produce(name, [("k", "v", 0)] * 4)
    late = KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 0, 9)], LocationStrategies.PreferConsistent)
    assert late.offsetRanges() == [OffsetRange(name, 0, 0, 9)]
    with pytest.raises(Exception, match="the partition ends at 4"):
        late.map(lambda record: record.value).collect()
    there = KafkaUtils.createRDD(sc, params, [OffsetRange(name, 0, 3, 4)], LocationStrategies.PreferConsistent)
    assert [(r.offset, r.value) for r in there.collect()] == [(3, "v")]


def test_foreachBatch_hands_out_dataframes_with_sparks_columns_and_the_batch_time(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    """The function, in the thread of its job, also writes with a data source that is written in Python."""
    name, copy = topic(2), topic(1)
    SparkSession(sc)
    kafka.produce(name, [("k", str(i), i % 2) for i in range(100)])
    ssc = StreamingContext(sc, 1)
    stream = KafkaUtils.createDirectStream(ssc, [name], params, untilOffsets="latest")
    found: list[Any] = []
    servers = {"kafka.bootstrap.servers": kafka.bootstrap, "delivery": "at-least-once"}

    def batch(df: Any, batch_id: int) -> None:
        total = df.selectExpr("count(*) AS n", "sum(cast(cast(value AS string) AS int)) AS total").first()
        found.append((batch_id, df.columns, total.n, total.total))
        df.select("value").write.format("kstream").mode("append").option("topic", copy).options(**servers).save()

    stream.foreachBatch(batch)
    run_to_the_end(ssc)
    progress = {p["batchId"]: p["numInputRows"] for p in ssc.recentProgress}
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert [(b, c, n) for b, c, n, _ in found] == [(b, columns, progress[b]) for b, _, _, _ in found]
    assert sum(total or 0 for _, _, _, total in found) == sum(range(100))
    assert kafka.log_range(copy) == (0, 100)


def test_createDataFrame_reads_ranges_packed_or_split_alike(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name, spark = topic(3), SparkSession(sc)
    kafka.produce(name, [("k", "v", i % 3) for i in range(90)])
    ranges = [OffsetRange(name, p, 5, 25) for p in range(3)]
    for tasks, options in ((3, {}), (1, {"maxTasks": 1}), (6, {"maxRecordsPerTask": 10}), (2, {"maxTasks": 2, "maxRecordsPerTask": 7})):
        df = KafkaUtils.createDataFrame(spark, params, ranges, **options)
        rows = df.select("partition", "offset").collect()
        assert sorted((r.partition, r.offset) for r in rows) == [(p, o) for p in range(3) for o in range(5, 25)]
        assert df.rdd.getNumPartitions() == tasks
    assert KafkaUtils.createDataFrame(spark, params, []).count() == 0


def test_a_packed_or_split_rdd_keeps_the_order_inside_each_partition(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name = topic(7)
    kafka.produce(name, [("k", "v", p) for p in range(7) for _ in range(13 * p)])
    ranges = [OffsetRange(name, p, 0, 13 * p) for p in range(7)]
    whole = [(p, o) for p in range(7) for o in range(13 * p)]
    for options in ({}, {"maxTasks": 2}, {"maxRecordsPerTask": 10}, {"maxTasks": 3, "maxRecordsPerTask": 10}):
        rdd = KafkaUtils.createRDD(sc, params, ranges, LocationStrategies.PreferConsistent, **options)  # pyright: ignore
        assert rdd.map(lambda r: (r.partition, r.offset)).collect() == whole
        assert [(r.partition, r.offset) for r in rdd.take(20)] == whole[:20]
        assert rdd.count() == len(whole) and rdd.offsetRanges() == ranges


def test_a_packed_task_with_a_range_past_the_end_names_its_partition(
    kafka: KafkaBroker, topic: Topic, sc: SparkContext, params: dict[str, Any]
) -> None:
    name = topic(3)
    kafka.produce(name, [("k", "v", p) for p in range(3)])
    ranges = [OffsetRange(name, p, 0, 2 if p == 1 else 1) for p in range(3)]
    rdd = KafkaUtils.createRDD(sc, params, ranges, LocationStrategies.PreferConsistent, maxTasks=1)
    with pytest.raises(Exception, match=rf"{name}-1 \[0, 2\): the partition ends at 1"):
        rdd.map(lambda r: r.offset).collect()


ASKS = """
import sys
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
client = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": sys.argv[1]}))
for _ in range(3):
    print(client.committed("nobody", [("young", 0)]))
"""


def test_committed_offsets_can_be_asked_of_a_broker_that_has_just_started(own_kafka: KafkaBroker) -> None:
    """It answers NOT_COORDINATOR until its topic of offsets is there, by which librdkafka can end the process."""
    own_kafka.create_topic("young")
    asked = subprocess.run([sys.executable, "-c", ASKS, own_kafka.bootstrap], capture_output=True, text=True, timeout=120)
    assert (asked.returncode, asked.stdout.split()) == (0, ["{}"] * 3), asked.stderr

"""`format("kstream")` to write: each record of a query is in Kafka once, whatever happens to its driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.sink.receipts_topic import receipts_topic

from integration import structured_sink_job
from integration.kafka_broker import KafkaBroker
from tests.kstream_kafka.schemas.protobuf_orders import VALUE, Order, an_order
from tests.kstream_kafka.schemas.registry_server import registry_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]


def written(kafka: KafkaBroker, topic: str, partitions: int = 1) -> list[Any]:
    """The committed records of a topic."""
    reader = TopicReader({"bootstrap.servers": kafka.bootstrap, "group.id": "test"})
    try:
        return reader.read(topic, dict.fromkeys(range(partitions), 0), 30).messages
    finally:
        reader.close()


def receipts_of(kafka: KafkaBroker, prefix: str) -> list[int]:
    """The batches of the receipts of the queries with this prefix, oldest first."""
    messages = [m for m in written(kafka, receipts_topic(prefix), 17) if m.key().startswith(b'["query"')]
    return [json.loads(message.value())["batch"] for message in messages]


def copy(spark: SparkSession, kafka: KafkaBroker, source: str, target: str, checkpoint: Path, **options: str) -> None:
    """A query copies what is there of a topic, five records a batch, and ends."""
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source, "startingOffsets": json.dumps({source: {"0": 0, "1": 0}})}
    frame = spark.readStream.format("kstream").options(**read, maxOffsetsPerTrigger="5").load()
    frame = frame.selectExpr("key", "concat('copy of ', CAST(value AS STRING)) AS value")
    write = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "checkpointLocation": str(checkpoint), **options}
    query = frame.writeStream.format("kstream").options(**write).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_query_that_stops_and_restarts_writes_each_record_once(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = topic(2), topic(1)
    for life in range(2):
        kafka.produce(source, [(f"k{i}", f"{life}-{i}", i % 2) for i in range(8)])
        copy(spark, kafka, source, target, tmp_path / "checkpoint", prefix=target)
    found = [(message.key(), message.value()) for message in written(kafka, target)]
    assert Counter(found) == Counter((b"k%d" % i, b"copy of %d-%d" % (life, i)) for life in range(2) for i in range(8))
    assert receipts_of(kafka, target) == [0, 1, 2, 3]


def test_a_batch_that_spark_has_forgotten_is_found_by_its_receipt(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    """As if the driver had died after the transaction and before Spark's own log of commits."""
    source, target = topic(2), topic(1)
    kafka.produce(source, [(None, f"{i}", i % 2) for i in range(8)])
    copy(spark, kafka, source, target, tmp_path / "checkpoint", prefix=target)
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    kafka.produce(source, [(None, "8", 0)])
    copy(spark, kafka, source, target, tmp_path / "checkpoint", prefix=target)
    assert sorted(message.value() for message in written(kafka, target)) == [b"copy of %d" % i for i in range(9)]
    assert receipts_of(kafka, target) == [0, 1, 2]


def test_frames_of_foreachBatch_with_names_are_written_once(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Two frames of a batch, and the batch runs again behind both."""
    source, target = topic(1), topic(1)
    kafka.produce(source, [(None, f"{i}", 0) for i in range(3)])
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source, "startingOffsets": json.dumps({source: {"0": 0}})}

    def output(batch: DataFrame, _: int) -> None:
        for name in ("first", "second"):
            frame = batch.selectExpr(f"concat('{name} ', CAST(value AS STRING)) AS value")
            to = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "prefix": target, "name": name}
            frame.write.format("kstream").mode("append").options(**to).save()

    for _ in range(2):
        frame = spark.readStream.format("kstream").options(**read).load()
        writer = frame.writeStream.foreachBatch(output).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        for path in (tmp_path / "checkpoint" / "commits").iterdir():
            path.unlink()
    found = sorted(message.value() for message in written(kafka, target))
    assert found == [b"%s %d" % (name, i) for name in (b"first", b"second") for i in range(3)]


def test_a_driver_that_is_killed_anywhere_in_a_commit_leaves_no_record_out_and_none_twice(
    kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    """Each batch has 4.5 MB in one task, so its records wait in a file in the checkpoint."""
    source, target = topic(1), topic(1)
    kafka.produce(source, [(None, f"{i}".ljust(900_000), 0) for i in range(20)])
    command = [sys.executable, "-m", "integration.structured_sink_job", kafka.bootstrap, source, target, str(tmp_path / "checkpoint")]
    environment = {**os.environ, structured_sink_job.DOOM: str(tmp_path / "doom")}
    spools = tmp_path / "checkpoint" / "kstream-spools"
    for batch, where in enumerate(structured_sink_job.WHERES):
        life = subprocess.run([*command, where, str(batch)], env=environment, timeout=180, check=False)
        assert life.returncode == -signal.SIGKILL, where
        assert not (tmp_path / "checkpoint" / "commits" / str(batch)).exists()
        assert any(path.name.startswith(f"{batch}-") for path in spools.rglob("*")) or where == structured_sink_job.AFTER
    assert subprocess.run(command, env=environment, timeout=180, check=False).returncode == 0
    assert [int(message.value()) for message in written(kafka, target)] == list(range(20))
    assert receipts_of(kafka, target) == [0, 1, 2, 3]
    assert [path.name.split("-")[0] for path in spools.rglob("*") if path.is_file()] == ["receipts"]  # the note, and no spool
    assert kafka.log_range(target)[1] == 20 + 5 + 5  # the records, those of the transaction that was cut off, the ends of five transactions


def test_a_frame_is_written_as_a_whole_with_keys_headers_and_topics(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic) -> None:
    first, second = topic(2), topic(1)
    frame = spark.sql(
        f"""SELECT CAST(id AS STRING) AS value, IF(id = 0, NULL, CAST(id AS STRING)) AS key, IF(id < 2, '{first}', '{second}') AS topic,
        IF(id < 2, 1, NULL) AS partition, array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers FROM range(4)"""
    )
    for delivery in ("exactly-once", "at-least-once"):
        frame.write.format("kstream").mode("append").option("kafka.bootstrap.servers", kafka.bootstrap).option("delivery", delivery).save()
    for name, where, values in ((first, 1, [b"0", b"1"]), (second, 0, [b"2", b"3"])):
        messages = written(kafka, name, where + 1)
        assert sorted(message.value() for message in messages) == sorted(values * 2)
        assert all(message.partition() == where and message.headers() == [("h", b"x")] for message in messages)
        assert all(message.key() == (None if message.value() == b"0" else message.value()) for message in messages)


def test_a_struct_is_encoded_and_read_again_in_each_format_or_nothing_is_written(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic
) -> None:
    frame = spark.sql("SELECT named_struct('id', id, 'customer', concat('c', id), 'at', timestamp_micros(id)) AS value FROM range(3)")
    fields = [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}]
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    schema = json.dumps({"type": "record", "name": "Order", "fields": [*fields, at]})
    with registry_server() as server:
        ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), VALUE)
        registry = {"schema.registry.url": server.url}
        formats: dict[str, dict[str, str]] = {
            "json": {},
            "avro": {**registry, "value.schema": schema},
            "protobuf": {**registry, "value.schema.id": "2"},
        }
        for name, options in formats.items():
            to, t = {"kafka.bootstrap.servers": kafka.bootstrap, "value.format": name}, topic(1)
            frame.write.format("kstream").mode("append").options(**to, **options, topic=t).save()
            read = spark.read.format("kstream").options(**to, subscribe=t, **(registry if options else {}))
            rows = read.schema("value STRUCT<id: BIGINT, customer: STRING, at: TIMESTAMP>").load()
            assert sorted(rows.collect()) == sorted(frame.collect()), name
        t, nulls = (
            topic(1),
            frame.selectExpr("struct(IF(value.id = 2, NULL, value.id) AS id, value.customer, value.at) AS value").coalesce(1),
        )
        write = nulls.write.format("kstream").mode("append").options(**registry, topic=t).option("value.schema", schema)
        with pytest.raises(
            Exception, match="Row 3 of partition 0 of the frame cannot be written as avro: the value has null in the field 'id'"
        ):
            write.option("kafka.bootstrap.servers", kafka.bootstrap).option("value.format", "avro").save()
        assert kafka.log_range(t) == (0, 0)


def test_wrong_columns_and_options_are_one_clear_error(spark: SparkSession, kafka: KafkaBroker) -> None:
    write = spark.range(1).write.format("kstream").mode("append").option("kafka.bootstrap.servers", kafka.bootstrap)
    with pytest.raises(Exception, match="there is no column 'value'"):
        write.option("topic", "t").save()
    with pytest.raises(Exception, match="'topci' of the data source kstream is unknown"):
        write.option("topci", "t").save()

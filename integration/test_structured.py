"""`format("kstream")` on a real broker: the rows of Spark's own Kafka source, restarts, outages, and the columns that are asked for."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.data_frame import checked_typed_columns, kafka_data_frame
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.structured.columns import chosen_columns, default_schema
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.readers import KafkaBatchReader
from pyspark.sql.types import StructType

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET
from integration.structured_differential import QUERIES, STREAMS, Topics, made_topics, offsets, remove
from integration.structured_peer import Ask, running_peer
from integration.structured_queries import rows_of
from kstream.cli import main
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.topic_offsets import text_of
from tests.kstream_kafka.arrow_of_spark import arrow_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]


# -- the same rows as Spark's own source


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs a query with Spark's own source, in another process: its jar may be for another Spark than ours."""
    with running_peer(tmp_path_factory.mktemp("peer")) as ask:
        yield ask


@pytest.fixture(scope="module")
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    made = made_topics(kafka)
    yield made
    made.writer.abort_transaction(30)


@pytest.mark.parametrize("name", QUERIES)
def test_a_batch_has_the_rows_of_sparks_own_source(spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topics: Topics, name: str) -> None:
    query = {"options": {"kafka.bootstrap.servers": kafka.bootstrap, **QUERIES[name](topics)}}
    expected = jvm(query)
    assert expected and rows_of(spark, "kstream", query) == expected


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_the_rows_of_sparks_own_source(spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topics: Topics, name: str) -> None:
    query = {"options": {"kafka.bootstrap.servers": kafka.bootstrap, **STREAMS[name](topics)}, "stream": True}
    expected = jvm(query)
    assert expected and rows_of(spark, "kstream", query) == expected


def test_a_query_goes_back_and_forth_between_the_sources_on_one_checkpoint(
    spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint = topic(12), tmp_path / "checkpoint"
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "earliest"}
    query = {"options": options, "stream": True, "checkpoint": str(checkpoint)}
    for life, run in enumerate([jvm, lambda query: rows_of(spark, "kstream", query)] * 2):
        kafka.produce(t, [(None, f"{life}", p) for p in range(12) for _ in range(5)])
        assert [row[3:5] for row in run(query)] == [[p, 5 * life + at] for p in range(12) for at in range(5)], f"life {life}"
    assert rows_of(spark, "kstream", query) == []
    of_spark = (checkpoint / "offsets" / "0").read_text().splitlines()[-1]
    assert of_spark == text_of({(t, p): 5 for p in range(12)})


# -- the ledger of a query, and other offsets


def said_by(*arguments: str) -> str:
    """What a command says."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_query_goes_on_where_its_offsets_are_set_with_either_source(
    spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint, to = topic(2), str(tmp_path / "checkpoint"), tmp_path / "to.json"
    kafka.produce(t, [(None, f"{i}", p) for p in range(2) for i in range(10)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "earliest"}
    query = {"options": options, "stream": True, "checkpoint": checkpoint}
    assert len(rows_of(spark, "kstream", query)) == 20
    lives: list[Ask] = [jvm, lambda query: rows_of(spark, "kstream", query)]
    first, before = (3, 8), round(time.time() * 1000)
    for begins, run in zip((first, (9, 0), (10, 7)), lives * 2, strict=False):
        to.write_text(offsets(t, *begins))
        said_by("offsets", "reset", checkpoint, "--to", str(to), "--bootstrap", kafka.bootstrap, "--take-over")
        assert [row[3:5] for row in run(query)] == [[p, at] for p in range(2) for at in range(begins[p], 10)]
    said_by("offsets", "rewind", checkpoint, "--to", str(before), "--take-over")
    assert [row[3:5] for row in jvm(query)] == [[p, at] for p in range(2) for at in range(first[p], 10)]


def test_records_that_are_lost_are_in_the_ledger_of_the_query(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint = topic(2), str(tmp_path / "checkpoint")
    kafka.produce(t, [(None, f"{i}", p) for p in range(2) for i in range(10)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": offsets(t, 0, 0)}
    going_on = {"failOnDataLoss": "false", "checkpointLocation": checkpoint}
    query = {"options": {**options, **going_on}, "stream": True, "checkpoint": checkpoint}
    rows_of(spark, "kstream", {**query, "fails_after": 0})
    remove(kafka, t, 0, 4)
    assert [row[3:5] for row in rows_of(spark, "kstream", query)] == [[p, at] for p in range(2) for at in range(4 * (1 - p), 10)]
    [lost] = json.loads(said_by("ledger", checkpoint, "--json"))["lost"]
    assert (lost["topic"], lost["partition"], lost["from"], lost["until"], lost["cause"]) == (t, 0, 0, 4, "retention")


# -- a query moves between the sources


def migrated(checkpoint: Path, to: str, *options: str) -> str:
    """What `kstream structured migrate --apply` says."""
    result = CliRunner().invoke(main, ["structured", "migrate", str(checkpoint), "--to", to, "--apply", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_checkpoint_moves_between_the_sources_in_mid_stream_and_no_record_is_missed_or_read_twice(
    spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint = topic(3), tmp_path / "checkpoint"
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    query = {"options": options, "stream": True, "checkpoint": str(checkpoint)}
    found: list[list[Any]] = []
    for life in range(4):
        kafka.produce(t, [(None, f"{life}", p) for p in range(3) for _ in range(8)])
        if life:
            said = migrated(checkpoint, "kstream" if life % 2 else "kafka")
            assert "is not committed" in said and "nothing must be changed" in said
            lag = json.loads(CliRunner().invoke(main, ["lag", str(checkpoint), "--bootstrap", kafka.bootstrap, "--json"]).stdout)
            assert [(total["source"], total["lag"]) for total in lag["topics"]] == [("0", 24 * (life + 1) - len(found))]
        fails = {"fails_after": 2} if life < 3 else {}
        found += rows_of(spark, "kstream", {**query, **fails}) if life % 2 else jvm({**query, **fails})
    assert sorted(row[3:5] for row in found) == [[p, at] for p in range(3) for at in range(32)]


def test_a_first_batch_of_sparks_source_begins_in_kstream_where_it_began(
    spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint = topic(2), tmp_path / "checkpoint"
    kafka.produce(t, [(None, f"{i}", p) for p in range(2) for i in range(5)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": offsets(t, 2, -2)}
    query = {"options": options, "stream": True, "checkpoint": str(checkpoint)}
    assert jvm({**query, "fails_after": 0}) == []
    [option] = [line for line in migrated(checkpoint, "kstream").splitlines() if line.startswith(".option(")]
    start = json.dumps({t: {"0": 2, "1": 0}}, separators=(",", ":"))
    assert option == f".option(\"startingOffsets\", '{start}')"
    kafka.produce(t, [(None, "later", 0)])
    query["options"] = {**options, "startingOffsets": start}
    assert [row[3:5] for row in rows_of(spark, "kstream", query)] == [[0, 2], [0, 3], [0, 4], [0, 5], *([1, at] for at in range(5))]


def test_a_first_batch_of_kstream_at_latest_needs_its_start_for_sparks_source(
    spark: SparkSession, jvm: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t, checkpoint, unprepared = topic(2), tmp_path / "checkpoint", tmp_path / "unprepared"
    kafka.produce(t, [(None, "before", p) for p in range(2)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "latest"}
    query = {"options": options, "stream": True, "checkpoint": str(checkpoint)}
    assert rows_of(spark, "kstream", {**query, "fails_after": 0}) == []
    kafka.produce(t, [(None, "while it was down", p) for p in range(2)])
    shutil.copytree(checkpoint, unprepared)
    assert jvm({**query, "checkpoint": str(unprepared), "fails_after": 99}) == [], "Spark's source refuses a start after the end of a batch"
    assert "is written" in migrated(checkpoint, "kafka", "--starting-offsets", "latest")
    assert [row[3:5] for row in jvm(query)] == [[0, 1], [1, 1]]


# -- columns


def test_a_schema_selects_columns_in_a_batch_and_in_a_stream(
    spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t = topic(1)
    kafka.produce(t, [("k", f"v{i}", 0) for i in range(5)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t}
    frame = spark.read.format("kstream").schema("value BINARY, offset BIGINT").options(**options).load()
    assert frame.columns == ["value", "offset"]
    assert [(bytes(row.value), row.offset) for row in frame.collect()] == [(b"v%d" % i, i) for i in range(5)]
    stream = spark.readStream.format("kstream").schema("headers ARRAY<STRUCT<key STRING, value BINARY>>, partition INT")
    found = read_stream(stream.options(**options, startingOffsets="earliest").load(), tmp_path)
    assert [tuple(row) for row in found] == [(None, 0)] * 5


def test_every_record_batch_has_the_schema_of_the_query(kafka: KafkaBroker, topic: MakeTopic) -> None:
    """Spark looks at the first batch of a task only, and reads the others as if they had the same columns."""
    t = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, **QUIET})
    for i in range(25_000):
        producer.produce(t, None if i < 9_000 else b"v", None, partition=0, headers=[("h", b"1")] if i > 20_000 else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    options = SourceOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t}).of_batch()
    everything = default_schema(include_headers=True)
    for schema in (everything, StructType([everything["offset"], everything["value"]]), StructType([everything["headers"]])):
        reader = KafkaBatchReader(options, chosen_columns(schema))
        batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
        assert len(batches) > 2 and sum(batch.num_rows for batch in batches) == 25_000
        assert all(arrow_of_spark(schema).equals(batch.schema) for batch in batches)


def test_an_option_that_does_not_exist_is_refused_when_the_query_is_defined(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"Option 'startingoffset' .* is unknown[.] Did you mean 'startingOffsets'"):
        spark.read.format("kstream").option("startingOffset", "earliest").load()


# -- streams that stop, restart, and wait


def read_stream(frame: DataFrame, directory: Path) -> list[Any]:
    """The rows that a query on this checkpoint reads until it has read all of now."""
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    return rows


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class RunningStream:
    """A query that runs, with the offsets of each of its batches."""

    def __init__(self, spark: SparkSession, options: dict[str, str], directory: Path) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}
        frame = spark.readStream.format("kstream").schema("partition INT, offset BIGINT").options(**options).load()
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(directory / "checkpoint"))
        self.query = writer.start()

    def _keep(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = [tuple(row) for row in batch.collect()]

    def wait_for(self, records: int, before: Mapping[int, list[tuple[int, int]]] = MappingProxyType({})) -> None:
        """Returns when so many records are read, with those of earlier lives. A batch of both lives counts once."""
        wait_until(lambda: sum(map(len, {**before, **self.batches}.values())) >= records, f"{records} records: {self.query.exception()}")


def test_a_restarted_query_reads_each_record_once(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path) -> None:
    t, batches = topic(2), dict[int, list[tuple[int, int]]]()
    kafka.produce(t, [(None, "before", 1)])
    for life in range(3):
        stream = RunningStream(spark, {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t}, tmp_path)
        wait_until(lambda stream=stream: bool(stream.batches), f"the first batch of life {life}")
        kafka.produce(t, [(None, f"{i}", i % 2) for i in range(10)])
        stream.wait_for(10 + 11 * life, batches)
        stream.query.stop()
        kafka.produce(t, [(None, "between two lives", 0)])
        again = batches.keys() & stream.batches.keys()  # the stop may come before Spark has noted the end of a batch
        assert {number: sorted(batches[number]) for number in again} == {number: sorted(stream.batches[number]) for number in again}
        batches |= stream.batches
    assert sorted(record for read in batches.values() for record in read) == [(0, at) for at in range(17)] + [
        (1, at) for at in range(1, 16)
    ]


def test_brokers_that_are_away_are_waited_for_and_a_stop_ends_the_wait(spark: SparkSession, own_kafka: KafkaBroker, tmp_path: Path) -> None:
    own_kafka.create_topic("t", 1)
    own_kafka.produce("t", [(None, "1", 0)])
    options = {"kafka.bootstrap.servers": own_kafka.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    stream = RunningStream(spark, {**options, "kafka.default.api.timeout.ms": "1000"}, tmp_path)
    stream.wait_for(1)
    own_kafka.kill9()
    time.sleep(5)
    assert stream.query.isActive
    own_kafka.restart()
    own_kafka.produce("t", [(None, "2", 0)])
    stream.wait_for(2)
    own_kafka.kill9()
    time.sleep(5)
    assert stream.query.isActive
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stream.query.stop).result(2)
    assert not stream.query.isActive and stream.query.exception() is None


def test_a_topic_that_does_not_exist_is_one_clear_error(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "no-such-topic"}
    stream = RunningStream(spark, options, tmp_path)
    with pytest.raises(Exception, match="Kafka knows no topic 'no-such-topic'"):
        stream.query.awaitTermination(60)


# -- fields of the values


FIELDS = "id BIGINT, amount DOUBLE, item STRING, at TIMESTAMP, day DATE, price DECIMAL(10,2), tags ARRAY<STRING>, more STRUCT<a: INT>"
FITS = [
    '{"id":1,"amount":1.5,"item":"a","at":"2024-01-02T03:04:05.123456Z","day":"2024-02-29","price":1.25,"tags":["a",null],"more":{"a":1}}',
    "{}",
    '{"id":null,"other":{"deep":[1,{"x":2}]}}',
    '{"amount":1,"price":"7.1"}',
    '{"amount":1e3,"price":0.125}',
    '{"amount":"NaN"}',
    '{"item":12}',
    '{"item":{"a":[1,true]}}',
    '{"at":"2024-01-02T03:04:05+02:00"}',
    '{"at":"2024-01-02 03:04:05"}',
    '{"at":"2024-01-02"}',
    '{"at":1}',
    '{"tags":[],"more":{}}',
    '{"id":1,"id":2}',
    '{"ID":3}',
    ' {"id":\n4} ',
    '{"item":"\\u00e9\\n\\ud83d\\ude00 grüße"}',
]
"""Values of which `from_json` makes the same."""
DIFFERS: Mapping[str, list[Any] | None] = {
    '{"id":1,"amount":"much"}': [1],
    '{"id":1.5,"item":"a"}': ["a"],
    '[{"id":1}]': [],
    '{"id":1}{"id":2}': [1],
    "": None,
    "null": [],
    "poison": [],
    '{"id":1': [],
    '{"id":1,}x': [],
}
"""Values that do not fit, and of which fields `from_json` makes something nevertheless; None if it makes null of the whole."""


def test_json_values_are_columns_as_from_json_makes_them(spark: SparkSession, kafka: KafkaBroker, topic: MakeTopic) -> None:
    t = topic(1)
    values = [*FITS, *DIFFERS, None]
    kafka.produce(t, [(None, value, 0) for value in values])
    read = spark.read.format("kstream").options(**{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t})
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        of_spark = f"from_json(CAST(value AS STRING), '{FIELDS}') AS value"
        expected = [row.value for row in read.load().orderBy("offset").selectExpr(of_spark).collect()]
        typed = read.option("value.format", "json")
        nested = [row.value for row in typed.schema(f"offset BIGINT, value STRUCT<{FIELDS}>").load().orderBy("offset").collect()]
        flat = typed.schema(f"offset BIGINT, {FIELDS}, _corrupt STRING").load().orderBy("offset").drop("offset").collect()
        schema, chosen = checked_typed_columns("foreachBatch", f"{FIELDS}, _corrupt STRING", "json", "permissive", "fail")
        executor = KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}).executor()
        reads = RangeReads.of([RangeSplit(OffsetRange(t, 0, 0, len(values)))], executor, 10_000)
        of_batch = kafka_data_frame(spark, reads, chosen, schema).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    for value, of_json, ours in zip(FITS, expected, nested, strict=False):
        assert str(ours) == str(of_json), value  # NaN is not equal to itself
    assert nested[len(FITS) :] == [None] * (len(values) - len(FITS))
    kept = [row if row is None else [field for field in row if field is not None] for row in expected[len(FITS) : -1]]
    assert dict(zip(DIFFERS, kept, strict=True)) == DIFFERS
    assert [str(tuple(row[:-1])) for row in flat[: len(FITS)]] == [str(tuple(row)) for row in nested[: len(FITS)]]
    assert [row["_corrupt"] for row in flat] == [None] * len(FITS) + [*DIFFERS, None]
    assert str(of_batch) == str(flat)

"""The columns of foreachBatch: checked where it is called, kept in the stored graph, asked for in the batch."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, SchemaRegistry, restore_input
from pyspark.sql.types import LongType, StructField, StructType

from kstream.batch_time import Time
from kstream.dstream.recipe import Replay
from kstream.output import OutputBatch
from tests.fakes import FakeHost
from tests.kstream_kafka.schemas.registry_server import registry_server
from tests.kstream_kafka.stream import BROKERS

BATCH = OutputBatch(Time(1000), "nonce", is_first_try=True)
seen: list[Any] = []


def see(df: Any, batch_id: int) -> None:
    seen.append((df, batch_id))


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataFrame is the names of its columns."""
    seen.clear()
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", object)
    monkeypatch.setattr("kstream_kafka.reader.data_frame.kafka_data_frame", _frame)


def _frame(_spark: Any, _reads: Any, columns: Any, schema: StructType | None) -> list[str]:
    return list(columns) if schema is None else [*columns.names, columns.values.mode, schema.simpleString()]


def run(host: Any, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "getOrCompute", lambda _time: SimpleNamespace(reads="ranges", context=None))
    for output in host.graph.output_streams:
        job = output.generate_job(BATCH, 0)
        assert job is not None
        job.run()


def test_the_function_gets_the_columns_that_were_asked_for_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    stream.foreachBatch(see, columns=["offset", "value"])
    stream.foreachBatch(see, ("key",))
    stream.foreachBatch(see)
    run(host, stream, monkeypatch)
    whole = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert seen == [(["offset", "value"], 1000), (["key"], 1000), (whole, 1000)]


def test_a_restored_stream_asks_for_the_columns_of_its_stored_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    KafkaUtils.createDirectStream(host, ["t"], BROKERS).foreachBatch(see, columns=["offset", "value"])
    calls = json.loads(json.dumps(host.recorder.calls))
    functions = pickle.loads(pickle.dumps([function.value for function in host.recorder.functions]))
    made: Any = FakeHost({})
    replay = Replay(made, functions, lambda recipe: restore_input(made, recipe))
    replay.run(calls)
    run(made, replay.streams[0], monkeypatch)
    assert seen == [(["offset", "value"], 1000)]


def test_a_graph_stored_before_there_were_columns_asks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    KafkaUtils.createDirectStream(host, ["t"], BROKERS).foreachBatch(see)
    calls = json.loads(json.dumps(host.recorder.calls))
    assert calls[1]["args"] == [{"function": 0}] and calls[1]["kwargs"] == {}
    made: Any = FakeHost({})
    replay = Replay(made, [see], lambda recipe: restore_input(made, recipe))
    replay.run(calls)
    run(made, replay.streams[0], monkeypatch)
    assert [len(df) for df, _ in seen] == [8]


def test_an_unknown_column_is_refused_where_the_stream_is_defined_and_no_output_is_made() -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    with pytest.raises(ValueError, match=r"^foreachBatch: a Kafka record has no column 'ofset'\. Did you mean 'offset'\?$"):
        stream.foreachBatch(see, columns=["value", "ofset"])
    assert host.graph.output_streams == []


FIELDS = StructType([StructField("id", LongType()), StructField("offset", LongType())])


def test_the_function_gets_the_fields_of_the_values_that_its_schema_names(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    stream.foreachBatch(see, schema=FIELDS, value_format="json", mode="fail")
    run(host, stream, monkeypatch)
    assert seen == [(["id", "offset", "fail", "struct<id:bigint,offset:bigint>"], 1000)]


def test_the_function_gets_the_fields_of_a_registered_schema_beside_the_columns_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    with registry_server() as server:
        number = server.register("orders-value", '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
        stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
        stream.foreachBatch(see, value_format="avro", schema_registry=server.url, value_schema_id=number)
        with pytest.raises(ValueError, match=r"^foreachBatch: value_schema_id is 99, and the schema registry .* has no schema 99$"):
            stream.foreachBatch(see, value_format="avro", schema_registry=server.url, value_schema_id=99)
    stream.foreachBatch(see, schema=FIELDS, value_format="protobuf", schema_registry=SchemaRegistry("http://h:1"))
    run(host, stream, monkeypatch)
    (registered, _), (named, _) = seen
    assert registered[:3] == ["key", "value", "topic"] and "value:struct<id:bigint>" in registered[-1]
    assert named == ["id", "offset", "permissive", "struct<id:bigint,offset:bigint>"]


def test_a_password_of_the_registry_is_never_stored() -> None:
    host: Any = FakeHost({})
    registry = SchemaRegistry({"url": "http://h:1", "basic.auth.user.info": "orders:pl4nt3d"})
    KafkaUtils.createDirectStream(host, ["t"], BROKERS).foreachBatch(see, schema=FIELDS, value_format="avro", schema_registry=registry)
    assert host.recorder.why_not.endswith("are never stored, and foreachBatch has schema.registry.basic.auth.user.info")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema": FIELDS}, "a schema needs value_format, as 'json'"),
        ({"schema": FIELDS, "value_format": "json", "columns": ["key"]}, "columns and schema exclude each other"),
        ({"schema": FIELDS, "schema_registry": "http://h:1"}, "schema_registry needs value_format, as 'json'"),
        ({"schema": FIELDS, "value_format": "avro"}, "value_format='avro' needs schema_registry"),
        ({"schema": FIELDS, "value_format": "json", "value_schema_id": 1}, "are for the values of a registry, as 'avro'"),
        ({"schema": FIELDS, "value_format": "yaml"}, "value_format must be one of avro, protobuf, json, text, it is 'yaml'"),
        ({"schema": FIELDS, "value_format": "json", "mode": "drop"}, "mode must be one of permissive, fail, dead-letter, it is 'drop'"),
        ({"schema": FIELDS, "value_format": "json", "mode": "dead-letter"}, "the errors policy of the stream is 'fail'"),
        ({"schema": FIELDS, "value_format": "text"}, "schema has the column 'id', and the only field of a text is value STRING"),
    ],
)
def test_values_that_cannot_be_decoded_so_are_refused_where_the_stream_is_defined(given: dict[str, Any], words: str) -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    with pytest.raises(ValueError, match=f"^foreachBatch: .*{words}"):
        stream.foreachBatch(see, **given)
    with pytest.raises(TypeError, match="schema must be a StructType or its DDL"):
        stream.foreachBatch(see, schema=5, value_format="json")  # pyright: ignore[reportArgumentType]
    assert host.graph.output_streams == []

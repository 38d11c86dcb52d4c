"""The column `value` of a frame that is written, encoded by `value.format`: what a task keeps, and the place of a row that does not fit."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Generator
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.errors import RowEncodingError, SourceOptionError
from kstream_kafka.sink.frame_columns import kept
from kstream_kafka.structured.sink_options import SinkOptions
from kstream_kafka.structured.value_encoders import ValueEncoding, plain_cell
from kstream_kafka.structured.writers import KafkaBatchWriter
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.kstream_kafka.schemas.protobuf_orders import VALUE, Order, an_order
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
STRUCT = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Total",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}],
}
AVRO = {"value.format": "avro", "value.schema": json.dumps(SCHEMA), "topic": "totals"}


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


def options(server: RegistryServer | None = None, **given: str) -> SinkOptions:
    named = {} if server is None else {"schema.registry.url": server.url}
    return SinkOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "totals", **named, **given})


def encoding(given: SinkOptions, kind: DataType = STRUCT) -> ValueEncoding:
    found = ValueEncoding.of(given, kind)
    assert found is not None
    return pickle.loads(pickle.dumps(found))


def frame(*rows: dict[str, Any] | None) -> pa.RecordBatch:
    values = pa.array(rows, pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))]))
    return pa.RecordBatch.from_arrays([values, pa.array(["k"] * len(rows), pa.large_string())], ["value", "key"])


def bodies(given: SinkOptions, *frames: Any, kind: DataType = STRUCT) -> list[bytes | None]:
    batches = kept(frames, ("key", "value"), encoding(given, kind).open())
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_struct_becomes_json_and_null_stays_a_tombstone() -> None:
    found = bodies(options(**{"value.format": "json"}), frame({"id": 7, "at": AT}, None), frame({"id": None, "at": None}))
    assert found == [b'{"id":7,"at":"2026-01-02T03:04:05.678901Z"}', None, b"{}"]


def test_rows_of_an_older_spark_have_the_bytes_of_arrow() -> None:
    kind = StructType(
        [
            StructField("at", TimestampType()),
            StructField("days", MapType(StringType(), DateType())),
            StructField("list", ArrayType(STRUCT)),
        ]
    )
    local = AT.astimezone().replace(tzinfo=None)  # as Spark gives it
    rows = [
        Row(key=b"k", value=Row(at=local, days={"a": date(2026, 1, 2)}, list=[Row(id=1, at=local), None])),
        Row(key=b"k", value=None),
    ]
    at = '"2026-01-02T03:04:05.678901Z"'
    expected = f'{{"at":{at},"days":{{"a":"2026-01-02"}},"list":[{{"id":1,"at":{at}}},null]}}'.encode()
    assert bodies(options(**{"value.format": "json"}), *rows, kind=kind) == [expected, None]


def test_the_hour_that_comes_twice_keeps_its_two_times(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        try:
            for hour in (0, 1):
                at = datetime(2026, 10, 25, hour, 30, 0, 7, timezone.utc)
                local = datetime(2026, 10, 25, 2, 30, 0, 7, fold=hour)  # as Spark gives it
                assert plain_cell(local, TimestampType()) == int(at.timestamp()) * 1_000_000 + 7
                assert plain_cell(at, TimestampType()) == int(at.timestamp()) * 1_000_000 + 7
            naive = datetime(2026, 10, 25, 2, 30, tzinfo=timezone.utc)
            assert plain_cell(naive.replace(tzinfo=None), TimestampNTZType()) == int(naive.timestamp()) * 1_000_000
        finally:
            patch.undo()
            time.tzset()


def test_a_schema_of_avro_is_registered_once_under_the_subject_of_the_topic(server: RegistryServer) -> None:
    given = options(server, **AVRO)
    for _ in range(2):
        (raw,) = bodies(given, frame({"id": 7, "at": AT}))
    assert [path for path in server.requests if path.startswith("POST")] == ["POST /subjects/totals-value/versions"]
    read = AvroDeserializer(SchemaRegistryClient({"url": server.url}))
    assert read(raw, SerializationContext("totals", MessageField.VALUE)) == {"id": 7, "at": AT}
    assert bodies(options(server, **{"value.format": "avro", "value.schema.id": "1"}), frame({"id": 7, "at": AT})) == [raw]


def test_a_file_of_protobuf_is_given_by_its_id(server: RegistryServer) -> None:
    ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), VALUE)
    (raw,) = bodies(options(server, **{"value.format": "protobuf", "value.schema.id": "2"}), frame({"id": 7, "at": AT}))
    assert raw is not None
    found = Order.FromString(raw[6:])
    assert (raw[:6], found.id, found.at.ToDatetime(timezone.utc)) == (b"\0\0\0\0\2\0", 7, AT)


def test_bytes_of_an_older_spark_become_a_field_of_protobuf(server: RegistryServer) -> None:
    ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), VALUE)
    given, kind = options(server, **{"value.format": "protobuf", "value.schema.id": "2"}), StructType([StructField("raw", BinaryType())])
    (raw,) = bodies(given, Row(key=b"k", value=Row(raw=bytearray(b"\0\1"))), kind=kind)
    assert raw is not None and Order.FromString(raw[6:]).raw == b"\0\1"


def test_a_row_that_cannot_be_encoded_is_one_error_with_its_place(server: RegistryServer) -> None:
    good = frame({"id": 7, "at": AT}, None)
    with pytest.raises(RowEncodingError, match=r"^Row 4 of partition 0 .* as avro: the value has null in the field 'id'") as caught:
        bodies(options(server, **AVRO), good, frame({"id": 8, "at": AT}, {"id": None, "at": AT}))
    assert (caught.value.facts["row"], caught.value.facts["task"]) == (4, 0)


def test_a_string_that_is_no_utf_8_is_an_error_with_its_place() -> None:
    kind, given = StructType([StructField("text", StringType())]), options(**{"value.format": "json"})
    texts = [pa.array(raw, pa.binary()).view(pa.string()) for raw in ([b"a"], [b"b", b"SECRET\xff", b"c"])]
    batches = [pa.RecordBatch.from_arrays([pa.StructArray.from_arrays([t], ["text"]), t], ["value", "key"]) for t in texts]
    with pytest.raises(RowEncodingError, match=r"^Row 3 of partition 0 .* as json: the value has a string that is no UTF-8") as caught:
        bodies(given, *batches, kind=kind)
    assert "SECRET" not in str(caught.value) and "ff" not in str(caught.value) and caught.value.__suppress_context__


def test_columns_that_do_not_fit_are_refused_by_the_driver_or_before_the_first_row(server: RegistryServer) -> None:
    other = StructType([StructField("id", StringType()), StructField("at", TimestampType())])
    with pytest.raises(SourceOptionError, match="have 'value' as struct<id:string,at:timestamp>, and the field id is long"):
        encoding(options(server, **AVRO), other)
    assert server.requests == []
    number = str(server.register("totals-value", json.dumps(SCHEMA)))
    with pytest.raises(SourceOptionError, match="the field id is long"):
        encoding(options(server, **{"value.format": "avro", "value.schema.id": number}), other).open()
    with pytest.raises(SourceOptionError, match=r"is 99, and the schema registry .* has no schema 99"):
        encoding(options(server, **{"value.format": "protobuf", "value.schema.id": "99"})).open()


@pytest.mark.parametrize(
    ("format", "kind", "words"),
    [
        ("json", StringType(), "have 'value' as string, and value.format=json needs a STRUCT"),
        ("text", STRUCT, "and value.format=text needs a STRING"),
        ("json", StructType([StructField("m", MapType(LongType(), LongType()))]), "which no JSON value has"),
    ],
)
def test_a_format_encodes_columns_of_its_type(format: str, kind: DataType, words: str) -> None:
    schema = StructType([StructField("value", kind)])
    with pytest.raises(SourceOptionError, match=words):
        KafkaBatchWriter(options(**{"value.format": format}), schema)
    assert ValueEncoding.of(options(**{"value.format": "text"}), StringType()) is None


def test_no_text_of_an_encoding_shows_the_password_of_the_registry(server: RegistryServer) -> None:
    given = options(server, **AVRO, **{"schema.registry.basic.auth.user.info": "me:pl4nt3d"})
    assert "pl4nt3d" not in f"{given!r} {encoding(given)!r}"

"""A query with a format of values: which columns are fields of the values, what a task makes of them, and what each mode does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.errors import MalformedValueError, SourceOptionError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.consumer_cache import ConsumerCache
from kstream_kafka.reader.typed_columns import TypedColumns
from kstream_kafka.structured.columns import columns_of, schema_of
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.partition_reads import KafkaInputPartition, PartitionReads
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kstream.offsets.offset_range import OffsetRange
from tests.kstream_kafka.arrow_of_spark import arrow_of_spark
from tests.kstream_kafka.fakes import FakeConsumer, Message
from tests.kstream_kafka.schemas.avro_orders import ORDER, A
from tests.kstream_kafka.schemas.protobuf_orders import Order, an_order
from tests.kstream_kafka.schemas.registry_server import registry_server

ID = StructField("id", LongType())
CORRUPT = StructField("_corrupt", StringType())
VALUE = StructType([ID, StructField("timestamp", StringType())])


def options(**given: str) -> SourceOptions:
    named = {name.replace("value_format", "value.format"): text for name, text in given.items()}
    return SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **named})


def columns(*fields: StructField, value_format: str = "json", **given: str) -> TypedColumns:
    found = columns_of(StructType(list(fields)), options(value_format=value_format, **given))
    assert isinstance(found, TypedColumns)
    return found


def refused(*fields: StructField, value_format: str = "json", **given: str) -> str:
    with pytest.raises(SourceOptionError) as caught:
        columns(*fields, value_format=value_format, **given)
    return str(caught.value)


# -- the columns


def test_a_column_that_no_record_has_is_a_field_of_the_value() -> None:
    found = columns(ID, StructField("offset", LongType()), StructField("value", BinaryType()), CORRUPT)
    assert found.names == ("id", "offset", "value", "_corrupt") and not found.is_struct
    assert found.values.fields == pa.schema([("id", pa.int64())])
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_struct_has_the_fields_of_the_value_whatever_their_names() -> None:
    found = columns(StructField("timestamp", TimestampType()), StructField("value", VALUE))
    assert found.is_struct and found.values.fields == pa.schema([("id", pa.int64()), ("timestamp", pa.string())])
    assert "has 'id' beside value STRUCT<…>" in refused(StructField("value", VALUE), ID)


@pytest.mark.parametrize("field", [StructField("timestamp", StringType()), StructField("value", DoubleType())])
def test_a_field_with_the_name_of_a_records_column_needs_the_struct(field: StructField) -> None:
    named = f"value STRUCT<{field.name}: {field.dataType.simpleString()}, …>"
    assert f"If it is a field of the value, name the fields as one struct: {named}." in refused(ID, field)


@pytest.mark.parametrize(
    "kind",
    [
        StringType(),
        ByteType(),
        IntegerType(),
        DoubleType(),
        DateType(),
        TimestampType(),
        TimestampNTZType(),
        DecimalType(20, 4),
        BinaryType(),
        ArrayType(StructType([StructField("a", TimestampType())])),
        MapType(StringType(), ArrayType(LongType())),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_a_field_has_the_type_that_spark_gives_to_arrow(kind: DataType) -> None:
    schema = StructType([StructField("x", kind)])
    assert columns(*schema.fields).values.fields.equals(arrow_of_spark(schema))


def test_what_cannot_be_a_schema_is_refused() -> None:
    assert "has the column 'id' twice" in refused(ID, ID)
    assert "has 'id' as NOT NULL" in refused(StructField("id", LongType(), nullable=False))
    deep = StructType([StructField("a", LongType(), nullable=False)])
    assert "has 'a' as NOT NULL" in refused(StructField("list", ArrayType(deep)))
    assert "names no field of the values" in refused(StructField("offset", LongType()))
    assert "has 'x' as interval, a type that no value has" in refused(StructField("x", CalendarIntervalType()))
    assert "which no JSON value has" in refused(StructField("x", MapType(LongType(), LongType())))
    assert "has the column '_corrupt' as int, and it is string" in refused(ID, StructField("_corrupt", IntegerType()))
    assert "in the mode fail it would always be null" in refused(ID, CORRUPT, mode="fail")


def test_json_needs_a_schema_and_text_has_one() -> None:
    with pytest.raises(SourceOptionError, match=r"is missing: with value\.format=json a query needs one"):
        schema_of(options(value_format="json"))
    assert schema_of(options(value_format="text")).simpleString().startswith("struct<key:binary,value:string,topic:string,")
    assert schema_of(options()) == schema_of(SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}))


def test_a_text_is_a_string() -> None:
    assert columns(StructField("value", StringType()), value_format="text").values.fields == pa.schema([("value", pa.string())])
    assert "the only field of a text is value STRING" in refused(ID, value_format="text")
    assert "names no field of the values" in refused(StructField("value", BinaryType()), value_format="text")


def test_the_options_are_checked() -> None:
    with pytest.raises(SourceOptionError, match="is 'yaml', one of: avro, protobuf, json, text"):
        options(value_format="yaml")
    with pytest.raises(SourceOptionError, match="belongs to a direct stream"):
        options(value_format="json", mode="dead-letter")
    with pytest.raises(SourceOptionError, match="Give permissive or fail"):
        options(value_format="json", mode="dropmalformed")
    with pytest.raises(SourceOptionError, match=r"Set the option value\.format, too"):
        options(mode="fail")
    assert (options(value_format="JSON", mode="FAIL").value_format, options(value_format="json").mode) == ("json", "permissive")


def test_with_a_registry_the_value_is_a_struct_of_the_schema_that_an_option_names() -> None:
    with registry_server() as server:
        write = AvroSerializer(SchemaRegistryClient({"url": server.url}), json.dumps(ORDER))
        value = write(A, SerializationContext("t", MessageField.VALUE))
        given = options(value_format="avro", **{"schema.registry.url": server.url, "value.schema.id": "1"})
        found = columns_of(schema_of(given), given)
        assert isinstance(found, TypedColumns) and found.is_struct
        assert found.values.open().decode(pa.array([value], pa.binary())).rows.to_pylist()[0]["customer"] == A["customer"]


def test_each_type_of_a_schema_of_a_registry_can_be_a_column() -> None:
    local = {"name": "at", "type": {"type": "long", "logicalType": "local-timestamp-micros"}}
    with registry_server() as server:
        server.register("local", json.dumps({"type": "record", "name": "Local", "fields": [local]}))
        ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), SerializationContext("t", MessageField.VALUE))
        for value_format, number, name, kind, arrow in (
            ("avro", "1", "at", TimestampNTZType(), pa.timestamp("us")),
            ("protobuf", "3", "took", DayTimeIntervalType(), pa.duration("us")),
        ):
            given = options(value_format=value_format, **{"schema.registry.url": server.url, "value.schema.id": number})
            schema = schema_of(given)
            chosen, value = columns_of(schema, given), schema["value"].dataType
            assert isinstance(chosen, TypedColumns) and isinstance(value, StructType)
            assert (value[name].dataType, chosen.values.fields.field(name).type) == (kind, arrow)


def test_the_options_of_a_registry_are_for_its_formats_and_hide_secrets() -> None:
    with pytest.raises(SourceOptionError, match=r"'schema\.registry\.url' .* Set the option value\.format to avro or protobuf"):
        options(value_format="json", **{"schema.registry.url": "http://h:1"})
    given = options(value_format="avro", **{"schema.registry.url": "http://h:1", "schema.registry.basic.auth.user.info": "me:pass-word"})
    assert "pass-word" not in f"{given!r} {columns_of(StructType([ID]), given)!r}"


# -- the tasks


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConsumer]:
    """The consumer of this process. The record 6 does not fit, and 7 is a tombstone."""
    bodies: dict[int, bytes | None] = {6: b'{"id":"six"}', 7: None}
    fake = FakeConsumer([[Message(i, payload=bodies.get(i, b'{"id":%d,"timestamp":"t"}' % i)) for i in range(5, 9)]])
    monkeypatch.setattr(consumer_cache, "_cache", ConsumerCache(lambda _: fake))
    return fake


def read(chosen: TypedColumns) -> pa.RecordBatch:
    partition = KafkaInputPartition((RangeSplit(OffsetRange("t", 0, 5, 9)),), {})
    [batch] = PartitionReads.of(options(), chosen).read(partition)
    return batch


def test_a_task_gives_fields_and_columns_of_records_in_the_order_of_the_query(consumer: FakeConsumer) -> None:
    schema = StructType([CORRUPT, StructField("offset", LongType()), ID, StructField("value", BinaryType())])
    batch = read(columns(*schema.fields))
    assert batch.schema.equals(arrow_of_spark(schema))
    assert batch.select(["_corrupt", "offset", "id"]).to_pydict() == {
        "_corrupt": [None, '{"id":"six"}', None, None],
        "offset": [5, 6, 7, 8],
        "id": [5, None, None, 8],
    }
    assert batch.column("value").to_pylist()[1:3] == [b'{"id":"six"}', None]


def test_a_task_gives_the_values_as_a_struct(consumer: FakeConsumer) -> None:
    expected: list[Any] = [{"id": 5, "timestamp": "t"}, None, None, {"id": 8, "timestamp": "t"}]
    assert read(columns(StructField("value", VALUE))).to_pydict() == {"value": expected}


def test_a_text_that_is_none_is_null_and_its_bytes_are_shown_as_they_can_be(consumer: FakeConsumer) -> None:
    consumer.script = [[Message(5, payload=b"a"), Message(6, payload=b"b\xff"), Message(7, payload=None), Message(8, payload=b"")]]
    batch = read(columns(StructField("value", StringType()), CORRUPT, value_format="text"))
    assert batch.to_pydict() == {"value": ["a", None, None, ""], "_corrupt": [None, "b\ufffd", None, None]}


def test_in_the_mode_fail_the_error_names_the_record(consumer: FakeConsumer) -> None:
    reason = "has in the field 'id' a string, not a whole number"
    with pytest.raises(MalformedValueError, match=f"t-0, offset 6: the value {reason}") as caught:
        read(columns(ID, mode="fail"))
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.reason) == ("t", 0, 6, reason)
    assert "six" not in str(caught.value)


def test_records_that_are_left_out_have_no_row() -> None:
    chosen = TypedColumns(("id", "offset"), columns(ID).values.__class__("json", pa.schema([("id", pa.int64())]), "dead-letter"))
    messages = [Message(5, payload=b'{"id":5}'), Message(6, payload=b"{"), Message(7, payload=None)]
    left_out: list[tuple[int, str]] = []
    chunks = [(OffsetRange("t", 0, 5, 8), list[Any](messages))]
    [batch] = chosen.record_batches(chunks, lambda message, reason: left_out.append((message.offset(), reason)))
    assert batch.to_pydict() == {"id": [5, None], "offset": [5, 7]}
    assert [offset for offset, _ in left_out] == [6]

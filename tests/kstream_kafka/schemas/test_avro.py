"""AvroDeserializer and AvroSerializer: the bytes of confluent_kafka's own serializers, logical types, evolution, and bad bytes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Generator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as ConfluentDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.errors import KafkaConfigError, SchemaRegistryUnreachableError
from kstream_kafka.schemas.avro import AvroDeserializer, AvroSerializer

from tests.kstream_kafka.schemas.avro_orders import ORDER, A
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

VALUE = SerializationContext("orders", MessageField.VALUE)
TEXT = json.dumps(ORDER)


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry({"url": server.url, "max.retries": 0})


def written(registry: SchemaRegistry, fields: list[dict[str, Any]], value: dict[str, Any]) -> bytes:
    """Return the bytes of a value of a record with these fields."""
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    raw = AvroSerializer(registry, schema, "orders-value")(value)
    assert raw is not None
    return raw


def test_values_of_confluents_serializer_are_decoded(server: RegistryServer, registry: SchemaRegistry):
    raw = ConfluentSerializer(SchemaRegistryClient({"url": server.url}), TEXT)(A, VALUE)
    assert AvroDeserializer(registry)(raw) == A


def test_confluents_deserializer_decodes_what_is_encoded_here_and_the_bytes_are_its_own(server: RegistryServer, registry: SchemaRegistry):
    client = SchemaRegistryClient({"url": server.url})
    raw = AvroSerializer(registry, TEXT, "orders-value")(A)
    assert raw == ConfluentSerializer(client, TEXT)(A, VALUE)
    assert ConfluentDeserializer(client)(raw, VALUE) == A


@pytest.mark.parametrize(("schema", "value"), [('"string"', "Zoë"), ("long", 7), ('{"type": "bytes"}', b"\0\1"), ("bytes", b"")])
def test_values_that_are_no_records(server: RegistryServer, registry: SchemaRegistry, schema: str, value: Any):
    text = schema if schema[0] in '{"' else f'"{schema}"'
    raw = AvroSerializer(registry, text, "s")(value)
    assert AvroDeserializer(registry)(raw) == value
    if value:  # confluent_kafka refuses a frame without a value
        assert ConfluentDeserializer(SchemaRegistryClient({"url": server.url}))(raw, VALUE) == value


def test_a_tombstone_stays_none(registry: SchemaRegistry):
    assert (AvroDeserializer(registry)(None), AvroSerializer(registry, TEXT, "orders-value")(None)) == (None, None)


def test_each_schema_is_asked_for_once_and_nothing_for_a_record(server: RegistryServer, registry: SchemaRegistry):
    encode = AvroSerializer(registry, TEXT, "orders-value")
    rows = [encode(A | {"id": i}) for i in range(20)]
    decode = AvroDeserializer(registry)
    assert [decode(raw)["id"] for raw in rows] == list(range(20))
    assert [pickle.loads(pickle.dumps(decode))(raw)["id"] for raw in rows] == list(range(20))
    assert server.requests == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]


def test_a_reader_schema_fills_what_is_new_drops_what_is_gone_and_widens_numbers(server: RegistryServer, registry: SchemaRegistry):
    old = written(registry, [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}], {"id": 1, "gone": "x"})
    new = written(registry, [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}], {"id": 2, "city": "Ulm"})
    fields = [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "-"}]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    by_id = server.register("reader", text)
    for own in (text, by_id):
        decode = AvroDeserializer(registry, own)
        assert [decode(old), decode(new)] == [{"id": 1, "city": "-"}, {"id": 2, "city": "Ulm"}]


def test_a_schema_with_references(server: RegistryServer, registry: SchemaRegistry):
    server.register("state", '{"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}')
    text = '{"type": "record", "name": "Order", "fields": [{"name": "state", "type": "State"}]}'
    number = server.register("orders-value", text, references=[{"name": "State", "subject": "state", "version": 1}])
    assert AvroDeserializer(registry)(b"\0" + number.to_bytes(4, "big") + b"\2") == {"state": "PAID"}


def test_bad_bytes_are_errors_of_their_record(server: RegistryServer, registry: SchemaRegistry):
    raw = written(registry, [{"name": "name", "type": "string"}], {"name": "Zoë"})
    other = server.register("proto", "CgA=", "PROTOBUF").to_bytes(4, "big")
    nulls = server.register("nulls", '{"type": "array", "items": "null"}').to_bytes(4, "big")
    decode = AvroDeserializer(registry)
    for bad, words in {
        b"": "begins with nothing",
        b'{"id": 1}': "begins with 7b 22 69 64 22, not with a zero byte",
        b"\0\0\0": "begins with 00 00 00",
        b"\0\0\0\0\x63xyz": f"{server.url} has no schema 99",
        b"\0" + other + b"xyz": "is of PROTOBUF, not of AVRO",
        raw[:-1]: "none of the Avro schema 1",
        raw + b"x": "none of the Avro schema 1: 1 bytes are left after it",
        raw[:6] + b"\xff" + raw[7:]: "none of the Avro schema 1: UnicodeDecodeError",
        b"\0" + nulls + b"\xfe\xff\xff\xff\x7f\0": "more than 1000 items without bytes",
    }.items():
        with pytest.raises(ValueError, match=words):
            decode(bad)
    assert decode(raw) == {"name": "Zoë"}


def test_a_registry_that_is_away_is_no_error_of_a_record(server: RegistryServer, registry: SchemaRegistry):
    server.failures = 1
    with pytest.raises(Exception, match="refuses a request"):
        AvroDeserializer(registry)(b"\0\0\0\0\1x")
    away = SchemaRegistry({"url": "http://127.0.0.1:9", "max.retries": 0})
    with pytest.raises(SchemaRegistryUnreachableError):
        AvroDeserializer(away)(b"\0\0\0\0\1x")


def test_a_schema_that_is_none_is_refused_at_the_call(registry: SchemaRegistry):
    with pytest.raises(KafkaConfigError, match="is no schema of Avro"):
        AvroDeserializer(registry, '{"type": "recrod", "name": "x"}')
    with pytest.raises(KafkaConfigError, match="is no schema of Avro"):
        AvroSerializer(registry, "{", "orders-value")

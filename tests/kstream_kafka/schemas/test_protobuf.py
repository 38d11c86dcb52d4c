"""ProtobufDeserializer and ProtobufSerializer: the bytes of confluent_kafka's own serializers, paths of messages, and bad bytes."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as ConfluentDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer

from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

VALUE = SerializationContext("orders", MessageField.VALUE)
FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "int64": FIELD.TYPE_INT64,
    "uint64": FIELD.TYPE_UINT64,
    "uint32": FIELD.TYPE_UINT32,
    "sint32": FIELD.TYPE_SINT32,
    "double": FIELD.TYPE_DOUBLE,
    "float": FIELD.TYPE_FLOAT,
    "bool": FIELD.TYPE_BOOL,
    "string": FIELD.TYPE_STRING,
    "bytes": FIELD.TYPE_BYTES,
}


def add_fields(message: Any, fields: dict[str, str]) -> None:
    """Add fields to the description of a message: name → type, after `optional` or `repeated` if it has that."""
    for number, (name, words) in enumerate(fields.items(), 1):
        label, _, kind = words.rpartition(" ")
        field = message.field.add(name=name, number=number, label=FIELD.LABEL_REPEATED if label == "repeated" else FIELD.LABEL_OPTIONAL)
        if kind in TYPES:
            field.type = TYPES[kind]
        else:
            field.type, field.type_name = FIELD.TYPE_ENUM if kind.endswith("State") else FIELD.TYPE_MESSAGE, kind
        if label == "optional":
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def classes() -> tuple[Any, Any, Any]:
    """Return the classes that protoc would generate of two files: Order, its nested Line, and Address of the imported file."""
    pool = DescriptorPool()
    for built_in in (duration_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(built_in.DESCRIPTOR.serialized_pb)
    imported = descriptor_pb2.FileDescriptorProto(name="shop/address.proto", package="shop", syntax="proto3")
    add_fields(imported.message_type.add(name="Address"), {"city": "string"})
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.extend(
        ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto", "shop/address.proto"]
    )
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    add_fields(entry, {"key": "string", "value": "double"})
    entry.options.map_entry = True
    add_fields(order.nested_type.add(name="Line"), {"n": "sint32"})
    add_fields(
        order,
        {
            "id": "int64",
            "customer": "string",
            "note": "optional string",
            "big": "uint64",
            "mid": "uint32",
            "part": "float",
            "paid": "bool",
            "raw": "bytes",
            "state": ".shop.State",
            "at": ".google.protobuf.Timestamp",
            "took": ".google.protobuf.Duration",
            "limit": ".google.protobuf.Int64Value",
            "address": ".shop.Address",
            "lines": "repeated .shop.Order.Line",
            "numbers": "repeated int64",
            "tags": "repeated .shop.Order.TagsEntry",
        },
    )
    pool.Add(imported)
    pool.Add(file)
    made = [GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in ("Order", "Order.Line", "Address")]
    return made[0], made[1], made[2]


Order, Line, Address = classes()
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
TOOK = timedelta(seconds=3, microseconds=5)


def an_order() -> Any:
    order = Order(id=2**40, customer="Zoë", note="", big=2**63, mid=2**31, part=0.5, paid=True, raw=b"\0\1", state=1, numbers=[1, -1])
    order.at.FromDatetime(AT)
    order.took.FromTimedelta(TOOK)
    order.limit.value = 0
    order.address.city = "Ulm"
    order.lines.add(n=1)
    order.lines.add(n=-2)
    order.tags["a"] = 0.5
    return order


A: dict[str, Any] = {
    "id": 2**40,
    "customer": "Zoë",
    "note": "",
    "big": 2**63,
    "mid": 2**31,
    "part": 0.5,
    "paid": True,
    "raw": b"\0\1",
    "state": "PAID",
    "at": AT,
    "took": TOOK,
    "limit": 0,
    "address": {"city": "Ulm"},
    "lines": [{"n": 1}, {"n": -2}],
    "numbers": [1, -1],
    "tags": {"a": 0.5},
}
EMPTY = {"note": None, "at": None, "took": None, "limit": None, "address": None, "lines": [], "numbers": [], "tags": {}}
"""What can be told from a default in an order that has nothing."""


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry({"url": server.url, "max.retries": 0})


def test_messages_of_confluents_serializer_become_dicts(server: RegistryServer, registry: SchemaRegistry):
    write = ConfluentSerializer(Order, SchemaRegistryClient({"url": server.url}))
    decode = ProtobufDeserializer(registry)
    assert decode(write(an_order(), VALUE)) == A
    empty = decode(write(Order(), VALUE))
    assert {name: empty[name] for name in EMPTY} == EMPTY
    assert (empty["id"], empty["state"], empty["customer"]) == (0, "NEW", "")


def test_the_bytes_are_those_of_confluents_serializer_and_it_reads_them(server: RegistryServer, registry: SchemaRegistry):
    client = SchemaRegistryClient({"url": server.url})
    raw = ProtobufSerializer(registry, Order, "orders-value")(an_order())
    assert raw == ConfluentSerializer(Order, client)(an_order(), VALUE)
    assert ConfluentDeserializer(Order, schema_registry_client=client)(raw, VALUE) == an_order()
    assert ProtobufDeserializer(registry)(raw) == A


def test_a_nested_message_and_one_that_is_not_the_first_of_its_file(server: RegistryServer, registry: SchemaRegistry):
    raw = ProtobufSerializer(registry, Line, "lines-value")(Line(n=-7))
    assert raw == ConfluentSerializer(Line, SchemaRegistryClient({"url": server.url}))(Line(n=-7), SerializationContext("lines", "value"))
    assert raw is not None and raw[5:8] == bytes((4, 0, 2))  # two parts: the first message, the second of its nested ones
    assert ProtobufDeserializer(registry)(raw) == {"n": -7}


def test_messages_of_a_generated_class_need_no_registry():
    away = SchemaRegistry({"url": "http://127.0.0.1:9", "max.retries": 0})
    raw = b"\0\0\0\0\7\0" + an_order().SerializeToString()
    assert ProtobufDeserializer(away, Order)(raw) == an_order()


def test_a_tombstone_stays_none(registry: SchemaRegistry):
    assert (ProtobufDeserializer(registry)(None), ProtobufSerializer(registry, Order, "s")(None)) == (None, None)


def test_each_file_is_asked_for_once_and_nothing_for_a_record(server: RegistryServer, registry: SchemaRegistry):
    encode = ProtobufSerializer(registry, Order, "orders-value")
    rows = [encode(Order(id=i)) for i in range(20)]
    asked = len(server.requests)
    decode = ProtobufDeserializer(registry)
    for decoder in (decode, pickle.loads(pickle.dumps(decode))):
        assert [decoder(raw)["id"] for raw in rows] == list(range(20))
    assert server.asked_for(2) == 1
    assert len(server.requests) <= asked + 2  # the file, and the one that it imports


def test_bad_bytes_are_errors_of_their_record(server: RegistryServer, registry: SchemaRegistry):
    raw = ProtobufSerializer(registry, Order, "orders-value")(an_order())
    avro = server.register("text", '"string"').to_bytes(4, "big")
    assert raw is not None
    decode = ProtobufDeserializer(registry)
    for bad, words in {
        b"{}": "begins with 7b 7d",
        raw[:5]: "cut off",
        raw[:5] + b"\xfe" * 20: "cut off",
        raw[:5] + b"\x03x": "has -2 parts",
        raw[:5] + b"\x02\x08" + raw[6:]: "has no message 4",
        b"\0\0\0\0\x63\0": "has no schema 99",
        b"\0" + avro + b"\0": "is of AVRO, not of PROTOBUF",
        raw[:-1]: "none of the Protobuf schema 2: DecodeError",
    }.items():
        with pytest.raises(ValueError, match=words):
            decode(bad)


def test_a_value_of_another_class_is_refused(registry: SchemaRegistry):
    with pytest.raises(TypeError, match="is a Line, and Order is to be written"):
        ProtobufSerializer(registry, Order, "orders-value")(Line())

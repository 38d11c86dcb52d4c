"""Orders in Protobuf: their file and their messages."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

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

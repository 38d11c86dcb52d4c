"""ProtobufRows: rows of a frame as Protobuf messages, byte for byte those of confluent_kafka's serializer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.schemas.plain_rows import plain_rows
from kstream_kafka.schemas.protobuf import ProtobufDeserializer
from kstream_kafka.schemas.protobuf_fields import natural
from kstream_kafka.schemas.protobuf_rows import ProtobufRows

from tests.kstream_kafka.schemas.protobuf_orders import EMPTY, FIELD, VALUE, A, Order, add_fields, an_order
from tests.kstream_kafka.schemas.registry_server import registry_server

COLUMNS = pa.struct([(field.name, natural(field)) for field in Order.DESCRIPTOR.fields])


def encode(rows: list[Any], columns: pa.StructType = COLUMNS, number: int = 2) -> list[bytes]:
    encoder = ProtobufRows(Order, number, columns)
    return [encoder(one) for one in plain_rows(pa.array(rows, columns), columns)]


def row(**changed: Any) -> dict[str, Any]:
    return {**A, "tags": list(A["tags"].items()), **changed}


def test_the_bytes_are_those_of_confluents_serializer() -> None:
    with registry_server() as server:
        expected = ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), VALUE)
    assert encode([row()]) == [expected]


def test_what_is_null_is_not_set() -> None:
    with registry_server() as server:
        ProtobufSerializer(Order, SchemaRegistryClient({"url": server.url}))(an_order(), VALUE)
        (raw,) = encode([dict.fromkeys(A)])
        found = ProtobufDeserializer(SchemaRegistry(server.url))(raw)
    assert {name: found[name] for name in EMPTY} == EMPTY and len(raw) == 6


def test_a_duration_before_zero_and_an_enum_without_a_name() -> None:
    (raw,) = encode([{"took": timedelta(seconds=-1, microseconds=-5), "state": "7"}])
    found = Order.FromString(raw[6:])
    assert (found.took.seconds, found.took.nanos, found.state) == (-1, -5000, 7)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (("nothing", pa.int32()), "the message shop.Order has no field nothing"),
        (("id", pa.string()), "the field id is int64, and the column is string"),
        (("part", pa.float64()), "the field part is float, and the column is double"),
        (("numbers", pa.int64()), "the field numbers is a list of int64"),
        (("address", pa.struct([("town", pa.string())])), "has no field address.town"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_row(column: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode([], pa.struct([column]))


@pytest.mark.parametrize(
    ("columns", "value", "words"),
    [
        ([("mid", pa.int64())], {"mid": 2**40 + 12345}, "has in the field 'mid' what its message cannot have: ValueError"),
        ([("state", pa.string())], {"state": "SECRET12345"}, "has in the field 'state' what"),
        ([("numbers", pa.list_(pa.int64()))], {"numbers": [12345, None]}, "has in the field 'numbers' what"),
        ([("lines", pa.list_(pa.struct([("n", pa.int64())])))], {"lines": [{"n": 2**40 + 12345}]}, r"has in the field 'lines\.n' what"),
        ([("lines", pa.list_(pa.struct([("n", pa.int32())])))], {"lines": [None]}, "has in the field 'lines' what"),
    ],
)
def test_a_row_that_does_not_fit_is_an_error_that_names_the_field_and_shows_nothing(columns: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        encode([value], pa.struct(columns))
    assert "12345" not in str(caught.value)


def a_payment() -> Any:
    """Return a message of which one of two fields can be set, and a third, which is optional."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/payment.proto", package="shop", syntax="proto3")
    payment = file.message_type.add(name="Payment")
    payment.oneof_decl.add(name="way")
    add_fields(payment, {"card": "string", "cash": "int64", "note": "optional string"})
    for field in payment.field[:2]:
        field.oneof_index = 0
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Payment"))


def test_a_row_with_two_fields_of_a_oneof_is_an_error() -> None:
    payment = a_payment()
    encoder = ProtobufRows(payment, 2, pa.struct([("card", pa.string()), ("cash", pa.int64()), ("note", pa.string())]))
    found = payment.FromString(encoder({"card": None, "cash": 7, "note": "n"})[6:])
    assert (found.WhichOneof("way"), found.cash, found.note) == ("cash", 7, "n")
    with pytest.raises(ValueError, match=r"^has a value in the field 'cash' and in another one of the oneof 'way'$"):
        encoder({"card": "SECRET", "cash": 7, "note": None})


def a_parcel() -> Any:
    """Return a message of proto2 with a required field, inside of a message too."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/parcel.proto", package="shop", syntax="proto2")
    add_fields(file.message_type.add(name="Box"), {"size": "int64", "color": "string"})
    add_fields(file.message_type.add(name="Parcel"), {"id": "int64", "box": ".shop.Box", "note": "string"})
    for message in file.message_type:
        message.field[0].label = FIELD.LABEL_REQUIRED
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Parcel"))


def test_a_required_field_has_a_column_and_is_not_null() -> None:
    parcel, box = a_parcel(), pa.struct([("size", pa.int64())])
    encoder = ProtobufRows(parcel, 2, pa.struct([("id", pa.int64()), ("box", box)]))
    assert encoder({"id": 1, "box": None})[6:] == b"\x08\1"
    with pytest.raises(ValueError, match="has null in the field 'id', which its message requires"):
        encoder({"id": None, "box": {"size": 12345}})
    with pytest.raises(ValueError, match=r"has null in the field 'box\.size', which its message requires"):
        encoder({"id": 12345, "box": {"size": None}})
    colored = pa.struct([("color", pa.string())])
    for columns, name in (([("note", pa.string())], "id"), ([("id", pa.int64()), ("box", colored)], r"box\.size")):
        with pytest.raises(ValueError, match=f"the field {name} is required and has no column"):
            ProtobufRows(parcel, 2, pa.struct(columns))

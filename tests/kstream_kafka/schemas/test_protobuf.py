"""ProtobufDeserializer and ProtobufSerializer: the bytes of confluent_kafka's own serializers, paths of messages, and bad bytes."""

from __future__ import annotations

import base64
import contextlib
import pickle
import sys
from collections.abc import Generator
from importlib.abc import MetaPathFinder
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as ConfluentDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentSerializer
from confluent_kafka.serialization import SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from kstream_kafka.schemas.protobuf_schema import ProtobufSchema

from kstream.errors import MissingDependencyError
from tests.kstream_kafka.schemas.protobuf_orders import EMPTY, VALUE, A, Line, Order, an_order
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server


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


def test_damaged_paths_of_messages_leave_nothing_in_a_worker(registry: SchemaRegistry):
    raw = ProtobufSerializer(registry, Order, "orders-value")(an_order())
    assert raw is not None
    for decode in (ProtobufDeserializer(registry), ProtobufDeserializer(registry, Order)):
        kept: dict[Any, Any] = decode._reads  # pyright: ignore[reportPrivateUsage]
        for part in range(10, 60):
            with contextlib.suppress(ValueError):
                decode(raw[:5] + bytes((4, 0, 2 * part)) + raw[6:])
        assert len(kept) == 0


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


def a_file_that_imports(name: str) -> ProtobufSchema:
    """Return a file of one message, as a registry has it, that imports another file."""
    file = FileDescriptorProto(name="a.proto", syntax="proto3", dependency=[name])
    file.message_type.add(name="A")
    return ProtobufSchema(base64.standard_b64encode(file.SerializeToString()).decode())


class WithoutGoogleTypes(MetaPathFinder):
    """The imports of a Python without googleapis-common-protos."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "google.type":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def test_a_missing_package_of_an_import_is_no_fault_of_the_value(monkeypatch: pytest.MonkeyPatch):
    for module in ("google.type", "google.type.money_pb2"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutGoogleTypes(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match=r"google/type/money\.proto needs a package that is missing .*pip install"):
        a_file_that_imports("google/type/money.proto").message_class((0,))


def test_an_import_that_no_package_has_is_the_fault_of_the_schema():
    for name in ("google/type/none.proto", "shop/none.proto"):
        with pytest.raises(ValueError, match="protobuf cannot use its schema: ModuleNotFoundError"):
            a_file_that_imports(name).message_class((0,))

"""The format `protobuf`, without Spark: messages of confluent_kafka's serializer as columns, and values that do not fit."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from kstream_kafka.client import unknown_ids
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.value_formats import FORMATS, DecodedValues, ValueSchema

from tests.kstream_kafka.reader.value_format_contract import ValueFormatContract, binary
from tests.kstream_kafka.schemas.protobuf_orders import EMPTY, VALUE, A, Line, Order, an_order
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("note", pa.string()),
        ("big", pa.decimal128(20, 0)),
        ("mid", pa.int64()),
        ("part", pa.float32()),
        ("paid", pa.bool_()),
        ("raw", pa.binary()),
        ("state", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")),
        ("limit", pa.int64()),
        ("address", pa.struct([("city", pa.string())])),
        ("lines", pa.list_(pa.struct([("n", pa.int32())]))),
        ("numbers", pa.list_(pa.int64())),
        ("tags", pa.map_(pa.string(), pa.float64())),
    ]
)
ROW: dict[str, Any] = {**A, "big": Decimal(2**63), "tags": [("a", 0.5)]}
"""The order A as Arrow has it."""


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


def written(server: RegistryServer, *messages: Any) -> list[bytes]:
    """Return messages of one class as confluent_kafka writes them."""
    write = ProtobufSerializer(type(messages[0]), SchemaRegistryClient({"url": server.url}))
    return [raw for message in messages if (raw := write(message, VALUE)) is not None]


def decoded(server: RegistryServer, columns: Mapping[str, pa.DataType], *values: bytes | None) -> DecodedValues:
    options = {"schema.registry.url": server.url, "schema.registry.max.retries": "0"}
    return ValueSchema("protobuf", pa.schema(list(columns.items())), options=options).open().decode(binary(*values))


class TestProtobuf(ValueFormatContract):
    @pytest.fixture(autouse=True)
    def values(self, server: RegistryServer) -> None:
        self.schema = ValueSchema("protobuf", COLUMNS, options={"schema.registry.url": server.url})
        (self.good,) = written(server, an_order())
        self.bad = self.good[:-3]

    def test_every_type_of_protobuf_becomes_a_column(self, server: RegistryServer):
        assert self.decoded(self.good).rows.to_pylist() == [ROW]
        (empty,) = self.decoded(*written(server, Order())).rows.to_pylist()
        assert {name: empty[name] for name in EMPTY} == {**EMPTY, "tags": []}

    def test_a_query_that_names_no_column_has_those_of_the_first_message_of_the_file(self, server: RegistryServer):
        fields = FORMATS["protobuf"].fields
        assert fields is not None
        assert fields({"schema.registry.url": server.url, "value.schema.id": "2"}) == COLUMNS
        with pytest.raises(SourceOptionError, match=r"value\.schema\.id.*has no schema 9"):
            fields({"schema.registry.url": server.url, "value.schema.id": "9"})


def test_only_the_columns_that_are_asked_for_and_messages_of_several_classes(server: RegistryServer):
    lines = pa.list_(pa.struct([("n", pa.int64()), ("none", pa.string())]))
    (order,), (line,) = written(server, an_order()), written(server, Line(n=3))
    found = decoded(server, {"lines": lines, "n": pa.int32()}, order, line)
    assert found.rows.to_pylist() == [
        {"lines": [{"n": 1, "none": None}, {"n": -2, "none": None}], "n": None},
        {"lines": None, "n": 3},
    ]


def test_a_task_decodes_values_of_a_file_that_the_registry_knows_a_minute_later(server: RegistryServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unknown_ids, "UNKNOWN_FOR_S", 0.0)
    (raw,) = written(server, Order(id=1))
    schema = ValueSchema("protobuf", pa.schema([("id", pa.int64())]), options={"schema.registry.url": server.url})
    decoder, server.lag = schema.open(), 100
    assert [bad.row for bad in decoder.decode(binary(raw)).malformed] == [0]
    server.lag = 0
    assert decoder.decode(binary(raw)).rows.to_pylist() == [{"id": 1}]


def test_damaged_paths_of_messages_leave_nothing_in_a_task(server: RegistryServer):
    (good,) = written(server, Order(id=1))
    decoder: Any = ValueSchema("protobuf", pa.schema([("id", pa.int64())]), options={"schema.registry.url": server.url}).open()
    for part in range(10, 60):
        (bad,) = decoder.decode(binary(good[:5] + bytes((2, 2 * part)) + good[6:])).malformed
        assert bad.reason == f"does not fit: its schema has no message {part}"
    assert len(decoder._readers) == 0


def test_what_does_not_fit_says_why(server: RegistryServer):
    (good,) = written(server, Order(big=2**63))
    found = decoded(server, {"big": pa.int64()}, b"{}", good[:5], b"\0\0\0\0\x63\0", good[:-1], good)
    assert [bad.reason for bad in found.malformed[:3]] == [
        "has no frame of a schema registry",
        "is no value of Protobuf: the path of the message is cut off",
        f"does not fit: the schema registry {server.url} has no schema 99",
    ]
    assert "is none of its Protobuf schema" in found.malformed[3].reason and "is out of range" in found.malformed[4].reason
    (text,) = decoded(server, {"id": pa.string()}, good).malformed
    assert text.reason == "does not fit: the field id is int64, and the column is string"

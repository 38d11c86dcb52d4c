"""The format `avro`, without Spark: values of confluent_kafka's serializer as columns, evolution, and values that do not fit."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.client import unknown_ids
from kstream_kafka.client.unknown_ids import AGAIN_AFTER_S
from kstream_kafka.errors import SchemaRegistryUnreachableError, SourceOptionError
from kstream_kafka.reader.value_formats import FORMATS, DecodedValues, ValueSchema

from tests.kstream_kafka.reader.value_format_contract import ValueFormatContract, binary
from tests.kstream_kafka.schemas.avro_orders import COLUMNS, ORDER, ROW, UTC, A
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


def written(server: RegistryServer, fields: list[dict[str, Any]], *values: Mapping[str, Any]) -> list[bytes]:
    """Return values of a record of these fields, as confluent_kafka writes them."""
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    write = AvroSerializer(SchemaRegistryClient({"url": server.url}), schema)
    return [raw for value in values if (raw := write(value, VALUE)) is not None]


def decoded(server: RegistryServer, columns: Mapping[str, pa.DataType], *values: bytes | None, **options: str) -> DecodedValues:
    given = {"schema.registry.url": server.url, "schema.registry.max.retries": "0", **{k.replace("_", "."): v for k, v in options.items()}}
    return ValueSchema("avro", pa.schema(list(columns.items())), options=given).open().decode(binary(*values))


class TestAvro(ValueFormatContract):
    @pytest.fixture(autouse=True)
    def values(self, server: RegistryServer) -> None:
        self.schema = ValueSchema("avro", COLUMNS, options={"schema.registry.url": server.url})
        (self.good,) = written(server, ORDER["fields"], A)
        self.bad = self.good[:-3]

    def test_every_type_of_avro_becomes_a_column(self):
        assert self.decoded(self.good).rows.to_pylist() == [ROW]

    def test_a_query_that_names_no_column_has_those_of_the_schema(self, server: RegistryServer):
        fields = FORMATS["avro"].fields
        assert fields is not None
        assert fields({"schema.registry.url": server.url, "value.schema.id": "1"}) == COLUMNS


def test_only_the_columns_that_are_asked_for_in_their_order_and_wider_ones(server: RegistryServer):
    columns = {
        "tags": COLUMNS.field("tags").type,
        "none": pa.int32(),
        "total": pa.decimal128(38, 6),
        "lines": pa.list_(pa.struct([("n", pa.int64())])),
    }
    found = decoded(server, columns, *written(server, ORDER["fields"], A))
    assert found.rows.to_pylist() == [{"tags": [("a", 0.5)], "none": None, "total": Decimal("12.300000"), "lines": [{"n": 1}, {"n": -2}]}]


def test_values_of_several_schemas_stay_in_their_order(server: RegistryServer):
    old = written(server, [{"name": "id", "type": "int"}], {"id": 1}, {"id": 3})
    new = written(server, [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}], {"id": 2, "city": "Ulm"})
    found = decoded(server, {"id": pa.int64(), "city": pa.string()}, old[0], new[0], None, old[1])
    assert found.rows.to_pylist() == [{"id": 1, "city": None}, {"id": 2, "city": "Ulm"}, None, {"id": 3, "city": None}]


def test_a_readers_schema_gives_defaults_and_renames_by_aliases(server: RegistryServer):
    (raw,) = written(server, [{"name": "nr", "type": "int"}], {"nr": 1})
    fields = [{"name": "id", "type": "long", "aliases": ["nr"]}, {"name": "city", "type": "string", "default": "-"}]
    number = server.register("reader", json.dumps({"type": "record", "name": "Order", "fields": fields}))
    found = decoded(server, {"id": pa.int64(), "city": pa.string()}, raw, value_schema_id=str(number))
    assert found.rows.to_pylist() == [{"id": 1, "city": "-"}]


def test_a_named_type_of_a_field_that_nobody_asks_for(server: RegistryServer):
    state = {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}
    (raw,) = written(server, [{"name": "was", "type": state}, {"name": "is", "type": "State"}], {"was": "NEW", "is": "PAID"})
    assert decoded(server, {"is": pa.string()}, raw).rows.to_pylist() == [{"is": "PAID"}]


def test_each_schema_is_asked_for_once_however_many_values_and_chunks(server: RegistryServer):
    rows = written(server, [{"name": "id", "type": "int"}], *({"id": i} for i in range(100)))
    schema = ValueSchema("avro", pa.schema([("id", pa.int32())]), options={"schema.registry.url": server.url})
    for decoder in (schema.open(), schema.open()):
        for _ in range(3):
            decoder.decode(binary(*rows, b"\0\0\0\0\x4d1"))
    assert (server.asked_for(1), server.asked_for(77)) == (1, 1 + len(AGAIN_AFTER_S))


def test_a_task_decodes_values_of_a_schema_that_the_registry_knows_a_minute_later(server: RegistryServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unknown_ids, "UNKNOWN_FOR_S", 0.0)
    (raw,) = written(server, [{"name": "id", "type": "int"}], {"id": 1})
    schema = ValueSchema("avro", pa.schema([("id", pa.int32())]), options={"schema.registry.url": server.url})
    decoder, server.lag = schema.open(), 100
    assert [bad.row for bad in decoder.decode(binary(raw)).malformed] == [0]
    server.lag = 0
    assert decoder.decode(binary(raw)).rows.to_pylist() == [{"id": 1}]


def test_what_does_not_fit_says_why(server: RegistryServer):
    good, long = written(server, [{"name": "name", "type": "string"}], {"name": "Zoë"}, {"name": "Zoë" * 9})
    (number,) = written(server, [{"name": "name", "type": "int"}], {"name": 7})
    text = server.register("text", '"string"').to_bytes(4, "big")
    bad = [b"", b'{"name": 1}', b"\0\0\0\0\x63x", b"\0" + text + b"\2x", number, good[:-1], good + b"x", good[:6] + b"\xff" + good[7:]]
    found = decoded(server, {"name": pa.string()}, *bad, good, long)
    reasons = [bad.reason for bad in found.malformed]
    assert reasons[:5] == [
        "has no frame of a schema registry",
        "has no frame of a schema registry",
        f"does not fit: the schema registry {server.url} has no schema 99",
        "does not fit: the schema is string, and only the fields of a record are columns",
        "does not fit: the field name is int, and the column is string",
    ]
    assert all(reason.startswith("is none of its Avro schema: ") for reason in reasons[5:])
    assert "more or fewer bytes than the schema asks for" in reasons[6] and "UnicodeDecodeError" in reasons[7]
    assert found.rows.to_pylist() == [None] * 8 + [{"name": "Zoë"}, {"name": "Zoë" * 9}]


def test_a_value_that_is_cut_off_takes_nothing_of_the_next_one(server: RegistryServer):
    one, two = written(server, [{"name": "name", "type": "string"}], {"name": "a" * 20}, {"name": "b"})
    found = decoded(server, {"name": pa.string()}, one[:-10], two)
    assert (found.rows.to_pylist(), [bad.row for bad in found.malformed]) == ([None, {"name": "b"}], [0])


def test_a_damaged_count_reads_no_byte_of_the_values_behind_it(server: RegistryServer):
    """The list of one number says that it has 50: they would be the bytes of the values behind it."""
    good = written(server, [{"name": "n", "type": {"type": "array", "items": "int"}}], *({"n": [1]} for _ in range(50)))
    assert good[0][5:] == b"\2\2\0"
    (bad,) = decoded(server, {"n": pa.list_(pa.int32())}, good[0][:5] + b"\x64\2\0", *good[1:]).malformed
    assert bad == (0, "is none of its Avro schema: EOFError: ")


def test_a_damaged_count_of_items_without_bytes_makes_no_more_objects_than_a_value_may_have(server: RegistryServer):
    """The list of one null says that it has 2**62 of them."""
    fields = [{"name": "n", "type": {"type": "array", "items": "null"}}, {"name": "id", "type": "int"}]
    (good,) = written(server, fields, {"n": [None], "id": 7})
    found = decoded(server, {"id": pa.int32()}, good[:5] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0\x0e", good)
    assert found.malformed == [(0, "is none of its Avro schema: ValueError: it has more than 1000 items without bytes")]
    assert found.rows.to_pylist() == [None, {"id": 7}]


def test_a_timestamp_after_the_last_year_of_arrow_is_the_fault_of_its_value(server: RegistryServer):
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    rows = written(server, [at], {"at": 1_790_000_000_000}, {"at": 2**62})
    found = decoded(server, {"at": UTC}, *rows)
    assert [bad.row for bad in found.malformed] == [1] and "out of range" in found.malformed[0].reason
    assert found.rows.to_pylist() == [{"at": datetime.fromtimestamp(1_790_000_000, timezone.utc)}, None]


def test_a_record_that_contains_itself_has_no_columns(server: RegistryServer):
    tree = [{"name": "left", "type": ["null", "Order"], "default": None}]
    (raw,) = written(server, tree, {"left": {"left": None}})
    assert [bad.reason for bad in decoded(server, {"left": pa.string()}, raw).malformed] == [
        "does not fit: the record Order contains itself, and no type of a column does"
    ]


def test_the_options_must_name_a_schema_that_is_there_if_the_query_names_no_columns(server: RegistryServer):
    fields = FORMATS["avro"].fields
    assert fields is not None
    url = {"schema.registry.url": server.url}
    for options, words in {"": "is missing", "x": "must be a number", "9": "has no schema 9"}.items():
        with pytest.raises(SourceOptionError, match=rf"value\.schema\.id.*{words}"):
            fields(url | ({"value.schema.id": options} if options else {}))


def test_a_registry_that_is_away_is_the_fault_of_no_value():
    with registry_server() as closed:
        options = {"schema.registry.url": closed.url, "schema.registry.max.retries": "0"}
    decoder = ValueSchema("avro", pa.schema([("id", pa.int32())]), options=options).open()
    with pytest.raises(SchemaRegistryUnreachableError):
        decoder.decode(binary(b"\0\0\0\0\1x"))


def test_damaged_values_are_decoded_as_fastavro_does_or_do_not_fit(server: RegistryServer):
    """Every value with one bit changed: it is what fastavro reads from these bytes alone, or it is malformed."""
    fields = [field for field in ORDER["fields"] if field["name"] in ("id", "customer", "state", "lines")]
    (good,) = written(server, fields, A)
    damaged = [good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :] for at in range(5, len(good)) for bit in (1, 0x80)]
    found = decoded(server, {"id": pa.int64(), "customer": pa.string()}, *damaged)
    bad = {one.row for one in found.malformed}
    schema = fastavro.parse_schema({"type": "record", "name": "Order", "fields": fields})
    for row in set(range(len(damaged))) - bad:
        alone = fastavro.schemaless_reader(BytesIO(damaged[row][5:]), schema, None)
        assert isinstance(alone, dict)
        assert found.rows[row].as_py() == {"id": alone["id"], "customer": alone["customer"]}
    assert 0 < len(bad) < len(damaged)

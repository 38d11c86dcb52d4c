"""Values of a schema registry to columns of Arrow, against confluent_kafka's deserializers record by record, in one run.

    python -m integration.benchmarks.registry_values [--records N] [--rounds N]

The run needs neither Kafka nor Spark. Chunks of orders have six fields; one may be null, one is a timestamp. confluent_kafka makes a dict
or a message of each value; the formats `avro` and `protobuf` make typed columns of the chunk. In other chunks one value of a hundred is cut
short. The sides take turns.

The bars: Avro is twice as fast, and the values that do not fit cost a tenth of the time at most.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kstream_kafka.reader.value_formats import ValueSchema

from integration.benchmarks.harness import parser_of, seconds_in_turns
from tests.kstream_kafka.schemas.protobuf_orders import Order
from tests.kstream_kafka.schemas.registry_server import registry_server

FASTER, COSTS = 2.0, 1.1
"""How many times as fast as confluent_kafka the columns of Avro are, and how much longer a chunk takes with one bad value of a hundred."""
VALUE = SerializationContext("orders", MessageField.VALUE)
FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": "string"},
    {"name": "part", "type": "double"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "mid", "type": "int"},
]
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
AVRO = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("part", pa.float64()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("mid", pa.int32()),
    ]
)
PROTOBUF = AVRO.set(5, pa.field("mid", pa.int64()))
"""The same fields, of which Protobuf has `mid` as uint32."""


def order(i: int) -> dict[str, Any]:
    """Return an order without its time."""
    return {"id": 1_000_000_000 + i, "customer": f"customer-{i % 9973}", "part": i / 8, "note": "EUR" if i % 3 else None, "mid": i % 100}


def avro_values(client: SchemaRegistryClient, records: int) -> list[bytes]:
    write = AvroSerializer(client, SCHEMA)
    return [raw for i in range(records) if (raw := write(order(i) | {"at": 1_790_000_000_000 + i}, VALUE)) is not None]


def protobuf_values(client: SchemaRegistryClient, records: int) -> list[bytes]:
    write = ProtobufSerializer(Order, client)
    values: list[bytes] = []
    for i in range(records):
        message = Order(**order(i))
        message.at.FromMilliseconds(1_790_000_000_000 + i)
        raw = write(message, VALUE)
        assert raw is not None
        values.append(raw)
    return values


def with_bad(values: list[bytes]) -> list[bytes]:
    """Return the values, one of a hundred cut short."""
    return [raw[:-2] if i % 100 == 50 else raw for i, raw in enumerate(values)]


def report(name: str, records: int, took: dict[str, list[float]], faster: float | None) -> bool:
    """Print the ratios of a format. Return whether its bars are met."""
    median = {side: statistics.median(times) for side, times in took.items()}
    ratio, costs = median["each"] / median["columns"], median["bad"] / median["columns"]
    met = faster is None or ratio >= faster
    bar = "" if faster is None else f" (bar ≥ {faster})"
    print(f"{'ok  ' if met else 'MISS'} {name}: columns against confluent_kafka record by record {ratio:5.2f}{bar}")
    print(f"{'ok  ' if costs <= COSTS else 'MISS'} {name}: with 1 % of bad values {costs:5.2f} (bar ≤ {COSTS})")
    print("     " + ", ".join(f"{side} {records / took_s / 1e3:.0f} k/s" for side, took_s in median.items()))
    return met and costs <= COSTS


def main() -> int:
    options = parser_of(__doc__, records=10_000, rounds=15).parse_args()
    ok = True
    with registry_server() as server:
        client = SchemaRegistryClient({"url": server.url})
        formats: list[tuple[str, pa.Schema, list[bytes], Callable[[bytes], Any], float | None]] = []
        avro, protobuf = AvroDeserializer(client), ProtobufDeserializer(Order, schema_registry_client=client)
        formats.append(("avro", AVRO, avro_values(client, options.records), lambda raw: avro(raw, VALUE), FASTER))
        formats.append(("protobuf", PROTOBUF, protobuf_values(client, options.records), lambda raw: protobuf(raw, VALUE), None))
        for name, fields, values, decode, faster in formats:
            decoder = ValueSchema(name, fields, options={"schema.registry.url": server.url}).open()
            good, bad = pa.array(values, pa.binary()), pa.array(with_bad(values), pa.binary())
            assert not decoder.decode(good).malformed and len(decoder.decode(bad).malformed) == (options.records + 49) // 100
            sides: dict[str, Callable[[], Any]] = {
                "each": lambda decode=decode, values=values: [decode(raw) for raw in values],
                "columns": lambda decoder=decoder, good=good: decoder.decode(good),
                "bad": lambda decoder=decoder, bad=bad: decoder.decode(bad),
            }
            ok &= report(name, options.records, seconds_in_turns(sides, options.rounds, warm_up=1), faster)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())

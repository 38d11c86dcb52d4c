"""Orders in Avro: their schema and a value."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}


A: dict[str, Any] = {
    "id": 2**40,
    "customer": "Zoë",
    "total": Decimal("12.30"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, timezone.utc),
    "seen": datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc),
    "token": UUID("12345678-1234-5678-1234-567812345678"),
    "state": "PAID",
    "lines": [{"n": 1}, {"n": -2}],
    "tags": {"a": 0.5},
}


UTC = pa.timestamp("us", "UTC")
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("total", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", UTC),
        ("seen", UTC),
        ("token", pa.string()),
        ("state", pa.string()),
        ("lines", pa.list_(pa.struct([("n", pa.int32())]))),
        ("tags", pa.map_(pa.string(), pa.float64())),
    ]
)
"""The fields of an order as Arrow has them."""
ROW: dict[str, Any] = {**A, "token": str(A["token"]), "tags": [("a", 0.5)]}
"""The order A as Arrow has it."""

"""Kafka messages as Arrow record batches, built in the workers: a column at a time, never a row.

The columns are those of Spark's Kafka source, in its order and types. Rows go to the JVM as Arrow, so nothing is pickled.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kstream_kafka.offset_range import OffsetRange

DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
"""The schema as Spark reads it; without headers its last column is left out."""
DDL_WITHOUT_HEADERS = DDL.rpartition(", headers")[0]

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()), pa.field("value", pa.binary()), pa.field("topic", pa.string()), pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()), pa.field("timestamp", pa.timestamp("us", tz="UTC")), pa.field("timestampType", pa.int32()),
        pa.field("headers", _HEADERS),
    ]
)  # fmt: skip
_SCHEMA_WITHOUT_HEADERS = pa.schema(list(_SCHEMA)[:-1])


def to_record_batch(where: OffsetRange, messages: list[Any], include_headers: bool = True) -> pa.RecordBatch:
    """The rows of a chunk of messages of one partition, in order. Not empty.

    A record without a timestamp has a null there and the type −1; one without headers has null headers, as in Spark.
    """
    stamps = [m.timestamp() for m in messages]
    columns = [
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        pa.repeat(pa.scalar(where.topic, pa.string()), len(messages)),
        pa.repeat(pa.scalar(where.partition, pa.int32()), len(messages)),
        pa.array([m.offset() for m in messages], pa.int64()),
        *_time_columns(stamps),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA_WITHOUT_HEADERS)
    columns.append(_header_column(messages))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _time_columns(stamps: list[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Timestamp and its type. All records of a topic have the same type, but for the hour in which it was changed."""
    kinds = {kind for kind, _ in stamps}
    times = pa.array(
        [ms if kind else None for kind, ms in stamps] if 0 in kinds else [ms for _, ms in stamps], pa.timestamp("ms", tz="UTC")
    )
    if len(kinds) == 1:
        return times.cast(pa.timestamp("us", tz="UTC")), pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(stamps))
    return times.cast(pa.timestamp("us", tz="UTC")), pa.array([kind - 1 for kind, _ in stamps], pa.int32())


def _header_column(messages: list[Any]) -> pa.Array:
    headers = [m.headers() for m in messages]
    if not any(headers):
        return pa.nulls(len(messages), _HEADERS)
    rows = [[{"key": name, "value": value} for name, value in h] if h else None for h in headers]
    return pa.array(rows, _HEADERS)

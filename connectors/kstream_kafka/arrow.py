"""Chunks of Kafka messages as Arrow record batches, with the columns of Spark's Kafka source. Needs pyarrow and numpy; no Spark.

A column is made at a time from a whole chunk, and what is the same for all its records – topic, partition, most often the type of
the timestamp, offsets without gaps, no headers – without a Python object a record. Reading the messages out of librdkafka stays
several times dearer than all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kstream_kafka.offset_range import OffsetRange

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", "UTC")
"""An instant: Spark shows it in the time zone of its session."""

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
"""Spark's, with its names, types and order; every column may be null, as there."""
SCHEMA_WITHOUT_HEADERS = pa.schema(list(SCHEMA)[:-1])

MOST_BYTES = 16 << 20
"""A record batch of more is handed on in slices: Spark copies a batch whole into the memory of its JVM, outside of the heap."""
FEW_RECORDS = 1_000
"""Chunks of fewer are put together before they are handed on: a record batch costs Spark as much as hundreds of records."""
ENOUGH_RECORDS = 10_000
"""As many as are put together: those of a full chunk."""


def schema(include_headers: bool) -> pa.Schema:
    """The columns, with or without `headers`."""
    return SCHEMA if include_headers else SCHEMA_WITHOUT_HEADERS


def to_record_batch(where: OffsetRange, messages: list[Any], include_headers: bool = True) -> pa.RecordBatch:
    """The messages of one chunk of this range, a row each, in their order. Runs in a Spark task; does not block.

    key and value are bytes or null. A record without a timestamp has null and timestampType −1 (Spark shows the instant −1 ms);
    0 is the producer's time, 1 that of the broker. `headers` is null for a record that has none. ArrowInvalid for a timestamp past
    the year 294,000, and for a chunk of 2 GiB of keys or values, more than the client ever holds of one partition.
    """
    rows = len(messages)
    key, value = [m.key() for m in messages], [m.value() for m in messages]
    columns = [
        pa.array(key, pa.binary()),
        pa.array(value, pa.binary()),
        pa.repeat(pa.scalar(where.topic, pa.string()), rows),
        pa.repeat(pa.scalar(where.partition, pa.int32()), rows),
        _offsets(messages),
        *_times(messages),
    ]
    if include_headers:
        columns.append(_headers(messages))
    return pa.RecordBatch.from_arrays(columns, schema=schema(include_headers))


def _offsets(messages: list[Any]) -> pa.Array:
    """Offsets rise, so the first and the last tell whether there is a gap: without one no message is asked."""
    if not messages:
        return pa.array([], pa.int64())
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([m.offset() for m in messages], pa.int64())


def _times(messages: list[Any]) -> tuple[pa.Array, pa.Array]:
    """`timestamp` and `timestampType`."""
    kinds: set[int] = set()
    stamps: list[int] = []
    add_kind, add_stamp = kinds.add, stamps.append
    for m in messages:  # quicker than comprehensions over the pairs: none of them is kept
        kind, stamp = m.timestamp()
        add_kind(kind)
        add_stamp(stamp)
    if len(kinds) == 1:
        types = pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(messages))
    else:  # topics change their message.timestamp.type
        types = pa.array([m.timestamp()[0] - 1 for m in messages], pa.int32())
    milliseconds = np.array(stamps, np.int64)
    none = milliseconds == -1
    return pa.array(milliseconds, pa.timestamp("ms", "UTC"), mask=none if none.any() else None).cast(TIMESTAMP), types


def _headers(messages: list[Any]) -> pa.Array:
    found = [m.headers() or None for m in messages]
    return pa.array(found, HEADERS) if any(found) else pa.nulls(len(messages), HEADERS)


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order: large batches in slices, small ones put together, empty ones not at all. Lazy."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        few = batch.num_rows < FEW_RECORDS
        if waiting and (not few or rows >= ENOUGH_RECORDS or size + batch.nbytes > MOST_BYTES):
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
        if few:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        else:
            yield from _slices(batch)
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) > 1:
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    for batch in batches:
        yield from _slices(batch)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of about MOST_BYTES if the records are of about one size; one record is never cut. Nothing is copied."""
    parts = min(-(-batch.nbytes // MOST_BYTES), batch.num_rows)
    rows = -(-batch.num_rows // parts) if parts else 0
    for i in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(i, rows)

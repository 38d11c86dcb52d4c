"""Chunks of Kafka messages as Arrow record batches, with the columns of Spark's Kafka source. Needs pyarrow and numpy; no Spark.

A column is made at a time from a whole chunk, and what is the same for all its records – topic, partition, most often the type of
the timestamp, offsets without gaps, no headers – without a Python object a record. Reading the messages out of librdkafka stays
several times dearer than all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kstream_kafka.planning.offset_range import OffsetRange

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
"""Chunks of fewer are made into one record batch: a batch costs us and Spark as much as a few hundred records do."""
ENOUGH_RECORDS = 10_000
"""About so many are put together: as many as are in a full chunk."""

Chunk: TypeAlias = tuple[OffsetRange, list[Any]]
"""Messages of one range, offsets rising, with that range."""


def schema(include_headers: bool) -> pa.Schema:
    """The columns, with or without `headers`."""
    return SCHEMA if include_headers else SCHEMA_WITHOUT_HEADERS


def record_batches(chunks: Iterable[Chunk], include_headers: bool = True) -> Iterator[pa.RecordBatch]:
    """All messages in their order, in record batches bounded in size. Lazy; runs in a Spark task; blocks as `chunks` does.

    Each chunk is a batch, but for small ones, which are put together, and for large records: past 16 MiB a batch is cut between them.
    """
    for together in _gathered(chunks):
        yield from _slices(to_record_batch(together, include_headers))


def to_record_batch(chunks: Sequence[Chunk], include_headers: bool = True) -> pa.RecordBatch:
    """The messages of these chunks, a row each, in their order.

    key and value are bytes or null. A record without a timestamp has null and timestampType −1 (Spark shows the instant −1 ms);
    0 is the producer's time, 1 that of the broker. `headers` is null for a record that has none. ArrowInvalid for a timestamp past
    the year 294,000; keys or values may be 2 GiB in all, more than the client ever holds of one partition.
    """
    messages = chunks[0][1] if len(chunks) == 1 else [m for _, chunk in chunks for m in chunk]
    columns = [
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        *_places(chunks),
        *_times(messages),
    ]
    if include_headers:
        columns.append(_headers(messages))
    return pa.RecordBatch.from_arrays(columns, schema=schema(include_headers))


def _places(chunks: Sequence[Chunk]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """`topic`, `partition` and `offset`."""
    if len(chunks) == 1:
        where, messages = chunks[0]
        rows = len(messages)
        return (
            pa.repeat(pa.scalar(where.topic, pa.string()), rows),
            pa.repeat(pa.scalar(where.partition, pa.int32()), rows),
            _offsets(messages),
        )
    return (
        pa.array([where.topic for where, messages in chunks for _ in messages], pa.string()),
        pa.array([where.partition for where, messages in chunks for _ in messages], pa.int32()),
        pa.array([m.offset() for _, messages in chunks for m in messages], pa.int64()),
    )


def _offsets(messages: list[Any]) -> pa.Array:
    """Offsets rise, so the first and the last tell whether there is a gap: without one no other message is asked."""
    first, last = (messages[0].offset(), messages[-1].offset()) if messages else (0, -1)
    if last - first == len(messages) - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([m.offset() for m in messages], pa.int64())


def _times(messages: list[Any]) -> tuple[pa.Array, pa.Array]:
    """`timestamp` and `timestampType`."""
    kinds: set[int] = set()
    stamps: list[int] = []
    add_kind, add_stamp = kinds.add, stamps.append
    for m in messages:  # quicker than comprehensions over the pairs: no pair is kept
        kind, stamp = m.timestamp()
        add_kind(kind)
        add_stamp(stamp)
    if len(kinds) == 1:
        types = pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(messages))
    else:  # a topic's message.timestamp.type was changed
        types = pa.array([m.timestamp()[0] - 1 for m in messages], pa.int32())
    milliseconds = np.array(stamps, np.int64)
    none = milliseconds == -1
    return pa.array(milliseconds, pa.timestamp("ms", "UTC"), mask=none if none.any() else None).cast(TIMESTAMP), types


def _headers(messages: list[Any]) -> pa.Array:
    found = [m.headers() or None for m in messages]
    return pa.array(found, HEADERS) if any(found) else pa.nulls(len(messages), HEADERS)


def _gathered(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Chunks that become one record batch: neighbours of few records together, the others alone."""
    waiting: list[Chunk] = []
    rows = size = 0
    for chunk in chunks:
        few = len(chunk[1]) < FEW_RECORDS
        if waiting and (not few or rows >= ENOUGH_RECORDS or size >= MOST_BYTES):
            yield waiting
            waiting, rows, size = [], 0, 0
        if few:
            waiting.append(chunk)
            rows += len(chunk[1])
            size += sum(len(m.value() or b"") for m in chunk[1])
        else:
            yield [chunk]
    if waiting:
        yield waiting


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, or slices of it of about MOST_BYTES each if its records are of about one size. Nothing is copied."""
    parts = max(1, -(-batch.nbytes // MOST_BYTES))
    rows = max(1, -(-batch.num_rows // parts))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)

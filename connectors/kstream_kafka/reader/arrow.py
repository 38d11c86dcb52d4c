"""Record batches of Kafka messages, with the columns of Spark's Kafka source. Needs pyarrow and numpy, but no Spark.

Each column is built from a whole chunk. Some columns need no Python object for each record: topic, partition, offsets without gaps, mostly
the type of the timestamp, and headers if there are none. Reading the messages from librdkafka costs several times more than all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kstream.offsets.offset_range import OffsetRange
from kstream_kafka.reader.headers import headers_of

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of a point in time. Spark shows it in the time zone of its session."""

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
"""The schema of Spark's Kafka source. As in Spark, every column may be null."""
SCHEMA_WITHOUT_HEADERS = pa.schema(list(SCHEMA)[:-1])

MOST_BYTES = 16 << 20
"""The size in bytes above which a record batch is yielded in slices: Spark copies a batch into its JVM's memory outside of the heap."""
FEW_RECORDS = 1_000
"""Chunks with fewer records share a record batch, because a batch costs as much as a few hundred records."""
ENOUGH_RECORDS = 10_000
"""Records after which a shared batch is complete: about as many as a full chunk has."""

Chunk: TypeAlias = tuple[OffsetRange, list[Any]]
"""A range, and messages of it with rising offsets."""


def schema(include_headers: bool) -> pa.Schema:
    """Return the schema of the record batches, with or without the column `headers`."""
    return SCHEMA if include_headers else SCHEMA_WITHOUT_HEADERS


def record_batches(chunks: Iterable[Chunk], include_headers: bool = True) -> Iterator[pa.RecordBatch]:
    """Yield all messages in their order, in record batches of limited size. Lazy. Runs in a Spark task and blocks while `chunks` blocks.

    A large chunk becomes one batch, and small chunks share a batch. A batch above MOST_BYTES is cut between records.

    Args:
        chunks: the chunks. Their errors are raised here.
        include_headers: whether there is a column `headers`.

    Raises:
        ArrowInvalid: a timestamp is after the year 294,000.
    """
    for together in _gathered(chunks):
        yield from _slices(to_record_batch(together, include_headers))


def to_record_batch(chunks: Sequence[Chunk], include_headers: bool = True) -> pa.RecordBatch:
    """Return one record batch with a row for each message of these chunks, in their order.

    `key` and `value` are bytes or null. A record without a timestamp has a null `timestamp` (Spark shows the instant −1 ms) and
    `timestampType` −1. Type 0 is the producer's time, type 1 the broker's. `headers` is null for a record without headers. The keys, or the
    values, of a batch may have 2 GiB together, which is more than the client ever holds of one partition.

    Args:
        chunks: the chunks; at least one.
        include_headers: whether there is a column `headers`.

    Raises:
        ArrowInvalid: a timestamp is after the year 294,000.
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
    """Return the columns `topic`, `partition` and `offset`."""
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
    """Return the column `offset` of one chunk. Its offsets rise, so the first and the last one show whether there is a gap."""
    first, last = (messages[0].offset(), messages[-1].offset()) if messages else (0, -1)
    if last - first == len(messages) - 1:
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([m.offset() for m in messages], pa.int64())


def _times(messages: list[Any]) -> tuple[pa.Array, pa.Array]:
    """Return the columns `timestamp` and `timestampType`."""
    kinds: set[int] = set()
    stamps: list[int] = []
    add_kind, add_stamp = kinds.add, stamps.append
    for m in messages:  # faster than two comprehensions over a list of pairs, because no pair is kept
        kind, stamp = m.timestamp()
        add_kind(kind)
        add_stamp(stamp)
    if len(kinds) == 1:
        types = pa.repeat(pa.scalar(kinds.pop() - 1, pa.int32()), len(messages))
    else:  # the topic's message.timestamp.type was changed
        types = pa.array([m.timestamp()[0] - 1 for m in messages], pa.int32())
    milliseconds = np.array(stamps, np.int64)
    none = milliseconds == -1
    return pa.array(milliseconds, pa.timestamp("ms", "UTC"), mask=none if none.any() else None).cast(TIMESTAMP), types


def _headers(messages: list[Any]) -> pa.Array:
    """Return the column `headers`: null for a message without headers."""
    found = [headers or None for headers in headers_of(messages)]
    return pa.array(found, HEADERS) if any(found) else pa.nulls(len(messages), HEADERS)


def _gathered(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Yield the chunks of each record batch: small neighbours together, a large chunk alone."""
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
    """Yield the batch in slices of equal row counts. They have at most about MOST_BYTES if the rows have similar sizes. Copies nothing."""
    parts = max(1, -(-batch.nbytes // MOST_BYTES))
    rows = max(1, -(-batch.num_rows // parts))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)

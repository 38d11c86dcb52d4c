"""Record batches of Kafka messages, with the columns of Spark's Kafka source. Needs pyarrow and numpy, but no Spark.

Only the columns that were asked for are built, each from a whole chunk. Topic, partition and offsets without gaps need no object for each
record, and headers none if there are none. Reading the messages from librdkafka costs several times more than all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
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
COLUMNS = tuple(SCHEMA.names)
"""The names of all columns."""

MOST_BYTES = 16 << 20
"""The size in bytes above which a record batch is yielded in slices: Spark copies a batch into its JVM's memory outside of the heap."""
FEW_RECORDS = 1_000
"""Chunks with fewer records share a record batch, because a batch costs as much as a few hundred records."""
ENOUGH_RECORDS = 10_000
"""Records after which a shared batch is complete: about as many as a full chunk has."""

Chunk: TypeAlias = tuple[OffsetRange, list[Any]]
"""A range, and messages of it with rising offsets."""


def record_batches(
    chunks: Iterable[Chunk], columns: Sequence[str] = COLUMNS, make: Callable[[Sequence[Chunk]], pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all messages in their order, in record batches of limited size. Lazy. Runs in a Spark task and blocks while `chunks` blocks.

    A large chunk becomes one batch, and small chunks share a batch. A batch above MOST_BYTES is cut between records.

    Args:
        chunks: the chunks. Their errors are raised here.
        columns: the names of the columns, of COLUMNS, in their order; at least one.
        make: makes the record batch of some chunks, for other columns than these; None for `to_record_batch`.

    Raises:
        ArrowInvalid: a timestamp is after the year 294,000.
    """
    for together in _gathered(chunks, "value" in columns):
        yield from _slices(to_record_batch(together, columns) if make is None else make(together))


def to_record_batch(chunks: Sequence[Chunk], columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Return one record batch with a row for each message of these chunks, in their order. A message is asked for these columns only.

    `key` and `value` are bytes or null. A record without a timestamp has a null `timestamp` (Spark shows the instant −1 ms) and
    `timestampType` −1. Type 0 is the producer's time, type 1 the broker's. `headers` is null for a record without headers. The keys, or the
    values, of a batch may have 2 GiB together, which is more than the client ever holds of one partition.

    Args:
        chunks: the chunks; at least one.
        columns: the names of the columns, of COLUMNS, in their order; at least one.

    Raises:
        ArrowInvalid: a timestamp is after the year 294,000.
    """
    rows = _Rows(chunks)
    return pa.RecordBatch.from_arrays([_BUILD[name](rows) for name in columns], list(columns))


class _Rows:
    """The messages of some chunks. Each column is built from all of them when it is asked for, mostly without Python code for a message."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._messages = chunks[0][1] if len(chunks) == 1 else [m for _, chunk in chunks for m in chunk]
        self._rows = len(self._messages)

    def _each(self, method: str) -> Iterator[Any]:
        """Return what a method of each message returns. `map` over the function of the class is faster than a comprehension."""
        return map(getattr(type(self._messages[0]), method), self._messages) if self._messages else iter(())

    def keys(self) -> pa.Array:
        return pa.array(list(self._each("key")), pa.binary())

    def values(self) -> pa.Array:
        return pa.array(list(self._each("value")), pa.binary())

    def topics(self) -> pa.Array:
        if len(self._chunks) == 1:
            return pa.repeat(pa.scalar(self._chunks[0][0].topic, pa.string()), self._rows)
        return pa.array([where.topic for where, messages in self._chunks for _ in messages], pa.string())

    def partitions(self) -> pa.Array:
        numbers = np.array([where.partition for where, _ in self._chunks], np.int32)
        return pa.array(np.repeat(numbers, [len(messages) for _, messages in self._chunks]))

    def offsets(self) -> pa.Array:
        """The offset of each message. Of one chunk without gaps, which its first and last offset show, no other message is asked."""
        if len(self._chunks) == 1 and self._messages:
            first, last = self._messages[0].offset(), self._messages[-1].offset()
            if last - first == self._rows - 1:
                return pa.array(np.arange(first, last + 1, dtype=np.int64))
        return pa.array(np.fromiter(self._each("offset"), np.int64, self._rows))

    @cached_property
    def _times(self) -> Any:
        """The type and the milliseconds of each timestamp, as the two columns of an array."""
        return np.fromiter(chain.from_iterable(self._each("timestamp")), np.int64, 2 * self._rows).reshape(-1, 2)

    def timestamps(self) -> pa.Array:
        milliseconds = np.ascontiguousarray(self._times[:, 1])
        none = milliseconds == -1
        return pa.array(milliseconds, pa.timestamp("ms", "UTC"), mask=none if none.any() else None).cast(TIMESTAMP)

    def timestamp_types(self) -> pa.Array:
        """The type of each timestamp: 0, 1 or −1 for none. librdkafka counts the types from 1, and Spark from 0."""
        return pa.array((self._times[:, 0] - 1).astype(np.int32))

    def headers(self) -> pa.Array:
        """The (name, value) pairs of each message; null for one without headers."""
        found = [headers or None for headers in headers_of(self._messages)]
        return pa.array(found, HEADERS) if any(found) else pa.nulls(self._rows, HEADERS)


_BUILD: Mapping[str, Callable[[_Rows], pa.Array]] = {
    "key": _Rows.keys,
    "value": _Rows.values,
    "topic": _Rows.topics,
    "partition": _Rows.partitions,
    "offset": _Rows.offsets,
    "timestamp": _Rows.timestamps,
    "timestampType": _Rows.timestamp_types,
    "headers": _Rows.headers,
}
"""Column → the function that builds it."""


def _gathered(chunks: Iterable[Chunk], with_values: bool) -> Iterator[list[Chunk]]:
    """Yield the chunks of each record batch: small neighbours together, a large chunk alone.

    Args:
        chunks: the chunks.
        with_values: whether the values come into the record batches, so that their bytes count.
    """
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
            size += sum(len(m.value() or b"") for m in chunk[1]) if with_values else 0
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

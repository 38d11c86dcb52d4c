"""The columns of a frame that is written to Kafka: those of Spark's Kafka sink. Others are left out, as Spark does.

Frames come as batches of Arrow. What is kept of them has one schema, whatever the frame has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import RecordTooLargeError, SourceOptionError
from kstream_kafka.sink.producer_record import OVERHEAD

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = "columns"
"""The name of the frame's columns, for errors."""
ROWS = 1_000
"""Rows are put together so many at a time, where Spark gives rows."""
_TEXT: tuple[DataType, ...] = (StringType(), BinaryType())
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
    "topic": (StringType(),),
}
"""column → the types that it may have."""


def check_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """Return the columns of a frame that are written, in the order of _TYPES. Pure.

    Args:
        schema: that of the frame.
        topic: the topic of all records; None if the column `topic` has them.

    Raises:
        SourceOptionError: a column is missing or has another type.
    """
    if "value" not in schema.names:
        raise SourceOptionError(COLUMNS, f"are {', '.join(schema.names) or 'none'}, and there is no column 'value'", "Name one: AS value.")
    if topic is None and "topic" not in schema.names:
        raise SourceOptionError("topic", "is missing, and the frame has no column 'topic'", "Give one of the two.")
    written = [name for name in _TYPES if name in schema.names and not (name == "topic" and topic is not None)]
    for name in written:
        found, wanted = schema[name].dataType, _TYPES[name]
        if not any(_is(found, one) for one in wanted):
            words = " or ".join(one.simpleString() for one in wanted)
            reason = f"have {name!r} as {found.simpleString()}, and it must be {words}"
            raise SourceOptionError(COLUMNS, reason, "Cast it in the query, for example by to_json or CAST(… AS STRING).")
    return tuple(written)


def _is(found: DataType, wanted: DataType) -> bool:
    """Return whether a type is another one, whatever may be null, and whatever the collation of texts."""
    if isinstance(wanted, ArrayType):
        return isinstance(found, ArrayType) and _is(found.elementType, wanted.elementType)
    if isinstance(wanted, StructType):
        return (
            isinstance(found, StructType)
            and found.names == wanted.names
            and all(_is(a.dataType, b.dataType) for a, b in zip(found.fields, wanted.fields, strict=True))
        )
    return type(found) is type(wanted)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of what is kept of a frame."""
    import pyarrow as pa

    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "partition": pa.int32(),
        "topic": pa.string(),
    }
    return pa.schema([(name, types[name]) for name in columns])


def kept(frames: Iterable[Any], columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Return what is kept of a frame: these columns, in the types of `arrow_schema`. Lazy.

    Args:
        frames: batches of Arrow; or rows, before Spark 4.1.
        columns: the columns.
    """
    import pyarrow as pa

    schema, rows = arrow_schema(columns), list[dict[str, Any]]()
    for one in frames:
        if isinstance(one, pa.RecordBatch):
            arrays = [one.column(name).cast(schema.field(name).type) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            continue
        rows.append({name: _plain(one[name]) for name in columns})
        if len(rows) == ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows.clear()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _plain(value: Any) -> Any:
    """Return a cell of a row in the form that Arrow takes: headers are rows themselves."""
    return [None if header is None else header.asDict() for header in value] if isinstance(value, list) else value


def encoded(batches: Iterable[pa.RecordBatch], topic: str | None, most_bytes: int) -> Iterator[Encoded]:
    """Return the records of what is kept of a frame. Lazy.

    Args:
        batches: as `kept` gives them.
        topic: the topic of all records; None if the column `topic` has them.
        most_bytes: a larger record is refused.

    Raises:
        ValueError: a record has no topic, a negative partition, or a header that is null or has no key.
        RecordTooLargeError: a record has more bytes than allowed.
    """
    for batch in batches:
        nothing = [None] * batch.num_rows
        names = batch.schema.names
        lists = {name: batch.column(name).to_pylist() if name in names else nothing for name in _TYPES}
        for key, value, headers, partition, own in zip(*(lists[name] for name in _TYPES), strict=True):
            to = topic or own
            if to is None:
                raise ValueError("a record has no topic: its column topic is null. Give the option topic, for all records")
            if partition is not None and partition < 0:
                raise ValueError(f"a record for topic {to} has the partition {partition}. Give null for that of its key")
            size = OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
            pairs: list[tuple[str, bytes | None]] = []
            if headers:
                if any(header is None or header["key"] is None for header in headers):
                    raise ValueError(f"a record for topic {to} has a header that is null or has no key. Leave it out, by filter()")
                pairs = [(header["key"], header["value"]) for header in headers]
                size += sum(len(name) + len(content or b"") for name, content in pairs)
            if size > most_bytes:
                raise RecordTooLargeError("kstream", to, size, most_bytes)
            yield to, key, value, pairs, partition, None

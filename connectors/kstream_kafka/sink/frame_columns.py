"""The columns of a frame that is written to Kafka: those of Spark's Kafka sink. Others are left out, as Spark does.

A query's frames come as batches of Arrow. What is kept of them has one schema, whatever the frame has. A DStream's frames come as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import RecordTooLargeError
from kstream_kafka.sink.producer_record import OVERHEAD

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = "columns"
"""The name of the frame's columns, for errors."""
CAST = "Cast it in the query, for example by to_json or CAST(… AS STRING)."
"""What to do about a column of another type."""
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
Refuse: TypeAlias = Callable[[str, str, str], Exception]
"""Refuse(what is wrong, a clause about it, what to do) returns the error to raise."""
_Cells: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""The cells of a row in the order of _TYPES; None for a column that the frame lacks."""


class ValueEncoder(Protocol):
    """Encodes the column `value` of a frame in a task."""

    def of_column(self, values: pa.Array) -> pa.BinaryArray:
        """Return the bytes of a column. Raises if a value has none."""
        ...

    def of_row(self, value: Any) -> bytes | None:
        """Return the bytes of a cell of a row of Spark. Raises if it has none."""
        ...


def check_columns(
    schema: StructType, topic: str | None, refuse: Refuse, is_encoded: bool = False, struct_hint: str = CAST
) -> tuple[str, ...]:
    """Return the columns of a frame that are written, in the order of _TYPES. Pure.

    Args:
        schema: that of the frame.
        topic: the topic of all records; None if the column `topic` has them.
        refuse: makes the error for a column that is missing or has another type.
        is_encoded: whether the column `value` may have any type, since a format encodes it.
        struct_hint: what to do if the column `value` is a struct.
    """
    if "value" not in schema.names:
        raise refuse(COLUMNS, f"are {', '.join(schema.names) or 'none'}, and there is no column 'value'", "Name one: AS value.")
    if topic is None and "topic" not in schema.names:
        raise refuse("topic", "is missing, and the frame has no column 'topic'", "Give one of the two.")
    written = [name for name in _TYPES if name in schema.names and not (name == "topic" and topic is not None)]
    for name in written:
        if name == "value" and is_encoded:
            continue
        found, wanted = schema[name].dataType, _TYPES[name]
        if not any(_is(found, one) for one in wanted):
            words = " or ".join(one.simpleString() for one in wanted)
            reason = f"have {name!r} as {found.simpleString()}, and it must be {words}"
            raise refuse(COLUMNS, reason, struct_hint if name == "value" and isinstance(found, StructType) else CAST)
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


def kept(frames: Iterable[Any], columns: tuple[str, ...], encoder: ValueEncoder | None = None) -> Iterator[pa.RecordBatch]:
    """Return what is kept of a frame: these columns, in the types of `arrow_schema`. Lazy.

    Args:
        frames: batches of Arrow; or rows, before Spark 4.1.
        columns: the columns.
        encoder: encodes the column `value`, and raises if it cannot; None if the column is text or bytes.
    """
    import pyarrow as pa

    schema, rows = arrow_schema(columns), list[dict[str, Any]]()
    for one in frames:
        if isinstance(one, pa.RecordBatch):
            arrays = [
                encoder.of_column(one.column(name)) if name == "value" and encoder else one.column(name).cast(schema.field(name).type)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            continue
        row = {name: _plain(one[name]) for name in columns if name != "value" or encoder is None}
        rows.append(row if encoder is None else {**row, "value": encoder.of_row(one["value"])})
        if len(rows) == ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema)
            rows.clear()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)


def _plain(value: Any) -> Any:
    """Return a cell of a row in the form that Arrow takes: headers are rows themselves."""
    return [None if header is None else header.asDict() for header in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class RowEncoder:
    """Makes what is written of the rows of a frame. Pickled into the tasks.

    Attributes:
        output: the name of the output, for messages.
        columns: those that the frame has, as `check_columns` returns them.
        topic: the topic of all records; None if the column `topic` has them.
        most_bytes: a larger record is refused.
    """

    output: str
    columns: Sequence[str]
    topic: str | None
    most_bytes: int

    def __call__(self, rows: Iterable[Sequence[Any]]) -> Iterator[Encoded]:
        """Return the records of rows. Lazy. Errors as `encoded`."""
        places = {name: place for place, name in enumerate(self.columns)}
        key, value, headers, partition, own = (places.get(name, len(self.columns)) for name in _TYPES)
        widened = ((*row, None) for row in rows)
        cells = ((_bytes(row[key]), _bytes(row[value]), _headers(row[headers]), row[partition], row[own]) for row in widened)
        return _records(cells, self.output, self.topic, self.most_bytes)


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
    return _records(chain.from_iterable(map(_cells, batches)), "kstream", topic, most_bytes)


def _cells(batch: pa.RecordBatch) -> Iterable[_Cells]:
    nothing, names = [None] * batch.num_rows, batch.schema.names
    return zip(*(batch.column(name).to_pylist() if name in names else nothing for name in _TYPES), strict=True)


def _bytes(cell: Any) -> bytes | None:
    """Return a cell of text or bytes as bytes. Spark before 4.1 gives a bytearray."""
    return cell if cell is None or type(cell) is bytes else cell.encode() if isinstance(cell, str) else bytes(cell)


def _headers(cell: Any) -> list[dict[str, Any] | None] | None:
    """Return a cell of headers, which are rows, as Arrow gives it."""
    return cell and [None if header is None else {"key": header[0], "value": _bytes(header[1])} for header in cell]


def _records(cells: Iterable[_Cells], output: str, topic: str | None, most_bytes: int) -> Iterator[Encoded]:
    """Return the records of rows, whose cells are as Arrow gives them. Lazy. Arguments as for `RowEncoder`, errors as `encoded`."""
    for key, value, headers, partition, own in cells:
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
            raise RecordTooLargeError(output, to, size, most_bytes)
        yield to, key, value, pairs, partition, None
